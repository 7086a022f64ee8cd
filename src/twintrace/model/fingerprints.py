"""Constants of the fingerprint and of the order sums (store/FORMAT.md), for whoever computes them: the store, or a device.

    KEYS[i]       256 words: those of a block are added to the first 128 and crossed with the others
    WEIGHTS[l]    2048 floats in [-1, 1): how much an element counts by its place in a group of 2048

Plain Python: numpy is not used in `model`, and the device kernels have no access to the store.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
BLOCK = 1024
"""Bytes of a block of the fingerprint."""
GROUP = 2048
"""Elements of a group of the order sums. A block of 1024 bytes lies in one group, whatever the element type: the smallest has two
elements in a byte. So a group's own weight is one number for a whole row of a kernel."""


def avalanche(z: int) -> int:
    """`fin` of FORMAT.md: every bit of the result depends on every bit of `z`."""
    z ^= z >> 30
    z = z * FIRST & MASK
    z ^= z >> 27
    z = z * SECOND & MASK
    return z ^ z >> 31


KEYS: tuple[int, ...] = tuple(avalanche((place + 1) * STEP & MASK) for place in range(256))
"""The keys of the words in a block: 128 that are added, 128 that are crossed."""
WEIGHTS: tuple[float, ...] = tuple(
    (avalanche((place + 1) * STEP & MASK) >> 11) / 2.0**52 - 1.0 for place in range(GROUP)
)
"""The weights of the elements in a group: the upper 53 bits of keys, exact in float64."""
