"""Every number of a Measurement against exact arithmetic, for every element type and every unpleasant case, by both kernels.

The types come from model/tensors.py: a new one without an oracle fails here.
"""

import dataclasses
import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from definitions import PRECISION, expected, fault
from elements import READ, SPECIAL, held, ordinary, rng

from twintrace.measure import values as subject
from twintrace.measure.formats import form
from twintrace.measure.values import HEAT_COLUMNS, HEAT_ROWS, measure, misfit
from twintrace.model.errors import UsageError
from twintrace.model.measurements import HISTOGRAM_EDGES, Measurement, Worst
from twintrace.model.pairs import Layout
from twintrace.model.tensors import DTYPES, Spec

INF, NAN = math.inf, math.nan
RTOL, ATOL = 1.3e-3, 1e-8
BACKENDS = {"numpy": lambda: subject._numpy_kernel, "numba": subject._numba_kernel}
TOLERANCES = {"rtol": RTOL, "atol": ATOL}


@pytest.fixture(params=BACKENDS)
def backend(request) -> Callable[..., Measurement]:
    """`backend(left, right, left_dtype, right_dtype, layout)`: measured by one named kernel, whichever would be chosen here."""

    def run(left, right, left_dtype, right_dtype, layout=Layout(), *, rtol=RTOL, atol=ATOL, heat=False) -> Measurement:  # noqa: B008
        kernel = BACKENDS[request.param]()
        assert kernel is not None, "numba is installed and does not compile the kernel"
        return subject._measure(kernel, left, right, form(left_dtype), form(right_dtype), layout, rtol, atol, heat)

    return run


def definition(left: bytes, right: bytes, left_dtype: str, right_dtype: str, shape=None) -> Measurement:
    one, two = READ[left_dtype](left), READ[right_dtype](right)
    return expected(one, two, left_dtype, right_dtype, shape or (len(one),), RTOL, ATOL)


def exact(*dtypes: str) -> bool:
    return not any(dtype.startswith("c") for dtype in dtypes)


# The check rejects -------------------------------------------------------------------------------------------------


def test_the_check_rejects_each_number_that_is_off():
    right = definition(ordinary("f32", 50), ordinary("f32", 50), "f32", "f32")
    assert fault(right, right) is None
    for field in dataclasses.fields(Measurement):
        value = getattr(right, field.name)
        wrong = {
            int: lambda value: value + 1,
            float: lambda value: value * (1 + 1e-9) + 1e-300,
            tuple: lambda value: (value[0] + 1, *value[1:]),
            Worst: lambda value: dataclasses.replace(value, index=(49 - value.index[0],)),
            type(None): lambda value: 1.0,
        }[type(value)](value)
        found = fault(dataclasses.replace(right, **{field.name: wrong}), right)
        assert found is not None, f"{field.name} = {wrong} passed for {value}"
        assert found.startswith(field.name)
        if value is not None:
            assert fault(dataclasses.replace(right, **{field.name: None}), right)


def test_the_check_of_inexact_numbers_is_not_blind():
    right = definition(ordinary("c64", 50), ordinary("c64", 50), "c64", "c64")
    assert fault(dataclasses.replace(right, max_abs=right.max_abs * (1 + 1e-11)), right, exact=False)
    assert fault(dataclasses.replace(right, equal=right.equal + 1), right, exact=False)


# Every element type ------------------------------------------------------------------------------------------------


def contents(dtype: str):
    width = DTYPES[dtype]
    yield "nothing", b"", b""
    yield "one", ordinary(dtype, 1), ordinary(dtype, 1)
    yield "zeros", bytes(11 * width), bytes(11 * width)
    yield "zeros on the left", bytes(16 * width), ordinary(dtype, 16)
    yield "zeros on the right", ordinary(dtype, 16), bytes(16 * width)
    raw = ordinary(dtype, 70)
    yield "the same", raw, raw
    yield "ordinary", ordinary(dtype, 101), ordinary(dtype, 101)
    yield "any bits", rng.bytes(101 * width), rng.bytes(101 * width)
    some = bytearray(raw)
    some[13 * width] ^= 1
    yield "one bit", raw, bytes(some)
    odd = SPECIAL.get(dtype, rng.bytes(12 * width))
    yield "odd", odd, odd
    turned = b"".join(odd[i : i + width] for i in range(len(odd) - width, -1, -width))
    yield "odd against odd", odd, turned
    yield "odd against ordinary", odd, ordinary(dtype, len(odd) // width)
    # Past the blocks of the compiled kernel; what is not finite sits in one block of several.
    long = ordinary(dtype, 1100) + odd + ordinary(dtype, 1100)
    other = bytearray(long)
    other[: 40 * width] = ordinary(dtype, 40)
    other[-90 * width :] = ordinary(dtype, 90)
    yield "blocks", long, bytes(other)


CASES = [
    pytest.param(dtype, left, right, id=f"{dtype}-{name}") for dtype in DTYPES for name, left, right in contents(dtype)
]


@pytest.mark.parametrize(("dtype", "left", "right"), CASES)
def test_every_type_against_exact_arithmetic(backend, dtype, left, right):
    with np.errstate(all="raise"):
        found = backend(held(left, dtype), held(right, dtype), dtype, dtype)
    assert not fault(found, definition(left, right, dtype, dtype), exact=exact(dtype))


MIXED = [
    ("f32", "bf16"), ("bf16", "f32"), ("f64", "f32"), ("f16", "bf16"), ("f32", "f8e4m3fn"), ("f8e4m3fnuz", "f8e4m3fn"),
    ("f32", "i32"), ("b8", "f32"), ("u8", "i64"), ("i64", "u64"), ("u64", "i32"), ("i64", "b8"), ("c64", "f32"),
    ("bf16", "c32"), ("c128", "c64"), ("i32", "c64"),
]  # fmt: skip


@pytest.mark.parametrize(("left_dtype", "right_dtype"), MIXED)
def test_two_types_at_once(backend, left_dtype, right_dtype):
    for count in (7, 1500):
        left, right = ordinary(left_dtype, count), ordinary(right_dtype, count)
        found = backend(held(left, left_dtype), held(right, right_dtype), left_dtype, right_dtype)
        right_one = definition(left, right, left_dtype, right_dtype)
        assert not fault(found, right_one, exact=exact(left_dtype, right_dtype))


def test_a_packed_type_beside_a_plain_one(backend):
    """Two numbers in a byte: the shape counts bytes, the numbers are counted."""
    packed = rng.bytes(3 * 700)
    plain = np.array(READ["f4e2m1fn_x2"](packed), np.float32).reshape(3, 1400)
    plain[2, 1399] += 0.25
    found = backend(plain, held(packed, "f4e2m1fn_x2").reshape(3, 700), "f32", "f4e2m1fn_x2")
    assert found.count == 4200
    assert found.equal == 4199
    assert found.worst.index == (2, 1399)
    assert found.worst.right == plain[2, 1399] - 0.25
    nothing = np.zeros((), np.uint8)
    assert backend(nothing, nothing + np.uint8(0x20), "f4e2m1fn_x2", "f4e2m1fn_x2").worst == Worst((1,), 0.0, 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_two_kernels_agree(dtype):
    """On more data than exact arithmetic has patience for: counts and maxima to the last bit."""
    left, right = bytearray(ordinary(dtype, 90_001)), bytearray(ordinary(dtype, 90_001))
    right[: len(right) // 2] = left[: len(right) // 2]
    for one, two in ((left, right), (rng.bytes(len(left)), rng.bytes(len(left)))):
        arguments = (
            held(bytes(one), dtype),
            held(bytes(two), dtype),
            form(dtype),
            form(dtype),
            Layout(),
            RTOL,
            ATOL,
            True,
        )
        found, other = (subject._measure(kernel(), *arguments) for kernel in BACKENDS.values())
        assert not fault(dataclasses.replace(found, heat=None), dataclasses.replace(other, heat=None), rel=1e-11)
        np.testing.assert_array_equal(found.heat.values, other.heat.values)


# Unpleasant cases, with the numbers written out --------------------------------------------------------------------

f32, f64 = np.float32, np.float64
BINS = len(HISTOGRAM_EDGES) + 2


@pytest.mark.parametrize(
    ("dtype", "left", "right", "numbers"),
    [
        pytest.param(
            "f32",
            [NAN, 1],
            [NAN, 1],
            {"equal": 2, "finite": 1, "nan_both": 1, "close": 1.0, "max_abs": 0.0},
            id="NaN in the same place",
        ),
        pytest.param(
            "f32",
            [NAN, 1],
            [1, NAN],
            {
                "equal": 0,
                "finite": 0,
                "nan_left": 1,
                "nan_right": 1,
                "nan_both": 0,
                "max_abs": None,
                "cosine": None,
                "close": 0.0,
                "max_ulp": None,
                "worst": None,
            },
            id="NaN in different places",
        ),
        pytest.param(
            "f32",
            [INF, -INF, 2],
            [INF, INF, 2],
            {"equal": 2, "inf_left": 2, "inf_right": 2, "inf_both": 1, "close": 2 / 3, "sign_flips": 0, "cosine": 1.0},
            id="infinities",
        ),
        pytest.param(
            "f32",
            [NAN, NAN],
            [NAN, NAN],
            {
                "equal": 2,
                "finite": 0,
                "max_abs": None,
                "max_left": None,
                "rmse": None,
                "close": 1.0,
                "within_1_1000": 1.0,
                "histogram": (0,) * BINS,
            },
            id="nothing finite",
        ),
        pytest.param(
            "f32",
            [],
            [],
            {
                "count": 0,
                "equal": 0,
                "max_abs": None,
                "close": None,
                "within_5_1000": None,
                "cosine": None,
                "worst": None,
                "heat": None,
            },
            id="empty",
        ),
        pytest.param(
            "f32",
            [0, 0],
            [0, 0],
            {
                "equal": 2,
                "cosine": None,
                "max_rel": None,
                "mape": None,
                "euclidean": 0.0,
                "max_ulp": 0.0,
                "worst": None,
            },
            id="two zero vectors",
        ),
        pytest.param(
            "f32",
            [0, 0],
            [3, 4],
            {
                "cosine": None,
                "max_rel": None,
                "max_abs": 4.0,
                "euclidean": 5.0,
                "within_1_1000": 0.0,
                "worst": Worst((1,), 0.0, 4.0),
            },
            id="a zero vector",
        ),
        pytest.param(
            "f32", [0.0, -0.0], [-0.0, 0.0], {"equal": 2, "sign_flips": 0, "max_ulp": 0.0}, id="zeros of either sign"
        ),
        pytest.param(
            "f32",
            [2**-149, 0],
            [0, 2**-149],
            {"equal": 0, "max_ulp": 1.0, "max_abs": 2**-149, "max_rel": 1.0, "sign_flips": 0},
            id="denormals",
        ),
        pytest.param(
            "f32",
            [1.0, 2.0],
            [float(np.nextafter(f32(1), f32(2))), float(np.nextafter(f32(2), f32(3)))],
            {"max_ulp": 1.0, "max_abs": 2**-22},
            id="neighbours are one ULP apart",
        ),
        pytest.param("f64", [1.0], [1.0 - 2**-53], {"max_ulp": 0.5}, id="and half of one just below a power of two"),
        pytest.param("f32", [1.0, -3.0, 2.0], [-1.0, 3.0, 2.0], {"sign_flips": 2, "max_rel": 2.0}, id="flipped signs"),
        pytest.param(
            "f32",
            [1000, 1000, 1000],
            [1000.5, 1002, 1010],
            {"within_1_1000": 1 / 3, "within_5_1000": 2 / 3},
            id="thousandths",
        ),
        pytest.param(
            "i64",
            [2**63 - 1, -(2**63)],
            [2**63 - 2, -(2**63) + 1],
            {"equal": 0, "max_abs": 1.0, "max_ulp": None, "worst": Worst((0,), 2**63 - 1, 2**63 - 2)},
            id="i64 extremes",
        ),
        pytest.param("i64", [-(2**63)], [2**63 - 1], {"max_abs": 2.0**64, "sign_flips": 1}, id="i64 from end to end"),
        pytest.param(
            "u64",
            [2**64 - 1, 0],
            [2**64 - 2, 2**64 - 1],
            {"equal": 0, "max_abs": 2.0**64, "worst": Worst((1,), 0, 2**64 - 1)},
            id="u64 extremes",
        ),
        pytest.param(
            "b8", [True, False], [True, True], {"equal": 1, "max_abs": 1.0, "worst": Worst((1,), 0, 1)}, id="bool"
        ),
        pytest.param(
            "c64",
            [3 + 4j, 1],
            [3 - 4j, 1],
            {
                "max_abs": 8.0,
                "max_rel": 1.6,
                "equal": 1,
                "max_ulp": None,
                "sign_flips": 0,
                "worst": Worst((0,), 5.0, 5.0),
            },
            id="complex",
        ),
        pytest.param(
            "c64",
            [complex(NAN, 1), complex(INF, 2)],
            [complex(1, NAN), complex(INF, 3)],
            {"nan_both": 1, "inf_left": 1, "inf_right": 1, "inf_both": 0, "equal": 1},
            id="complex and not finite",
        ),
        pytest.param(
            "f64",
            [1e200, -1e200],
            [1e200, -3e200],
            {"rms_left": 1e200, "euclidean": 2e200, "max_rel": 2.0},
            id="squares beyond float64",
        ),
        pytest.param(
            "f64",
            [1e-200, 1.0],
            [3e-200, 1.0],
            {"euclidean": 2e-200, "rms_left": math.sqrt(0.5)},
            id="squares below float64",
        ),
        pytest.param(
            "f64",
            [1.7e308, 1.0],
            [-1.7e308, 1.0],
            {
                "max_abs": INF,
                "equal": 1,
                "finite": 2,
                "cosine": -1.0,
                "rms_left": 1.7e308 / math.sqrt(2),
                "max_ulp": INF,
            },
            id="an error beyond float64",
        ),
        pytest.param("f64", [5e-324, 1.0], [1.0, 1.0], {"max_rel": INF, "mean_rel": INF}, id="a ratio beyond float64"),
        pytest.param(
            "f32",
            [3.0, -1e9, 4.0, -1e9, NAN],
            [3.0, -1e9, 4.5, -1e9, NAN],
            {"filled": 2, "rms_rest": math.sqrt((9 + 4.5**2) / 2), "rms_left": math.sqrt((2e18 + 25) / 4)},
            id="a fill value",
        ),
        pytest.param(
            "f32",
            [1.0, -1e9, 2.0, -2e9, -1e9],
            [1.5, -1e9, 2.0, -2e9, -1e9],
            {"filled": 3, "rms_rest": math.sqrt((2.25 + 4) / 2)},
            id="fill values that were added up",
        ),
        pytest.param("f32", [1.0, -1e9, 2.0], [1.5, -1e9, 2.0], {"filled": 0, "rms_rest": None}, id="one large number"),
        pytest.param(
            "f32",
            [1.0, 1e9, 2e9, 3e9, 4e9, 5e9, 5e9],
            [1.5, 1e9, 2e9, 3e9, 4e9, 5e9, 5e9],
            {"filled": 0},
            id="many large numbers",
        ),
        pytest.param("f32", [1.0, -1e9, -1e9], [1.5, -1e9, -2e9], {"filled": 0}, id="a fill value that differs"),
        pytest.param("f32", [1e7, -1e9, -1e9], [2e7, -1e9, -1e9], {"filled": 0}, id="too near to be a fill value"),
    ],
)
def test_unpleasant_cases(backend, dtype, left, right, numbers):
    storage = {"f32": f32, "f64": f64, "i64": np.int64, "u64": np.uint64, "b8": np.bool_, "c64": np.complex64}[dtype]
    with np.errstate(all="raise"):
        found = backend(np.array(left, storage), np.array(right, storage), dtype, dtype)
    for name, wanted in numbers.items():
        value = getattr(found, name)
        same = value == pytest.approx(wanted, rel=1e-14) if isinstance(wanted, float) else value == wanted
        assert same, f"{name}: {value!r}, not {wanted!r}"


def test_a_modulus_beyond_float64_counts_as_an_infinity(backend):
    far = np.array([1.7e308 + 1.7e308j, 1])
    found = backend(far, far, "c128", "c128")
    assert (found.inf_both, found.equal, found.finite) == (1, 2, 1)


def test_equal_vectors_have_a_cosine_of_one_exactly(backend):
    array = held(ordinary("f32", 5000), "f32")
    assert backend(array, array, "f32", "f32").cosine == 1.0
    assert backend(array, array * f32(4), "f32", "f32").cosine == pytest.approx(1.0, rel=1e-15)
    assert backend(array, -array, "f32", "f32").cosine == -1.0


def test_the_worst_element_is_the_first_of_its_size(backend):
    left = np.zeros((3, 2000), f32)
    right = left.copy()
    right[1, 7] = right[2, 1999] = -2.0
    assert backend(left, right, "f32", "f32").worst == Worst((1, 7), 0.0, -2.0)


@pytest.mark.parametrize("dtype", [dtype for dtype in PRECISION if DTYPES[dtype] <= 2])
def test_each_step_of_a_small_float_is_at_most_one_ulp(backend, dtype):
    """Neighbours in the order of the values, for every type whose codes can all be listed."""
    raw = np.arange(256 ** DTYPES[dtype], dtype=np.uint16).astype(f"<u{DTYPES[dtype]}")
    values = np.array(READ[dtype](raw.tobytes()))[:: 2 if dtype == "f4e2m1fn_x2" else 1]
    raw = raw[np.isfinite(values)]
    order = np.argsort(values[np.isfinite(values)], kind="stable")
    keep = order if dtype != "f4e2m1fn_x2" else order[::16]
    low, high = raw[keep[:-1]], raw[keep[1:]]
    if dtype == "f4e2m1fn_x2":
        low, high = low & 15, high & 15
    storage = np.float16 if dtype == "f16" else low.dtype
    # From one power of two to the next is the only step of e8m0, and half of what the higher one's last place is worth.
    wanted = 0.5 if dtype == "f8e8m0fnu" else 1.0
    assert backend(low.view(storage), high.view(storage), dtype, dtype).max_ulp == wanted


# Arrays as they come -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "u8", "c128", "i64", "c64", "f8e5m2"])
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1)])
def test_the_right_side_may_have_its_axes_in_another_order(backend, dtype, axes):
    shape = (5, 37, 11)
    left = held(ordinary(dtype, math.prod(shape)), dtype).reshape(shape)
    plain = held(ordinary(dtype, math.prod(shape)), dtype).reshape(shape)
    right = np.ascontiguousarray(plain.transpose(np.argsort(axes)))
    found = backend(left, right, dtype, dtype, Layout(axes), heat=True)
    assert found == backend(left, plain, dtype, dtype, heat=True)
    flat = backend(left.reshape(-1), right, dtype, dtype, Layout(axes, True))
    assert flat.worst.index[0] == np.ravel_multi_index(found.worst.index, shape)
    assert not fault(dataclasses.replace(flat, worst=found.worst), dataclasses.replace(found, heat=None))


def test_strides_alignment_and_writability_make_no_difference(backend):
    raw, other = ordinary("f32", 4000), ordinary("f32", 4000)
    left, right = held(raw, "f32").reshape(40, 100), held(other, "f32").reshape(40, 100)
    plain = backend(left, right, "f32", "f32")
    shifted = np.frombuffer(b"x" + raw, np.uint8)[1:].view(f32).reshape(40, 100)
    assert not shifted.flags.aligned
    spaced = np.zeros((80, 300), f32)
    spaced[::2, ::3] = left
    turned = np.ascontiguousarray(left[::-1, ::-1])[::-1, ::-1]
    for array in (shifted, spaced[::2, ::3], turned, np.asfortranarray(left), left.copy()):
        assert backend(array, right, "f32", "f32") == plain
        assert not fault(dataclasses.replace(backend(right, array, "f32", "f32"), **_turned(plain)), plain), (
            "the right side may lie anyhow too"
        )
    one = np.broadcast_to(f32(2.5), (40, 100))
    assert backend(one, right, "f32", "f32") == backend(one.copy(), right, "f32", "f32")


def _turned(plain: Measurement) -> dict[str, object]:
    """What depends on which side is the left one, taken from the other measurement."""
    names = ("max_rel", "mean_rel", "mape", "within_1_1000", "within_5_1000", "close", "worst", "histogram")
    names += ("max_left", "max_right", "rms_left", "rms_right")
    return {name: getattr(plain, name) for name in names}


def test_the_pieces_of_a_mapped_file_are_measured_where_they_are(backend, tmp_path):
    path = tmp_path / "payload.bin"
    path.write_bytes(b"odd" + ordinary("f32", 3000))
    mapped = np.memmap(path, np.uint8, "r")[3:].view(f32)
    assert backend(mapped, np.asarray(mapped), "f32", "f32").equal == 3000


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (7, 1), (0, 3), (3, 0)])
def test_small_and_empty_shapes(backend, shape):
    left, right = np.zeros(shape, f32), np.ones(shape, f32)
    found = backend(left, right, "f32", "f32", heat=True)
    assert found.count == left.size
    assert found.worst == (Worst((0,) * len(shape), 0.0, 1.0) if left.size else None)
    assert (found.heat is None) == (not left.size)
    assert backend(left, right, "f32", "f32", Layout(tuple(range(len(shape)))[::-1], True)).count == left.size


# Heat --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (3000,), (7, 9), (70, 45), (4, 33, 100), (2, 3, 1), (5000, 2)])
def test_heat_is_the_largest_error_of_each_cell(backend, shape):
    left = rng.standard_normal(shape).astype(f32)
    right = left + rng.standard_normal(shape).astype(f32)
    found = backend(left, right, "f32", "f32", heat=True).heat
    errors = np.abs(np.asarray(right, f64) - left).reshape(-1, shape[-1] if shape else 1)
    rows, columns = errors.shape
    wanted = np.zeros((min(rows, HEAT_ROWS), min(columns, HEAT_COLUMNS)))
    for row in range(rows):
        for column in range(columns):
            at = row * wanted.shape[0] // rows, column * wanted.shape[1] // columns
            wanted[at] = max(wanted[at], errors[row, column])
    assert (found.rows, found.columns) == wanted.shape
    assert found.values == tuple(wanted.reshape(-1))


def test_a_cell_with_a_lonely_nan_is_nan(backend):
    left = np.zeros((64, 64), f32)
    right = left.copy()
    left[0, 0] = right[0, 0] = NAN  # on both sides: nothing to see
    right[63, 63] = NAN
    right[5, 5] = INF
    heat = np.reshape(backend(left, right, "f32", "f32", heat=True).heat.values, (32, 32))
    assert [tuple(place) for place in np.argwhere(np.isnan(heat))] == [(2, 2), (31, 31)]
    assert np.nansum(heat) == 0


# What cannot be measured -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "layout", "text"),
    [
        (Spec("f32", (2, 3)), Spec("f32", (3, 2)), Layout(), "f32[2, 3] on the left and f32[3, 2] on the right do not have"),
        (Spec("f32", (2, 3)), Spec("bf16", (2, 3)), Layout((1, 0)), "bf16[2, 3] (axes 1, 0) on the right"),
        (Spec("f32", (6,)), Spec("f32", (2, 3)), Layout(), "f32[6] on the left"),
        (Spec("f32", (1,)), Spec("f32", ()), Layout(), "f32[] on the right"),
        (Spec("f32", (7,)), Spec("f32", (2, 3)), Layout(None, True), "(reshaped)"),
        (Spec("f32", (2, 3)), Spec("f32", (2, 3)), Layout((0, 0)), "no order of the 2 axes"),
        (Spec("f32", (2, 3)), Spec("f32", (2, 3)), Layout((0, 1, 2)), "no order of the 2 axes"),
        (Spec("f32", (2, 3)), Spec("f4e2m1fn_x2", (2, 3)), Layout(), "f4e2m1fn_x2[2, 3] on the right"),
        (Spec("f4e2m1fn_x2", (3, 2)), Spec("f4e2m1fn_x2", (2, 3)), Layout((1, 0)), "two numbers in a byte"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_with_both_specs(left, right, layout, text):
    assert text in misfit(left, right, layout)
    arrays = [np.zeros(spec.shape, {"f32": f32, "bf16": np.uint16}.get(spec.dtype, np.uint8)) for spec in (left, right)]
    with pytest.raises(UsageError) as caught:
        measure(*arrays, left.dtype, right.dtype, layout, **TOLERANCES)
    assert text in str(caught.value)


def test_what_fits_has_no_misfit():
    assert misfit(Spec("f32", (2, 3)), Spec("bf16", (3, 2)), Layout((1, 0))) is None
    assert misfit(Spec("f32", (6,)), Spec("bf16", (3, 2)), Layout(None, True)) is None
    assert misfit(Spec("f32", (2, 3, 8)), Spec("f4e2m1fn_x2", (3, 2, 4)), Layout((1, 0, 2))) is None


def test_an_array_in_another_type_than_named_is_refused():
    with pytest.raises(UsageError, match="bf16 on the right is held in 2 bytes of kind 'u', got an array of float16"):
        measure(np.zeros(3, f32), np.zeros(3, np.float16), "f32", "bf16", **TOLERANCES)
    with pytest.raises(UsageError, match="unknown element type 'f33'"):
        measure(np.zeros(3, f32), np.zeros(3, f32), "f32", "f33", **TOLERANCES)


# How it runs -------------------------------------------------------------------------------------------------------


def test_without_numba_numpy_takes_over(python):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\nfrom twintrace.measure.values import backend, measure\n"
        "print(backend(), measure(np.ones(3), np.ones(3), 'f64', 'f64', rtol=0, atol=0).equal)"
    )
    assert python(code).stdout.split() == ["numpy", "3"]


def test_a_numba_that_is_switched_off_is_as_good_as_none(python):
    code = (
        "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'\n"
        "import numpy as np\nfrom twintrace.measure.values import backend, measure\n"
        "print(backend(), measure(np.ones(3), np.ones(3), 'f64', 'f64', rtol=0, atol=0).equal)"
    )
    assert python(code).stdout.split() == ["numpy", "3"]


def test_importing_the_room_compiles_nothing(python):
    code = "import sys, twintrace.measure.values, twintrace.measure.statistics; print('numba' in sys.modules)"
    assert python(code).stdout.strip() == "False"


def test_threads_do_not_disturb_each_other():
    pairs = [(held(ordinary("f32", 30_000), "f32"), held(ordinary("f32", 30_000), "f32")) for _ in range(8)]
    alone = [measure(*pair, "f32", "f32", **TOLERANCES) for pair in pairs]
    together: list[Measurement | None] = [None] * len(pairs)

    def work(place: int) -> None:
        together[place] = measure(*pairs[place], "f32", "f32", **TOLERANCES)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="counts memory the way Linux does")
@pytest.mark.parametrize("layout", [Layout(), Layout((1, 0))])
def test_memory_does_not_grow_with_the_tensors(backend, layout):
    """64 MB on the left and 16 MB, of another type, on the right: nothing of that order is allocated."""
    left = np.ones((4096, 4096), f32)
    right = np.full((4096, 4096), 0x38, np.uint8)
    backend(left[:2], right[:2], "f32", "f8e4m3fn")
    peak()
    before = peak()
    backend(left, right, "f32", "f8e4m3fn", layout)
    assert peak() - before < 8 << 20
    whole = left.astype(f64)
    assert peak() - before > 64 << 20, "the check sees a temporary of full size"
    del whole


def peak() -> int:
    """Bytes, the most that this process has held since it was asked last."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return found << 10
