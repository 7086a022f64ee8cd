"""Results and gradients of which several are right: any place of equal values, either derivative at a kink, any order.

tied(meaning, operands, got, want)                   score of places: argmax, sort, topk
in_recorded_order(meaning, computed, values)         the largest values, in the order in which they were recorded
at_kinks(meaning, operands, path, seeds, want, got)  the gradient nearest to the recorded one on both sides of a kink
pooled_elsewhere(source, got, want, error, …)        True if a maximum sent its gradient to another of several equal values
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .evaluation import Values, evaluate
from .meanings import Meaning
from .scores import Precision, Score, exact
from .workers import plain_attention

Tensor = torch.Tensor

POOLS = frozenset(("max_pool", "adaptive_max_pool", "amax", "amin", "max", "min"))
PLACES = frozenset(
    ("argmax", "argmin", "argsort", "sort", "topk", "max", "min", "max_with_places", "min_with_places", "kthvalue")
)
_KINK = 1e-9
"""Relative distance from a kink (ReLU at 0, a tie of two values) at which the derivative is that of one side."""


def tied(meaning: Meaning, operands: Mapping[str, Tensor], got: Tensor, want: Tensor) -> Score:
    """Places of values: any place that holds the same value is right."""
    score = exact(got, want)
    source, axis = operands.get("input"), meaning.arguments.get("dim")
    if score.ratio == 0 or source is None or got.shape != want.shape:
        return score
    if axis is None:
        flat = source.detach().reshape(-1)
        values = flat[got.reshape(-1).long()], flat[want.reshape(-1).long()]
    else:
        dim = int(axis) if isinstance(axis, int) else 0
        places = [item if item.dim() == source.dim() else item.unsqueeze(dim) for item in (got, want)]
        values = source.detach().gather(dim, places[0].long()), source.detach().gather(dim, places[1].long())
    return Score(0.0) if bool((values[0] == values[1]).all()) else score


def in_recorded_order(meaning: Meaning, computed: dict[int | str, Tensor], values: Values) -> dict[int | str, Tensor]:
    """The largest values and their places, which a call gives in any order, in the order in which they were recorded."""
    number, key = next(((number, key) for number, key in meaning.results.items() if key == 0), (None, 0))
    if number is None:
        return computed
    got, want, axis = values(number), computed[key].detach(), meaning.arguments["dim"]
    if got.shape != want.shape or not want.dim() or not isinstance(axis, int):
        return computed
    ranks = torch.argsort(got, dim=axis, stable=True).argsort(axis)
    order = torch.argsort(want, dim=axis, stable=True).gather(axis, ranks)
    with torch.enable_grad():
        return {place: result.gather(axis, order) for place, result in computed.items()}


def at_kinks(
    meaning: Meaning,
    operands: Mapping[str, Tensor],
    path: str,
    seeds: Sequence[tuple[Tensor, Tensor]],
    want: Tensor,
    got: Tensor,
) -> Tensor:
    """The gradient nearest to the recorded one among those on both sides of a kink."""
    lowest, highest = want.clone(), want.clone()
    generator = torch.Generator().manual_seed(0)
    for sign in (1.0, -1.0, 1.0, -1.0):
        moved = {}
        for name, tensor in operands.items():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5
                tensor = (tensor.detach() + sign * _KINK * noise * (tensor.detach().abs() + 1e-30)).requires_grad_()
                tensor = torch.where(operands[name].detach() == 0, sign * 1e-30 * noise, tensor)
            moved[name] = tensor
        leaf = moved[path] = moved[path].detach().requires_grad_()
        with torch.enable_grad(), plain_attention():
            results = list(evaluate(meaning, lambda name, _, moved=moved: moved[name]).values())  # type: ignore[misc]
        pairs = [(y, g) for y, (_, g) in zip(results, seeds, strict=False) if y.requires_grad and y.shape == g.shape]
        if not pairs:
            return want
        (gradient,) = torch.autograd.grad([y for y, _ in pairs], [leaf], [g for _, g in pairs], allow_unused=True)
        if gradient is not None:
            lowest, highest = torch.minimum(lowest, gradient), torch.maximum(highest, gradient)
    return torch.maximum(torch.minimum(got, highest), lowest)


def pooled_elsewhere(source: Tensor, got: Tensor, want: Tensor, error: Tensor | None, precision: Precision) -> bool:
    """True if two gradients of a maximum differ only in which of several equal values they went to."""
    limit = precision.unit * (want.abs() + got.abs()) + precision.least + (0.0 if error is None else error)
    apart = (got - want).abs() > limit
    if int(apart.sum()) > 100_000:
        return False
    places = apart.nonzero()
    totals: dict[tuple[Any, ...], list[float]] = {}
    for place in places.tolist():
        index = tuple(place)
        key = (*place[:2], float(source[index]))
        entry = totals.setdefault(key, [0.0, 0.0, 0])
        entry[0] += float(got[index] - want[index])
        entry[1] += float(limit[index]) + precision.unit * float(got[index].abs() + want[index].abs())
        entry[2] += 1
    # One that changed alone went nowhere.
    return all(count > 1 and abs(total) <= 4 * allowed for total, allowed, count in totals.values())
