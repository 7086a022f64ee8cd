"""What each policy says of two values, and what needs no policy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.judge.evidence import evidence
from twintrace.judge.policies import POLICIES, Evidence, certain, policy_named, relative_error
from twintrace.judge.rounding import Allowance
from twintrace.measure.statistics import difference
from twintrace.model.errors import UsageError
from twintrace.model.pairs import Layout, Part, TensorPair
from twintrace.model.tensors import CRC, Spec, Tensor
from twintrace.model.verdicts import Outcome, Verdict

VALUES = np.random.default_rng(7).normal(size=(16, 8)).astype(np.float32)
WIDE = Allowance(1e-3, "f32")
NARROW = Allowance(1e-9, "f32")


@pytest.mark.parametrize("values", [True, False])
def test_equal_bits_are_the_same_whatever_else_is_known(values):
    assert certain(evidence(VALUES, VALUES.copy(), values=values)) == Verdict(Outcome.SAME, "equal bits", 0.0)


def test_equal_values_of_other_types_are_the_same():
    found = certain(evidence(np.arange(5, dtype=np.float32), np.arange(5, dtype=np.float64)))
    assert (found.outcome, found.because) == (Outcome.SAME, "equal values (f32 | f64)")


def test_signed_zeros_are_equal_values():
    assert certain(evidence(np.float32([0.0, 1]), np.float32([-0.0, 1]))).outcome is Outcome.SAME
    unread = certain(evidence(np.float32([0.0, 1]), np.float32([-0.0, 1]), values=False))
    assert unread.outcome is Outcome.ROUNDING
    assert "signed zeros" in unread.because


@pytest.mark.parametrize(
    ("left", "right", "word"),
    [
        ([1, np.nan], [1, 2], "NaN in 1 elements on the left, 0 on the right"),
        ([1, np.nan], [np.nan, 1], "0 in the same places"),
        ([1, np.inf], [1, 2], "infinite in 1 elements on the left"),
        ([1, np.inf], [1, -np.inf], "infinite"),
    ],
)
def test_what_is_not_finite_on_one_side_only_is_different(left, right, word):
    found = certain(evidence(np.float32(left), np.float32(right)))
    assert found.outcome is Outcome.DIFFERENT
    assert word in found.because


def test_so_it_is_by_statistics():
    found = certain(evidence(np.float32([1, np.nan]), np.float32([1, 2]), values=False))
    assert found.outcome is Outcome.DIFFERENT
    assert "NaN 1 | 0" in found.because


def rough(found, **right):
    """The same evidence with statistics of another tool on the right: in the precision of the elements, nothing counted."""
    statistics = replace(found.right.statistics, **right)
    other = replace(found.right, statistics=statistics, fingerprint=None, facts={"statistics": "of another tool"})
    return replace(found, right=other, statistics=difference(found.left.statistics, statistics))


def test_what_another_tool_has_not_counted_is_no_difference():
    """1 is some; how many zeros there are is not known; of integers the ends alone."""
    nan = np.float32([1, np.nan, np.nan, 3])
    assert certain(evidence(nan, nan.copy(), values=False, fingerprint=False)).outcome is Outcome.SAME
    few = rough(evidence(nan, nan.copy(), values=False), nan=1, min=None, max=None, mean=None, norm=None)
    assert certain(few) is None or certain(few).outcome is not Outcome.DIFFERENT
    none = rough(evidence(nan, nan.copy(), values=False), nan=0)
    assert certain(none).outcome is Outcome.DIFFERENT
    whole = rough(evidence(np.arange(5), np.arange(5), values=False), zero=0, mean=None, norm=None)
    assert certain(whole) == Verdict(Outcome.SAME, "equal statistics", 0.0)
    other = rough(evidence(np.arange(5), np.arange(1, 6), values=False), zero=0, mean=None, norm=None)
    assert certain(other) is None
    assert policy_named("auto").verdict(other, WIDE, 0.0).outcome is Outcome.DIFFERENT


def test_how_another_tool_adds_up_is_no_error():
    """Sums of many f32, one by one, are off by themselves; the largest and the smallest are not."""
    found = evidence(VALUES, VALUES.copy(), values=False)
    norm = found.right.statistics.norm
    assert relative_error(rough(found, norm=norm * (1 + 1e-6))) == 0.0
    assert relative_error(replace(found, statistics=rough(found, norm=norm * (1 + 1e-6)).statistics)) > 1e-7
    assert relative_error(rough(found, norm=norm * 1.01)) > 1e-3
    assert relative_error(rough(found, max=found.right.statistics.max * 1.001)) > 1e-5


@pytest.mark.parametrize(
    ("left", "right", "outcome"),
    [
        (CRC + "00000001", CRC + "00000001", Outcome.SAME),
        (CRC + "00000001", CRC + "00000002", Outcome.DIFFERENT),
        (CRC + "00000001", "9f86d081884c7d659f86d081884c7d65", Outcome.SAME),
    ],
)
def test_checksums_are_compared_with_checksums(left, right, outcome):
    """A CRC-32 says nothing beside a fingerprint; the statistics do."""
    found = evidence(np.abs(VALUES) + 1, np.abs(VALUES) + 1, values=False)
    found = replace(found, left=replace(found.left, fingerprint=left), right=replace(found.right, fingerprint=right))
    assert certain(found).outcome is outcome


def test_the_same_values_in_other_places_are_different():
    found = certain(evidence(VALUES, VALUES[::-1].copy(), values=False))
    assert found.outcome is Outcome.DIFFERENT
    assert "other places" in found.because


@pytest.mark.parametrize(("units", "told"), [(3.9, None), (4.1, Outcome.DIFFERENT)])
def test_sums_of_the_order_that_last_bits_explain_are_no_other_places(units, told):
    """Weights that were updated on another device: a few last bits, and the same extremes, mean and norm."""
    found = evidence(VALUES, VALUES.copy(), values=False, fingerprint=False)
    known = found.right.statistics
    step = units * 2.0**-24 * known.norm / 3
    moved = replace(known, order=(known.order[0] + step, *known.order[1:]))
    verdict = certain(replace(found, right=replace(found.right, statistics=moved)))
    assert (verdict and verdict.outcome) is told


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_statistics_alone_tell_the_same_values_in_other_places(noise):
    """By the sums in which each place has its weight, also beside what rounding does; not where a layout says so."""
    right = (VALUES * (1 + noise * np.random.default_rng(1).normal(size=VALUES.shape))).astype(np.float32)

    def verdict(array, layout=None):
        found = evidence(VALUES, array, values=False, fingerprint=False, layout=layout)
        allowance = Allowance(1e-6, "rounding")
        return certain(found) or POLICIES["auto"]().verdict(found, allowance, 0.0)

    assert verdict(right).outcome.good
    assert verdict(right[::-1].copy()).outcome is Outcome.DIFFERENT
    assert verdict(np.roll(right, 1)).outcome is Outcome.DIFFERENT
    assert verdict(right.T.copy(), Layout((1, 0))).outcome.good


@pytest.mark.parametrize("shape", [(7,), (16, 16), (300, 200)])
@pytest.mark.parametrize("middle", [0.0, 5.0])
def test_rounding_moves_the_sums_over_places_by_less_than_they_are_taken_for(shape, middle):
    """Whatever is rounded, all elements alike or each for itself: what statistics show is never more than there is."""
    for seed in range(50):
        random = np.random.default_rng(seed)
        left = random.normal(middle, size=shape).astype(np.float32)
        size = np.sqrt(np.mean(np.square(left, dtype=np.float64)))
        for off in (random.normal(size=shape), np.ones(shape), left, np.abs(random.normal(size=shape))):
            right = (left + 1e-3 * size * off).astype(np.float32)
            found = evidence(left, right, values=False, fingerprint=False)
            true = np.sqrt(np.mean(np.square(right.astype(np.float64) - left))) / size
            assert relative_error(found) <= 1.01 * true


@pytest.mark.parametrize(
    ("shape", "middle"), [((16, 8), 0.0), ((64, 64), 0.0), ((2048, 1024), 0.0), ((16, 8), 1.0), ((256, 256), 1.0)]
)
def test_one_last_bit_is_not_the_same_values_in_other_places(shape, middle):
    """Sums hardly show it; those of the same values in another order do not show anything."""
    left = np.random.default_rng(8).normal(middle, size=shape).astype(np.float32)
    right = left.copy()
    right[1, 2] = np.nextafter(right[1, 2], np.float32(9))
    assert certain(evidence(left, right, values=False)) is None
    order = np.random.default_rng(9).permutation(left.size)
    assert certain(evidence(left, left.ravel()[order].reshape(shape), values=False)).outcome is Outcome.DIFFERENT


def test_what_was_made_of_rounded_values_may_have_other_last_bits():
    turned = evidence(VALUES, VALUES[::-1].copy(), values=False)
    assert certain(turned, rounded=True) is None


def test_but_not_where_the_layout_says_so():
    found = certain(evidence(VALUES, VALUES.T.copy(), values=False, layout=Layout((1, 0))))
    assert found.outcome is Outcome.SAME
    assert certain(evidence(VALUES, VALUES.T.copy(), layout=Layout((1, 0)))).outcome is Outcome.SAME


@pytest.mark.parametrize(
    ("right", "layout", "fit"),
    [((8, 16), Layout((1, 0)), True), ((8, 16), Layout(), False), ((128,), Layout(None, True), True),
     ((8, 16), Layout((0, 0)), False), ((127,), Layout(None, True), False)],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_different(right, layout, fit):
    pair = TensorPair(Part.OUTPUT, "0", "0", 1, 2, layout)
    found = certain(Evidence(pair, Tensor(1, Spec("f32", (16, 8))), Tensor(2, Spec("f32", right))))
    assert found.outcome is (Outcome.UNKNOWN if fit else Outcome.DIFFERENT)
    assert fit or "shapes do not fit" in found.because


def test_a_value_that_is_missing_is_unknown_with_its_reason():
    pair = TensorPair(Part.OUTPUT, "0", "0", 1, 2)
    left, right = Tensor(1, Spec("f32", (2,)), missing="the disk was full"), Tensor(2, Spec("f32", (2,)))
    assert certain(Evidence(pair, left, right)) == Verdict(Outcome.UNKNOWN, "left: the disk was full")
    damaged = Evidence(pair, left, right, failure="payload.bin: damaged")
    assert certain(damaged) == Verdict(Outcome.UNKNOWN, "payload.bin: damaged")


def test_nothing_is_certain_of_values_that_are_close():
    assert certain(evidence(VALUES, VALUES * np.float32(1.0001))) is None
    assert certain(evidence(VALUES, VALUES * np.float32(1.0001), values=False)) is None


def test_the_relative_error_is_in_the_mean_square():
    assert relative_error(evidence(VALUES, VALUES * np.float32(1.25))) == pytest.approx(0.2, rel=1e-5)
    assert relative_error(evidence(VALUES, VALUES * np.float32(1.25), values=False)) == pytest.approx(0.2, rel=1e-5)
    assert relative_error(evidence(np.zeros(3, np.float32), np.zeros(3, np.float32))) == 0.0


class TestAuto:
    policy = policy_named("auto")

    def test_within_what_rounding_explains(self):
        found = self.policy.verdict(evidence(VALUES, VALUES * np.float32(1.0001)), WIDE, 0.0)
        assert found.outcome is Outcome.ROUNDING
        assert 0 < found.score < 0.5
        assert "rounding explains 1.0e-03" in found.because

    def test_beyond_it(self):
        found = self.policy.verdict(evidence(VALUES, VALUES * np.float32(1.0001)), NARROW, 0.0)
        assert found.outcome is Outcome.DIFFERENT
        assert found.score > 0.99
        assert "100,000 times what rounding explains" in found.because

    def test_a_few_elements_on_the_other_side_of_a_tie(self):
        left = np.ones(4096, np.float32)
        right = left.copy()
        right[17] = 0.0
        assert self.policy.verdict(evidence(left, right), WIDE, 1e-7).outcome is Outcome.ROUNDING
        assert self.policy.verdict(evidence(left, right), WIDE, 0.0).outcome is Outcome.DIFFERENT
        right[:400] = 0.0
        assert self.policy.verdict(evidence(left, right), WIDE, 1e-7).outcome is Outcome.DIFFERENT

    def test_integers_do_not_round(self):
        left, right = np.arange(4096), np.arange(4096)
        right[5] = 6
        assert self.policy.verdict(evidence(left, right), WIDE, 0.0).outcome is Outcome.DIFFERENT
        assert self.policy.verdict(evidence(left, right), WIDE, 1e-7).outcome is Outcome.ROUNDING
        assert self.policy.verdict(evidence(left, right, values=False), WIDE, 1e-7).outcome is Outcome.DIFFERENT

    def test_nothing_finite_is_unknown(self):
        left = np.full(3, np.nan, np.float32)
        right = left.copy()
        right.view(np.uint32)[0] ^= 1  # another NaN
        assert certain(evidence(left, right)).outcome is Outcome.SAME


@pytest.mark.parametrize(
    ("name", "factor", "good"),
    [("torch_testing", 1 + 1e-7, True), ("torch_testing", 1.001, False), ("troubleshooter", 1 + 5e-5, True),
     ("troubleshooter", 1.01, False), ("msprobe", 1.1, True), ("msprobe", -1.0, False)],
)  # fmt: skip
@pytest.mark.parametrize("values", [True, False])
def test_policies_with_tolerances(name, factor, good, values):
    policy = policy_named(name)
    right = (VALUES.astype(np.float64) * factor).astype(np.float32)
    plain = evidence(VALUES, right)
    rtol, atol = policy.tolerance(plain.left, plain.right, ())
    found = policy.verdict(evidence(VALUES, right, values=values, rtol=rtol, atol=atol), WIDE, 0.0)
    assert found.outcome.good is good, found
    assert found.because


def test_auto_measures_elements_by_sixteen_units_of_the_coarser_type():
    """Of an element, and of the size of the larger tensor: elements that are near zero are sums of larger ones."""
    plain = evidence(VALUES, (VALUES * 2).astype(np.float16))
    rms = float(np.sqrt(np.mean(np.square((VALUES * 2).astype(np.float16).astype(np.float64)))))
    rtol, atol = policy_named("auto").tolerance(plain.left, plain.right, ())
    assert rtol == 16 * 2.0**-11
    assert atol == pytest.approx(rtol * rms, rel=1e-6)


def test_msprobe_lets_no_element_be_off_by_more_than_one():
    right = VALUES.copy()
    right[0, 0] += 1.5
    assert policy_named("msprobe").verdict(evidence(VALUES, right), WIDE, 0.0).outcome is Outcome.DIFFERENT


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("torch_testing", "f64", (1e-7, 1e-7)),
        ("torch_testing", "c128", (1e-7, 1e-7)),
        ("torch_testing", "f32", (1.3e-6, 1e-5)),
        ("torch_testing", "c64", (1.3e-6, 1e-5)),
        ("torch_testing", "f16", (1e-3, 1e-5)),
        ("torch_testing", "bf16", (1.6e-2, 1e-5)),
        ("torch_testing", "i64", (0.0, 0.0)),
        ("troubleshooter", "f32", (1e-4, 1e-4)),
        ("troubleshooter", "bf16", (1e-4, 1e-4)),
    ],
)
def test_tolerances_of_other_tools(name, dtype, expected):
    policy = policy_named(name)
    assert policy.tolerance(Tensor(0, Spec(dtype, ())), Tensor(0, Spec(dtype, ())), ()) == expected


def test_torch_testing_takes_the_wider_of_two_types():
    policy = policy_named("torch_testing")
    assert policy.tolerance(Tensor(0, Spec("bf16", ())), Tensor(0, Spec("f32", ())), ()) == (1.6e-2, 1e-5)


@pytest.mark.parametrize(
    ("flipped", "tie", "good"), [(2, 1e-7, True), (3, 1e-7, False), (3, 2.5e-4, True), (2, 0.0, False)]
)
@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_few_elements_may_fall_on_the_other_side_of_a_tie(flipped, tie, good, dtype):
    """Of 2,000 two (a thousandth), or eight times the share that lies so near a tie."""
    left = np.ones(2000, dtype)
    right = left.copy()
    right[:flipped] = 0
    found = policy_named("auto").verdict(evidence(left, right), NARROW, tie)
    assert found.outcome.good is good, found
    assert (f"{flipped} of 2000 elements fell on the other side of a tie" in found.because) is good


def test_tolerances_by_hand():
    policy = policy_named(rtol=0.2)
    assert policy.tolerance(Tensor(0, Spec("f32", ())), Tensor(0, Spec("f32", ())), ()) == (0.2, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "strict"}, "policy: expected one of auto, msprobe, troubleshooter, torch_testing, got 'strict'"),
        ({"name": "msprobe", "rtol": 1e-3}, "brings its own tolerances"),
        ({"rtol": -1.0}, "rtol: expected a number that is not negative"),
        ({"atol": math.nan}, "atol: expected a number that is not negative"),
    ],
)
def test_policies_that_cannot_be(arguments, message):
    with pytest.raises(UsageError, match=message):
        policy_named(**arguments)


def test_every_policy_has_its_name():
    assert [make().name for make in POLICIES.values()] == list(POLICIES)
