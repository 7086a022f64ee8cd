"""How large the measured models are: the same for every tool, and such that a step takes well under a second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How large the two models and their batches are."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    sequences: int
    blocks: int
    channels: int
    pixels: int
    images: int


NAMES = ("full", "tiny")
_TINY = Size(1, 16, 2, 8, 32, 2, 2, 4, 8, 2)
# The same nets in both. MindSpore's convolutions on a CPU take up to a hundred times as long as PyTorch's, and with PyTorch's
# sizes a bare step takes 17 seconds, in which whatever recording costs would be lost; so its nets are smaller in everything.
SIZES = {
    "torch": {"full": Size(6, 256, 8, 128, 1000, 4, 14, 32, 32, 8), "tiny": _TINY},
    "mindspore": {"full": Size(4, 128, 4, 64, 1000, 4, 8, 16, 16, 8), "tiny": _TINY},
}
