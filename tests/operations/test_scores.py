"""Three tests of a result beside its float64 counterpart: what each lets pass, and what is just beyond it."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from twintrace.operations import scores  # noqa: E402
from twintrace.operations.meanings import Meaning, Operand  # noqa: E402
from twintrace.operations.scores import Precision, judge_result, precision_of  # noqa: E402

pytestmark = pytest.mark.needs_torch
INF, NAN = math.inf, math.nan
U, BF16 = 2.0**-24, 2.0**-8
F32 = Precision("f32", U, U, U, 8.0)
BRAIN = Precision("bf16", BF16, U, U, 8.0)
"""Computed in float32, and rounded once."""
HALF = Precision("f16", 2.0**-11, U, U, 8.0)
LARGEST = torch.finfo(torch.float32).max


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def signs(*shape):
    return drawn(*shape, seed=9).sign()


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def kernel(request, monkeypatch):
    """Each test with both walks over the elements."""
    if request.param == "torch":
        monkeypatch.setattr(scores, "_kernel", lambda: None)
    elif scores._kernel() is None:
        pytest.skip("numba is not installed")
    return request.param


def test_both_walks_say_the_same(monkeypatch):
    """Special numbers among others, some beyond the limit: the same score, the same places."""
    want = drawn(9_000)
    got = want * (1 + 1.4 * U * drawn(9_000, seed=1))
    special = torch.tensor([0.0, NAN, INF, -INF, LARGEST, -LARGEST, 2 * LARGEST, 1e-40], dtype=torch.float64)
    want[:64], got[:64] = special.repeat_interleave(8), special.repeat(8)
    want[5_000], got[5_000] = INF, INF
    for error in (None, U * drawn(9_000, seed=2).abs()):
        found = []
        for kernel in (scores._kernel(), None):
            monkeypatch.setattr(scores, "_kernel", lambda kernel=kernel: kernel)
            beyond = []
            found.append((judge_result(got, want, error, F32, beyond=beyond.append), beyond))
            monkeypatch.undo()
        (one, first), (two, second) = found
        assert one.ratio == two.ratio == INF
        assert (one.index, one.share) == (two.index, two.share)
        assert (one.relative, one.limit) == pytest.approx((two.relative, two.limit), rel=1e-12)
        assert torch.equal(first[0], second[0])
        assert len(first[0]) == round(one.share * 9_000) > 100


@pytest.mark.parametrize(
    "want",
    [
        f64(1.0).expand(6),
        torch.ones(12, dtype=torch.float64)[::2],
        torch._efficientzerotensor(6, dtype=torch.float64) + 1.0,
    ],
    ids=["repeated", "every second", "computed of zeros"],
)
def test_results_that_lie_in_memory_otherwise_are_read_alike(want):
    got = torch.ones(6, dtype=torch.float64)
    assert judge_result(got, want, None, F32).ratio == 0
    got[4] += 2 * U
    assert judge_result(got, want, None, F32).index == (4,)


# --- element -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [0.5, 2.0])
@pytest.mark.parametrize("error", [None, 3 * U])
def test_an_element_may_be_off_by_a_unit_and_the_error_of_its_operands(off, error):
    got, want = f64(1.0, 1 + off * U, 4.0), f64(1.0, 1.0, 4.0)
    score = judge_result(got, want, None if error is None else torch.full((3,), error, dtype=torch.float64), F32)
    ratio = off / (1 if error is None else 4)
    assert (score.test, score.index) == ("element", (1,))
    assert score.ratio == pytest.approx(ratio, rel=1e-3)
    assert score.share == (1 / 3 if ratio > 1 else 0.0)
    assert (score.recorded, score.computed) == (1 + off * U, 1.0)
    assert score.relative == pytest.approx(off * U / math.sqrt(18))


@pytest.mark.parametrize(
    ("precision", "least"),
    [(F32, torch.finfo(torch.float32).tiny), (BRAIN, torch.finfo(torch.bfloat16).tiny), (HALF, 2.0**-25)],
)
def test_numbers_below_the_least_are_flushed_to_zero(precision, least):
    """Float16 has subnormal numbers: half of the least is all that is lost."""
    assert judge_result(f64(0.9 * least), f64(0.0), None, precision).ratio == pytest.approx(0.9)
    assert judge_result(f64(1.1 * least), f64(0.0), None, precision).ratio == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, INF, True),
        (INF, -INF, False),
        (INF, 1.0, False),
        (INF, LARGEST, True),  # it may have been rounded up
        (INF, 0.9 * LARGEST, False),
        (-INF, LARGEST, False),
        (-3.40282e38, -INF, True),  # written with six digits
        (3.40282e38, -INF, False),
        ((1 - 1.5e-5) * LARGEST, INF, False),
        (1.0, INF, False),
    ],
)
def test_what_is_not_finite(got, want, right):
    score = judge_result(f64(2.0, got), f64(2.0, want), None, F32)
    assert score.ratio == (0.0 if right else INF)
    assert score.index == ((0,) if right else (1,))


def test_integers_are_equal_or_wrong():
    one = torch.tensor([[1, 2], [3, 4]])
    score = judge_result(one, torch.tensor([[1, 2], [5, 4]]), None, Precision("i64", 0.0, 0.0, 0.0, 8.0))
    assert (score.ratio, score.index, score.recorded, score.computed, score.share) == (INF, (1, 0), 3.0, 5.0, 0.25)
    assert judge_result(one, one.clone(), None, Precision("i64", 0.0, 0.0, 0.0, 8.0)).ratio == 0.0


def test_another_number_of_elements_is_wrong_and_another_shape_of_them_is_not():
    assert judge_result(f64(1.0, 2.0), f64(1.0), None, F32).ratio == INF
    assert judge_result(f64(1.0, 2.0), f64(1.0, 2.0).reshape(2, 1), f64(0.0, 0.0).reshape(2, 1), F32).ratio == 0.0
    assert judge_result(f64(), f64(), None, F32).ratio == 0.0


@pytest.mark.parametrize(("off", "ratio"), [(150, 150 / 161), (170, 170 / 161)])
def test_a_bound_that_overflowed_excuses_eight_random_walks(off, ratio):
    """Of a hundred elements: 8 · √100 units of each, and as many of their size; and the unit of the element."""
    want = torch.ones(100, dtype=torch.float64)
    got = want.clone()
    got[3] += off * U
    assert judge_result(got, want, torch.full_like(want, INF), F32).ratio == pytest.approx(ratio, rel=1e-3)


# --- spread ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("off", "test"), [(16, "element"), (19, "spread")])
def test_sums_of_products_are_off_by_four_random_walks(off, test):
    """Of sixteen terms: 4 · √16 units, and the unit of the result."""
    want = torch.ones(4096, dtype=torch.float64)
    wide = torch.full_like(want, 1e-3)
    score = judge_result(want + off * U * signs(4096), want, wide, F32, lambda: torch.zeros_like(want), 16.0)
    assert score.test == test
    if test == "spread":
        assert score.ratio == pytest.approx(19 / 17, rel=1e-3)


def test_terms_that_cancel_make_a_sum_uncertain():
    want = torch.ones(4096, dtype=torch.float64)
    wide = torch.full_like(want, 1e-3)
    got = want + 19 * U * signs(4096)
    assert judge_result(got, want, wide, F32, lambda: want, 16.0).test == "element"


# --- gain --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "test"), [(0.08, "element"), (0.15, "the whole result"), (-0.15, "the whole result")])
def test_a_16_bit_product_is_not_too_large_throughout(gain, test):
    """Six standard errors of 4,096 roundings: 6 / √4096 of a unit, which is 0.094."""
    want = drawn(64, 64)
    score = judge_result(want * (1 + gain * BF16), want, None, BRAIN, lambda: want, 1.0)
    assert score.test == test
    if test != "element":
        assert score.relative == pytest.approx(abs(gain) * BF16)
        assert f"too {'large' if gain > 0 else 'small'} throughout" in str(score)


@pytest.mark.parametrize(
    ("gain", "terms", "test"), [(2.1, 1.0, "element"), (2.6, 1.0, "the whole result"), (2.6, 4.0, "element")]
)
def test_sums_in_float32_may_lean_by_two_units_of_their_random_walk(gain, terms, test):
    """2 · √terms, and six standard errors."""
    want = drawn(64, 64)
    wide = torch.full_like(want, 1e-3)
    assert judge_result(want * (1 + gain * U), want, wide, F32, lambda: want, terms).test == test


def test_values_of_which_a_sample_has_no_equal_ones_are_all_different():
    """0.05 of a unit is beyond the standard errors of 20,000 roundings, and would not be beyond those of the sample's 10,000."""
    want = drawn(20_000)
    assert judge_result(want * (1 + 0.05 * BF16), want, None, BRAIN, lambda: want, 1.0).test == "the whole result"


@pytest.mark.parametrize("axis", [0, 1])
def test_a_channel_may_be_the_one_that_is_too_large(axis):
    """0.6 of a unit in one of eight channels, of 256 values each: more than 6 / √256."""
    want = drawn(256, 8)
    factors = torch.ones(8, dtype=torch.float64)
    factors[3] += 0.6 * BF16
    got = want * factors
    if not axis:  # the first of two axes counts examples: all of an example is nothing that a kernel has of its own
        got, want = got.T, want.T
    score = judge_result(got, want, None, BRAIN, lambda: want, 1.0)
    assert score.test == ("channel on axis 1: 3" if axis else "element")


@pytest.mark.parametrize(("count", "test"), [(63, "element"), (70, "the whole result")])
@pytest.mark.parametrize("repeated", [1, 5])
def test_of_few_different_values_nothing_is_said_together(count, test, repeated):
    """Equal values are rounded alike, and say nothing new."""
    want = drawn(count).repeat(repeated)
    assert judge_result(want * (1 + 0.9 * BF16), want, None, BRAIN, lambda: want, 1.0).test == test


@pytest.mark.parametrize(("gain", "test"), [(1.1, "element"), (1.4, "the whole result")])
def test_what_is_rounded_once_is_too_large_by_a_unit_at_most(gain, test):
    """A number that is held in 16 bits may be off by one; and six standard errors."""
    want = drawn(4096)
    wide = 10 * BF16 * want.abs()
    assert judge_result(want * (1 + gain * BF16), want, wide, BRAIN).test == test
    assert judge_result(want * (1 + gain * U), want, wide, F32).test == "element"  # of 16 bits alone
    inside = Precision("bf16", BF16, BF16, U, 8.0)  # rounded inside as well, in a direction of its own
    assert judge_result(want * (1 + gain * BF16), want, wide, inside).test == "element"
    assert judge_result(want * (1 + gain * BF16), want, wide, replace(inside, narrow=True)).test == test


# --- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "operation", "framework", "inner", "functions"),
    [
        ("f32", "add", "torch", U, 8.0),
        ("f64", "add", "torch", 2.0**-53, 8.0),
        ("bf16", "add", "torch", U, 8.0),
        ("bf16", "add", "mindspore", U, 256.0),
        ("f32", "add", "msadapter", U, 256.0),
        ("bf16", "lstm", "torch", BF16, 8.0),  # several kernels in one: each rounds its result
    ],
)
def test_precision_of_operations(dtype, operation, framework, inner, functions):
    found = precision_of(dtype, Meaning(operation, {"input": Operand(1)}, {2: 0}), framework)
    assert (found.inner, found.functions) == (inner, functions)
    assert found.sums == min(found.unit, U)


@pytest.mark.parametrize(
    ("errors", "right"),
    [
        ("alike", True),  # operands that are the same nearly everywhere are rounded alike
        ("steeper", True),  # as far as they grow with the results, they do not do so as a gain
        ("gain", False),
    ],
)
def test_a_channel_that_is_nearly_one_number_may_be_rounded_alike(errors: str, right: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    want = torch.randn(4, 6, 16, 16, generator=generator, dtype=torch.float64)
    want[:, 2] = 0.003 + 0.0002 * want[:, 2]
    got, near = want.clone(), want[:, 2]
    part = {"alike": torch.full_like(near, 0.003), "steeper": 0.003 + 4 * (near - 0.003), "gain": near}[errors]
    got[:, 2] += 4e-6 * part
    size = torch.full_like(want, 2.0)  # of terms that cancel
    score = judge_result(got, want, 1e-6 * size, F32, walk=lambda: size, terms=64.0)

    assert (score.ratio <= 1) is right
    assert right or score.test == "channel on axis 1: 2"
