"""Rows of sums on a device, and their way to the host.

tickets, target = sums.rows(device, 64)    int64[64, 16], to be filled by kernels; 64 tickets are to be added
room, array = sums.pin(4096)               host memory that the device may copy a table from
for tickets, rows in sums.fetch(streams)   waits for the device; rows, or why they cannot be had
sums.clear()                               rows and pinned memory are free again
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .streams import no_modes

_ROWS = 2048  # of a block, which is kept on the device
_PINNED = 8192  # numbers of a table: of a full batch


class _Block:
    """Rows on one device, in the order in which they were launched."""

    __slots__ = ("rows", "tickets")

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.empty((_ROWS, 16), dtype=torch.int64, device=device)
        self.tickets: list[int] = []


class DeviceSums:
    """Sums of the tensors of one step."""

    def __init__(self) -> None:
        self._blocks: dict[Any, list[_Block]] = {}
        self._pinned: list[tuple[Tensor, np.ndarray[Any, Any]]] = []
        self._pins = 0  # of these, used in this step

    def rows(self, device: torch.device, count: int) -> tuple[list[int], Tensor]:
        """The next rows, and the list that their tickets are to be added to once they are launched."""
        blocks = self._blocks.setdefault(device, [])
        if not blocks or len(blocks[-1].tickets) + count > _ROWS:
            blocks.append(_Block(device))
        used = len(blocks[-1].tickets)
        return blocks[-1].tickets, blocks[-1].rows[used : used + count]

    def pin(self, count: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Room for so many numbers on the host, from which the device may copy; in use until the end of the step."""
        if count > _PINNED:
            room = torch.empty(count, dtype=torch.int64, pin_memory=True)
            return room, room.numpy()
        if self._pins == len(self._pinned):
            room = torch.empty(_PINNED, dtype=torch.int64, pin_memory=True)
            self._pinned.append((room, room.numpy()))
        room, array = self._pinned[self._pins]
        self._pins += 1
        return room[:count], array[:count]

    def fetch(self, streams: Collection[int]) -> Iterator[tuple[list[int], np.ndarray[Any, Any] | str]]:
        """Tickets and their rows, block by block, or the reason why these cannot be had; `streams` have launched them."""
        for blocks in self._blocks.values():
            for block in blocks:
                if not block.tickets:
                    continue
                try:
                    with torch.no_grad(), no_modes():
                        device = block.rows.device
                        if block.rows.is_cuda and streams != {torch._C._cuda_getCurrentRawStream(device.index)}:
                            torch.cuda.synchronize(device)
                        rows = block.rows[: len(block.tickets)].cpu().numpy()
                except Exception as error:  # noqa: BLE001 - an error of the device, which the training meets itself
                    text = (str(error).splitlines() or [type(error).__name__])[0][:200]
                    yield block.tickets, f"the device could not be read: {text}"
                else:
                    yield block.tickets, rows

    def clear(self) -> None:
        """Use rows and pinned memory again: the device has been waited for."""
        self._pins = 0
        for blocks in self._blocks.values():
            del blocks[1:]
            for block in blocks:
                block.tickets = []

    def drop(self) -> None:
        """Let go of all memory."""
        self._blocks.clear()
        self._pinned.clear()
