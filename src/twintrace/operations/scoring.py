"""One recorded call computed in float64 with a bound on its rounding, and its results and gradients held against that.

    score_call(Task(meaning, values, gradients), Limit())      scores of its results and gradients, against the whole bound

`audits.py` decides which bounds, readings of the gradients and simulations are tried.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..model.tensors import UNITS
from .evaluation import COARSE, SINGLE, NotRecomputable, Values, evaluate, rounded
from .meanings import Meaning, Operand
from .optimizers import of_each_parameter
from .recorded_gradients import Gradients
from .rounding import WALK, NoError, RunningError, coarse_product
from .scores import BLOCK, Precision, Score, judge_result, precision_of
from .simulation import Simulation, corrected, rounded_steps
from .steps import STEPS
from .ties import POOLS, at_kinks, in_recorded_places, pooled_elsewhere, tied
from .traits import accuracy_of, traits_of
from .transforms import TRANSFORMS, rounding_of_transform
from .workers import plain_attention

Tensor = torch.Tensor

_WALK = 4.0
"""Random walks of √terms roundings that a recurrent network may be off by, relative to the result: its running error bound grows by
a factor with every step and soon excuses anything. Up to 2.1 were seen (PyTorch's LSTM and GRU, 1 to 48 steps, three dtypes).
"""


_COMPLEX = frozenset(("mul", "div", "add", "sub", "neg", "conj", "abs", "square", "cast", "identity", "polar"))
"""Elementwise operations of complex numbers: each part is a sum of two products, no larger than the product of the magnitudes."""
_MAGNITUDES = _COMPLEX - {"polar"}
"""Of these, those whose gradient of magnitudes is the magnitude of their gradient."""
_COMPLEX_UNITS = 8.0
"""Units of the magnitude that such a result may be off by: two products and their sum in each part, once more for a quotient."""


_ROUNDED = frozenset(("parameters", "exp_avg", "exp_avg_sq"))
"""Results of an optimizer in `audits._LEAST_UNITS` that are rounded, of a parameter that has a gradient; others may be copies."""
_WHOLE = frozenset(("lamb",))
"""Optimizers whose update of one element depends on others."""


@dataclass(frozen=True, slots=True)
class Task:
    """One recorded call to be computed again: its meaning, the values and gradients of its side, and how it was run."""

    meaning: Meaning
    values: Values
    gradients: Gradients | None = None
    framework: str = "torch"
    operand_unit: float = 0.0
    """Unit of the mode in which products of float32 were allowed to round their operands (TF32: 2**-11)."""
    keep: Callable[[int, Tensor], None] = lambda number, result: None
    """Is given the float64 results by the numbers of the recorded ones."""

    @property
    def has_gradients(self) -> bool:
        """True if gradients of its operands were recorded."""
        return self.gradients is not None and bool(self.gradients.inputs)


@dataclass(frozen=True, slots=True)
class Limit:
    """The bound that results are held against: the whole one, or one that is quicker to compute."""

    bounded: bool = True
    """False for the rounding of the results alone, whatever comes before it."""
    least_units: float = 0.0
    """Units more, of each result and gradient."""
    stride: int = 1
    """Of the magnitudes that products sum, one in so many is counted."""
    simulation: Simulation | None = None
    """Effect of sums and intermediate values in 16 bits: that much more is allowed."""

    @property
    def is_whole(self) -> bool:
        return self == Limit()

    def simulated(self, number: int) -> Tensor | None:
        """A result as sums in 16 bits give it; None if it is not among those."""
        return None if self.simulation is None else self.simulation.results.get(number)


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of one call by the numbers of the recorded tensors, and why there are none of gradients."""

    forward: dict[int, Score]
    backward: dict[int, Score]
    why: str = ""


def score_call(task: Task, limit: Limit, beyond: dict[int, Tensor] | None = None) -> Scored:
    """Scores of one call. `beyond` is given the places of the elements that are beyond their limit, by the numbers of the tensors.

    Raises NotRecomputable.
    """
    scoring = _Scoring(task, limit, {} if beyond is None else beyond)
    forward = scoring.forward()
    if not task.has_gradients:
        return Scored(forward, {})
    try:
        return Scored(forward, scoring.backward())
    except NotRecomputable as error:
        return Scored(forward, {}, str(error))


class _Scoring:
    """One call, computed in float64 with the bound on its rounding."""

    def __init__(self, task: Task, limit: Limit, beyond: dict[int, Tensor]) -> None:
        self.task, self.limit, self.beyond = task, limit, beyond
        meaning, values = task.meaning, task.values
        self.traits = traits_of(meaning)
        given = (*meaning.results, *(operand.tensor for _, operand in meaning.operands()))
        known = _COMPLEX | TRANSFORMS
        complicated = not self.traits.moves and meaning.operation not in known
        self.is_complex = any(values.spec(number).dtype[0] == "c" for number in given)
        """True if an operand or a result is complex: the running bound knows real numbers alone."""
        if complicated and self.is_complex:
            raise NotRecomputable("it computes with complex numbers, whose rounding has no bound here")
        dtypes = [values.spec(number).dtype for number in (given if self.traits.widens else meaning.results)]
        dtype = max(
            (item for item in dtypes if item in UNITS), key=UNITS.__getitem__, default=dtypes[0] if dtypes else "f32"
        )
        self.precision = precision = precision_of(dtype, meaning, task.framework)
        self.accuracy = accuracy_of(meaning.operation, task.framework)
        self.operands: dict[str, Tensor] = {}
        self.numbers: dict[str, int] = {}
        for path, operand in meaning.operands():
            tensor = values(operand.tensor)
            own = UNITS.get(values.spec(operand.tensor).dtype, 0.0)
            if self.traits.product and tensor.is_floating_point() and own < precision.unit and precision.unit > COARSE:
                tensor = rounded(tensor, dtype)  # autocast rounds the operands of products before
            tensor = tensor.detach()
            if (tensor.is_floating_point() or tensor.is_complex()) and task.has_gradients:
                tensor = tensor.requires_grad_()
            self.operands[path], self.numbers[path] = tensor, operand.tensor
        self.mode: RunningError | NoError = NoError()
        if limit.bounded:
            least = precision.least if precision.inner > SINGLE else 0.0
            self.mode = RunningError(precision.inner, precision.sums, precision.functions, least)
            self.mode.stride = limit.stride
        coarse = precision.narrow and precision.unit > COARSE
        self.narrow = rounded_steps(meaning, values, task.gradients, dtype) if coarse else None
        if meaning.operation in STEPS and meaning.operation not in _WHOLE and not task.has_gradients:
            computed = _step_in_blocks(meaning, self.operands, self.mode)
        else:
            computed = self._evaluate()
        self.computed = in_recorded_places(meaning, computed, self.operands, values)

    def _evaluate(self) -> dict[int | str, Tensor]:
        task, mode, operands = self.task, self.mode, self.operands
        with torch.set_grad_enabled(task.has_gradients), mode, plain_attention():
            if task.operand_unit and self.traits.product:
                for tensor in operands.values():
                    if tensor.is_floating_point():
                        mode.add(tensor, task.operand_unit * tensor.detach().abs())
            source = operands.get("input")
            if self.accuracy.argument and source is not None and source.is_floating_point():
                mode.add(source, self.accuracy.argument * self.precision.sums * source.detach().abs())
            return evaluate(task.meaning, lambda path, _: operands[path])

    # --- results --------------------------------------------------------------------------------------------------------

    def forward(self) -> dict[int, Score]:
        """Scores of the results."""
        meaning, values = self.task.meaning, self.task.values
        squares = functools.cache(lambda: _squares(meaning, self.operands))
        scores: dict[int, Score] = {}
        for number, key in meaning.results.items():
            if key not in self.computed:
                continue
            want = self.computed[key].detach()
            self.task.keep(number, want)
            got = values(number)
            if want.is_floating_point() != got.is_floating_point():
                got, want = got.to(torch.float64), want.to(torch.float64)
            if not got.is_floating_point() and not want.is_floating_point() and self.traits.chooses:
                scores[number] = tied(meaning, self.operands, got, want)
                continue
            simulated = self.limit.simulated(number)
            # Sums in 16 bits, or of products that were rounded to these, are no random walk in float32.
            in_steps = self.traits.chained and self.precision.unit > COARSE
            summed = self.traits.product and not self.task.operand_unit and simulated is None and not in_steps
            terms = (
                _length(want, [item for item in self.operands.values() if item.is_floating_point()]) if summed else 1.0
            )
            walk = functools.partial(_walk, squares, key) if summed else None
            held = precision_of(values.spec(number).dtype, meaning, self.task.framework)
            held = self.precision if self.traits.widens else held
            # The framework's own accuracy is in the bound already.
            if _is_rounded(meaning, key) and not self._has_own_accuracy:
                held = self._with_least(held)
            tell = functools.partial(self.beyond.__setitem__, number)
            bound = self._bound(number, want)
            scores[number] = judge_result(got, want, bound, held, walk, terms, simulated, beyond=tell)
        return scores

    def _bound(self, number: int, want: Tensor) -> Tensor | None:
        """Bound on the rounding of a result."""
        meaning, precision = self.task.meaning, self.precision
        bound: Tensor | None
        if meaning.operation in TRANSFORMS:
            (source,) = (operand.detach() for operand in self.operands.values())
            size = rounding_of_transform(meaning, source, want, source)
            bound = _COMPLEX_UNITS * precision.unit * (want.abs() + size)
        else:
            bound = self.mode.of(want) if not want.is_complex() else _COMPLEX_UNITS * precision.unit * want.abs()
        if self._has_own_accuracy:
            own = self.operands.get("input")
            extra = self._own_accuracy(
                own.detach().abs() if own is not None and own.shape == want.shape else want.abs()
            )
            bound = extra if bound is None else bound + extra
        if self.traits.recurrent:
            bound = _walked(bound, want, self.operands, precision)
        bound = corrected(bound, want, number, self.limit.simulation, self.narrow)
        bound = _with_slack(bound, want, self.task.values.slack(number))
        collected, factor = _collected(meaning)
        if collected is not None:  # a collective adds up what its ranks have rounded
            slack = self.task.values.slack(collected)
            bound = _with_slack(bound, want, None if slack is None else factor * slack)
        return bound

    @property
    def _has_own_accuracy(self) -> bool:
        return bool(self.accuracy.absolute or self.accuracy.input)

    def _own_accuracy(self, size: Tensor) -> Tensor:
        """Bound on the error of the framework's own approximation of a function."""
        scaled = self.accuracy.input * size.nan_to_num(0.0, 0.0)
        return self.precision.sums * (self.accuracy.absolute + scaled)

    def _with_least(self, precision: Precision) -> Precision:
        units = self.limit.least_units
        return replace(precision, unit=(1 + units) * precision.unit) if units else precision

    # --- gradients ------------------------------------------------------------------------------------------------------

    def backward(self) -> dict[int, Score]:
        """Scores of the gradients of the operands. Raises NotRecomputable."""
        gradients = self.task.gradients
        assert gradients is not None
        seeds = self._seeds(gradients)
        numbers = self.numbers
        leaves = {
            path: tensor
            for path, tensor in self.operands.items()
            if tensor.requires_grad and numbers[path] in gradients.inputs
        }
        if not leaves:
            return {}
        gradients.hold(seeds)
        made: dict[int, list[tuple[Tensor, Tensor | None]]] = {}
        for path, gradient in zip(leaves, self._differentiate(seeds, leaves), strict=True):
            if gradient is not None:
                bound = self._complex_bound(path, seeds, gradient) if self.is_complex else self.mode.of(gradient)
                if self.traits.recurrent:
                    bound = _walked(bound, gradient.detach(), self.operands, self.precision)
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
            path = next(path for path in leaves if numbers[path] == value)
            for number in recorded:
                scores[number] = self._score_gradient(number, path, candidates, seeds)
        return scores

    def _seeds(self, gradients: Gradients) -> list[tuple[Tensor, Tensor]]:
        """Results and their recorded gradients."""
        seeds: list[tuple[Tensor, Tensor]] = []
        for number, key in self.task.meaning.results.items():
            if number in gradients.outputs and key in self.computed and self.computed[key].requires_grad:
                seed = self.task.values(gradients.outputs[number])
                result = self.computed[key]
                if isinstance(self.mode, RunningError) and not self.traits.product:  # kernels save what they computed
                    size = result.detach().abs()
                    saved = self.precision.unit * size + self.precision.least
                    self.mode.add(result, saved + self._own_accuracy(size) if self._has_own_accuracy else saved)
                seeds.append((result, seed.reshape(result.shape) if seed.numel() == result.numel() else seed))
        if not seeds:
            raise NotRecomputable("no gradient of its results was recorded")
        return seeds

    def _differentiate(
        self, seeds: Sequence[tuple[Tensor, Tensor]], leaves: Mapping[str, Tensor]
    ) -> Sequence[Tensor | None]:
        precision, accuracy = self.precision, self.accuracy
        units = max(precision.functions, accuracy.absolute, accuracy.input)
        if precision.unit > COARSE and not self.traits.composite:  # computed in float32, and rounded once
            units = 1.0 + units * SINGLE / precision.unit
        self.mode.unit, self.mode.least, self.mode.function_units = precision.unit, precision.least, units
        try:
            with NoError() if self.is_complex else self.mode:
                return torch.autograd.grad(
                    [y for y, _ in seeds], list(leaves.values()), [g for _, g in seeds], allow_unused=True
                )
        except RuntimeError as error:
            raise NotRecomputable(f"its gradient failed in float64: {str(error).splitlines()[0][:120]}") from None

    def _complex_bound(self, path: str, seeds: Sequence[tuple[Tensor, Tensor]], gradient: Tensor) -> Tensor | None:
        """Bound on the rounding of a gradient of complex numbers: some units of its terms' magnitudes, which are what the same
        operation sends back of magnitudes. None where values are only moved.
        """
        meaning = self.task.meaning
        if self.traits.moves:
            return None
        if meaning.operation in TRANSFORMS:
            ((_, seed),) = seeds
            size = rounding_of_transform(meaning, self.operands[path].detach(), seeds[0][0].detach(), seed.detach())
            return _COMPLEX_UNITS * self.precision.unit * (gradient.detach().abs() + size)
        if meaning.operation not in _MAGNITUDES:
            raise NotRecomputable(
                f"the rounding of the gradient of {meaning.operation} of complex numbers has no bound here"
            )
        sizes = {name: tensor.detach().abs().double() for name, tensor in self.operands.items()}
        sizes[path] = sizes[path].requires_grad_()
        with torch.enable_grad():
            computed = evaluate(meaning, lambda name, _: sizes[name])
        results = [computed[key] for key in meaning.results.values() if key in computed]
        terms = max(results[0].numel() / max(gradient.numel(), 1), 1.0)
        given = [seed.detach().abs().to(result.dtype) for result, (_, seed) in zip(results, seeds, strict=True)]
        (magnitude,) = torch.autograd.grad(results, [sizes[path]], given)
        return (_COMPLEX_UNITS + WALK * math.sqrt(terms)) * self.precision.unit * magnitude.abs()

    def _score_gradient(
        self,
        number: int,
        path: str,
        candidates: Sequence[tuple[Tensor, Tensor | None]],
        seeds: Sequence[tuple[Tensor, Tensor]],
    ) -> Score:
        """The score of one recorded gradient of an operand, beside the nearest of those that it may be."""
        meaning, values, limit = self.task.meaning, self.task.values, self.limit
        own = self._with_least(precision_of(values.spec(number).dtype, meaning, self.task.framework))
        got, slack = values(number), values.slack(number)
        # Of several candidates, whichever is nearest, no element is told: they may be beyond others than the nearest's.
        tell = functools.partial(self.beyond.__setitem__, number) if len(candidates) == 1 else None
        scored = []
        for gradient, error in candidates:
            want = gradient.detach()
            bound = _with_slack(corrected(error, want, number, limit.simulation, self.narrow), want, slack)
            score = judge_result(got, want, bound, own, simulated=limit.simulated(number), beyond=tell)
            scored.append((score, want, bound))
        score, want, bound = min(scored, key=lambda item: item[0].ratio)
        exactly = isinstance(self.mode, RunningError) and limit.stride == 1
        if score.ratio <= 1 or score.test != "element" or got.shape != want.shape or not exactly:
            return score
        if meaning.operation in POOLS:
            elsewhere = pooled_elsewhere(self.operands[path].detach(), got, want, bound, own)
            return replace(score, ratio=1.0) if elsewhere else score
        # Where it is recorded from where values were taken, gradients go there and nowhere else.
        if len(candidates) == 1 and not (self.traits.chooses and 1 in meaning.results.values()):
            nearest = at_kinks(meaning, self.operands, path, seeds, want, got)
            return judge_result(got, nearest, bound, own)
        return score


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


def _walked(bound: Tensor | None, want: Tensor, operands: Mapping[str, Tensor], precision: Precision) -> Tensor | None:
    """The bound of a recurrent network, at most that of a random walk over all its steps and sums."""
    if bound is None:
        return None
    terms = max(tensor.numel() for tensor in operands.values()) / want.shape[-1] * max(operands["input"].shape[:2])
    unit = max(precision.inner, precision.sums * precision.functions)
    return torch.fmin(bound, _WALK * unit * math.sqrt(terms) * (want.abs() + want.pow(2).mean().sqrt()))


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


def _is_rounded(meaning: Meaning, key: int | str) -> bool:
    """False for a result that may be a copy: of an optimizer, what has no gradient, or no average of gradients."""
    if not isinstance(key, str):
        return True
    name, _, place = key.partition(".")
    gradients = meaning.arguments.get("gradients")
    return name in _ROUNDED and isinstance(gradients, tuple) and gradients[int(place or 0)] is not None
