"""Digest of a tensor, written in place of its bytes: numbers and a fingerprint.

    digest(array, "f32")                      Digest(Statistics(min=-1.5, max=2.0, …), "9f86d081884c7d65…")
    digest(array, "f32", fingerprint=False)   Digest(Statistics(…), None)
    numbers_at(address, 4096, "f32", True)    (-1.5, 2.0, …, "9f86d081884c7d65…"): of memory, without an object for anything
    sampler()(address, 4096)                  something from a few of the bytes, to notice that they were written to
    numbers_along(gatherer(), address, runs, "f32", True)    of elements that do not lie side by side
    gatherer()(address, runs, 4, target)      brings elements that do not lie side by side to `target`, in order
    fingerprint(array)                        "9f86d081884c7d65…": of the bytes alone, to check a payload
    decode_table("f8e5m2")                    the 256 values of a one-byte float
    warm_up()                                 compile ahead; backend() then says "numba" or "numpy"

Arrays are C-contiguous and in their storage type (`arrays.STORAGE`: bf16 as uint16, fp8 as uint8, c32 as uint32 with the
real part in the lower half). Any rank, any alignment, read-only or not.

The fingerprint is 128 bits of integer arithmetic, the same on every machine and in every implementation (FORMAT.md).
It tells honest data apart; it is no protection against somebody who looks for collisions. Data that differ within one block in
nothing but signs, or in zeros and ones, leave each half some 33 bits of difference, and both together twice that: neither half is
worth anything by itself. Tried and dropped: stirring every word by itself, which has no such weakness and takes twice as long.

It runs on the training thread for every tensor, so where numba is installed the work is done by `digest_numba.py`.
Both give the same fingerprint, counts, minimum and maximum; mean and norm agree but for the order of the additions.
Zeros have no sign here. Beyond float64 are only the norm of huge f64, which is then inf, and the modulus of a huge c128,
which counts as an infinity.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Iterator
from ctypes import string_at
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from ..model import fingerprints
from ..model.dtypes import code_values
from ..model.errors import UsageError
from ..model.tensors import DTYPES, UNITS, Statistics
from .arrays import STORAGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Data = NDArray[np.uint8]  # one-dimensional
    # low, high, mean, norm, finite, nan, posinf, neginf, zero, H, L, order sums; the first four mean nothing where finite is 0
    Numbers = tuple[float, float, float, float, int, int, int, int, int, int, int, float, float]
    Kernel = Callable[[int, int, bool], Numbers]  # address, bytes, is a fingerprint wanted
    Gather = Callable[[int, NDArray[np.int64], int, int], object]  # address, runs, size of an element, target
    # The row of a digest: minimum, maximum, mean, norm, NaN, +Inf, -Inf, zeros, fingerprint, the two order sums.
    Found = tuple[
        float | None,
        float | None,
        float | None,
        float | None,
        int,
        int,
        int,
        int,
        str | None,
        float | None,
        float | None,
    ]


@dataclass(frozen=True, slots=True)
class Digest:
    """Statistics of a tensor's values and, where asked for, the fingerprint of its bytes."""

    statistics: Statistics
    fingerprint: str | None


def digest(array: NDArray[Any], dtype: str, *, fingerprint: bool = True) -> Digest:
    """Statistics and fingerprint of a C-contiguous array in its storage type; `dtype` says what the elements mean."""
    if dtype not in DTYPES:
        raise UsageError(f"digest: unknown element type {dtype!r}; known are {', '.join(DTYPES)}.")
    if array.dtype != STORAGE[dtype]:
        raise UsageError(
            f"digest: {dtype} is held as {STORAGE[dtype]}, got {array.dtype}. Use array.view({STORAGE[dtype].name!r})."
        )
    data = _bytes_of(array)
    low, high, mean, norm, nan, posinf, neginf, zero, text, one, two = numbers_at(
        address_of(data), data.size, dtype, fingerprint
    )
    order = None if one is None or two is None else (one, two)
    return Digest(Statistics(low, high, mean, norm, nan, posinf, neginf, zero, order), text)


def numbers_at(address: int, nbytes: int, dtype: str, wanted: bool) -> Found:
    """The same of memory, as plainly as it can be had: a recording asks for little else. `wanted`: a fingerprint as well."""
    kernel = _kernels.get(dtype) or _load(dtype)
    low, high, mean, norm, finite, nan, posinf, neginf, zero, upper, lower, one, two = kernel(address, nbytes, wanted)
    text = _hexadecimal(upper, lower).hex() if wanted else None
    if not finite:
        return None, None, None, None, nan, posinf, neginf, zero, text, None, None
    if not 1e-140 < norm < 1e150 and finite != zero:  # a square, or the sum of them, may have left the range
        mean, norm = _rescaled(_memory(address, nbytes), dtype, low, high, finite)
        if not (math.isfinite(one) and math.isfinite(two)):
            return low, high, mean, norm, nan, posinf, neginf, zero, text, None, None
    return low, high, mean, norm, nan, posinf, neginf, zero, text, one, two


def numbers_along(gather: Gather, address: int, runs: _Walk, dtype: str, wanted: bool) -> Found:
    """The same of elements that do not lie side by side, however many there are: piece by piece, in little memory."""
    kernel, module = _kernels.get(dtype) or _load(dtype), _numba()
    assert module is not None  # who gathers has it
    room = np.empty(2 * _SLICE + BLOCK, np.uint8)
    place = address_of(room)
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    finite = nan = posinf = neginf = zero = a = b = start = filled = 0

    def take(nbytes: int) -> None:
        nonlocal low, high, total, squares, finite, nan, posinf, neginf, zero, a, b, start, filled
        # Order sums are of all elements together, and not of pieces: they are left out.
        least, most, mean, norm, count, nans, posinfs, neginfs, zeros, *_ = kernel(place, nbytes, False)
        if count:
            low, high = min(low, least), max(high, most)
            total, squares = total + mean * count, squares + norm * norm
        finite, zero = finite + count, zero + zeros
        nan, posinf, neginf = nan + nans, posinf + posinfs, neginf + neginfs
        if wanted:
            first, second = module.load("blocks")(place, nbytes, start)
            a, b = (a + first) & _MASK, (b + second) & _MASK
        start, filled = start + nbytes, filled - nbytes
        room[:filled] = room[nbytes : nbytes + filled].copy()

    for where, table in _slices(address, runs.table, runs.size):
        gather(where, table, runs.size, place + filled)
        filled += int(table[:, 0].prod()) * runs.size
        if filled >= _SLICE:
            take(filled // BLOCK * BLOCK)
    take(filled)
    text = _hexadecimal(*_sealed(a, b, start)).hex() if wanted else None
    if not finite:
        return None, None, None, None, nan, posinf, neginf, zero, text, None, None
    return low, high, total / finite, math.sqrt(squares), nan, posinf, neginf, zero, text, None, None


def _slices(address: int, table: NDArray[np.int64], size: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Pieces of a view that together are all of it, in order, each of a bearable size."""
    count, step = (int(number) for number in table[0])
    inner = table[1:] if len(table) > 1 else _ONE  # one by one, when there is nothing within
    beneath = int(inner[:, 0].prod()) * size
    many = max(1, _SLICE // max(1, beneath))
    for i in range(0, count, many):
        if beneath > _SLICE:
            yield from _slices(address + i * step, inner, size)
        else:
            yield address + i * step, np.concatenate([[[min(many, count - i), step]], inner])


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's first element."""
    address: int = array.__array_interface__["data"][0]  # twice as quick as array.ctypes.data
    return address


def fingerprint(array: NDArray[Any]) -> str:
    """32 hexadecimal digits for the bytes of a C-contiguous array."""
    data = _bytes_of(array)
    module = _numba()
    upper, lower = module.load("fingerprint")(address_of(data), data.size) if module else _fingerprint(data)
    return _hexadecimal(upper, lower).hex()


@functools.cache
def sampler() -> Callable[[int, int], object]:
    """Function of (address, nbytes): something that changes when those bytes are written to; it looks at a few of them."""
    module = _numba()
    return module.load("sample") if module else lambda address, nbytes: string_at(address, min(nbytes, 64))


@functools.cache
def gatherer() -> Gather | None:
    """Function that copies elements of a size, along runs of (how many, bytes to the next), from one address to another."""
    module = _numba()
    try:
        return module.load("gather") if module else None
    except Exception:  # noqa: BLE001 - a numba that compiles the others and not this: then the framework copies
        return None


def warm_up() -> None:
    """Compile, or load from numba's cache, what every recording needs. Other element types follow at their first use."""
    _load("f32")


def backend() -> str:
    """`"numba"` or `"numpy"`: what `digest` works with here."""
    return "numba" if _numba() else "numpy"


@functools.cache
def decode_table(dtype: str) -> NDArray[np.float32]:
    """The values of the 256 codes of a one-byte float, exactly; `f4e2m1fn_x2` has two in each: (256, 2), low nibble first."""
    table = _tables(dtype).T.astype(np.float32)
    table = table if dtype == "f4e2m1fn_x2" else table[:, 0]
    table.flags.writeable = False
    return table


# The fingerprint's numbers -----------------------------------------------------------------------------------------

_MASK, _STEP, _FIRST, _SECOND = fingerprints.MASK, fingerprints.STEP, fingerprints.FIRST, fingerprints.SECOND
_avalanche = fingerprints.avalanche
BLOCK = fingerprints.BLOCK
"""Bytes of a block of the fingerprint."""
KEYS = np.array(fingerprints.KEYS, np.uint64)
"""The keys of the words in a block: 128 that are added, 128 that are crossed."""
WEIGHTS = np.array(fingerprints.WEIGHTS)
"""The weights of the elements in a group of the order sums."""

# From an array to its memory -----------------------------------------------------------------------------------------

_kernels: dict[str, Kernel] = {}
_SLICE = 1 << 20  # bytes that are gathered at a time; whole blocks
_ONE = np.array([[1, 0]], np.int64)
_hexadecimal = struct.Struct(">QQ").pack
_BYTE = np.dtype(np.uint8)
_NOTHING = np.empty(0, np.uint8)


def _bytes_of(array: NDArray[Any]) -> Data:
    if not array.nbytes:
        return _NOTHING
    try:
        return np.frombuffer(array, _BYTE)  # the quickest view there is, and it refuses what is not contiguous
    except ValueError as error:
        raise UsageError(
            f"digest: expected a C-contiguous array, got {array.dtype}{list(array.shape)} with strides "
            f"{list(array.strides)}. Use numpy.ascontiguousarray first."
        ) from error


class _Walk(Protocol):
    """Walk through a view (frameworks/runs.py)."""

    table: NDArray[np.int64]
    size: int


class _Memory:
    """Array interface of memory that is not numpy's own."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, True), "shape": (nbytes,), "typestr": "|u1"}


def _memory(address: int, nbytes: int) -> Data:
    return np.asarray(_Memory(address, nbytes)) if nbytes else _NOTHING


def _rescaled(data: Data, dtype: str, low: float, high: float, finite: int) -> tuple[float, float]:
    """Mean and norm where the squares leave the range of float64: again, with the largest value brought to about 1."""
    exponent = math.frexp(max(abs(low), abs(high)))[1]
    total = squares = 0.0
    with np.errstate(all="ignore"):
        for values in _decoded(dtype, data):
            scaled = np.ldexp(values[np.isfinite(values)], -exponent)
            total += float(scaled.sum())
            squares += float(np.square(scaled).sum())
        mean = min(max(total / finite, math.ldexp(low, -exponent)), math.ldexp(high, -exponent))
        return math.ldexp(mean, exponent), float(np.ldexp(math.sqrt(squares), exponent))


# Which implementation ----------------------------------------------------------------------------------------------


def _load(dtype: str) -> Kernel:
    _kernels[dtype] = kernel = _numba_kernel(dtype) or functools.partial(_scan, dtype)
    return kernel


@functools.cache
def _numba() -> ModuleType | None:
    """The compiled kernels, or None where they cannot be had."""
    if sys.byteorder != "little":
        return None
    try:
        from . import digest_numba

        digest_numba.load("fingerprint")(0, 0)
        digest_numba.load("f32")(0, 0, True)
        digest_numba.load("sample")(0, 0)
    except Exception:  # noqa: BLE001 - not installed, at odds with this numpy or LLVM, switched off by NUMBA_DISABLE_JIT
        return None
    return digest_numba


def _numba_kernel(dtype: str) -> Kernel | None:
    module = _numba()
    if module is None:
        return None
    try:
        return cast("Kernel", module.load(dtype)) if DTYPES[dtype] > 1 else _coded(dtype, module.load("bytes"))
    except Exception:  # noqa: BLE001 - a numba that compiles f32 and not this: slow is better than a training run that ends
        return None


def _coded(dtype: str, count: Callable[[NDArray[np.float64], int, int, bool], Numbers]) -> Kernel:
    """A kernel that counts the 256 codes and looks up what they mean."""
    kernel = functools.partial(count, _tables(dtype))
    if dtype not in ("i8", "u8", "b8"):
        return kernel

    def whole(address: int, nbytes: int, wanted: bool) -> Numbers:
        low, high, *others = kernel(address, nbytes, wanted)
        return cast("Numbers", (int(low), int(high), *others))

    return whole


# Meaning of bytes --------------------------------------------------------------------------------------------------


@functools.cache
def _tables(dtype: str) -> NDArray[np.float64]:
    """(1, 256) values of a one-byte type, (2, 256) where a byte holds two. Zero has no sign here."""
    table = np.array(code_values(dtype)) + 0.0
    table.flags.writeable = False
    return table


def _decoded(dtype: str, data: Data) -> Iterator[NDArray[np.float64]]:
    """The values as float64, block by block; of complex ones the modulus."""
    for block in _blocks(data):
        match dtype:
            case "bf16":
                yield (block.view(STORAGE[dtype]).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
            case _ if DTYPES[dtype] == 1:
                yield _tables(dtype)[:, block].T.reshape(-1)
            case _ if dtype[0] != "c":
                yield block.view(STORAGE[dtype]).astype(np.float64)
            case _:
                part = STORAGE[{"c32": "f16", "c64": "f32", "c128": "f64"}[dtype]]
                parts = block.view(part).astype(np.float64)
                yield _modulus(parts[0::2], parts[1::2])


def _modulus(real: NDArray[np.float64], imaginary: NDArray[np.float64]) -> NDArray[np.float64]:
    # Scaled by powers of two, so that squares stay in range: numpy.hypot would do, but differs from machine to machine.
    largest = np.maximum(np.abs(real), np.abs(imaginary))
    scale = np.where(largest > 2.0**500, 2.0**-600, np.where(largest < 2.0**-500, 2.0**600, 1.0))
    real, imaginary = real * scale, imaginary * scale
    # NaN in one part makes the sum NaN even beside an infinity.
    modulus: NDArray[np.float64] = np.sqrt(real * real + imaginary * imaginary) / scale
    return modulus


# The same in numpy -------------------------------------------------------------------------------------------------

_BLOCK = 1 << 16  # bytes; the widest temporary is eight times that, for one-byte types


def _blocks(data: Data) -> Iterator[Data]:
    for start in range(0, data.size, _BLOCK):
        yield data[start : start + _BLOCK]


class _Order:
    """The two order sums, of pieces that begin with a group each."""

    def __init__(self) -> None:
        self.one = self.two = 0.0
        self._groups = 0

    def add(self, values: NDArray[np.float64]) -> None:
        """The next elements, zeros for those that are not finite."""
        whole = len(values) // fingerprints.GROUP
        parts = values[: whole * fingerprints.GROUP].reshape(whole, fingerprints.GROUP) @ WEIGHTS
        rest = values[whole * fingerprints.GROUP :]
        if rest.size:
            parts = np.append(parts, rest @ WEIGHTS[: rest.size])
        groups = np.arange(self._groups + 1, self._groups + 1 + len(parts), dtype=np.uint64)
        halves = _stir(groups * np.uint64(_STEP)).view(np.int32).reshape(-1, 2) * 2.0**-31
        self.one += float(halves[:, 0] @ parts)
        self.two += float(halves[:, 1] @ parts)
        self._groups += len(parts)


def _scan(dtype: str, address: int, nbytes: int, wanted: bool) -> Numbers:
    data, whole = _memory(address, nbytes), dtype not in UNITS
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    finite = nan = posinf = neginf = zero = 0
    order = _Order()
    with np.errstate(all="ignore"):
        for block, values in zip(_blocks(data), _decoded(dtype, data), strict=True):
            regular = np.isfinite(values)
            is_regular = bool(regular.all())
            order.add(values if is_regular else np.where(regular, values, 0.0))
            if not is_regular:
                nan += int(np.isnan(values).sum())
                posinf += int((values == math.inf).sum())
                neginf += int((values == -math.inf).sum())
                values = values[regular]
                if not values.size:
                    continue
            finite += values.size
            zero += values.size - int(np.count_nonzero(values))
            ends = block.view(STORAGE[dtype]) if whole and DTYPES[dtype] > 1 else values  # integers exactly
            low, high = min(low, ends.min().item()), max(high, ends.max().item())
            total += float(values.sum())
            squares += float(np.square(values).sum())
    if finite:
        low, high = (int(low), int(high)) if whole else (low + 0.0, high + 0.0)
    upper, lower = _fingerprint(data) if wanted else (0, 0)
    mean = total / finite + 0.0 if finite else 0.0
    classes = nan, posinf, neginf, zero
    return low, high, mean, math.sqrt(squares), finite, *classes, upper, lower, order.one, order.two


def _fingerprint(data: Data) -> tuple[int, int]:
    a = b = 0
    for number, block in enumerate(_blocks(data)):
        if block.size % 8:  # only the last
            block = np.concatenate([block, np.zeros(-block.size % 8, np.uint8)])
        words, first = block.view("<u8"), number * (_BLOCK // BLOCK)
        whole = len(words) // 128
        for part, at in ((words[: 128 * whole].reshape(-1, 128), first), (words[128 * whole :][None], first + whole)):
            if part.size:
                ones, others = _sums(part, at)
                a, b = a + ones, b + others
    return _sealed(a, b, data.size)


def _sealed(a: int, b: int, nbytes: int) -> tuple[int, int]:
    upper = _avalanche((a + nbytes * _STEP) & _MASK)
    return upper, _avalanche((b & _MASK) ^ (upper << 32 & _MASK | upper >> 32))


def _sums(words: NDArray[np.uint64], first: int) -> tuple[int, int]:
    """Terms that blocks of words add to A and to B; `first` is the number of the first of them."""
    count = words.shape[1]
    places = 2 * np.arange(first, first + len(words), dtype=np.uint64)
    total = words.sum(axis=1)
    p = _products(words + KEYS[:count]) + total * np.uint64(_FIRST) + (places + np.uint64(1)) * np.uint64(_STEP)
    q = (
        _products(words ^ KEYS[128 : 128 + count])
        + total * np.uint64(_SECOND)
        + (places + np.uint64(2)) * np.uint64(_STEP)
    )
    return int(_stir(p).sum()), int(_stir(q).sum())


def _products(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    products: NDArray[np.uint64] = ((x & np.uint64(0xFFFFFFFF)) * (x >> np.uint64(32))).sum(axis=1)
    return products


def _stir(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ z >> np.uint64(29)) * np.uint64(_FIRST)
    z = (z ^ z >> np.uint64(32)) * np.uint64(_SECOND)
    return z ^ z >> np.uint64(32)
