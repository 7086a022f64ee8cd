"""Two runs over their steps and over their depth: how far they are apart, and how much of that is allowed.

loss         relative distance of the two losses, by step
gradients    the same of the norms of all gradients
of bound     the largest difference of any pair of calls, in units of the bound: beyond 1 the runs part
"""

from __future__ import annotations

from ..model.curves import ComparedCurves, Curve, Curves, bound_curve
from ..model.pairs import Part
from ..model.results import CallResult, Comparison
from ..model.sites import Kind
from ..model.verdicts import Outcome

_MEANINGS = {
    "loss": "how far the two losses are apart, relatively",
    "gradients": "how far the norms of all gradients are apart, relatively",
}


def compared(comparison: Comparison, left: Curves, right: Curves) -> ComparedCurves:
    """Curves of two runs, with those of the distance between them."""
    other = {curve.name: dict(curve.points) for curve in right.curves}
    apart = []
    for curve in (curve for curve in left.curves if curve.name in _MEANINGS and curve.name in other):
        points = ((step, _distance(value, other[curve.name].get(step))) for step, value in curve.points)
        apart.append(Curve(curve.name, _MEANINGS[curve.name], tuple(points)))
    results = [result for result in comparison.results if result.rank == left.rank]
    steps = sorted({result.step for result in results})
    apart.append(bound_curve(comparison, left.rank))
    differing = [result.step for result in results if result.verdict.outcome is not Outcome.SAME]
    first = min(differing, default=steps[0] if steps else 0)
    layers = tuple(row for result in results if result.step == first and (row := _layer(result)) is not None)
    return ComparedCurves(left, right, tuple(curve for curve in apart if curve.known), layers, first)


def _distance(left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    return abs(left - right) / abs(left) if left else abs(right)


def _layer(result: CallResult) -> tuple[str, float, float | None] | None:
    """A module of the forward pass: its name, the relative difference of its result, and that in units of the bound."""
    if not result.match.left or result.match.left[0].site.kind is not Kind.MODULE:
        return None
    for item in result.tensors:
        known = item.measurement
        if item.pair.part is Part.OUTPUT and known is not None and known.rmse is not None and known.rms_left:
            return result.match.left[0].site.name or "(model)", known.rmse / known.rms_left, item.verdict.ratio
    return None
