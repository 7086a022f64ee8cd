"""One batch of tensors on a device, read where they lie: by Triton where it is to be had, else by torch's own operations.

    launch([Entry(address, 4096, "f32", None, tensor), …], results, fingerprint=True)    fills results[i], int64[16], on the device

Nothing waits for the device and nothing is copied from it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model.dtypes import code_values
from ...model.fingerprints import BLOCK, KEYS, WEIGHTS
from ...model.tensors import DTYPES
from ..runs import Runs
from . import digest_plain

MAX_ENTRIES = 512
"""Tensors of a batch at most."""
_SCATTERED = 1 << 18  # bytes
_FAR = 1 << 31  # units of a view beyond which 32 bits do not count them


class Entry:
    """A tensor that waits to be read.

    `walk` says how, where its elements are not in order or do not begin at a multiple of 8; `tensor` and `memory` (its storage,
    of which it takes `span` bytes) hold it; `version` is None where torch counts none (inference).
    """

    __slots__ = ("address", "dtype", "memory", "nbytes", "span", "tensor", "ticket", "version", "walk")

    def __init__(
        self,
        address: int,
        nbytes: int,
        dtype: str,
        walk: Walk | None,
        tensor: Tensor,
        memory: Any,
        span: int,
        version: int | None,
        ticket: int,
    ) -> None:
        self.address, self.nbytes, self.dtype, self.walk = address, nbytes, dtype, walk
        self.tensor, self.memory, self.span, self.version, self.ticket = tensor, memory, span, version, ticket


def triton_for(device: torch.device) -> ModuleType | None:
    """The Triton kernels, where they can run on that device."""
    if device.type != "cuda" and not os.environ.get("TRITON_INTERPRET"):
        return None
    return _load_triton()


@functools.cache
def _load_triton() -> ModuleType | None:
    try:
        from . import digest_triton
    except Exception:  # noqa: BLE001 - not installed, or at odds with this torch: the other way is there
        return None
    return digest_triton


Pin = Callable[[int], tuple[Tensor, np.ndarray[Any, Any]]]
"""Gives room for so many int64 on the host, from which a device may copy until its owner has waited for it."""


def launch(
    entries: Sequence[Entry], results: Tensor, fingerprint: bool, kernels: ModuleType | None, pin: Pin | None = None
) -> None:
    """Fill a row of results for each entry; all lie on one device, and the present stream is where they were made."""
    if kernels is None:
        _launch_plain(entries, results, fingerprint)
    else:
        _launch_triton(entries, results, fingerprint, kernels, pin)


Form = tuple[str, int, int, bool]
"""One compiled kernel: element type, mode, bytes of a unit, are there many."""


class Forms:
    """The tensors of a plan, by number, as the kernels read them: what is known before any step."""

    def __init__(self, facts: Sequence[Any], kernels: Any) -> None:
        found: dict[Form, int] = {}
        count = len(facts)
        self.which = np.full(count, -1)
        """Of each number the place in `forms`; -1: it is not read as it lies."""
        self.nbytes = np.array([fact.whole for fact in facts], np.int64)
        self.axes = np.empty((count, 2 * kernels.MAX_AXES), np.int64)
        for number, fact in enumerate(facts):
            walk: Walk | None = (kernels.DIRECT, 8, False, _NO_AXES)
            if not fact.order:
                walk = walk_of(fact.runs, True, kernels)
            if walk is not None:
                form = (fact.look.dtype, *walk[:3])
                self.which[number] = found.setdefault(form, len(found))
                self.axes[number] = walk[3]
        self.forms = list(found)


def launch_forms(
    forms: Forms,
    numbers: np.ndarray[Any, Any],
    addresses: np.ndarray[Any, Any],
    results: Tensor,
    fingerprint: bool,
    kernels: Any,
    pin: Pin | None,
) -> None:
    """The same of a plan's tensors, which are given by number and address; each has a form."""
    which = forms.which[numbers]
    order = np.argsort(which, kind="stable")
    ordered, count = numbers[order], len(numbers)
    given, told = _room(count, results.device, kernels, pin)
    table = told[: count * kernels.COLUMNS].reshape(count, kernels.COLUMNS)
    table[:, 1] = addresses[order]
    table[:, 2] = forms.nbytes[ordered]
    table[:, 3:] = forms.axes[ordered]
    told[table.size :] = order
    amounts = np.bincount(which, minlength=len(forms.forms)).tolist()
    groups = [(form, amount) for form, amount in zip(forms.forms, amounts, strict=True) if amount]
    _launch_table(given, table, groups, results, fingerprint, kernels)


def _launch_plain(entries: Sequence[Entry], results: Tensor, fingerprint: bool) -> None:
    groups: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(entry.dtype, []).append(number)
    for dtype, numbers in groups.items():
        tensors = [entries[number].tensor.detach().contiguous() for number in numbers]
        rows = digest_plain.sums(tensors, dtype, fingerprint=fingerprint)
        for number, row in zip(numbers, rows, strict=True):
            results[number].copy_(row)


def _launch_triton(entries: Sequence[Entry], results: Tensor, fingerprint: bool, kernels: Any, pin: Pin | None) -> None:
    groups: dict[Form, list[int]] = {}
    for number, entry in enumerate(entries):
        walk = entry.walk
        form = (entry.dtype, kernels.DIRECT, 8, False) if walk is None else (entry.dtype, *walk[:3])
        groups.setdefault(form, []).append(number)
    order = [number for numbers in groups.values() for number in numbers]
    count = len(entries)
    given, told = _room(count, results.device, kernels, pin)
    table = told[: count * kernels.COLUMNS].reshape(count, kernels.COLUMNS)
    ordered = [entries[number] for number in order]
    table[:, 1] = [entry.address for entry in ordered]
    table[:, 2] = [entry.nbytes for entry in ordered]
    table[:, 3:] = _NO_AXES
    for row, entry in enumerate(ordered):
        if entry.walk is not None:
            table[row, 3:] = entry.walk[3]
    told[table.size :] = order
    _launch_table(
        given, table, [(form, len(numbers)) for form, numbers in groups.items()], results, fingerprint, kernels
    )


def _room(count: int, device: torch.device, kernels: Any, pin: Pin | None) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Room on the host for a table of so many tensors and for where each row of results goes: one transfer for both."""
    size = count * (kernels.COLUMNS + 1)
    if device.type == "cuda" and pin is not None:
        return pin(size)
    room = torch.empty(size, dtype=torch.int64, pin_memory=device.type == "cuda")
    return room, room.numpy()


def _launch_table(
    given: Tensor,
    table: np.ndarray[Any, Any],
    groups: Sequence[tuple[Form, int]],
    results: Tensor,
    fingerprint: bool,
    kernels: Any,
) -> None:
    """Launch the kernels for a table that is complete but for the first chunks; `groups`: forms and how many rows each has."""
    count, device = len(table), results.device
    chunks = -(-table[:, 2] // (BLOCK * kernels.CHUNK))
    ends = chunks.cumsum()
    table[:, 0] = ends - chunks
    if device.type == "cuda":
        given = given.to(device, non_blocking=True)
    partials = torch.empty((int(ends[-1]), kernels.RESULTS), dtype=torch.int64, device=device)
    first = done = 0
    for (dtype, mode, size, far), amount in groups:
        kind = kernels.KINDS.get(dtype, "code")
        done += amount
        last = int(ends[done - 1])
        keys, weights, codes = _constants(dtype, device)
        kernels.digest[(last - first,)](
            given, count, keys, weights, codes, partials, first,
            KIND=kind, MODE=mode, SIZE=size, FAR=far, PRINT=fingerprint, ROOM=_rounded(count),
            COLUMNS=kernels.COLUMNS, AXES=kernels.MAX_AXES, CHUNK=kernels.CHUNK, UNROLL=kernels.UNROLL, num_warps=1,
        )  # fmt: skip
        first = last
    kernels.gather_up[(count,)](
        given, count, table.size, first, partials, results, COLUMNS=kernels.COLUMNS, num_warps=4
    )


Walk = tuple[int, int, bool, tuple[int, ...]]
"""The walk of the kernel over a view: mode, bytes of a unit, are there many, (how many, bytes to the next) of each axis,
innermost first.
"""
_NO_AXES = (1, 0) * 4


def walk_of(runs: Runs, aligned: bool, kernels: Any) -> Walk | None:
    """None where the kernel does not walk such a view: then a copy is made. `aligned`: its address is a multiple of 8."""
    axes = [(int(count), int(step)) for count, step in runs.table[::-1] if count != 1]
    if runs.size > 8 or len(axes) > kernels.MAX_AXES:
        return None
    in_words = (
        aligned
        and bool(axes)
        and axes[0][1] == runs.size
        and axes[0][0] * runs.size % 8 == 0
        and not any(step % 8 for _, step in axes[1:])
    )
    unit = 8 if in_words else runs.size
    # Elements one by one from all over: a copy that is made in tiles is quicker.
    if not in_words and runs.nbytes > _SCATTERED:
        return None
    if in_words:
        axes[0] = axes[0][0] * runs.size // 8, 8
    axes += [(1, 0)] * (kernels.MAX_AXES - len(axes))
    numbers = tuple(number for axis in axes for number in axis)
    return kernels.WORDS if in_words else kernels.ELEMENTS, unit, runs.nbytes // unit >= _FAR, numbers


def _rounded(count: int) -> int:
    """Three sizes only: each is compiled by itself, and every program looks through as many."""
    return 32 if count <= 32 else 256 if count <= 256 else MAX_ENTRIES


@functools.cache
def _constants(dtype: str, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Keys of the fingerprint, weights in the order in which lanes take them, values of one-byte codes as f32."""
    keys = np.array(KEYS, np.uint64).view(np.int64)
    per = 16 if dtype == "f4e2m1fn_x2" else max(1, 8 // DTYPES[dtype])
    weights = np.array(WEIGHTS)
    if dtype != "c128":
        weights = np.ascontiguousarray(weights.reshape(-1, 128, per).swapaxes(1, 2)).reshape(-1)
    codes: Sequence[float] = (0.0,)
    if DTYPES[dtype] == 1:
        codes = code_values(dtype)[0]
    moved = (torch.from_numpy(keys), torch.from_numpy(weights), torch.tensor([value + 0.0 for value in codes]))
    return moved[0].to(device), moved[1].to(device), moved[2].to(device, torch.float32)
