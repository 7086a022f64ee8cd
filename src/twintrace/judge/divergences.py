"""The first of all differences, and the calls that it is told of.

    first_forward(results)     the first pair whose inputs agree and whose outputs do not, in the order of the data flow
    first_backward(results)    the same for gradients; the backward pass runs the other way round

Where no such pair is found, but some differ, the cause lies outside what was recorded: then the first that differs is told, and
that it is inherited.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..model.pairs import Part
from ..model.results import CallResult, Divergence, TensorResult, badness
from ..model.sites import Kind, Phase
from ..model.steps import EqualStep
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from .changed_gradients import changed_before_update

SWAPPED = "the same values come in, in another order"
_TELLING = (Part.PARAMETER, Part.INPUT, Part.BUFFER, Part.OUTPUT, Part.AFTER)


def first_forward(results: Sequence[CallResult], *, alone: Collection[int] = ()) -> Divergence | None:
    """Where the values part. The optimizer's update comes after the forward pass of its step.

    alone   the steps with calls that only one side makes
    """
    parted = [item for item in results if item.forward is not None and item.forward.outcome is Outcome.DIFFERENT]
    parted = [item for item in parted if not item.absorbed_forward]
    if not parted:
        return None
    step = min(item.step for item in parted)
    ordered = sorted((item for item in parted if item.step == step), key=_forward_order)
    update = all(_updates(item) for item in ordered)
    candidates = ordered if update else [item for item in ordered if not _updates(item)]
    chosen = next((item for item in candidates if _arises(item)), candidates[0])
    tensors = sorted((item for item in chosen.tensors if _differs(item, backward=False)), key=_most_telling)
    own, swapped, advice = chosen.introduced_forward, _swapped(chosen), ""
    tensors.sort(key=lambda item: item.pair.part.incoming is own)  # what arose here first, or what came in
    if own:
        because = "what comes in agrees, what goes out does not"
        if _takes_unpaired(chosen):
            because = "what goes out does not agree, and what comes in has no counterpart"
    elif _saved(chosen):
        because = "the values that were saved differ, wherever they come from"
    else:
        because = SWAPPED if swapped else _inherited_because(chosen, tensors, step in alone)
    if update and not own and not swapped:
        because, advice = changed_before_update(chosen, results) or (because, advice)
    place = _forward_order(chosen)
    before = sum(1 for item in results if item.step <= step and _forward_order(item) < place and item.match.left)
    return Divergence(chosen, False, tuple(tensors), not (own or swapped), because, before, advice)


def first_backward(results: Sequence[CallResult]) -> Divergence | None:
    """Where the gradients part."""
    parted = [item for item in results if item.backward is not None and item.backward.outcome is Outcome.DIFFERENT]
    parted = [item for item in parted if not item.absorbed_backward]
    if not parted:
        return None
    step = min(item.step for item in parted)
    ordered = sorted((item for item in parted if item.step == step), key=_backward_order)
    chosen = next((item for item in ordered if item.introduced_backward), ordered[0])
    tensors = sorted((item for item in chosen.tensors if _differs(item, backward=True)), key=_most_telling)
    own = chosen.introduced_backward
    if own:
        because = "the gradient that comes in agrees, what goes out does not"
    elif not chosen.match.left:
        because = "the gradient of a parameter differs, and none of the recorded calls explains it"
    elif chosen.forward is not None and chosen.forward.outcome is Outcome.DIFFERENT:
        because = "the values of the forward pass differ here already"
    else:
        because = "the gradient that comes in differs already"
    place = _backward_order(chosen)
    before = sum(
        1 for item in results if item.backward is not None and item.step <= step and _backward_order(item) < place
    )
    return Divergence(chosen, True, tuple(tensors), not own, because, before)


def first_mistake(results: Sequence[CallResult], *, backward: bool) -> Divergence | None:
    """The first call that is to blame, by recomputation; what reaches a result before what does not, a large one before a
    marginal one.
    """
    order = _backward_order if backward else _forward_order
    guilty = [(item, mistake) for item in results for mistake in item.mistakes if mistake.backward is backward]
    if not guilty:
        return None
    result, mistake = min(guilty, key=lambda pair: (not pair[1].effective, pair[1].marginal, order(pair[0])))
    tensors = sorted((item for item in result.tensors if _differs(item, backward=backward)), key=_most_telling)
    tensors.sort(key=lambda item: item.pair.part.incoming is (mistake.kind not in ("leaf", "weights")))
    place = order(result)
    before = sum(1 for item in results if item.match.left and item.step <= result.step and order(item) < place)
    if mistake.kind == "leaf" and _updates(result):  # gradients that no recorded call sent: added up, clipped, scaled
        told = changed_before_update(result, results)
        if told is not None:
            mistake = replace(mistake, what=told[0], advice=told[1])
    return Divergence(result, backward, tuple(tensors), False, mistake.what, before, mistake.advice, mistake)


def counting_equal_steps(found: Divergence, equal: Sequence[EqualStep]) -> Divergence:
    """The same with the pairs of earlier steps that were passed over among those before it."""
    earlier = [item for item in equal if item.step < found.result.step]
    by_gradients = found.backward and found.mistake is None
    return replace(
        found, after=found.after + sum(item.with_gradients if by_gradients else item.with_calls for item in earlier)
    )


def _arises(result: CallResult) -> bool:
    """True if the difference surely arises here: not if nothing is known of what came in."""
    return (result.introduced_forward and not _takes_unpaired(result)) or _swapped(result)


def _saved(result: CallResult) -> bool:
    """True of a value that was saved, and no call."""
    return any(call.site.kind is Kind.SAVE for call in result.match.left)


def _swapped(result: CallResult) -> bool:
    """True if the same tensors come in on both sides, in another order. They are known by their bits."""
    came = [item for item in result.tensors if item.pair.part is Part.INPUT]
    if not any(_differs(item, backward=False) for item in came):
        return False
    left, right = (sorted(side.fingerprint or "" for side in sides) for sides in zip(*_sides(came), strict=True))
    return left == right and all(left)


def _takes_unpaired(result: CallResult) -> bool:
    """True if none of its inputs is compared, though both sides have some."""
    compared = any(item.pair.part is Part.INPUT for item in result.tensors)
    sides = (result.match.only_left, result.match.only_right)
    return not compared and all(any(item.part is Part.INPUT for item in side) for side in sides)


def _sides(results: Sequence[TensorResult]) -> list[tuple[Tensor, Tensor]]:
    return [(item.left, item.right) for item in results]


def _inherited_because(result: CallResult, tensors: Sequence[TensorResult], alone: bool) -> str:
    if any(map(result.holds, tensors)):
        return "the two start from different weights"
    if alone:
        return "what comes in differs already: by a call that only one side makes, or outside what was recorded"
    return "what comes in differs already: the cause lies before, outside what was recorded"


def _updates(result: CallResult) -> bool:
    return bool(result.match.left) and result.match.left[0].site.phase is Phase.UPDATE


def _differs(item: TensorResult, *, backward: bool) -> bool:
    return item.verdict.outcome is Outcome.DIFFERENT and item.pair.part.backward == backward


def _most_telling(item: TensorResult) -> tuple[int, float]:
    place = _TELLING.index(item.pair.part) if item.pair.part in _TELLING else len(_TELLING)
    return place, -badness(item.verdict)[1]


def _forward_order(result: CallResult) -> tuple[int, int, int]:
    """By the end of the left call: a call ends after what it is made of."""
    last = max((call.order for call in result.match.left), default=1 << 60)
    return result.step, int(_updates(result)), last


def _backward_order(result: CallResult) -> tuple[int, int, int]:
    """By the first gradient that reached the left call; gradients of parameters that belong to no call come last."""
    orders = [gradient.order for call in result.match.left for gradient in call.gradients]
    return result.step, 0 if orders else 1, min(orders, default=0)
