"""Changes of gradients between the backward pass and the optimizer's step, where the two sides part in between.

    step 1      backward gives        the optimizer takes
    left        g                     g
    right       g                     g, and those of step 0 on top          a forgotten zero_grad

Both are in the records: the gradients of the parameters, and what the optimizer was called with. Sums are known by their means,
which add up; no value is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..model.pairs import Part
from ..model.results import CallResult, TensorResult
from ..model.sites import Phase
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from .carried import identity
from .optimizers import GRADIENTS
from .rounding import size, unit

_SIGMAS = 8.0
"""Standard errors, at least, that the mean of rounded elements may be off by: a unit is three standard deviations of rounding."""
_ADDED_UP = (
    "the backward pass gives the same gradients on both sides, but the {side}'s optimizer takes them with those of the step before "
    "on top"
)
_CHANGED = "the backward pass gives the same gradients on both sides, but the {side}'s optimizer takes others"
_FORGOTTEN = "call zero_grad() before each backward pass on the {side}: its gradients add up over the steps"
_BETWEEN = (
    "look at what the {side} does to its gradients between the backward pass and the optimizer's step: clipping, scaling, "
    "averaging, adding up"
)


def changed_before_update(update: CallResult, results: Sequence[CallResult]) -> tuple[str, str] | None:
    """(because, advice) of two optimizer steps that take different gradients though the backward pass gave the same."""
    taken = {item.pair.left_slot: item for item in _taken(update) if item.verdict.outcome is Outcome.DIFFERENT}
    given = [
        item
        for result in results
        if (result.step, result.rank) == (update.step, update.rank)
        for item in result.tensors
        if item.pair.part is Part.PARAMETER_GRADIENT
    ]
    if not taken or any(item.verdict.outcome is Outcome.DIFFERENT for item in given):
        return None
    own = {slot: (_among(item, given, 0), _among(item, given, 1)) for slot, item in taken.items()}
    changed = [side for side in (0, 1) if all(found[side] is None for found in own.values())]
    if len(changed) != 1 or any(found[1 - changed[0]] is None for found in own.values()):
        return None
    [side] = changed
    before = {item.pair.left_slot: item for item in _taken(_previous(update, results))}
    added_up = bool(before) and all(
        slot in before and found[1 - side] is not None and _is_sum(item, before[slot], found[1 - side], side)
        for (slot, item), found in zip(taken.items(), own.values(), strict=True)
    )
    name = ("left", "right")[side]
    because, advice = (_ADDED_UP, _FORGOTTEN) if added_up else (_CHANGED, _BETWEEN)
    return because.format(side=name), advice.format(side=name)


def _taken(update: CallResult | None) -> Iterator[TensorResult]:
    for item in update.tensors if update else ():
        if item.pair.part is Part.INPUT and item.pair.left_slot.startswith(GRADIENTS):
            yield item


def _previous(update: CallResult, results: Sequence[CallResult]) -> CallResult | None:
    name = update.match.left[0].site.name
    found = [
        item
        for item in results
        if item.match.left
        and item.match.left[0].site.phase is Phase.UPDATE
        and item.match.left[0].site.name == name
        and item.rank == update.rank
        and item.step < update.step
    ]
    return max(found, key=lambda item: item.step, default=None)


def _among(item: TensorResult, given: Sequence[TensorResult], side: int) -> TensorResult | None:
    """The gradient of a parameter that is this one, on one side."""
    return next((each for each in given if identity(_of(item, side)) == identity(_of(each, side))), None)


def _of(item: TensorResult, side: int) -> Tensor:
    return item.right if side else item.left


def _is_sum(item: TensorResult, before: TensorResult, given: TensorResult | None, side: int) -> bool:
    if given is None:
        return False
    means = [_mean(_of(each, side)) for each in (item, before, given)]
    if any(mean is None for mean in means):
        return False
    now, then, new = (mean or 0.0 for mean in means)
    # A mean may be small where the elements are not, each of which was rounded.
    total = _of(item, side)
    coarse = _SIGMAS * unit(total.spec.dtype) / math.sqrt(max(math.prod(total.spec.shape), 1))
    rounding = max(1e-6, coarse) * (size(_of(before, side)) + size(_of(given, side)))
    return math.isclose(now, then + new, rel_tol=1e-4, abs_tol=rounding)


def _mean(tensor: Tensor) -> float | None:
    return tensor.statistics.mean if tensor.statistics else None
