"""The same numbers as `digest_triton.py` from torch's own operations: for devices and installations without Triton.

    sums(tensors, "bf16", fingerprint=True)  ->  int64[tensors, 16], on the device of the tensors, in the kernel's columns

Slower, and a batch at a time: a handful of operations for all tensors of one element type, then a few for each. Nothing is
copied to the host. Integer arithmetic wraps, so the fingerprint is the host's bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...model.dtypes import code_values
from ...model.fingerprints import BLOCK, FIRST, GROUP, KEYS, SECOND, STEP, WEIGHTS
from ...model.tensors import DTYPES

_PIECE = 1 << 24  # bytes that are worked on at once; temporaries are eight times that and more for one-byte types
_LOW = 0xFFFFFFFF
_FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_WHOLES = {"i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
_PARTS = {"c32": torch.float16, "c64": torch.float32, "c128": torch.float64}
_TOP, _BOTTOM = (1 << 63) - 1, -(1 << 63)


def sums(tensors: Sequence[Tensor], dtype: str, *, fingerprint: bool) -> Tensor:
    """A row of results for each contiguous tensor, as `digest_triton.RESULTS` has them."""
    rows = []
    for tensor in tensors:
        data = tensor.reshape(-1).view(torch.uint8)
        parts = [
            _sums_of_piece(data[start : start + _PIECE], dtype, start, fingerprint)
            for start in range(0, data.numel(), _PIECE)
        ]
        rows.append(parts[0] if len(parts) == 1 else _joined(torch.stack(parts)))
    return torch.stack(rows)


def _joined(parts: Tensor) -> Tensor:
    wholes = parts[:, :8].sum(0)
    wholes[2], wholes[3] = parts[:, 2].min(), parts[:, 3].max()
    return torch.cat([wholes, parts[:, 8:].contiguous().view(torch.float64).sum(0).view(torch.int64)])


def _sums_of_piece(data: Tensor, dtype: str, start: int, fingerprint: bool) -> Tensor:
    zero = torch.zeros(1, dtype=torch.int64, device=data.device)
    prints = _prints(data, start // BLOCK) if fingerprint else (zero, zero)
    keys, values, nan, above, below = _values(data, dtype)
    finite = ~(nan | above | below)
    real = torch.where(finite, values, 0.0)
    low = torch.where(finite, keys, _TOP).min()
    high = torch.where(finite, keys, _BOTTOM).max()
    counts = [mask.sum() for mask in (nan, above, below, finite & (values == 0))]
    squares, large, small, scaled = _squares(real, dtype)
    one, two = _order(real, start * (2 if dtype == "f4e2m1fn_x2" else 1) // DTYPES[dtype])
    reals = torch.stack([real.sum(), squares, one, two, large, small, scaled, torch.zeros_like(squares)])
    wholes = torch.stack([each.reshape(()) for each in (*prints, low, high, *counts)])
    return torch.cat([wholes, reals.view(torch.int64)])


def _squares(real: Tensor, dtype: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if dtype not in ("f64", "c128"):
        nothing = torch.zeros((), dtype=torch.float64, device=real.device)
        return (real * real).sum(), nothing, nothing, nothing
    size = real.abs()
    is_large, is_small = size > 2.0**450, size < 2.0**-450
    parts = (
        torch.where(is_large | is_small, 0.0, real),
        torch.where(is_large, real * 2.0**-600, 0.0),
        torch.where(is_small, real * 2.0**600, 0.0),
    )
    squares, large, small = ((part * part).sum() for part in parts)
    return squares, large, small, (real * 2.0**-600).sum()


def _order(real: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """The two order sums of elements that begin with number `first`, a multiple of a group."""
    groups = -(-real.numel() // GROUP)
    padded = torch.nn.functional.pad(real, (0, groups * GROUP - real.numel())).view(groups, GROUP)
    weighted = (padded * _table(WEIGHTS, torch.float64, real.device)).sum(1)
    z = _stir((torch.arange(groups, dtype=torch.int64, device=real.device) + first // GROUP + 1) * _signed(STEP))
    lower, upper = (((part << 32) >> 32).double() for part in (z, z >> 32))
    return (weighted * (lower * 2.0**-31)).sum(), (weighted * (upper * 2.0**-31)).sum()


def _prints(data: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Contributions of the blocks to A and B."""
    count = data.numel()
    blocks = -(-count // BLOCK)
    words = torch.nn.functional.pad(data, (0, blocks * BLOCK - count)).view(torch.int64).view(blocks, 128)
    there = (torch.arange(blocks * 128, device=data.device) < -(-count // 8)).view(blocks, 128)
    keys = _table(tuple(map(_signed, KEYS)), torch.int64, data.device)
    s = words.sum(1)
    p = torch.where(there, _halves(words + keys[:128]), 0).sum(1)
    q = torch.where(there, _halves(words ^ keys[128:]), 0).sum(1)
    place = (torch.arange(blocks, dtype=torch.int64, device=data.device) + first) * 2
    a = _stir(p + s * _signed(FIRST) + (place + 1) * _signed(STEP)).sum()
    b = _stir(q + s * _signed(SECOND) + (place + 2) * _signed(STEP)).sum()
    return a, b


def _halves(x: Tensor) -> Tensor:
    return (x & _LOW) * ((x >> 32) & _LOW)


def _stir(z: Tensor) -> Tensor:
    # `>>` of torch keeps the sign; the fingerprint's shifts in zeros.
    z = (z ^ ((z >> 29) & ((1 << 35) - 1))) * _signed(FIRST)
    z = (z ^ ((z >> 32) & _LOW)) * _signed(SECOND)
    return z ^ ((z >> 32) & _LOW)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@functools.cache
def _table(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


def _values(data: Tensor, dtype: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Keys that order like the values, the values as float64, and where they are NaN, +Inf, -Inf."""
    if dtype in _FLOATS:
        keys, values = _keys_of_floats(data, dtype)
    elif dtype in _PARTS:
        values = _moduli(data.view(_PARTS[dtype]).view(-1, 2), dtype)
        keys = values.view(torch.int64)
    elif dtype == "u64":
        words = data.view(torch.int64)
        keys = words ^ _BOTTOM
        # torch converts uint64 on few devices: the halves are exact, and their sum is rounded once.
        values = ((words >> 32) & _LOW).double() * 2.0**32 + (words & _LOW).double()
    elif dtype in ("u16", "u32"):
        keys = data.view(torch.int16 if dtype == "u16" else torch.int32).long() & (0xFFFF if dtype == "u16" else _LOW)
        values = keys.double()
    elif dtype in _WHOLES:
        keys = data.view(_WHOLES[dtype]).long()
        values = keys.double()
    else:
        rows = code_values(dtype)
        codes = data.long()
        found = [_table(tuple(value + 0.0 for value in row), torch.float32, data.device)[codes] for row in rows]
        floats = found[0] if len(found) == 1 else torch.stack(found, 1).reshape(-1)
        bits = floats.view(torch.int32)
        keys, values = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long(), floats.double()
    return keys, values, values.isnan(), values == torch.inf, values == -torch.inf


def _keys_of_floats(data: Tensor, dtype: str) -> tuple[Tensor, Tensor]:
    values = data.view(_FLOATS[dtype]).double()
    if dtype == "bf16":  # in the kernel they are f32
        bits = data.view(torch.int16).int() << 16
    else:
        bits = data.view({8: torch.int64, 4: torch.int32, 2: torch.int16}[DTYPES[dtype]])
    top = {"f64": _TOP, "f16": 0x7FFF}.get(dtype, 0x7FFFFFFF)
    return torch.where(bits < 0, bits ^ top, bits).long(), values


def _moduli(parts: Tensor, dtype: str) -> Tensor:
    real, imaginary = parts[:, 0].double(), parts[:, 1].double()
    none = real.isnan() | imaginary.isnan()
    far = (real.isinf() | imaginary.isinf()) & ~none
    scale = torch.ones_like(real)
    if dtype == "c128":
        most = torch.maximum(real.abs(), imaginary.abs())
        scale = scale.masked_fill(most > 2.0**500, 2.0**-600).masked_fill(most < 2.0**-500, 2.0**600)
    real, imaginary = real * scale, imaginary * scale
    moduli = torch.sqrt(real * real + imaginary * imaginary) / scale
    return torch.where(none, torch.nan, torch.where(far, torch.inf, moduli))
