"""Audits of recorded calls: each recorded result and gradient beside what the call computes in float64.

audit(meaning, values, gradients)      a score for each recorded result and gradient
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch

from .evaluation import NotRecomputable, Values
from .meanings import Meaning
from .optimizers import of_each_parameter
from .recorded_gradients import Gradients, other_readings
from .scores import Score
from .scoring import Limit, Scored, Task, score_call
from .simulation import channels_last, in_two_steps, is_half, pytorch_sums, step_by_step
from .traits import traits_of

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Audit:
    """Scores of the recorded results of one call, by the number of the recorded tensor; why there are none."""

    forward: Mapping[int, Score]
    backward: Mapping[int, Score]
    failure: str = ""
    backward_failure: str = ""
    whole: bool = True
    """False if everything kept to a smaller bound already: the `limit` of the scores is that one."""


_ROUNDED_ONCE = frozenset(("add", "sub", "mul", "relu"))
"""Operations that round their results once, and their gradients: most need no further bound, which takes longer to compute."""
_LEAST_UNITS: Mapping[str, float] = {
    **dict.fromkeys(("exp", "erf", "sin", "cos", "sigmoid", "silu", "mish", "quick_gelu", "rsqrt"), 8.0),
    "gelu": 4.0, "tanh": 2.0, "div": 1.0, "sqrt": 1.0, "square": 1.0, "reciprocal": 1.0, "adam": 1.0,
}  # fmt: skip
"""Elementwise operations, and the units of each result and gradient that their whole bound has at least, beside the rounding of the
result itself: nearly all elements keep to these. `tests/operations/test_known_bounds.py` has them.
"""
_STRIDE = 8
"""Of the magnitudes that products sum, one in so many is counted at first; of those of 256 terms, right kernels keep to 1 in 64."""


def audit(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None = None,
    *,
    framework: str = "torch",
    operand_unit: float = 0.0,
    keep: Callable[[int, Tensor], None] = lambda number, result: None,
    whole: bool = False,
) -> Audit:
    """Recompute one call from its own recorded operands and score its recorded results, forward and backward.

    The cheapest bound that the results keep to is enough, unless `whole` asks for the whole one. All else are fields of a `Task`.
    """
    task = Task(meaning, values, gradients, framework, operand_unit, keep)
    limit = Limit() if whole else _smaller_limit(task)
    beyond: dict[int, Tensor] = {}
    try:
        scored = score_call(task, limit, beyond)
        if not limit.is_whole and (scored.why or not _are_within(scored.forward, scored.backward)):
            some = None if scored.why else _of_elements(task, beyond)
            if some is not None and _are_within(scored.forward | some.forward, scored.backward | some.backward):
                for own, other in ((scored.forward, some.forward), (scored.backward, some.backward)):
                    own |= {number: replace(own[number], ratio=score.ratio) for number, score in other.items()}
            else:
                limit = Limit()
                scored = score_call(task, limit)
    except NotRecomputable as error:
        return Audit({}, {}, str(error), str(error))
    forward, backward = scored.forward, scored.backward
    for reading in other_readings(gradients):
        if all(score.ratio <= 1 for score in backward.values()):
            break
        read = replace(task, gradients=reading)
        others = score_call(read, Limit()).backward
        if _worst(others) < _worst(backward):
            task = read
        backward |= {number: score for number, score in others.items() if score.ratio <= 1 < backward[number].ratio}
    for simulate in (pytorch_sums, channels_last, in_two_steps, step_by_step):
        scores = {**forward, **backward}
        wrong = {number for number, score in scores.items() if score.ratio > 1 and is_half(values, number)}
        simulation = simulate(meaning, values, task.gradients, framework) if wrong else None
        if simulation is None:
            continue
        relaxed = score_call(task, Limit(simulation=simulation))
        for own, other in ((forward, relaxed.forward), (backward, relaxed.backward)):
            for number in own.keys() & wrong & simulation.results.keys():
                if other[number].ratio <= 1:
                    own[number] = replace(other[number], coarse_inside=True)
    return Audit(forward, backward, "", scored.why, whole=limit.is_whole)


def _worst(scores: Mapping[int, Score]) -> float:
    """The largest part of its bound that a result takes; none: infinite."""
    return max((score.ratio for score in scores.values()), default=math.inf)


def _smaller_limit(task: Task) -> Limit:
    """A bound that is quicker to compute, and never larger than the whole one; the whole one if there is none."""
    meaning, gradients = task.meaning, task.gradients
    if traits_of(meaning).moves or meaning.operation in _ROUNDED_ONCE:
        return Limit(bounded=False)
    sent = () if gradients is None else itertools.chain.from_iterable(gradients.inputs.values())
    half = any(is_half(task.values, number) for number in (*meaning.results, *sent))
    if meaning.operation in _LEAST_UNITS and not half:
        return Limit(bounded=False, least_units=_LEAST_UNITS[meaning.operation])
    return Limit(stride=_STRIDE) if traits_of(meaning).product else Limit()


def _are_within(*scores: Mapping[int, Score]) -> bool:
    return all(score.ratio <= 1 for part in scores for score in part.values())


class _Elements(Values):
    """Some elements of those tensors that have as many as an elementwise call computes; other tensors as they are."""

    def __init__(self, values: Values, count: int, places: Tensor) -> None:
        self._values, self._count, self._places = values, count, places
        self.spec = values.spec

    def __call__(self, number: int) -> Tensor:
        return self._chosen(self._values(number))

    def slack(self, number: int) -> Tensor | None:
        found = self._values.slack(number)
        return None if found is None else self._chosen(found)

    def _chosen(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(-1)[self._places] if tensor.numel() == self._count else tensor


def _of_elements(task: Task, beyond: Mapping[int, Tensor]) -> Scored | None:
    """Scores of those elements of an elementwise call that are beyond a smaller bound, against the whole one, which takes ten times
    as long to compute as the call itself; None if other elements count for them as well.
    """
    meaning, values, gradients = task.meaning, task.values, task.gradients
    if meaning.operation not in _LEAST_UNITS:
        return None
    found = Scored({}, {})
    for part in of_each_parameter(meaning):
        numbers = set(part.results)
        taken = {operand.tensor for _, operand in part.operands()}
        if gradients is not None and gradients.inputs:
            numbers.update(*gradients.inputs.values())
            taken.update(gradients.outputs.values())
        places = [beyond[number] for number in numbers if number in beyond]
        if not places:
            continue
        shapes = {tuple(values.spec(number).shape) for number in numbers | taken}
        count = max(map(math.prod, shapes))
        # The gradient of a number that all elements share is a sum.
        summed = gradients is not None and any(
            math.prod(values.spec(number).shape) != count for number in gradients.inputs
        )
        if summed or any(1 < math.prod(shape) < count for shape in shapes) or _lie_otherwise(shapes, count):
            return None
        chosen = _Elements(values, count, torch.cat(places).unique() if len(places) > 1 else places[0])
        scored = score_call(Task(part, chosen, gradients, task.framework), Limit())
        if scored.why:
            return None
        for own, scores in ((found.forward, scored.forward), (found.backward, scored.backward)):
            own.update({number: score for number, score in scores.items() if number in beyond})
    return found


def _lie_otherwise(shapes: Collection[tuple[int, ...]], count: int) -> bool:
    """True if tensors of so many elements do not all have one shape: [8, 1] beside [1, 8]."""
    return len({shape for shape in shapes if math.prod(shape) == count}) > 1
