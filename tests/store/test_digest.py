"""Statistics against exact arithmetic, fingerprints against the definition spelled out, both back ends in every test.

An oracle below knows nothing of `digest.py`: it reads bytes with `struct`, adds fractions, and takes roots with fifty
digits. The table of contents is the one of model/tensors.py: a new element type without an oracle fails here.
"""

import functools
import math
import pickle
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from elements import READ, SPECIAL, held, ordinary, rng, root

from twintrace.frameworks.runs import Runs
from twintrace.model.errors import UsageError
from twintrace.model.tensors import DTYPES, Statistics
from twintrace.store import digest as subject
from twintrace.store.arrays import STORAGE
from twintrace.store.digest import Digest, decode_table, digest, fingerprint

INF, NAN = math.inf, math.nan
BACKENDS = {"numpy": lambda dtype: functools.partial(subject._scan, dtype), "numba": subject._numba_kernel}


@pytest.fixture(params=BACKENDS)
def backend(request) -> Callable[..., Digest]:
    """`backend(array, dtype)`: digest by one named implementation, whichever would be chosen here."""

    def run(array: np.ndarray, dtype: str, wanted: bool = True) -> Digest:
        kernel = BACKENDS[request.param](dtype)
        assert kernel is not None, f"numba is installed and does not compile {dtype}"
        return digest_with(kernel, array, dtype, wanted)

    return run


def digest_with(kernel: Callable[..., object], array: np.ndarray, dtype: str, wanted: bool) -> Digest:
    """By one implementation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(subject._kernels, dtype, kernel)
        return digest(array, dtype, fingerprint=wanted)


# Oracles -----------------------------------------------------------------------------------------------------------


def modulus(value: tuple[float, float]) -> float:
    if any(map(math.isnan, value)):
        return NAN
    return INF if any(map(math.isinf, value)) else root(sum(Fraction(part) ** 2 for part in value))


@functools.cache
def expected(raw: bytes, dtype: str) -> Statistics:
    values = READ[dtype](raw)
    if dtype.startswith("c"):
        values = [modulus(value) for value in values]
    finite = [value for value in values if math.isfinite(value)]
    low = high = mean = norm = None
    if finite:
        low, high = min(finite), max(finite)
        exact = [(Fraction(value), times) for value, times in Counter(finite).items()]
        mean = float(sum(value * times for value, times in exact) / len(finite))
        norm = root(sum((value**2 * times for value, times in exact), Fraction()))
    return Statistics(
        low, high, mean, norm,
        sum(map(math.isnan, values)), values.count(INF), values.count(-INF), values.count(0),
    )  # fmt: skip


def fault(found: Statistics, right: Statistics, *, exact: bool = True) -> str | None:
    """What is wrong with `found`; `exact=False` allows a modulus that is off in the last place."""
    for name in ("nan", "posinf", "neginf", "zero"):
        if getattr(found, name) != getattr(right, name):
            return f"{name}: {getattr(found, name)}, not {getattr(right, name)}"
    for name in ("min", "max", "mean", "norm"):
        one, other = getattr(found, name), getattr(right, name)
        if one is None or other is None:
            if one is not other:
                return f"{name}: {one}, not {other}"
        elif name in ("min", "max") and exact:
            if one != other or type(one) is not type(other):
                return f"{name}: {one!r}, not {other!r}"
        else:
            # Where numbers cancel, a mean is known to within the size of what was added.
            scale = max(abs(right.min or 0), abs(right.max or 0)) if name == "mean" else other
            if one != other and not abs(one - other) <= 1e-12 * scale:
                return f"{name}: {one!r}, not {other!r}"
    return None


def test_a_wrong_number_is_a_fault():
    """The check used all over this file rejects each number that is off, and an int in place of a float."""
    right = Statistics(1.0, 2.0, 1.5, 2.5, 0, 0, 0, 0)
    assert fault(right, right) is None
    for wrong in (
        Statistics(1.0 + 1e-15, 2.0, 1.5, 2.5, 0, 0, 0, 0),
        Statistics(1.0, 2, 1.5, 2.5, 0, 0, 0, 0),
        Statistics(1.0, 2.0, 1.5 + 1e-11, 2.5, 0, 0, 0, 0),
        Statistics(1.0, 2.0, 1.5, NAN, 0, 0, 0, 0),
        Statistics(1.0, 2.0, None, 2.5, 0, 0, 0, 0),
        Statistics(1.0, 2.0, 1.5, 2.5, 0, 0, 1, 0),
    ):
        assert fault(wrong, right)


# Statistics --------------------------------------------------------------------------------------------------------


def contents(dtype: str) -> Iterator[tuple[str, bytes]]:
    size = DTYPES[dtype]
    yield "nothing", b""
    yield "one", ordinary(dtype, 1)
    yield "zeros", bytes(11 * size)
    yield "ones in every bit", b"\xff" * (13 * size)
    for count in (3, 16, 1001):
        yield f"{count} ordinary", ordinary(dtype, count)
        yield f"{count} of any bits", rng.bytes(count * size)
    # Past the blocks of both implementations; anything not finite sits in one block of several, then in all of them.
    count = (3 * 8192 + 40) // size
    yield "blocks", ordinary(dtype, count)
    yield "blocks with a spot", ordinary(dtype, count) + rng.bytes(8 * size) + ordinary(dtype, count)
    yield "blocks of any bits", rng.bytes(70_000 // size * size)
    if dtype in SPECIAL:
        yield "special", SPECIAL[dtype]


CASES = [pytest.param(dtype, raw, id=f"{dtype}-{name}") for dtype in DTYPES for name, raw in contents(dtype)]


@pytest.mark.parametrize(("dtype", "raw"), CASES)
def test_statistics_are_those_of_exact_arithmetic(backend, dtype, raw):
    found = backend(held(raw, dtype), dtype).statistics
    assert not fault(found, expected(raw, dtype), exact=not dtype.startswith("c"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_two_implementations_agree(dtype):
    """On more data than the oracle has patience for: minimum, maximum, counts and fingerprint to the last bit."""
    size = DTYPES[dtype]
    for raw in (ordinary(dtype, 200_003), rng.bytes(300_000 * size), ordinary(dtype, 70_000) + b"\xff" * 64 * size):
        array = held(raw, dtype)
        one, other = (digest_with(make(dtype), array, dtype, True) for make in BACKENDS.values())
        assert one.fingerprint == other.fingerprint
        assert not fault(one.statistics, other.statistics)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("f64", [1e200, -1e200, 3e200]),  # squares overflow
        ("f64", [1e308, 1e308]),  # the sum of two does
        ("f64", [1e-200, 3e-200, -1e-250]),  # squares vanish
        ("f64", [5e-324, 5e-324]),
        ("f64", [1e300, NAN, -1e300, INF]),
        ("c128", [3e200, 4e200, 1, 1]),
        ("c128", [3e-320, 4e-320]),
    ],
)
def test_values_whose_squares_leave_the_range(backend, dtype, values):
    raw = struct.pack(f"<{len(values)}d", *values)
    with np.errstate(all="raise"):
        found = backend(held(raw, dtype), dtype).statistics
    right = expected(raw, dtype)
    assert not fault(found, right, exact=dtype == "f64")
    assert found.norm == pytest.approx(right.norm, rel=1e-12, abs=1e-323)


def test_a_modulus_beyond_float64_counts_as_an_infinity(backend):
    statistics = backend(np.array([1.7e308 + 1.7e308j, 3j]), "c128").statistics
    assert statistics == Statistics(3.0, 3.0, 3.0, 3.0, 0, 1, 0, 0)


def test_a_norm_beyond_float64_is_infinite(backend):
    statistics = backend(np.array([1.7e308, 1.7e308]), "f64").statistics
    assert statistics == Statistics(1.7e308, 1.7e308, 1.7e308, INF, 0, 0, 0, 0)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8e5m2", "f4e2m1fn_x2"])
def test_zero_has_no_sign(backend, dtype):
    """Whether -0.0 or 0.0 comes first must not show in a trace."""
    negative = {"f8e5m2": b"\x80", "f4e2m1fn_x2": b"\x88"}.get(dtype, bytes(DTYPES[dtype] - 1) + b"\x80")
    for raw in (negative * 3, negative * 3 + bytes(DTYPES[dtype])):
        statistics = backend(held(raw, dtype), dtype).statistics
        assert [repr(statistics.min), repr(statistics.max), repr(statistics.mean)] == ["0.0"] * 3


@pytest.mark.needs_torch
def test_subnormal_f16_survive_flushing():
    """torch.set_flush_denormal changes the arithmetic of the whole thread; these are ordinary values in training."""
    import torch

    array = np.arange(1, 41, dtype=np.uint16).view(np.float16)
    kernel = subject._numba_kernel("f16")
    plain = digest_with(kernel, array, "f16", True)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        flushed = digest_with(kernel, array, "f16", True)
    finally:
        torch.set_flush_denormal(False)
    assert plain.statistics.min == 2.0**-24
    assert flushed == plain


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [
        ("f8e4m3fn", "float8_e4m3fn"), ("f8e4m3fnuz", "float8_e4m3fnuz"), ("f8e5m2", "float8_e5m2"),
        ("f8e5m2fnuz", "float8_e5m2fnuz"), ("f8e8m0fnu", "float8_e8m0fnu"),
    ],
)  # fmt: skip
def test_one_byte_floats_mean_what_torch_says(dtype, theirs):
    import torch

    codes = torch.arange(256, dtype=torch.uint8)
    np.testing.assert_array_equal(decode_table(dtype), codes.view(getattr(torch, theirs)).to(torch.float32).numpy())


def test_two_four_bit_floats_share_a_byte_low_nibble_first():
    table = decode_table("f4e2m1fn_x2")
    assert table.shape == (256, 2)
    assert table[0x9F].tolist() == [-6.0, -0.5]


# Arrays as they come -----------------------------------------------------------------------------------------------


def test_rank_writability_and_alignment_make_no_difference(backend):
    raw = ordinary("f32", 60)
    plain = held(raw, "f32").copy()
    right = backend(plain, "f32")
    shifted = np.frombuffer(b"x" + raw, np.uint8)[1:].view(np.float32)
    assert not shifted.flags.aligned
    locked = plain.copy()
    locked.flags.writeable = False
    for array in (plain.reshape(3, 4, 5), plain.reshape(1, 1, 1, 1, 1, 1, 60), shifted, locked, held(raw, "f32")):
        assert backend(array, "f32") == right


@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_zero_and_emptiness(backend, dtype):
    raw = ordinary(dtype, 1)
    scalar = held(raw, dtype).reshape(())
    assert not fault(backend(scalar, dtype).statistics, expected(raw, dtype), exact=dtype[0] != "c")
    for shape in ((0,), (3, 0, 2)):
        empty = backend(np.empty(shape, STORAGE[dtype]), dtype)
        assert empty.statistics == Statistics(None, None, None, None, 0, 0, 0, 0)
        assert empty.fingerprint == fingerprint(np.empty(0, np.uint8))


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "c64", "i32", "u8"])
def test_every_alignment_and_every_short_length(backend, dtype):
    """Lengths that are no multiple of 8 bytes, from addresses that are not either."""
    for count in range(1, 20):
        raw = ordinary(dtype, count)
        for shift in (0, 1, 3):
            array = np.frombuffer(bytes(shift) + raw, np.uint8)[shift:].view(STORAGE[dtype])
            found = backend(array, dtype)
            assert not fault(found.statistics, expected(raw, dtype), exact=dtype[0] != "c")
            assert found.fingerprint == spelled_out(raw)


def test_without_a_fingerprint_the_statistics_are_the_same(backend):
    array = held(ordinary("f32", 5000), "f32")
    with_it, without = backend(array, "f32"), backend(array, "f32", False)
    assert without == Digest(with_it.statistics, None)
    assert digest(array, "f32", fingerprint=False).fingerprint is None


@pytest.mark.parametrize("array", [np.zeros((4, 4), np.float32).T, np.zeros(9, np.float32)[::2]])
def test_strided_arrays_are_refused(backend, array):
    array = np.broadcast_to(array, array.shape) if array.flags.c_contiguous else array
    for call in (lambda: backend(array, "f32"), lambda: fingerprint(array)):
        with pytest.raises(UsageError, match="C-contiguous"):
            call()


@pytest.mark.parametrize(("array", "dtype"), [(np.zeros(2, np.float64), "f32"), (np.zeros(2, ">f4"), "f32")])
def test_another_storage_type_is_refused(array, dtype):
    with pytest.raises(UsageError, match="f32 is held as float32, got"):
        digest(array, dtype)


def test_an_unknown_element_type_is_refused():
    with pytest.raises(UsageError, match=r"'f12'.*f64, f32"):
        digest(np.zeros(2), "f12")


def test_what_comes_back_is_an_ordinary_frozen_dataclass():
    """They are filled by a short cut; nobody may notice."""
    found = digest(np.array([1.0, -2.0], np.float32), "f32")
    same = Digest(Statistics(-2.0, 1.0, -0.5, math.sqrt(5), 0, 0, 0, 0), found.fingerprint)
    assert type(found) is Digest
    assert type(found.statistics) is Statistics
    assert found == same
    assert hash(found) == hash(same)
    assert repr(replace(found.statistics, order=None)) == repr(same.statistics)
    assert pickle.loads(pickle.dumps(found)) == same
    with pytest.raises(FrozenInstanceError):
        found.statistics.min = 0.0  # type: ignore[misc]


# The fingerprint ---------------------------------------------------------------------------------------------------

GOLDEN = {
    b"": "00000000000000000000000000000000",
    b"\0": "41315ab381521d68735f35924d91b094",
    b"\0\0": "27f71357f3f4876d2c07a3ba2de418ba",
    bytes(8): "c366be81b58cfe082d87f2b8cf6689aa",
    b"twintrace": "a1cd6e5bd4dfc3ba8d3c3f1189b186e3",
    struct.pack("<4f", 1.0, -1.0, 0.5, 3.25): "2e35dc0d5a6186f596b401cf42890cd8",
    bytes(range(256)): "855a4ba78217eab7b43733a6826bfa24",
    bytes(range(251)) * 400: "ed64f9bcfe85a2ab68726ea07b24c3e7",
}


@pytest.mark.parametrize("raw", GOLDEN, ids=lambda raw: f"{raw[:4].hex()}-{len(raw)}")
def test_fingerprints_are_those_of_the_format(backend, raw):
    """Changing one of these makes every trace on disk unreadable: it needs a new format version."""
    array = np.frombuffer(raw, np.uint8)
    assert backend(array, "u8").fingerprint == GOLDEN[raw]
    assert fingerprint(array) == GOLDEN[raw]


M64 = (1 << 64) - 1
STEP, FIRST, SECOND = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def fin(z: int) -> int:
    z = (z ^ z >> 30) * int(FIRST) & M64
    z = (z ^ z >> 27) * int(SECOND) & M64
    return z ^ z >> 31


KEYS = np.array([fin((place + 1) * int(STEP) & M64) for place in range(256)], np.uint64).reshape(2, 128)


def products(x: np.ndarray) -> np.ndarray:
    return (x & np.uint64(0xFFFFFFFF)) * (x >> np.uint64(32))


def shares(words: np.ndarray, keys: np.ndarray = KEYS) -> tuple[np.ndarray, np.ndarray]:
    """What each word of a block adds to what is stirred into A and into B."""
    count = words.shape[-1]
    return (
        products(words + keys[0, :count]) + words * FIRST,
        products(words ^ keys[1, :count]) + words * SECOND,
    )


def stir(z: int) -> int:
    z = (z ^ z >> 29) * int(FIRST) & M64
    z = (z ^ z >> 32) * int(SECOND) & M64
    return z ^ z >> 32


def spelled_out(raw: bytes) -> str:
    sums = [0, 0]
    words = np.frombuffer(raw + bytes(-len(raw) % 8), "<u8")
    for block in range(0, len(words), 128):
        for which, share in enumerate(shares(words[block : block + 128])):
            place = 2 * (block // 128) + 1 + which
            sums[which] += stir((sum(map(int, share)) + place * int(STEP)) & M64)
    upper = fin((sums[0] + len(raw) * int(STEP)) & M64)
    return f"{upper:016x}{fin(sums[1] & M64 ^ (upper << 32 & M64 | upper >> 32)):016x}"


@pytest.mark.parametrize(
    "length", [*range(35), 1023, 1024, 1025, 1033, 2048, 8192, 8193, 65535, 65536, 65537, 65545, 200_001]
)
def test_fingerprints_follow_the_definition(backend, length):
    raw = rng.bytes(length)
    right = spelled_out(raw)
    assert backend(np.frombuffer(raw, np.uint8), "u8").fingerprint == right
    assert fingerprint(np.frombuffer(b"." + raw, np.uint8)[1:]) == right


def structured() -> Iterator[bytes]:
    """Arrays that differ as little, or as regularly, as real ones do."""
    normal = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    for base in (np.zeros(64, np.float32), np.ones(64, np.float32), normal):
        raw = base.tobytes()
        whole = int.from_bytes(raw, "little")
        for bit in range(8 * len(raw)):  # single bit flips
            yield (whole ^ 1 << bit).to_bytes(len(raw), "little")
        signs = [1 << 32 * i + 31 for i in range(64)]
        for i in range(64):  # two signs, and two neighbouring pairs of signs
            for j in range(i):
                yield (whole ^ signs[i] ^ signs[j]).to_bytes(len(raw), "little")
                if i % 2 and j % 2:
                    four = signs[i] ^ signs[j] ^ signs[i - 1] ^ signs[j - 1]
                    yield (whole ^ four).to_bytes(len(raw), "little")
    for i in range(64):  # swaps, rotations
        for j in range(i):
            swapped = normal.copy()
            swapped[[i, j]] = swapped[[j, i]]
            yield swapped.tobytes()
        yield np.roll(normal, i).tobytes()
    rows = np.random.default_rng(4).standard_normal((16, 256)).astype(np.float32)  # a block of the definition each
    for i in range(16):  # exchanged blocks, halves and words of blocks, and the same in all of them
        for j in range(i):
            for width in (256, 128, 2):
                swapped = rows.copy()
                swapped[[i, j], :width] = swapped[[j, i], :width]
                yield swapped.tobytes()
        yield np.roll(rows, i + 1, axis=0).tobytes()
        yield np.roll(rows, i + 1, axis=1).tobytes()
        yield (rows * np.float32(2.0**i)).tobytes()
    for length in range(1, 3000):  # zeros, ones in every bit
        yield bytes(length)
        yield b"\xff" * length
    for value in range(-2000, 2000):  # constants, tiny integers, arithmetic sequences
        yield np.full(7, value, np.int64).tobytes()
        yield np.full(9, value, np.float32).tobytes()
        yield (np.arange(8) * value).tobytes()
        yield (np.arange(8) + value).astype(np.int32).tobytes()


def test_nothing_structured_collides():
    inputs = set(structured())
    assert len(inputs) > 30_000
    found = {fingerprint(np.frombuffer(raw, np.uint8)) for raw in inputs}
    assert len(found) == len(inputs)
    assert len({text[:16] for text in found}) == len(inputs)  # neither half alone
    assert len({text[16:] for text in found}) == len(inputs)


def compensated(words: np.ndarray, mask: int, keys: np.ndarray = KEYS) -> int:
    """How often flipping `mask` in two words of a block leaves it as it was, over all pairs of places in all blocks."""
    before, after = shares(words, keys), shares(words ^ np.uint64(mask), keys)
    a, b = after[0] - before[0], after[1] - before[1]
    other = a > -a  # a change and its opposite become equal rows
    block = np.broadcast_to(np.arange(len(words), dtype=np.uint64)[:, None], words.shape)
    rows = np.stack([block, np.where(other, -a, a), np.where(other, -b, b)], axis=-1).reshape(-1, 3)
    return len(rows) - len(np.unique(rows, axis=0))


MASKS = {
    "one f32": 1 << 63, "the other f32": 1 << 31, "both f32": 1 << 63 | 1 << 31, "four f16": 0x8000800080008000,
    "two f16": 0x0000800000008000, "last bits": 1 << 32 | 1, "exponents": 1 << 62 | 1 << 30, "eight bytes": 0x8080808080808080,
}  # fmt: skip
PLACES = 1 << 16


def fillings() -> Iterator[np.ndarray]:
    draw = np.random.default_rng(9)
    for words in (
        np.zeros(PLACES, np.uint64),
        np.ones(2 * PLACES, np.float32).view(np.uint64),
        draw.standard_normal(2 * PLACES).astype(np.float32).view(np.uint64),
        draw.integers(0, 50_000, PLACES).astype(np.uint64),
    ):
        yield words.reshape(-1, 128)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_no_two_changes_cancel(mask):
    """Four million pairs of places for each filling: negated neighbours are what defeats simpler sums."""
    for words in fillings():
        assert compensated(words, mask) == 0


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_change_is_seen_in_each_half(mask, half):
    """A product alone would not see what is multiplied by zero."""
    for words in (*fillings(), *(-KEYS[:1].repeat(4, axis=0) + np.uint64(1),), *(KEYS[1:].repeat(4, axis=0),)):
        words = words.reshape(-1, 128)
        before, after = shares(words)[half], shares(words ^ np.uint64(mask))[half]
        assert (before != after).all()


def test_a_definition_without_keys_is_caught():
    words = np.ones(2 * PLACES, np.float32).view(np.uint64).reshape(-1, 128)
    assert compensated(words, MASKS["both f32"], np.zeros_like(KEYS)) > 0


# Two back ends -----------------------------------------------------------------------------------------------------


def test_the_back_end_in_use_is_named():
    name = subject.backend()
    assert name in BACKENDS
    assert (name == "numba") == (subject._numba() is not None)


def test_importing_loads_no_compiler(python):
    run = python("import sys, twintrace.store.digest; print('numba' in sys.modules, 'llvmlite' in sys.modules)")
    assert run.stdout == "False False\n", run.stderr


@pytest.mark.parametrize("trouble", ["sys.modules['numba'] = None", "os.environ['NUMBA_DISABLE_JIT'] = '1'"])
def test_without_a_working_numba_numpy_serves(python, trouble):
    code = f"""
import os, sys
{trouble}
import numpy as np
from twintrace.store import digest
digest.warm_up()
array = np.frombuffer(b"twintrace", np.uint8)
print(digest.backend(), digest.fingerprint(array), digest.digest(array, "u8").fingerprint)
"""
    run = python(code)
    assert run.stdout.split() == ["numpy", *[GOLDEN[b"twintrace"]] * 2], run.stderr


class Unwritable:
    """Numba's cache where no folder can be written."""

    def __init__(self, function):
        raise RuntimeError(f"cannot cache function {function.__name__!r}: no locator available")


@pytest.mark.parametrize("fault", ["no folder", "disk full"])
def test_an_unwritable_cache_costs_time_and_nothing_else(monkeypatch, fault):
    from numba.core import caching, types

    from twintrace.engine import compiling
    from twintrace.store import digest_numba

    attempts = []
    if fault == "no folder":
        monkeypatch.setattr(compiling, "_KernelCache", lambda function: attempts.append(1) or Unwritable(function))
    else:

        def save(self, *_):
            attempts.append(1)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(caching.FunctionCache, "load_overload", lambda *_: None)
        monkeypatch.setattr(caching.FunctionCache, "save_overload", save)
    data = np.frombuffer(b"twintrace", np.uint8)
    kernel = compiling.compiled((types.intp, types.intp), digest_numba.fingerprint)
    upper, lower = kernel(subject.address_of(data), data.size)
    assert f"{upper:016x}{lower:016x}" == GOLDEN[b"twintrace"]
    assert attempts


# Elements that do not lie side by side ------------------------------------------------------------------------------

VIEWS = {
    "rows with gaps": lambda a: a[:, 2:5],
    "transposed": lambda a: a.transpose(2, 0, 1),
    "every third": lambda a: a[::2, :, ::3],
    "backwards": lambda a: a[::-1, :, ::-1],
    "one for all": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "one axis": lambda a: a[3, :, 1],
    "one element": lambda a: a[2:3, 1:2, 4:5],
    "none": lambda a: a[:, 3:3, 1:],
    "five axes": lambda a: a.reshape(2, 3, 7, 1, 5)[::-1, :, 1::2].transpose(4, 0, 3, 2, 1),
}


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("view", VIEWS)
def test_elements_are_brought_together_in_order(view, size):
    whole = np.frombuffer(rng.bytes(6 * 7 * 5 * size), np.dtype(f"V{size}")).reshape(6, 7, 5)
    found = VIEWS[view](whole)
    runs = Runs.of(found.shape, found.strides, size)
    target = np.full(runs.nbytes + 2, 0xAA, np.uint8)
    gather = subject.gatherer()
    assert gather is not None, "numba is installed and does not compile this"
    gather(subject.address_of(found), runs.table, runs.size, subject.address_of(target) + 1)
    assert target[1:-1].tobytes() == found.tobytes()
    assert target[0] == target[-1] == 0xAA, "nothing was written beside it"


BIG = {
    "one for all": lambda a: np.broadcast_to(a[:1, :1], (3000, 1000)),
    "a row for all": lambda a: np.broadcast_to(a[:1], (3000, a.shape[1])),
    "turned": lambda a: a.T,
    "every other": lambda a: a[::2, ::2],
    "a long row with gaps": lambda a: a.reshape(-1)[::3],
    "axes": lambda a: a.reshape(7, 100, 7, 200)[:, ::-1, 1:].transpose(2, 0, 3, 1),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8", "i64", "c64"])
@pytest.mark.parametrize("view", BIG)
def test_what_is_gathered_piece_by_piece_is_the_same(view, dtype, monkeypatch):
    monkeypatch.setattr(subject, "_SLICE", 1 << 14)
    whole = held(ordinary(dtype, 980_000), dtype).reshape(700, 1400)
    found = BIG[view](whole)
    runs = Runs.of(found.shape, found.strides, found.itemsize)
    numbers = subject.numbers_along(subject.gatherer(), subject.address_of(found), runs, dtype, True)
    expected = digest(np.ascontiguousarray(found), dtype)
    assert numbers[8] == expected.fingerprint
    assert not fault(Statistics(*numbers[:8]), expected.statistics)
