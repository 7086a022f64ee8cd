"""Policies by name: the differences that are allowed.

    auto             what rounding explains, derived for each pair; no threshold
    torch_testing    rtol and atol of torch.testing.assert_close, by dtype
    troubleshooter   rtol = atol = 1e-4, every element
    msprobe          cosine at least 0.9, and 0.99 if an element is off by more than 0.001; no element off by more than 1
    tolerances       rtol and atol by hand (`--rtol`, `--atol`, or a TOML file)

What needs no policy is decided before: equal bits, nothing to compare, shapes that do not fit, NaN where the other has none.
Where only statistics were kept, the same policy is applied to them, and the reason says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..model.errors import UsageError
from ..model.measurements import HISTOGRAM_EDGES, Measurement, StatisticsDifference
from ..model.pairs import Layout, TensorPair
from ..model.tensors import CRC, UNITS, Statistics, Tensor, same_values
from ..model.verdicts import Outcome, Verdict
from ..model.words import times
from .rounding import Allowance, elements, size, unit
from .tolerances import Tolerance, Tolerances, check, read_tolerances


@dataclass(frozen=True, slots=True)
class Evidence:
    """Two tensors and what is known of the distance between them."""

    pair: TensorPair
    left: Tensor
    right: Tensor
    measurement: Measurement | None = None
    statistics: StatisticsDifference | None = None
    names: tuple[str, ...] = ()
    """Site names and module paths of both sides, for tolerances by name."""
    failure: str = ""
    """Why the values could not be read (a damaged payload)."""


class Policy(Protocol):
    """The differences that are allowed."""

    @property
    def name(self) -> str: ...
    def tolerance(self, left: Tensor, right: Tensor, names: tuple[str, ...]) -> tuple[float, float]:
        """(rtol, atol) that the measurement is to count close elements with."""

    def verdict(self, evidence: Evidence, allowance: Allowance, tie: float) -> Verdict:
        """`tie`: how far apart what the operation decides by is; 0 where it does not decide, or by equal values."""


# --- what needs no policy ---------------------------------------------------------------------------------------------


def certain(evidence: Evidence, *, equal_nan: bool = True, rounded: bool = False) -> Verdict | None:
    """The verdict where it does not depend on what is allowed; None where it does.

    equal_nan   NaN equals NaN          rounded   what it was made of is apart by rounding, so a few last bits may be
    """
    left, right, measured = evidence.left, evidence.right, evidence.measurement
    lost = [f"{side}: {item.missing}" for side, item in (("left", left), ("right", right)) if item.is_lost]
    if lost:
        return Verdict(Outcome.UNKNOWN, "; ".join(lost))
    if not fits(left.spec.shape, right.spec.shape, evidence.pair.layout):
        return Verdict(Outcome.DIFFERENT, f"the shapes do not fit: {left.spec} | {right.spec}")
    as_it_is = evidence.pair.layout == Layout()
    if left.fingerprint and left.fingerprint == right.fingerprint and left.spec.dtype == right.spec.dtype and as_it_is:
        return Verdict(Outcome.SAME, "equal bits", 0.0)
    if measured is None and evidence.failure:
        return Verdict(Outcome.UNKNOWN, evidence.failure)
    if measured is None and evidence.statistics is None:
        missing = [f"{side}: {item.missing}" for side, item in (("left", left), ("right", right)) if item.missing]
        return Verdict(Outcome.UNKNOWN, "; ".join(missing) or "neither values nor statistics were kept")
    types = "" if left.spec.dtype == right.spec.dtype else f" ({left.spec.dtype} | {right.spec.dtype})"
    if measured is not None:
        if measured.nan_both and not equal_nan:
            places = f"{measured.nan_both} of {measured.count} elements"
            return Verdict(Outcome.DIFFERENT, f"NaN on both sides in {places}, and NaN is to equal nothing")
        if measured.equal == measured.count:
            return Verdict(Outcome.SAME, f"equal values{types}", 0.0)
        if measured.nan_left != measured.nan_both or measured.nan_right != measured.nan_both:
            return Verdict(
                Outcome.DIFFERENT,
                f"NaN in {measured.nan_left} elements on the left, {measured.nan_right} on the right, {measured.nan_both} in "
                f"the same places",
            )
        if measured.inf_left != measured.inf_both or measured.inf_right != measured.inf_both:
            return Verdict(
                Outcome.DIFFERENT,
                f"infinite in {measured.inf_left} elements on the left, {measured.inf_right} on the right, "
                f"{measured.inf_both} in the same places",
            )
        return None
    return _by_statistics(evidence, types, rounded)


def _by_statistics(evidence: Evidence, types: str, rounded: bool) -> Verdict | None:
    left, right, apart = evidence.left, evidence.right, evidence.statistics
    one, two = left.statistics, right.statistics
    if apart is None or one is None or two is None:
        return None
    rough = left.is_rough or right.is_rough
    if _odd(one, rough) != _odd(two, rough):
        return Verdict(
            Outcome.DIFFERENT,
            f"NaN {one.nan} | {two.nan}, +Inf {one.posinf} | {two.posinf}, -Inf {one.neginf} | {two.neginf} elements",
        )
    scale = 1e-12 * max(one.norm or 0.0, abs(one.min or 0), abs(one.max or 0))
    ends = (one.min, one.max) == (two.min, two.max)
    sums = all(number is None or abs(number) <= scale for number in (apart.mean, apart.norm))
    if not (ends and sums and (rough or one.zero == two.zero)):
        return None
    if not _same_kind(left.fingerprint, right.fingerprint) or evidence.pair.layout != Layout() or types:
        gap = _order_gap(evidence)
        if _ORDER_NOISE < gap <= _LAST_BITS * unit(left.spec.dtype):
            return None  # a few elements were rounded otherwise, which the other sums do not show
        if gap > _ORDER_NOISE:
            return Verdict(
                Outcome.DIFFERENT, "the same values in other places: equal statistics, but for those of the order"
            )
        return Verdict(Outcome.SAME, f"equal statistics{types}", 0.0)
    # The bits differ, and the numbers do not: other places, or bits that mean the same (-0.0, a NaN's payload).
    if left.spec.dtype in UNITS and (rounded or _moved_by_last_bits(left, one, two)):
        return None
    around_zero = rough and (one.min or 0) <= 0 <= (one.max or 0)
    if (one.zero or one.nan or around_zero) and left.spec.dtype in UNITS:
        return Verdict(
            Outcome.ROUNDING,
            "equal statistics, bits that differ: signed zeros, or the same values in other places",
            0.0,
        )
    return Verdict(Outcome.DIFFERENT, "the same values in other places: equal statistics, but the bits differ")


def _moved_by_last_bits(tensor: Tensor, one: Statistics, two: Statistics) -> bool:
    """True if a few elements may have been rounded otherwise, which their sums hardly show."""
    if unit(tensor.spec.dtype) <= UNITS["f64"]:
        return True
    return not tensor.is_rough and not same_values(one, two, elements(tensor))


def _odd(known: Statistics, rough: bool) -> tuple[int, ...]:
    """Numbers of elements that are not finite, by kind; 0 or 1 of a tool that does not count."""
    counts = known.nan, known.posinf, known.neginf
    if not rough:
        return counts
    return (1,) if known.nan else tuple(min(count, 1) for count in counts)


def _same_kind(left: str | None, right: str | None) -> bool:
    """True if two fingerprints can be compared."""
    return bool(left and right) and left.startswith(CRC) == right.startswith(CRC)  # type: ignore[union-attr]


def fits(left: tuple[int, ...], right: tuple[int, ...], layout: Layout) -> bool:
    """True if the right shape, laid out so, lies on the left one."""
    if layout.axes is not None:
        if sorted(layout.axes) != list(range(len(right))):
            return False
        right = tuple(right[axis] for axis in layout.axes)
    return math.prod(left) == math.prod(right) if layout.reshaped else left == right


def relative_error(evidence: Evidence) -> float | None:
    """The root mean square of the difference, over that of the larger side; estimated where only statistics are there."""
    measured, apart = evidence.measurement, evidence.statistics
    if measured is not None:
        if measured.rmse is None:
            return None
        if measured.filled:  # beside a mask of -1e9 every error would be nothing
            spread = math.sqrt(measured.finite / (measured.finite - measured.filled))
            return measured.rmse * spread / measured.rms_rest if measured.rms_rest else 0.0
        scale = max(measured.rms_left or 0.0, measured.rms_right or 0.0)
        return measured.rmse / scale if scale else 0.0
    if apart is None:
        return None
    left, right = evidence.left, evidence.right
    scale = max(size(left), size(right))
    if not scale:
        return 0.0
    # An error of e in the mean square moves the norm by at most e, the mean by e, and an end by a few e.
    count = math.sqrt(max(elements(left), 1))
    parts = [(apart.norm, scale * count), (apart.mean, scale)]
    sums = (abs(number) / size_ - _slack(left) - _slack(right) for number, size_ in parts if number is not None)
    furthest = max(abs(number) for number in (apart.min, apart.max, 0.0) if number is not None)
    beside = _beside_a_fill(left.statistics, right.statistics)
    order = _order_gap(evidence) / 8 - _slack(left) - _slack(right)
    return max(0.0, *sums, order, furthest / (8 * scale), furthest / (3 * beside) if beside else 0.0)


_ORDER_NOISE = 1e-9
"""Relative error that sums in float64 leave in those of the order, far above what was seen (1e-15 times the root of the number of
elements), and far below one element that has moved."""


_LAST_BITS = 4.0
"""Units of the element type that the sums of the order may be apart by rounding alone, as weights may: weights that an optimizer
updated on another device differ in some last bits, and have the same extremes, mean and norm."""


def _order_gap(evidence: Evidence) -> float:
    """Relative error that the sums over weighted places show, on average: an eighth of it is beyond chance. 0: they tell nothing.

    The weights have a mean square of 1/9, so that errors of a norm `e` move such a sum by about `e / 3`.
    """
    one, two = evidence.left.statistics, evidence.right.statistics
    if one is None or two is None or one.order is None or two.order is None or evidence.pair.layout != Layout():
        return 0.0
    norm = max(one.norm or 0.0, two.norm or 0.0)
    if not norm or not math.isfinite(norm) or _odd(one, False) != _odd(two, False):
        return 0.0
    return 3 * max(abs(ours - theirs) for ours, theirs in zip(one.order, two.order, strict=True)) / norm


def _slack(tensor: Tensor) -> float:
    """Relative error that a tool may have made in mean and norm, which it sums in the precision of the elements, one by one."""
    if not tensor.is_rough:
        return 0.0
    return max(unit(tensor.spec.dtype), 4 * unit("f32") * math.sqrt(elements(tensor)))  # measured: up to 3 in MindSpore


def _beside_a_fill(left: Statistics | None, right: Statistics | None) -> float:
    """Size of the values beside a fill value (-1e9 before a softmax); 0 where there is none.

    One end is the same on both sides, everything at the other end is a thousand times smaller, and the norm is that of a whole
    number of such values, two at least.
    """
    if left is None or right is None or None in (left.min, left.max, left.norm, right.min, right.max, right.norm):
        return 0.0
    ends = ((left.min, right.min), (left.max, right.max))
    for (end, other), near in (ends, ends[::-1]):
        beside = max(abs(number or 0.0) for number in near)
        if end and end == other and beside * 1000 <= abs(end):
            times = [((known.norm or 0.0) / abs(end)) ** 2 for known in (left, right)]
            whole = round(times[0])
            if whole >= 2 and all(abs(number - whole) <= 1e-6 * number for number in times):
                return beside
    return 0.0


# --- auto -------------------------------------------------------------------------------------------------------------

_FEW = 1e-3
"""The share of elements that may fall on the other side of a tie; more where what decides is farther apart."""


class Auto:
    """Allows the differences that rounding explains."""

    name = "auto"

    def tolerance(self, left: Tensor, right: Tensor, names: tuple[str, ...]) -> tuple[float, float]:
        coarsest = unit(left.spec.dtype, right.spec.dtype)
        return 16 * coarsest, 16 * coarsest * max(size(left), size(right))

    def verdict(self, evidence: Evidence, allowance: Allowance, tie: float) -> Verdict:
        error = relative_error(evidence)
        if error is None:
            return Verdict(Outcome.UNKNOWN, "no finite element on both sides")
        exact = not unit(evidence.left.spec.dtype, evidence.right.spec.dtype)
        by = "" if evidence.measurement else ", judged by statistics"
        if exact:
            return _exact(evidence, tie, by)
        if error <= allowance.bound:
            because = f"relative error {error:.1e}, rounding explains {allowance.bound:.1e} ({allowance.because}{by})"
            return Verdict(Outcome.ROUNDING, because, error, allowance.bound)
        few = _few_far_off(evidence.measurement, allowance.bound, tie) if tie else None
        if few is not None:
            because = (
                f"{few} of {elements(evidence.left)} elements fell on the other side of a tie, as rounding may have it"
            )
            return Verdict(Outcome.ROUNDING, because, allowance.bound, allowance.bound)
        factor = times(error / allowance.bound if allowance.bound else math.inf)
        because = f"relative error {error:.1e}, {factor} times what rounding explains ({allowance.because}{by})"
        return Verdict(Outcome.DIFFERENT, because, error, allowance.bound)


def _exact(evidence: Evidence, tie: float, by: str) -> Verdict:
    """Integers and truth values do not round; but they may have been decided by numbers that do."""
    measured, count = evidence.measurement, elements(evidence.left)
    if measured is None:
        return Verdict(Outcome.DIFFERENT, f"{evidence.left.spec.dtype} values that differ{by}")
    apart = measured.count - measured.equal
    if tie and apart <= max(1.0, max(_FEW, 8 * tie) * count):
        return Verdict(Outcome.ROUNDING, f"{apart} of {count} elements fell on the other side of a tie", 1.0, 1.0)
    return Verdict(Outcome.DIFFERENT, f"{apart} of {count} {evidence.left.spec.dtype} elements differ")


def _few_far_off(measured: Measurement | None, bound: float, tie: float) -> int | None:
    """Number of elements that are far off, if no more of them than lie so near a tie; None otherwise."""
    if measured is None:
        return None
    edges = (0.0, 0.0, *(10.0**power for power in HISTOGRAM_EDGES))
    far = sum(number for edge, number in zip(edges, measured.histogram, strict=False) if edge >= 10 * bound)
    return far if 0 < far <= max(1.0, max(_FEW, 8 * tie) * measured.count) else None


# --- tolerances -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByTolerance:
    """Every element within atol + rtol·|left|."""

    name: str
    tolerances: Tolerances

    def tolerance(self, left: Tensor, right: Tensor, names: tuple[str, ...]) -> tuple[float, float]:
        return self.tolerances.of((left.spec.dtype, right.spec.dtype), names)

    def verdict(self, evidence: Evidence, allowance: Allowance, tie: float) -> Verdict:
        rtol, atol = self.tolerance(evidence.left, evidence.right, evidence.names)
        given = f"rtol {rtol:g}, atol {atol:g}"
        measured = evidence.measurement
        if measured is None:
            return _statistics_within(evidence, rtol, atol, given)
        close = 1.0 if measured.close is None else measured.close
        apart = round((1 - close) * measured.count)
        if close >= 1.0:
            return Verdict(Outcome.ROUNDING, f"every element within {given}", measured.max_abs)
        because = f"{apart} of {measured.count} elements beyond {given}; the largest error is {measured.max_abs:.3g}"
        return Verdict(Outcome.DIFFERENT, because, measured.max_abs)


def _statistics_within(evidence: Evidence, rtol: float, atol: float, given: str) -> Verdict:
    beyond = [
        f"{name} {one:.6g} | {two:.6g}"
        for name, one, two in _numbers(evidence)
        if abs(two - one) > atol * (math.sqrt(elements(evidence.left)) if name == "norm" else 1) + rtol * abs(one)
    ]
    if beyond:
        return Verdict(Outcome.DIFFERENT, f"beyond {given}, judged by statistics: {', '.join(beyond)}")
    return Verdict(Outcome.ROUNDING, f"within {given}, judged by statistics")


def _numbers(evidence: Evidence) -> Iterator[tuple[str, float, float]]:
    one, two = evidence.left.statistics, evidence.right.statistics
    if one is not None and two is not None:
        for name in ("min", "max", "mean", "norm"):
            pair = getattr(one, name), getattr(two, name)
            if None not in pair:
                yield name, float(pair[0]), float(pair[1])


# --- msprobe ----------------------------------------------------------------------------------------------------------


class Msprobe:
    """The rule behind `Accuracy Reached or Not`; of statistics, a relative difference above one half."""

    name = "msprobe"

    def tolerance(self, left: Tensor, right: Tensor, names: tuple[str, ...]) -> tuple[float, float]:
        return 1e-3, 1e-3

    def verdict(self, evidence: Evidence, allowance: Allowance, tie: float) -> Verdict:
        measured, apart = evidence.measurement, evidence.statistics
        if measured is None:
            assert apart is not None
            numbers = {"min": apart.min_rel, "max": apart.max_rel, "mean": apart.mean_rel, "norm": apart.norm_rel}
            worst = max(numbers, key=lambda name: abs(numbers[name] or 0.0))
            error = abs(numbers[worst] or 0.0)
            outcome = Outcome.DIFFERENT if error > 0.5 else Outcome.ROUNDING
            return Verdict(outcome, f"relative difference of the {worst} {error:.3g}, allowed 0.5", error, 0.5)
        cosine, largest = measured.cosine, measured.max_abs
        if largest is None:
            return Verdict(Outcome.UNKNOWN, "no finite element on both sides")
        shown = (
            f"cosine {cosine:.6f}, largest error {largest:.3g}"
            if cosine is not None
            else f"largest error {largest:.3g}"
        )
        bad = largest > 1 or (cosine is not None and (cosine < 0.9 or (cosine < 0.99 and largest > 0.001)))
        return Verdict(Outcome.DIFFERENT if bad else Outcome.ROUNDING, shown, largest, 1.0)


# --- by name ----------------------------------------------------------------------------------------------------------

_HALF, _SINGLE, _DOUBLE = Tolerance(1e-3, 1e-5), Tolerance(1.3e-6, 1e-5), Tolerance(1e-7, 1e-7)
_TORCH = {
    "f16": _HALF, "c32": _HALF, "bf16": Tolerance(1.6e-2, 1e-5), "f32": _SINGLE, "c64": _SINGLE, "f64": _DOUBLE, "c128": _DOUBLE,
}  # fmt: skip

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "auto": Auto,
    "msprobe": Msprobe,
    "troubleshooter": lambda: ByTolerance("troubleshooter", Tolerances(1e-4, 1e-4)),
    "torch_testing": lambda: ByTolerance("torch_testing", Tolerances(0.0, 0.0, _TORCH)),
}


def policy_named(
    name: str = "auto", *, rtol: float | None = None, atol: float | None = None, tolerances: Path | None = None
) -> Policy:
    """The policy of that name; or, where tolerances are given, these."""
    by_hand = rtol is not None or atol is not None or tolerances is not None
    if name not in POLICIES:
        raise UsageError(f"policy: expected one of {', '.join(POLICIES)}, got {name!r}.")
    if not by_hand:
        return POLICIES[name]()
    if name != "auto":
        raise UsageError(
            f"policy {name!r} brings its own tolerances: leave it out, or leave out rtol, atol and the file."
        )
    if tolerances is not None and (rtol is not None or atol is not None):
        raise UsageError(f"rtol and atol are given by hand and in {tolerances}: say it in one place.")
    if tolerances is not None:
        return ByTolerance("tolerances", read_tolerances(tolerances))
    for value, which in ((rtol, "rtol"), (atol, "atol")):
        if value is not None:
            check(value, which)
    return ByTolerance("tolerances", Tolerances(rtol or 0.0, atol or 0.0))
