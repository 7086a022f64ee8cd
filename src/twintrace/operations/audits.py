"""Audits of recorded calls: each recorded result and gradient beside what the call computes in float64.

audit(meaning, values, gradients)      a score for each recorded result and gradient
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..model.tensors import UNITS
from .evaluation import COARSE, SINGLE, Gradients, NotRecomputable, Values, evaluate, rounded
from .meanings import Meaning, Operand
from .optimizers import of_each_parameter
from .rounding import NoError, RunningError, coarse_product
from .scores import BLOCK, Precision, Score, exact, judge_result, precision_of
from .simulation import (
    Simulation,
    channels_last,
    corrected,
    in_two_steps,
    is_half,
    pytorch_sums,
    rounded_steps,
    step_by_step,
)
from .steps import STEPS
from .traits import Accuracy, accuracy_of, gives_any_order, traits_of
from .workers import plain_attention

Tensor = torch.Tensor

_WALK = 4.0
"""Random walks of √terms roundings that a recurrent network may be off by, relative to the result: its running error bound grows by
a factor with every step and soon excuses anything. Up to 2.1 were seen (PyTorch's LSTM and GRU, 1 to 48 steps, three dtypes).
"""


@dataclass(frozen=True, slots=True)
class Audit:
    """Scores of the recorded results of one call, by the number of the recorded tensor; why there are none."""

    forward: Mapping[int, Score]
    backward: Mapping[int, Score]
    failure: str = ""
    backward_failure: str = ""
    whole: bool = True
    """False if everything kept to a smaller bound already: the `limit` of the scores is that one."""


_COMPLEX = frozenset(("mul", "div", "add", "sub", "neg", "conj", "abs", "square", "cast", "identity", "polar"))
"""Elementwise operations of complex numbers: each part is a sum of two products, no larger than the product of the magnitudes."""
_COMPLEX_UNITS = 8.0
"""Units of the magnitude that such a result may be off by: two products and their sum in each part, once more for a quotient."""
_ROUNDED_ONCE = frozenset(("add", "sub", "mul", "relu"))
"""Operations that round their results once, and their gradients: most need no further bound, which takes longer to compute."""
_LEAST_UNITS: Mapping[str, float] = {
    **dict.fromkeys(("exp", "erf", "sin", "cos", "sigmoid", "silu", "mish", "quick_gelu", "rsqrt"), 8.0),
    "gelu": 4.0, "tanh": 2.0, "div": 1.0, "sqrt": 1.0, "square": 1.0, "reciprocal": 1.0, "adam": 1.0,
}  # fmt: skip
"""Elementwise operations, and the units of each result and gradient that their whole bound has at least, beside the rounding of the
result itself: nearly all elements keep to these. `tests/operations/test_known_bounds.py` has them.
"""
_ROUNDED = frozenset(("parameters", "exp_avg", "exp_avg_sq"))
"""Results of an optimizer in `_LEAST_UNITS` that are rounded, of a parameter that has a gradient; others may be copies."""
_STRIDE = 8
"""Of the magnitudes that products sum, one in so many is counted at first; of those of 256 terms, right kernels keep to 1 in 64."""


def audit(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None = None,
    *,
    framework: str = "torch",
    operand_unit: float = 0.0,
    keep: Callable[[int, Tensor], None] | None = None,
    whole: bool = False,
) -> Audit:
    """Recompute one call from its own recorded operands and score its recorded results, forward and backward.

    The cheapest bound that the results keep to is enough, unless `whole` asks for the whole one.

    `operand_unit` is the unit of the mode in which products of float32 were allowed to round their operands (TF32: 2**-11).
    `keep` is given the float64 results by the numbers of the recorded ones.
    """
    audited = functools.partial(_audit, meaning, values, gradients, framework, operand_unit, keep or _forget)
    first = {} if whole else _smaller_bound(meaning, values, gradients)
    beyond: dict[int, Tensor] = {}
    try:
        forward, backward, why = audited(**first, beyond=beyond)
        if first and (why or not _are_within(forward, backward)):
            some = None if why else _of_elements(meaning, values, gradients, framework, beyond)
            if some is not None and _are_within(forward | some[0], backward | some[1]):
                forward |= {number: replace(forward[number], ratio=score.ratio) for number, score in some[0].items()}
                backward |= {number: replace(backward[number], ratio=score.ratio) for number, score in some[1].items()}
            else:
                first = {}
                forward, backward, why = audited()
    except NotRecomputable as error:
        return Audit({}, {}, str(error), str(error))
    for reading in _other_readings(gradients):
        if all(score.ratio <= 1 for score in backward.values()):
            break
        other = _audit(meaning, values, reading, framework, operand_unit, keep or _forget)[1]
        if _worst(other) < _worst(backward):
            gradients = reading
            audited = functools.partial(_audit, meaning, values, gradients, framework, operand_unit, keep or _forget)
        backward |= {number: score for number, score in other.items() if score.ratio <= 1 < backward[number].ratio}
    for simulate in (pytorch_sums, channels_last, in_two_steps, step_by_step):
        scores = {**forward, **backward}
        wrong = {number for number, score in scores.items() if score.ratio > 1 and is_half(values, number)}
        simulation = simulate(meaning, values, gradients, framework) if wrong else None
        if simulation is None:
            continue
        relaxed = audited(simulation=simulation)
        for own, other in ((forward, relaxed[0]), (backward, relaxed[1])):
            for number in own.keys() & wrong & simulation.results.keys():
                if other[number].ratio <= 1:
                    own[number] = replace(other[number], coarse_inside=True)
    return Audit(forward, backward, "", why, whole=not first)


def _other_readings(gradients: Gradients | None) -> Iterator[Gradients]:
    """Other readings of recorded gradients of several results, one of which may be made of another.

    A norm returns the deviation that it divides by, a cell its state, of which it makes its output. Where the call is one node of
    the graph, the gradient of each is what came from outside; where it is several, it has what came by way of the other result.
    """
    if gradients is None or len(gradients.outputs) < 2:
        return
    if gradients.inner:
        outer = {value: sent for value, sent in gradients.outputs.items() if value not in gradients.inner}
        yield replace(gradients, outputs=outer)
    yield replace(gradients, totals=True)


def _worst(scores: Mapping[int, Score]) -> float:
    """The largest part of its bound that a result takes; none: infinite."""
    return max((score.ratio for score in scores.values()), default=math.inf)


def _smaller_bound(meaning: Meaning, values: Values, gradients: Gradients | None) -> dict[str, Any]:
    """Settings of a bound that is quicker to compute, and never larger than the whole one; none if there is none."""
    if traits_of(meaning).moves or meaning.operation in _ROUNDED_ONCE:
        return {"bounded": False}
    sent = () if gradients is None else itertools.chain.from_iterable(gradients.inputs.values())
    if meaning.operation in _LEAST_UNITS and not any(is_half(values, number) for number in (*meaning.results, *sent)):
        return {"bounded": False, "least_units": _LEAST_UNITS[meaning.operation]}
    return {"stride": _STRIDE} if traits_of(meaning).product else {}


def _is_rounded(meaning: Meaning, key: int | str) -> bool:
    """False for a result that may be a copy: of an optimizer, what has no gradient, or no average of gradients."""
    if not isinstance(key, str):
        return True
    name, _, place = key.partition(".")
    gradients = meaning.arguments.get("gradients")
    return name in _ROUNDED and isinstance(gradients, tuple) and gradients[int(place or 0)] is not None


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


def _of_elements(
    meaning: Meaning, values: Values, gradients: Gradients | None, framework: str, beyond: Mapping[int, Tensor]
) -> tuple[dict[int, Score], dict[int, Score]] | None:
    """Scores of those elements of an elementwise call that are beyond a smaller bound, against the whole one, which takes ten times
    as long to compute as the call itself; None if other elements count for them as well.
    """
    if meaning.operation not in _LEAST_UNITS:
        return None
    found: tuple[dict[int, Score], dict[int, Score]] = {}, {}
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
        forward, backward, why = _audit(part, chosen, gradients, framework, 0.0, _forget)
        if why:
            return None
        for own, scores in zip(found, (forward, backward), strict=True):
            own.update({number: score for number, score in scores.items() if number in beyond})
    return found


def _lie_otherwise(shapes: Collection[tuple[int, ...]], count: int) -> bool:
    """True if tensors of so many elements do not all have one shape: [8, 1] beside [1, 8]."""
    return len({shape for shape in shapes if math.prod(shape) == count}) > 1


def _forget(number: int, result: Tensor) -> None:
    """Keeps no result."""


def _audit(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None,
    framework: str,
    operand_unit: float,
    keep: Callable[[int, Tensor], None],
    *,
    bounded: bool = True,
    least_units: float = 0.0,
    stride: int = 1,
    simulation: Simulation | None = None,
    beyond: dict[int, Tensor] | None = None,
) -> tuple[dict[int, Score], dict[int, Score], str]:
    """Scores of one call; without `bounded` against the rounding of the results alone, and so many units more, whatever comes
    before it; with a `stride` against a part of the rounding of its sums.

    `simulation` shows what sums and intermediate values in 16 bits do: that much more is allowed. `beyond` is given the places of
    the elements that are beyond their limit, by the numbers of the tensors.
    """
    told = {} if beyond is None else beyond
    results = [(number, key) for number, key in meaning.results.items()]
    given = (*meaning.results, *(operand.tensor for _, operand in meaning.operands()))
    complicated = not traits_of(meaning).moves and meaning.operation not in _COMPLEX
    if complicated and any(values.spec(number).dtype[0] == "c" for number in given):
        raise NotRecomputable("it computes with complex numbers, whose rounding has no bound here")
    as_operands = traits_of(meaning).widens
    dtypes = [values.spec(number).dtype for number in (given if as_operands else meaning.results)]
    dtype = max(
        (item for item in dtypes if item in UNITS), key=UNITS.__getitem__, default=dtypes[0] if dtypes else "f32"
    )
    precision = precision_of(dtype, meaning, framework)
    wanted = gradients is not None and bool(gradients.inputs)
    operands: dict[str, Tensor] = {}
    numbers: dict[str, int] = {}
    contraction = traits_of(meaning).product
    for path, operand in meaning.operands():
        tensor = values(operand.tensor)
        own = UNITS.get(values.spec(operand.tensor).dtype, 0.0)
        if contraction and tensor.is_floating_point() and own < precision.unit and precision.unit > COARSE:
            tensor = rounded(tensor, dtype)  # autocast rounds the operands of products before
        tensor = tensor.detach()
        if tensor.is_floating_point() and wanted:
            tensor = tensor.requires_grad_()
        operands[path], numbers[path] = tensor, operand.tensor
    mode: RunningError | NoError = NoError()
    if bounded:
        least = precision.least if precision.inner > SINGLE else 0.0
        mode = RunningError(precision.inner, precision.sums, precision.functions, least)
        mode.stride = stride
    narrow = rounded_steps(meaning, values, gradients, dtype) if precision.narrow and precision.unit > COARSE else None
    forward: dict[int, Score] = {}
    backward: dict[int, Score] = {}
    why = ""
    accuracy = accuracy_of(meaning.operation, framework)
    if meaning.operation in STEPS and meaning.operation not in _WHOLE and not wanted:
        computed = _step_in_blocks(meaning, operands, mode)
    else:
        computed = _evaluate_with_errors(meaning, operands, mode, precision, accuracy, operand_unit, wanted)
    if gives_any_order(meaning):
        computed = _in_recorded_order(meaning, computed, values)
    squares = functools.cache(lambda: _squares(meaning, operands))
    scores: dict[int, Score] = {}
    for number, key in results:
        if key not in computed:
            continue
        want = computed[key].detach()
        keep(number, want)
        got = values(number)
        if want.is_floating_point() != got.is_floating_point():
            got, want = got.to(torch.float64), want.to(torch.float64)
        held = precision if as_operands else precision_of(values.spec(number).dtype, meaning, framework)
        if not got.is_floating_point() and not want.is_floating_point() and meaning.operation in _PLACES:
            scores[number] = _tied(meaning, operands, got, want)
            continue
        # Sums in 16 bits are no random walk in float32.
        summed = contraction and not operand_unit and (simulation is None or number not in simulation.results)
        terms = _length(want, [item for item in operands.values() if item.is_floating_point()]) if summed else 1.0
        bound = mode.of(want) if not want.is_complex() else _COMPLEX_UNITS * precision.unit * want.abs()
        if accuracy.absolute or accuracy.input:
            source = operands.get("input")
            size = source.detach().abs() if source is not None and source.shape == want.shape else want.abs()
            extra = precision.sums * (accuracy.absolute + accuracy.input * size.nan_to_num(0.0, 0.0))
            bound = extra if bound is None else bound + extra
        if traits_of(meaning).recurrent:
            bound = _walked(bound, want, operands, precision)
        bound = corrected(bound, want, number, simulation, narrow)
        bound = _with_slack(bound, want, values.slack(number))
        collected, factor = _collected(meaning)
        if collected is not None:  # a collective adds up what its ranks have rounded
            slack = values.slack(collected)
            bound = _with_slack(bound, want, None if slack is None else factor * slack)
        walk = functools.partial(_walk, squares, key) if summed else None
        other = None if simulation is None else simulation.results.get(number)
        tell = functools.partial(told.__setitem__, number)
        # The framework's own accuracy is in the bound already.
        if least_units and _is_rounded(meaning, key) and not (accuracy.absolute or accuracy.input):
            held = replace(held, unit=(1 + least_units) * held.unit)
        scores[number] = judge_result(got, want, bound, held, walk, terms, other, beyond=tell)
    forward = scores
    if wanted and gradients is not None:
        try:
            backward = _audit_backward(
                meaning,
                values,
                gradients,
                mode,
                computed,
                operands,
                numbers,
                precision,
                framework,
                simulation,
                narrow,
                told,
                least_units,
            )
        except NotRecomputable as error:
            why = str(error)
    return forward, backward, why


def _collected(meaning: Meaning) -> tuple[int | None, float]:
    """The tensor that a call of all ranks copies or scales, and the factor."""
    if meaning.operation not in ("identity", "mul"):
        return None, 1.0
    other = meaning.arguments.get("other", 1.0)
    source = meaning.arguments.get("input")
    if not isinstance(source, Operand) or not isinstance(other, float | int):
        return None, 1.0
    return source.tensor, abs(float(other))


def _with_slack(bound: Tensor | None, want: Tensor, slack: Tensor | None) -> Tensor | None:
    """The bound with the rounding of parts that were added up elsewhere."""
    if slack is None or slack.numel() != want.numel():
        return bound
    slack = slack.reshape(want.shape)
    return slack if bound is None else bound + slack


def _evaluate_with_errors(
    meaning: Meaning,
    operands: Mapping[str, Tensor],
    mode: RunningError | NoError,
    precision: Precision,
    accuracy: Accuracy,
    operand_unit: float,
    wanted: bool,
) -> dict[int | str, Tensor]:
    with torch.set_grad_enabled(wanted), mode, plain_attention():
        if operand_unit and traits_of(meaning).product:
            for tensor in operands.values():
                if tensor.is_floating_point():
                    mode.add(tensor, operand_unit * tensor.detach().abs())
        if accuracy.argument and _is_float(operands.get("input")):
            mode.add(operands["input"], accuracy.argument * precision.sums * operands["input"].detach().abs())
        return evaluate(meaning, lambda path, _: operands[path])


_WHOLE = frozenset(("lamb",))
"""Optimizers whose update of one element depends on others."""


def _step_in_blocks(
    meaning: Meaning, operands: Mapping[str, Tensor], mode: RunningError | NoError
) -> dict[int | str, Tensor]:
    """A step of an optimizer, elementwise: in blocks that stay in the cache, with their errors."""
    computed: dict[int | str, Tensor] = {}
    for place, single in enumerate(of_each_parameter(meaning)):
        own = {path: operands.get(path.replace(".0", f".{place}"), operands.get(path)) for path, _ in single.operands()}
        shape = operands[f"parameters.{place}"].shape
        count = shape.numel()
        wholes: dict[int | str, tuple[Tensor, Tensor]] = {}
        for start in range(0, max(count, 1), BLOCK):
            end = min(start + BLOCK, count)
            pieces = {
                path: tensor.reshape(-1)[start:end].clone() if tensor.numel() == count else tensor
                for path, tensor in own.items()
                if tensor is not None
            }
            with mode.fresh() as inner:
                results = evaluate(single, lambda path, _, pieces=pieces: pieces[path])  # type: ignore[misc]
            for key, value in results.items():
                if value.numel() != end - start or (value.dim() == 0 and count != 1):
                    wholes[key] = value, torch.zeros(()) if (error := inner.of(value)) is None else error
                    continue
                if key not in wholes:
                    wholes[key] = torch.empty(count, dtype=value.dtype), torch.zeros(count, dtype=torch.float64)
                wholes[key][0][start:end] = value
                error = inner.of(value) if value.is_floating_point() else None
                if error is not None:
                    wholes[key][1][start:end] = error
        for key, (value, error) in wholes.items():
            name = str(key).replace(".0", f".{place}")
            computed[name] = value.reshape(shape) if value.numel() == count else value
            if value.is_floating_point():
                mode.add(computed[name], error.reshape(computed[name].shape))
    return computed


def _audit_backward(
    meaning: Meaning,
    values: Values,
    gradients: Gradients,
    mode: RunningError | NoError,
    computed: Mapping[int | str, Tensor],
    operands: Mapping[str, Tensor],
    numbers: Mapping[str, int],
    precision: Precision,
    framework: str,
    simulation: Simulation | None,
    narrow: Simulation | None,
    beyond: dict[int, Tensor],
    least_units: float,
) -> dict[int, Score]:
    seeds: list[tuple[Tensor, Tensor]] = []
    accuracy = accuracy_of(meaning.operation, framework)
    for number, key in meaning.results.items():
        if number in gradients.outputs and key in computed and computed[key].requires_grad:
            seed = values(gradients.outputs[number])
            result = computed[key]
            if isinstance(mode, RunningError) and not traits_of(meaning).product:  # kernels save what they computed
                size = result.detach().abs()
                saved = precision.unit * size + precision.least
                if accuracy.absolute or accuracy.input:
                    saved += precision.sums * (accuracy.absolute + accuracy.input * size.nan_to_num(0.0, 0.0))
                mode.add(result, saved)
            seeds.append((result, seed.reshape(result.shape) if seed.numel() == result.numel() else seed))
    if not seeds:
        raise NotRecomputable("no gradient of its results was recorded")
    leaves = {
        path: tensor for path, tensor in operands.items() if tensor.requires_grad and numbers[path] in gradients.inputs
    }
    if not leaves:
        return {}
    mode.unit = precision.unit
    mode.least = precision.least
    units = max(precision.functions, accuracy.absolute, accuracy.input)
    if precision.unit > COARSE and not traits_of(meaning).composite:  # computed in float32, and rounded once
        units = 1.0 + units * SINGLE / precision.unit
    mode.function_units = units
    gradients.hold(seeds)
    try:
        with mode:
            found = torch.autograd.grad(
                [y for y, _ in seeds], list(leaves.values()), [g for _, g in seeds], allow_unused=True
            )
    except RuntimeError as error:
        raise NotRecomputable(f"its gradient failed in float64: {str(error).splitlines()[0][:120]}") from None
    made: dict[int, list[tuple[Tensor, Tensor | None]]] = {}
    for path, gradient in zip(leaves, found, strict=True):
        if gradient is not None:
            bound = mode.of(gradient)
            if traits_of(meaning).recurrent:
                bound = _walked(bound, gradient.detach(), operands, precision)
            made.setdefault(numbers[path], []).append((gradient, bound))
    scores: dict[int, Score] = {}
    for value, recorded in gradients.inputs.items():
        candidates = list(made.get(value, ()))
        if not candidates:
            continue
        if len(candidates) > 1:  # the same value in two places: each place has its gradient, or one has their sum
            total = functools.reduce(lambda a, b: a + b, (item for item, _ in candidates))
            errors = [error for _, error in candidates if error is not None]
            candidates.append((total, functools.reduce(lambda a, b: a + b, errors) if errors else None))
        for number in recorded:
            own = precision_of(values.spec(number).dtype, meaning, framework)
            own = replace(own, unit=(1 + least_units) * own.unit) if least_units else own
            got = values(number)
            slack = values.slack(number)
            bounds = [
                _with_slack(corrected(bound, want.detach(), number, simulation, narrow), want, slack)
                for want, bound in candidates
            ]
            other = None if simulation is None else simulation.results.get(number)
            # Of several candidates, whichever is nearest, no element is told: they may be beyond others than the nearest's.
            tell = functools.partial(beyond.__setitem__, number) if len(candidates) == 1 else None
            scored = [
                (judge_result(got, want.detach(), bound, own, simulated=other, beyond=tell), want, bound)
                for (want, _), bound in zip(candidates, bounds, strict=True)
            ]
            score, want, bound = min(scored, key=lambda item: item[0].ratio)
            if (
                score.ratio > 1
                and score.test == "element"
                and got.shape == want.shape
                and isinstance(mode, RunningError)
                and mode.stride == 1
            ):
                path = next(path for path in leaves if numbers[path] == value)
                if meaning.operation in _POOLS and _pooled_elsewhere(
                    operands[path].detach(), got, want.detach(), bound, own
                ):
                    score = replace(score, ratio=1.0)
                elif len(candidates) == 1 and meaning.operation not in _POOLS:
                    nearest = _at_kinks(meaning, operands, path, seeds, want.detach(), got)
                    score = judge_result(got, nearest, bound, own)
            scores[number] = score
    return scores


def _walked(bound: Tensor | None, want: Tensor, operands: Mapping[str, Tensor], precision: Precision) -> Tensor | None:
    """The bound of a recurrent network, at most that of a random walk over all its steps and sums."""
    if bound is None:
        return None
    terms = max(tensor.numel() for tensor in operands.values()) / want.shape[-1] * max(operands["input"].shape[:2])
    unit = max(precision.inner, precision.sums * precision.functions)
    return torch.fmin(bound, _WALK * unit * math.sqrt(terms) * (want.abs() + want.pow(2).mean().sqrt()))


_POOLS = frozenset(("max_pool", "adaptive_max_pool", "amax", "amin", "max", "min"))
_PLACES = frozenset(
    ("argmax", "argmin", "argsort", "sort", "topk", "max", "min", "max_with_places", "min_with_places", "kthvalue")
)
_KINK = 1e-9
"""Relative distance from a kink (ReLU at 0, a tie of two values) at which the derivative is that of one side."""


def _tied(meaning: Meaning, operands: Mapping[str, Tensor], got: Tensor, want: Tensor) -> Score:
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


def _in_recorded_order(meaning: Meaning, computed: dict[int | str, Tensor], values: Values) -> dict[int | str, Tensor]:
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


def _at_kinks(
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


def _pooled_elsewhere(source: Tensor, got: Tensor, want: Tensor, error: Tensor | None, precision: Precision) -> bool:
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


def _is_float(value: Tensor | None) -> bool:
    return value is not None and value.is_floating_point()


def _squares(meaning: Meaning, operands: Mapping[str, Tensor]) -> dict[int | str, Tensor]:
    """Σ(x·w)² for a sum of products Σ x·w."""
    names = [path for path, tensor in operands.items() if tensor.is_floating_point()]
    with torch.no_grad():
        squares = [operands[path].detach() ** 2 for path in names]

        def product(*factors: Tensor) -> dict[int | str, Tensor]:
            known = {**operands, **dict(zip(names, factors, strict=True))}
            return evaluate(meaning, lambda path, _: known[path])

        found: dict[int | str, Tensor] = coarse_product(product, *squares)
        return found


def _walk(squares: Callable[[], Mapping[int | str, Tensor]], key: int | str) -> Tensor:
    return squares()[key].sqrt()


def _length(result: Tensor, sources: Sequence[Tensor]) -> float:
    """Number of terms of a sum of products, by the sizes of what it was made of: √(mk · kn / mn) = k."""
    counts = sorted((item.numel() for item in sources), reverse=True)[:2]
    return max(math.sqrt(math.prod(counts) / max(result.numel(), 1)), 1.0) if len(counts) > 1 else 1.0
