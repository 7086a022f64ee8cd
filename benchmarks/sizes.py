"""How large the measured models are: the same in every framework."""

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


SIZES = {
    "full": Size(6, 256, 8, 128, 1000, 4, 14, 32, 32, 8),
    "tiny": Size(1, 16, 2, 8, 32, 2, 2, 4, 8, 2),
}
