"""Every number of Ratios against the page's definition, one element after the other, for every element type, by both kernels."""

import math

import numpy as np
import pytest
from elements import READ, SPECIAL, held, ordinary, rng

from twintrace.measure import kernel_numpy
from twintrace.measure import ratios as subject
from twintrace.measure.formats import form
from twintrace.measure.ratios import ratios
from twintrace.model.errors import UsageError
from twintrace.model.measurements import Ratios
from twintrace.model.tensors import DTYPES

INF, NAN = math.inf, math.nan
BACKENDS = {"numpy": lambda: kernel_numpy.relate, "numba": subject._numba_kernel}
SINGLE = {"f32", "f16", "bf16"} | {dtype for dtype in DTYPES if dtype.startswith(("f8", "f4"))}


@pytest.fixture(params=BACKENDS)
def backend(request):
    kernel = BACKENDS[request.param]()
    assert kernel is not None, "numba is installed and does not compile the kernel"
    return lambda left, right, one, two: subject._ratios(kernel, left, right, form(one), form(two))


def definition(left: list, right: list, left_dtype: str, right_dtype: str) -> Ratios:
    """docs/reference/metrics.md, Ratios."""
    kind = np.float32 if {left_dtype, right_dtype} <= SINGLE else np.float64
    found = []
    with np.errstate(all="ignore"):
        for one, two in zip(left, right, strict=True):
            found.append(one_ratio(one, two, kind))
    most = max((ratio for ratio in found if ratio is not None), default=0.0)
    shares = (sum(ratio is not None and ratio < kind(bound) for ratio in found) for bound in (0.001, 0.005))
    return Ratios(float(most), *(share / len(found) for share in shares))


def one_ratio(one, two, kind) -> float | None:
    complex_ = isinstance(one, tuple) or isinstance(two, tuple)
    ones, twos = (each if isinstance(each, tuple) else (each, 0.0) for each in (one, two))
    sizes = math.hypot(*map(float, ones)), math.hypot(*map(float, twos))
    if any(map(math.isnan, (*ones, *twos))):
        return 0.0 if any(map(math.isnan, ones)) and any(map(math.isnan, twos)) else None
    if any(map(math.isinf, sizes)):
        return 0.0 if ones == twos else None
    step = np.finfo(kind).eps
    if complex_:
        error = math.hypot(float(twos[0]) - float(ones[0]), float(twos[1]) - float(ones[1]))
        return np.float64(error) / (sizes[0] or step)
    beneath, above = kind(one), kind(two)
    if beneath == 0:
        beneath, above = beneath + step, above + step
    return abs((above - beneath) / beneath)


def same(found: Ratios, wanted: Ratios) -> bool:
    return (found.within_1_1000, found.within_5_1000) == (wanted.within_1_1000, wanted.within_5_1000) and (
        found.max == wanted.max
        or math.isclose(found.max, wanted.max, rel_tol=1e-15)  # moduli: hypot is not square root
    )


def test_the_check_rejects_what_is_off():
    right = Ratios(0.5, 0.25, 0.75)
    assert same(right, right)
    for wrong in (Ratios(0.5000001, 0.25, 0.75), Ratios(0.5, 0.26, 0.75), Ratios(0.5, 0.25, 0.76)):
        assert not same(wrong, right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_against_the_definition(backend, dtype):
    near = bytearray(ordinary(dtype, 400))
    far = bytes(near[: len(near) // 2]) + ordinary(dtype, 200)
    odd = SPECIAL.get(dtype) or bytes(range(256))
    pairs = [
        (bytes(near), far),
        (odd, odd),
        (odd, odd[form(dtype).size :] + odd[: form(dtype).size]),
        (bytes(len(near)), bytes(near)),
    ]
    for left, right in pairs:
        wanted = definition(READ[dtype](left), READ[dtype](right), dtype, dtype)
        found = backend(held(left, dtype), held(right, dtype), dtype, dtype)
        assert same(found, wanted), (found, wanted)


@pytest.mark.parametrize(
    ("one", "two"), [("f32", "bf16"), ("f32", "f64"), ("i64", "f32"), ("f16", "i32"), ("f32", "c64")]
)
def test_two_types_at_once(backend, one, two):
    left, right = ordinary(one, 300), ordinary(two, 300)
    wanted = definition(READ[one](left), READ[two](right), one, two)
    assert same(backend(held(left, one), held(right, two), one, two), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_two_kernels_agree(dtype):
    one, two = ordinary(dtype, 70_001), bytearray(ordinary(dtype, 70_001))
    two[: len(two) // 2] = one[: len(two) // 2]
    for left, right in ((one, bytes(two)), (rng.bytes(len(one)), rng.bytes(len(one)))):
        found, other = (
            subject._ratios(kernel(), held(left, dtype), held(right, dtype), form(dtype), form(dtype))
            for kernel in BACKENDS.values()
        )
        assert same(found, other), (found, other)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ([1, 2, 4], [1, 2, 4], Ratios(0, 1, 1)),
        ([0], [0], Ratios(0, 1, 1)),
        ([0], [1], Ratios(2.0**23, 0, 0)),  # one, in steps of the smallest
        ([0, 1], [1e-15, 1], Ratios(0, 1, 1)),  # lost beside the step that is added
        ([1000, 1000], [1000.9999, 1004.9], Ratios(float(np.float32(np.float32(1004.9) - 1000) / np.float32(1000)), 0.5, 1)),
        ([NAN, INF, 1], [NAN, INF, 1], Ratios(0, 1, 1)),
        ([NAN, INF, 1, 1], [1, -INF, 1, 1], Ratios(0, 0.5, 0.5)),
        ([1e-38, 1], [3e38, 1], Ratios(INF, 0.5, 0.5)),
    ],
)  # fmt: skip
def test_unpleasant_cases(backend, left, right, wanted):
    assert backend(np.array(left, np.float32), np.array(right, np.float32), "f32", "f32") == wanted


def test_an_empty_tensor_has_no_ratio(backend):
    assert backend(np.empty((0, 3)), np.empty((0, 3)), "f64", "f64") == Ratios(None, None, None)


def test_strides_make_no_difference(backend):
    left, right = (held(ordinary("f32", 3000), "f32").reshape(30, 100) for _ in range(2))
    plain = backend(np.ascontiguousarray(left[:, ::3]), np.ascontiguousarray(right[:, ::3]), "f32", "f32")
    assert backend(left[:, ::3], right[:, ::3], "f32", "f32") == plain


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="do not have the same shape"):
        ratios(np.ones(3), np.ones(4), "f64", "f64")


def test_without_numba_numpy_takes_over(python):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\nfrom twintrace.measure.ratios import ratios\n"
        "print(ratios(np.ones(3), np.full(3, 1.5), 'f64', 'f64').max)"
    )
    assert python(code).stdout.strip() == "0.5"
