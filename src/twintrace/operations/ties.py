"""Results and gradients of which several are right: any place of equal values, either derivative at a kink, any order.

tied(meaning, operands, got, want)                   score of places: argmax, sort, topk
in_recorded_places(meaning, computed, operands, …)   the values that were recorded with their places, taken from those places
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
from .traits import gives_any_order, traits_of
from .workers import plain_attention

Tensor = torch.Tensor

POOLS = frozenset(("max_pool", "adaptive_max_pool", "amax", "amin", "max", "min"))
_ORDERS = frozenset(("sort", "topk"))
"""Operations that take each place once."""
_KINK = 1e-9
"""Relative distance from a kink (ReLU at 0, a tie of two values) at which the derivative is that of one side."""


def tied(meaning: Meaning, operands: Mapping[str, Tensor], got: Tensor, want: Tensor) -> Score:
    """Places of values: any place that holds the same value is right."""
    score = exact(got, want)
    source, axis = operands.get("input"), meaning.arguments.get("dim")
    if score.ratio == 0 or source is None or got.shape != want.shape:
        return score
    if axis is None:
        source, got, want = source.reshape(-1), got.reshape(-1), want.reshape(-1)
    dim = axis if isinstance(axis, int) else 0
    places = [(item if item.dim() == source.dim() else item.unsqueeze(dim)).long() for item in (got, want)]
    if got.numel() and not 0 <= int(got.min()) <= int(got.max()) < (source.shape[dim] if source.dim() else 1):
        return score
    one, two = (source.detach().gather(dim, item) for item in places)
    return Score(0.0) if torch.allclose(one, two, rtol=0, atol=0, equal_nan=True) else score


def in_recorded_places(
    meaning: Meaning, computed: Mapping[int | str, Tensor], operands: Mapping[str, Tensor], values: Values
) -> Mapping[int | str, Tensor]:
    """Values and their places, taken from the recorded places where these are right: gradients go where the values came from."""
    source, axis = operands.get("input"), meaning.arguments.get("dim")
    number = next((number for number, key in meaning.results.items() if key == 1), None)
    if not traits_of(meaning).chooses or number is None or source is None or not isinstance(axis, int):
        return computed
    places, want = values(number), computed[1]
    if places.shape != want.shape or torch.equal(places.long(), want) or not source.dim():
        return computed
    chosen = places.long() if places.dim() == source.dim() else places.long().unsqueeze(axis)
    if int(chosen.min()) < 0 or int(chosen.max()) >= source.shape[axis]:
        return computed
    if meaning.operation in _ORDERS and bool((chosen.sort(axis).values.diff(dim=axis) == 0).any()):
        return computed
    with torch.set_grad_enabled(source.requires_grad):
        picked = source.gather(axis, chosen).reshape(computed[0].shape)
    pair = picked.detach(), computed[0].detach()
    if gives_any_order(meaning):
        pair = pair[0].sort(axis).values, pair[1].sort(axis).values
    return {**computed, 0: picked, 1: places} if torch.allclose(*pair, rtol=0, atol=0, equal_nan=True) else computed


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
