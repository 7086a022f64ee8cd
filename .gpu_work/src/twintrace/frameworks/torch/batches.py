"""One batch of tensors on a device, read where they lie: by Triton where it is to be had, else by torch's own operations.

    launch([Entry(address, 4096, "f32", None, tensor), …], results, fingerprint=True)    fills results[i], int64[16], on the device

Nothing waits for the device and nothing is copied from it.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model.codes import code_values
from ...model.fingerprints import BLOCK, KEYS, WEIGHTS
from ..runs import Runs
from . import digest_plain

MAX_ENTRIES = 256
"""Tensors of a batch at most."""
_FAR = 1 << 31  # units of a view beyond which 32 bits do not count them


@dataclass(slots=True)
class Entry:
    """A tensor that waits to be read."""

    address: int
    nbytes: int
    dtype: str
    runs: Runs | None
    """How it is walked where its elements are not in order."""
    tensor: Tensor
    """Holds the memory."""
    storage: int
    version: int | None
    """None where torch counts none (inference)."""
    ticket: int


def triton_for(device: torch.device) -> ModuleType | None:
    """The Triton kernels, where they can run on that device."""
    if device.type != "cuda" and not os.environ.get("TRITON_INTERPRET"):
        return None
    return _load_triton()


@functools.cache
def _load_triton() -> ModuleType | None:
    try:
        return importlib.import_module(".digest_triton", __package__)
    except Exception:  # noqa: BLE001 - not installed, or at odds with this torch: the other way is there
        return None


def launch(entries: Sequence[Entry], results: Tensor, fingerprint: bool, kernels: ModuleType | None) -> None:
    """Fill a row of results for each entry; all lie on one device, and the present stream is where they were made."""
    if kernels is None:
        _launch_plain(entries, results, fingerprint)
    else:
        _launch_triton(entries, results, fingerprint, kernels)


def _launch_plain(entries: Sequence[Entry], results: Tensor, fingerprint: bool) -> None:
    groups: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(entry.dtype, []).append(number)
    for dtype, numbers in groups.items():
        tensors = [entries[number].tensor.detach().contiguous() for number in numbers]
        rows = digest_plain.sums(tensors, dtype, fingerprint=fingerprint)
        for number, row in zip(numbers, rows, strict=True):
            results[number].copy_(row)


def _launch_triton(entries: Sequence[Entry], results: Tensor, fingerprint: bool, kernels: Any) -> None:
    forms = [_form(entry, kernels) for entry in entries]
    order = sorted(range(len(entries)), key=lambda number: forms[number])
    table = np.zeros((len(entries), kernels.COLUMNS), np.int64)
    table[:, 3::2] = 1
    sizes = []
    for row, number in zip(table, order, strict=True):
        entry = entries[number]
        row[1:3] = entry.address, entry.nbytes
        sizes.append(-(-entry.nbytes // BLOCK))
        if forms[number][2] != kernels.DIRECT:
            _, _, mode, size, _ = forms[number]
            axes = _axes(entry, 8 if mode == kernels.WORDS else size)
            row[3 : 3 + 2 * len(axes)] = [each for axis in axes for each in axis]
    chunks = -(-np.array(sizes, np.int64) // kernels.CHUNK)
    ends = np.cumsum(chunks)
    table[:, 0] = ends - chunks
    device = results.device
    count, total = len(entries), int(ends[-1])
    # One transfer for the table and for where each row of results goes.
    placed = np.empty(table.size + count, np.int64)
    placed[: table.size] = table.reshape(-1)
    placed[table.size :] = order
    told = torch.from_numpy(placed)
    if device.type == "cuda":
        told = told.pin_memory().to(device, non_blocking=True)
    keys, weights = _constants(device)
    partials = torch.empty((total, kernels.RESULTS), dtype=torch.int64, device=device)
    start = 0
    while start < count:
        form = forms[order[start]]
        end = start
        while end < count and forms[order[end]] == form:
            end += 1
        dtype, kind, mode, size, far = form
        first = int(ends[start] - chunks[start])
        kernels.digest[(int(ends[end - 1]) - first,)](
            told, count, keys, weights, _codes(dtype, device), partials, first,
            KIND=kind, MODE=mode, SIZE=size, FAR=far, PRINT=fingerprint, ROOM=_rounded(count),
            COLUMNS=kernels.COLUMNS, AXES=kernels.MAX_AXES, CHUNK=kernels.CHUNK, num_warps=1,
        )  # fmt: skip
        start = end
    kernels.gather_up[(count,)](
        told, count, told[table.size :], total, partials, results, COLUMNS=kernels.COLUMNS, num_warps=4
    )


def _form(entry: Entry, kernels: Any) -> tuple[str, str, int, int, bool]:
    """(element type, kind, mode, bytes of a unit, are there many): entries of one form are read by one launch."""
    kind = entry.dtype, kernels.KINDS.get(entry.dtype, "code")
    runs = entry.runs
    if runs is None:
        return *kind, kernels.DIRECT, 8, False
    whole_words = (
        int(runs.table[-1, 1]) == runs.size
        and int(runs.table[-1, 0]) * runs.size % 8 == 0
        and not (runs.table[:-1, 1] % 8).any()
        and entry.address % 8 == 0
    )
    size = 8 if whole_words else runs.size
    return *kind, kernels.WORDS if whole_words else kernels.ELEMENTS, size, entry.nbytes // size >= _FAR


def _axes(entry: Entry, unit: int) -> list[tuple[int, int]]:
    """(how many, bytes to the next) in units, the innermost first."""
    assert entry.runs is not None
    axes = [(int(count), int(step)) for count, step in entry.runs.table[::-1]]
    if unit > entry.runs.size:  # elements lie side by side in words
        axes[0] = axes[0][0] * entry.runs.size // unit, unit
    return [axis for axis in axes if axis[0] != 1] or [(1, 0)]


def is_gathered(runs: Runs, kernels: Any) -> bool:
    """Does the kernel walk such a view itself?"""
    return runs.size <= 8 and int((runs.table[:, 0] != 1).sum()) <= kernels.MAX_AXES


def _rounded(count: int) -> int:
    """Two sizes only: each is compiled by itself."""
    return 32 if count <= 32 else MAX_ENTRIES


@functools.cache
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    keys = np.array(KEYS, np.uint64).view(np.int64)
    return torch.from_numpy(keys).to(device), torch.tensor(WEIGHTS, dtype=torch.float64, device=device)


@functools.cache
def _codes(dtype: str, device: torch.device) -> Tensor:
    """The values of one-byte codes as f32; anything for a type that has none."""
    if dtype == "f4e2m1fn_x2":
        return torch.tensor(code_values(dtype)[0][:16], dtype=torch.float32, device=device)
    try:
        row = code_values(dtype)[0]
    except Exception:  # noqa: BLE001 - of more than a byte
        row = (0.0,)
    return torch.tensor([value + 0.0 for value in row], dtype=torch.float32, device=device)
