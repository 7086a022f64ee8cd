"""Recomputation of recorded calls in float64, and what a recorded result owes to rounding.

    values = Values(read, spec)                        recorded tensors of one side, as float64 tensors
    audit(meaning, values, gradients)                  how far each recorded result is from the float64 one, in units of its bound
    run(meanings, values)                              several calls as one function, from the recorded values at its edge

Three tests, each of which a right kernel passes (1 is the limit of each):

    element   |y - f(x)| of every element, over u·|f(x)| plus the running error bound (`rounding.py`)
    spread    root mean square of the error, over that of a random walk of the sums: products in TF32 are beyond it
    gain      part of the error that is a multiple of the result, whole or of one channel: a result times 0.999 in bf16

`spread` and `gain` are asked of sums of products, whose errors are independent; an elementwise function of few values rounds
them all the same way.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..model.tensors import UNITS, Spec
from . import kernels
from .meanings import Argument, Meaning, Operand
from .rounding import FUNCTION_UNITS, NoError, RoundedResults, RunningError, coarse_product
from .steps import STEPS
from .traits import Accuracy, accuracy_of, traits_of
from .workers import plain_attention, without_onednn

Tensor = torch.Tensor

SINGLE = 2.0**-24
DOUBLE = 2.0**-53
_DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "c128": torch.complex128, "c64": torch.complex64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "b8": torch.bool,
}  # fmt: skip
COARSE = 2.0**-12
"""Element types with a larger unit have 16 bits or fewer: sums of them are accumulated in float32 as a rule."""

_CACHE_BYTES = 512 << 20
_FUNCTION_UNITS = {"mindspore": 256.0, "msadapter": 256.0}
"""Units of elementary functions inside other operations (exp in a softmax): up to 160 were seen of MindSpore 2.10 on CPU."""
_CHANNELS = 4096
_SPREAD = 4.0
"""Random walks of rounded sums were seen at up to 1.4 times √terms·u·(q + |y|) (oneDNN, MKL, MindSpore); TF32 operands at 25."""
_SAMPLE = 1 << 14
_NEARLY_ALL = 0.95
"""Share of a sample beyond which its values are taken for different in the whole: random float32 numbers meet now and then."""
_GAIN_ERRORS = 6.0
"""Standard errors by which the gain of independent rounding errors may differ from zero: once in 10⁹ tensors."""
_FEW = 64
"""Different values below which nothing is said of their errors together."""
BLOCK = 1 << 15
"""Elements that are worked on at a time: a dozen float64 arrays of them fit into the cache of a core."""
_UNKNOWN = 8.0
"""Random walks of √elements roundings that a result whose bound overflowed may be off by."""
_WALK = 4.0
"""Random walks of √terms roundings that a recurrent network may be off by, relative to the result: its running error bound grows by
a factor with every step and soon excuses anything. Up to 2.1 were seen (PyTorch's LSTM and GRU, 1 to 48 steps, three dtypes).
"""
_SIMULATED = 2.0
"""Multiple of the error of sums that were simulated in 16 bits, by which others may be off: their order need not be the same."""
_TAIL = 12.0
"""Root mean squares of simulated errors within which those of another kernel stay: up to 8 were seen (PyTorch's fused backward)."""
_NARROWED = frozenset(("scaled_dot_product_attention",))
"""Operations whose running error bound in 16 bits is so wide that their errors are simulated instead."""


class NotRecomputable(Exception):
    """A call cannot be recomputed; the message says why, as the end of a sentence."""


class Values:
    """Recorded tensors of one side by number, widened to float64; integers and truth values as they are.

    Args:
        read: the recorded values as an array, bf16 and fp8 widened to float32; None where they were not kept.
        spec: shape and element type.
    """

    def __init__(self, read: Callable[[int], Any], spec: Callable[[int], Spec]) -> None:
        self._read = read
        self.spec = spec
        self._held: OrderedDict[int, Tensor] = OrderedDict()
        self._bytes = 0

    def __call__(self, number: int) -> Tensor:
        known = self._held.get(number)
        if known is not None:
            self._held.move_to_end(number)
            return known
        array = self._read(number)
        if array is None:
            raise NotRecomputable(f"the values of {self.spec(number)} were not kept")
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.int64)
        tensor = torch.from_numpy(np.array(array, copy=True))
        if tensor.is_floating_point():
            tensor = tensor.double()
        elif tensor.is_complex():
            tensor = tensor.to(torch.complex128)
        self._held[number] = tensor
        self._bytes += tensor.nbytes
        while self._bytes > _CACHE_BYTES and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return tensor

    def has(self, number: int) -> bool:
        """True if the values can be read."""
        try:
            self(number)
        except NotRecomputable:
            return False
        return True


# --- computing -------------------------------------------------------------------------------------------------------


def evaluate(
    meaning: Meaning, operand: Callable[[str, int], Tensor], preferred: Mapping[str, kernels.Kernel] | None = None
) -> dict[int | str, Tensor]:
    """Results of one operation by their keys: positions among the flattened outputs, names of arguments that it writes.

    `preferred` are other kernels than those that are made for float64.
    """

    def value(path: str, argument: Argument) -> Any:
        if isinstance(argument, Operand):
            return operand(path, argument.tensor)
        if isinstance(argument, tuple):
            return tuple(value(f"{path}.{index}", item) for index, item in enumerate(argument))
        return argument

    arguments = {name: value(name, argument) for name, argument in meaning.arguments.items()}
    kernel = (preferred or {}).get(meaning.operation) or kernels.KERNELS.get(meaning.operation)
    try:
        if kernel is not None:
            result = kernel(**arguments)
        else:
            positional = sorted((name for name in arguments if name.isdigit()), key=int)
            named = {name: item for name, item in arguments.items() if not name.isdigit()}
            result = _function(meaning.operation)(*(arguments[name] for name in positional), **named)
    except NotRecomputable:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a kernel makes of recorded arguments, the comparison goes on
        raise NotRecomputable(
            f"{meaning.called or meaning.operation} failed in float64: {_first_line(error)}"
        ) from None
    if isinstance(result, Mapping):  # an optimizer's count of steps is a number
        return {key: item if isinstance(item, Tensor) else torch.as_tensor(item) for key, item in result.items()}
    return dict(enumerate(_flat(result)))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


@functools.lru_cache(maxsize=4096)
def _function(name: str) -> Callable[..., Any]:
    owner: Any = torch
    parts = name.split(".")
    if parts[0] == "aten":
        owner, parts = torch.ops, ["", *parts]
    for part in parts[1:]:
        owner = getattr(owner, part, None)
        if owner is None:
            raise NotRecomputable(f"{name} is not known")
    if not callable(owner):
        raise NotRecomputable(f"{name} is not known")
    return owner  # type: ignore[no-any-return]


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [item for part in value for item in _flat(part)]
    if isinstance(value, Mapping):
        return [item for part in value.values() for item in _flat(part)]
    return []


def run(
    meanings: Sequence[Meaning], values: Callable[[int], Tensor], copies: Mapping[int, int] | None = None
) -> dict[int, Tensor]:
    """Results of several calls, one after the other, by the numbers of the recorded tensors.

    What one of them made is taken by the others as it was computed here; everything else is asked of `values`. `copies` names
    tensors that are others under a number of their own.
    """
    made: dict[int, Tensor] = {}
    same = copies or {}

    def operand(_: str, number: int) -> Tensor:
        number = same.get(number, number)
        return made[number] if number in made else values(number)

    for meaning in meanings:
        results = evaluate(meaning, operand)
        for number, key in meaning.results.items():
            if key in results:
                made[number] = results[key]
    return made


# --- one recorded result beside its float64 counterpart -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """Distance of a recorded result from the float64 one: the worst of the three tests, 1 at the limit."""

    ratio: float
    test: str = "element"
    index: tuple[int, ...] = ()
    recorded: float = 0.0
    computed: float = 0.0
    share: float = 0.0
    """Share of the elements that are beyond the limit."""
    relative: float = 0.0
    """Root mean square of the error over that of the result."""
    coarse_inside: bool = False
    """Within the limit only if the kernel adds up, or holds what it needs, in 16 bits."""
    limit: float = 0.0
    """Root mean square of the rounding that is allowed: that of the terms of a sum, which may cancel."""

    def __str__(self) -> str:
        if self.test == "element":
            place = f"[{', '.join(map(str, self.index))}]"
            return f"{_share(self.share)} beyond its rounding, worst at {place}: {self.recorded:.9g}, computed {self.computed:.9g}"
        if self.test == "spread":
            return f"its error, {self.relative:.1e} of the result, is {self.ratio:.1f} times that of its sums"
        return f"it is {self.relative:.1e} too {'large' if self.recorded > 0 else 'small'} throughout: {self.test}"


def _share(share: float) -> str:
    return "all elements are" if share >= 1 else f"{share:.2g} of the elements are" if share > 0 else "an element is"


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of a recorded result: of its elements, of the sums and intermediate values behind it."""

    dtype: str
    unit: float
    inner: float
    sums: float
    functions: float
    narrow: bool = False
    """True if values inside are rounded to 16 bits one by one, without a sign that they share."""

    @property
    def least(self) -> float:
        """Smallest normal number, below which kernels may flush to zero; half of the smallest subnormal in types that need these:
        float16 has no other numbers below 6e-5.
        """
        known = _DTYPES.get(self.dtype)
        if known is None or not known.is_floating_point:
            return 0.0
        limits = torch.finfo(known)
        return limits.tiny if limits.tiny <= torch.finfo(torch.float32).tiny else limits.tiny * limits.eps / 2

    @property
    def largest(self) -> float:
        known = _DTYPES.get(self.dtype)
        return torch.finfo(known).max if known is not None and known.is_floating_point else math.inf


_SATURATED = 1 - 1e-5
"""Share of the largest number from which on it stands for infinity: -3.40282e38 is written for -inf, with six digits."""


def precision_of(dtype: str, meaning: Meaning, framework: str) -> Precision:
    """Precision that a right kernel of this operation has for results of this element type."""
    unit = UNITS.get(dtype, 0.0)
    working = unit if unit <= SINGLE else SINGLE
    inside, narrow = traits_of(meaning).composite, meaning.operation in _NARROWED
    accuracy = accuracy_of(meaning.operation, framework)
    functions = max(_FUNCTION_UNITS.get(framework, FUNCTION_UNITS), accuracy.result)
    return Precision(dtype, unit, unit if inside else working, working, functions, narrow)


def _bounded(error: Tensor, want: Tensor, precision: Precision) -> Tensor:
    """The error bound, with that of an unknown operation where none could be computed: no bound excuses nothing."""
    if math.isfinite(float(error.max())):
        return error
    lacking = ~error.isfinite() & want.isfinite()
    size = want.abs().nan_to_num(0.0, 0.0)
    cap = _UNKNOWN * precision.unit * math.sqrt(want.numel()) * (size + size.pow(2).mean().sqrt())
    return torch.where(lacking, cap, error)


class _Parts:
    """Sums and extremes of one result, block by block: what is compared stays in the cache."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._start = 0
        self._worst = 0
        self._ratio = -1.0
        self._beyond = 0
        self.finite = 0
        """Elements that are compared by their distance; the others are infinite or NaN on both sides, or wrong."""
        self.wanted = self.apart = self._limits = 0.0
        """Sums of squares."""

    def add(self, got: Tensor, want: Tensor, error: Tensor | None) -> None:
        """Take along a block of elements."""
        size = want.abs()
        limit = size * self._precision.unit
        limit += self._precision.least
        if error is not None:
            limit += error
        difference = (got - want).abs()
        ratios = difference / limit
        ratio, finite = float(ratios.max()), got.numel()
        if not ratio <= 1:  # NaN, too, which is what infinities make of it
            ratios, regular = self._compared(got, want, limit, difference)
            ratio, finite = float(ratios.max()), int(regular.sum())
            self._beyond += int((ratios > 1).sum())
            if finite < got.numel():
                difference, size, limit = difference[regular], size[regular], limit[regular]
        if ratio > self._ratio:
            self._ratio, self._worst = ratio, self._start + int(ratios.argmax())
        self._start += got.numel()
        self.finite += finite
        self.apart += float(torch.dot(difference, difference))
        self.wanted += float(torch.dot(size, size))
        self._limits += float(torch.dot(limit, limit))

    def _compared(self, got: Tensor, want: Tensor, limit: Tensor, difference: Tensor) -> tuple[Tensor, Tensor]:
        """Distances over the limit where something is not finite or beyond it; which elements have a distance."""
        precision = self._precision
        reach = want.abs() + limit
        alike = got.sgn() == want.sgn() if not got.is_complex() else torch.ones_like(reach, dtype=torch.bool)
        overflow = got.isinf() & (reach >= precision.largest * (1 - precision.unit)) & alike
        saturated = (got.abs() >= _SATURATED * precision.largest) & (reach >= precision.largest) & alike
        excused = (got.isnan() & want.isnan()) | overflow | saturated
        equal = got == want
        fine = excused | equal
        bad = ~fine & (got.isnan() | want.isnan() | got.isinf() | want.isinf())
        ratios = torch.where(fine, 0.0, difference / limit)
        ratios = torch.where(bad, math.inf, ratios).nan_to_num(0.0, math.inf)
        return ratios, (equal | ~excused) & ~bad & ~want.isinf()

    def rms(self, squares: float) -> float:
        """Root mean square over the elements that have a distance."""
        return math.sqrt(squares / self.finite) if self.finite else 0.0

    def score(self, got: Tensor, want: Tensor) -> Score:
        """The first test: the worst element."""
        size = self.rms(self.wanted)
        index = _index(self._worst, got.shape)
        return Score(
            self._ratio,
            "element",
            index,
            float(got[index].real),
            float(want[index].real),
            self._beyond / got.numel(),
            self.rms(self.apart) / size if size else 0.0,
            limit=self.rms(self._limits),
        )


def judge_result(
    got: Tensor,
    want: Tensor,
    error: Tensor | None,
    precision: Precision,
    walk: Tensor | None = None,
    terms: float = 1.0,
) -> Score:
    """The three tests of one result. `walk` is √Σ(x·w)² where it is a sum of products of so many terms."""
    if got.shape != want.shape:
        if got.numel() != want.numel():
            return Score(math.inf, "shape")
        want = want.reshape(got.shape)
        error = None if error is None else error.reshape(got.shape)
        walk = None if walk is None else walk.reshape(got.shape)
    if not got.numel():
        return Score(0.0)
    if not (got.is_floating_point() or got.is_complex()):
        return _exact(got, want)
    parts = _Parts(precision)
    flat = got.reshape(-1), want.reshape(-1), None if error is None else _bounded(error, want, precision).reshape(-1)
    for start in range(0, got.numel(), BLOCK):
        end = start + BLOCK
        parts.add(flat[0][start:end], flat[1][start:end], None if flat[2] is None else flat[2][start:end])
    score = parts.score(got, want)
    if score.ratio > 1 or parts.finite < got.numel():
        return score
    if walk is None:
        once = precision.unit > COARSE and (precision.inner <= COARSE or precision.narrow) and not got.is_complex()
        return _systematic(score, got - want, want, precision) if once else score
    size, spread = parts.rms(parts.wanted), parts.rms(parts.apart)
    allowed = (
        precision.unit * size
        + _SPREAD * math.sqrt(terms) * precision.sums * float(walk.add(want.abs()).norm()) / math.sqrt(want.numel())
        + precision.least
    )
    if spread > allowed:
        return replace(score, ratio=spread / allowed, test="spread")
    return _gain(score, got - want, want, precision, terms)


def _index(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Place in the flat tensor as one index for each axis."""
    return tuple(int(item) for item in np.unravel_index(place, tuple(shape)))


def _exact(got: Tensor, want: Tensor) -> Score:
    apart = got != want
    if not bool(apart.any()):
        return Score(0.0)
    worst = int(apart.reshape(-1).int().argmax())
    index = _index(worst, got.shape)
    return Score(
        math.inf,
        "element",
        index,
        float(got.reshape(-1)[worst]),
        float(want.reshape(-1)[worst]),
        float(apart.double().mean()),
    )


def _gain(score: Score, error: Tensor, want: Tensor, precision: Precision, terms: float) -> Score:
    """Errors that are a multiple of the result, in the whole and along each axis that may be a channel."""
    floor = 2 * math.sqrt(terms) * precision.sums
    own = precision.unit + 2 * math.sqrt(terms) * precision.sums
    best = score
    products, squares, sizes = error.mul_(want), want * want, want.abs()
    for name, axis in _channels(want):
        others = [other for other in range(want.dim()) if other != axis]
        energy = squares.sum(others).reshape(-1)
        count = _distinct(want if axis is None else want.select(axis, 0))
        allowed = (
            floor
            + _GAIN_ERRORS * own / math.sqrt(max(count, 1))
            + precision.least / sizes.amax(others).reshape(-1).clamp_min(1e-300)
        )
        gain = (products.sum(others).reshape(-1) / energy).nan_to_num(0.0, 0.0, 0.0)
        ratio = gain.abs() / allowed
        place = int(ratio.argmax())
        if float(ratio[place]) > max(1.0, best.ratio) and count >= _FEW:
            best = replace(
                score,
                ratio=float(ratio[place]),
                test=name if axis is None else f"{name} {place}",
                relative=float(gain[place].abs()),
                recorded=float(gain[place]),
            )
    return best


def _systematic(score: Score, error: Tensor, want: Tensor, precision: Precision) -> Score:
    """Errors that are a multiple of a 16-bit result, which was computed in float32 and rounded once: to nearest, without bias.

    A number that is held in 16 bits (a factor of 0.1) may make all of them too large by up to a unit.
    """
    count = _distinct(want)
    energy = float(want.square().sum())
    if count < _FEW or not energy:
        return score
    products = error * want
    gain = float(products.sum()) / energy
    spread = max(float(products.norm()) / energy, precision.unit / math.sqrt(count))
    lost = precision.least * float(want.abs().sum()) / energy  # subnormal numbers are all rounded to zero, or none
    ratio = abs(gain) / (precision.unit + _GAIN_ERRORS * spread + lost)
    if ratio <= 1:
        return score
    return replace(score, ratio=ratio, test="the whole result", relative=abs(gain), recorded=gain)


def _channels(want: Tensor) -> Iterable[tuple[str, int | None]]:
    """The whole result, and the axes that may count channels."""
    yield "the whole result", None
    for axis in {want.dim() - 1, 1} if want.dim() > 1 else ():
        if axis < want.dim() and 1 < want.shape[axis] <= _CHANNELS and want.numel() // want.shape[axis] >= _FEW:
            yield f"channel on axis {axis}:", axis


def _distinct(values: Tensor) -> int:
    """Number of different values: equal ones are rounded alike, and say nothing new. Many are counted in a sample."""
    row = values.reshape(-1)
    sample = row[:: -(-row.numel() // _SAMPLE)] if row.numel() > _SAMPLE else row
    count = int(torch.unique(sample).numel())
    return row.numel() if count > _NEARLY_ALL * sample.numel() else count


# --- one recorded call ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gradients:
    """Recorded gradients of one call: of its results and of its operands, by the number of the value they belong to."""

    outputs: Mapping[int, int]
    inputs: Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Audit:
    """Scores of the recorded results of one call, by the number of the recorded tensor; why there are none."""

    forward: Mapping[int, Score]
    backward: Mapping[int, Score]
    failure: str = ""
    backward_failure: str = ""


_COMPLEX = frozenset(("mul", "div", "add", "sub", "neg", "conj", "abs", "square", "cast", "identity"))
"""Elementwise operations of complex numbers: each part is a sum of two products, no larger than the product of the magnitudes."""
_COMPLEX_UNITS = 8.0
"""Units of the magnitude that such a result may be off by: two products and their sum in each part, once more for a quotient."""
_ROUNDED_ONCE = frozenset(("add", "sub", "mul", "relu"))
"""Operations that round their results once, and their gradients: most need no further bound, which takes longer to compute."""


def audit(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None = None,
    *,
    framework: str = "torch",
    operand_unit: float = 0.0,
    keep: Callable[[int, Tensor], None] | None = None,
) -> Audit:
    """Recompute one call from its own recorded operands and score its recorded results, forward and backward.

    `operand_unit` is the unit of the mode in which products of float32 were allowed to round their operands (TF32: 2**-11).
    `keep` is given the float64 results by the numbers of the recorded ones.
    """
    audited = functools.partial(_audit, meaning, values, gradients, framework, operand_unit, keep or _forget)
    simple = traits_of(meaning).moves or meaning.operation in _ROUNDED_ONCE
    try:
        forward, backward, why = audited(bounded=not simple)
        if simple and (why or not all(score.ratio <= 1 for score in (*forward.values(), *backward.values()))):
            forward, backward, why = audited()
    except NotRecomputable as error:
        return Audit({}, {}, str(error), str(error))
    for simulate in (_as_pytorch_sums, _in_two_steps, _step_by_step):
        scores = {**forward, **backward}
        wrong = {number for number, score in scores.items() if score.ratio > 1 and _is_half(values, number)}
        simulation = simulate(meaning, values, gradients, framework) if wrong else None
        if simulation is None:
            continue
        relaxed = audited(simulation=simulation)
        for own, other in ((forward, relaxed[0]), (backward, relaxed[1])):
            for number in own.keys() & wrong & simulation.results.keys():
                if other[number].ratio <= 1:
                    own[number] = replace(other[number], coarse_inside=True)
    return Audit(forward, backward, "", why)


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
    simulation: Simulation | None = None,
) -> tuple[dict[int, Score], dict[int, Score], str]:
    """Scores of one call; without `bounded` against the rounding of the results alone, whatever comes before it.

    `simulation` shows what sums and intermediate values in 16 bits do: that much more is allowed.
    """
    results = [(number, key) for number, key in meaning.results.items()]
    given = (*meaning.results, *(operand.tensor for _, operand in meaning.operands()))
    complicated = not traits_of(meaning).moves and meaning.operation not in _COMPLEX
    if complicated and any(values.spec(number).dtype[0] == "c" for number in given):
        raise NotRecomputable("it computes with complex numbers, whose rounding has no bound here")
    dtypes = [values.spec(number).dtype for number, _ in results]
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
            tensor = _rounded(tensor, dtype)  # autocast rounds the operands of products before
        tensor = tensor.detach()
        if tensor.is_floating_point() and wanted:
            tensor = tensor.requires_grad_()
        operands[path], numbers[path] = tensor, operand.tensor
    mode: RunningError | NoError = NoError()
    if bounded:
        least = precision.least if precision.inner > SINGLE else 0.0
        mode = RunningError(precision.inner, precision.sums, precision.functions, least)
    narrow = _rounded_steps(meaning, values, gradients, dtype) if precision.narrow and precision.unit > COARSE else None
    forward: dict[int, Score] = {}
    backward: dict[int, Score] = {}
    why = ""
    accuracy = accuracy_of(meaning.operation, framework)
    if meaning.operation in STEPS and meaning.operation not in _WHOLE and not wanted and isinstance(mode, RunningError):
        computed = _step_in_blocks(meaning, operands, mode)
    else:
        computed = _evaluate_with_errors(meaning, operands, mode, precision, accuracy, operand_unit, wanted)
    squared = _squares(meaning, operands) if contraction and not operand_unit else {}
    scores: dict[int, Score] = {}
    for number, key in results:
        if key not in computed:
            continue
        want = computed[key].detach()
        keep(number, want)
        got = values(number)
        if want.is_floating_point() != got.is_floating_point():
            got, want = got.to(torch.float64), want.to(torch.float64)
        held = precision_of(values.spec(number).dtype, meaning, framework)
        if not got.is_floating_point() and not want.is_floating_point() and meaning.operation in _PLACES:
            scores[number] = _tied(meaning, operands, got, want)
            continue
        # Sums in 16 bits are no random walk in float32.
        walk = squared.get(key) if simulation is None or number not in simulation.results else None
        terms = (
            _length(want, [item for item in operands.values() if item.is_floating_point()]) if walk is not None else 1.0
        )
        bound = mode.of(want) if not want.is_complex() else _COMPLEX_UNITS * precision.unit * want.abs()
        if accuracy.absolute or accuracy.input:
            source = operands.get("input")
            size = source.detach().abs() if source is not None and source.shape == want.shape else want.abs()
            extra = precision.sums * (accuracy.absolute + accuracy.input * size.nan_to_num(0.0, 0.0))
            bound = extra if bound is None else bound + extra
        if traits_of(meaning).recurrent:
            bound = _walked(bound, want, operands, precision)
        bound = _corrected(bound, want, number, simulation, narrow)
        scores[number] = judge_result(got, want, bound, held, None if walk is None else walk.sqrt(), terms)
    forward = scores
    if wanted and gradients is not None:
        try:
            backward = _audit_backward(
                meaning, values, gradients, mode, computed, operands, numbers, precision, framework, simulation, narrow
            )
        except NotRecomputable as error:
            why = str(error)
    return forward, backward, why


_COARSE_INSIDE = frozenset((
    "avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "fold", "interpolate", "grid_sample", "conv",
    "conv_transpose", "embedding_bag", "scatter_add", "index_add", "cumsum", "layer_norm", "group_norm", "batch_norm",
    "log_softmax", "mish", "pow",
))  # fmt: skip
"""Operations, beside those that move values, whose kernels may add up or hold something in 16 bits, forward or backward."""


_ROUNDED_STEPS = frozenset(("mindspore", "msadapter"))
"""Frameworks whose kernels hold intermediate values in 16 bits (MindSpore 2.10 on a CPU: layer norm, SiLU, scaling)."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Results and gradients that a kernel would have which holds something in 16 bits, by the numbers of the recorded ones."""

    results: Mapping[int, Tensor]
    tail: float
    """Root mean squares of the simulated errors, of the whole or of the row, within which those of the kernel stay."""

    def error(self, want: Tensor, number: int) -> Tensor | None:
        """Errors that such a kernel may have."""
        other = self.results.get(number)
        if other is None or other.shape != want.shape:
            return None
        error = (other - want).abs()
        if not error.dim():
            return (_SIMULATED + self.tail) * error
        rows = error.square().mean(-1, keepdim=True).sqrt()  # under a causal mask the first rows have larger errors
        return _SIMULATED * error + self.tail * torch.maximum(rows, error.square().mean().sqrt())


def _corrected(
    bound: Tensor | None, want: Tensor, number: int, wider: Simulation | None, narrower: Simulation | None
) -> Tensor | None:
    """The bound, more by what one simulation shows, and no more than another does."""
    more = None if wider is None else wider.error(want, number)
    if more is not None:
        more = more.nan_to_num(0.0, 0.0, 0.0)
        bound = more if bound is None else bound + more
    most = None if narrower is None or bound is None else narrower.error(want, number)
    return bound if most is None or bound is None else torch.where(most.isfinite(), torch.minimum(bound, most), bound)


def _is_half(values: Values, number: int) -> bool:
    return UNITS.get(values.spec(number).dtype, 0.0) > COARSE


def _as_pytorch_sums(
    meaning: Meaning, values: Values, gradients: Gradients | None, framework: str
) -> Simulation | None:
    """Results of PyTorch's own kernels in 16 bits, of those that add up in memory."""
    if not traits_of(meaning).moves and meaning.operation not in _COARSE_INSIDE:
        return None
    with without_onednn():
        found = _simulated(meaning, values, gradients, lambda number: _DTYPES[values.spec(number).dtype], kernels.FUSED)
    return Simulation(found, _SIMULATED)


def _in_two_steps(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Result of a product with a bias, where the product is rounded before the bias is added: a kernel for each."""
    bias = meaning.arguments.get("bias")
    if not traits_of(meaning).product or not isinstance(bias, Operand) or len(meaning.results) != 1:
        return None
    (number,) = meaning.results
    parts = (replace(meaning, arguments={**meaning.arguments, "bias": None}), meaning)
    with torch.no_grad():
        product, whole = (evaluate(part, lambda _, own: values(own))[0] for part in parts)
    return Simulation({number: _rounded(product, values.spec(number).dtype) + (whole - product)}, _SIMULATED)


def _step_by_step(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Results where each step of the computation is rounded to 16 bits, of frameworks whose kernels do so."""
    halves = [values.spec(number).dtype for number in meaning.results if _is_half(values, number)]
    if framework not in _ROUNDED_STEPS or not halves:
        return None
    return _rounded_steps(meaning, values, gradients, halves[0])


def _rounded_steps(meaning: Meaning, values: Values, gradients: Gradients | None, dtype: str) -> Simulation:
    known = _DTYPES[dtype]
    held = {
        name: float(torch.tensor(value, dtype=known)) if isinstance(value, float) and abs(value) < 1 else value
        for name, value in meaning.arguments.items()
    }
    held = {name: meaning.arguments[name] if value == 0 else value for name, value in held.items()}  # eps of 1e-12
    with RoundedResults(known), plain_attention():
        found = _simulated(replace(meaning, arguments=held), values, gradients, lambda number: torch.float64, {})
    return Simulation(found, _TAIL)


def _simulated(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None,
    dtype_of: Callable[[int], torch.dtype],
    preferred: Mapping[str, kernels.Kernel],
) -> dict[int, Tensor]:
    """Results and gradients of a call whose operands have other element types, by the numbers of the recorded ones."""
    operands: dict[str, Tensor] = {}
    numbers: dict[str, int] = {}
    for path, operand in meaning.operands():
        tensor = values(operand.tensor).detach()
        if tensor.is_floating_point():
            tensor = tensor.to(dtype_of(operand.tensor)).detach().requires_grad_()
        operands[path], numbers[path] = tensor, operand.tensor
    try:
        with torch.enable_grad():
            made = evaluate(meaning, lambda path, _: operands[path], preferred)
            found = {number: made[key].detach().double() for number, key in meaning.results.items() if key in made}
            outputs = gradients.outputs if gradients is not None else {}
            results = [
                (made[key], number) for number, key in meaning.results.items() if number in outputs and key in made
            ]
            seeds = [values(outputs[number]).to(result.dtype).reshape(result.shape) for result, number in results]
            leaves = [path for path, tensor in operands.items() if tensor.requires_grad]
            if gradients is None or not results or not leaves:
                return found
            sent = torch.autograd.grad(
                [result for result, _ in results], [operands[path] for path in leaves], seeds, allow_unused=True
            )
    except (NotRecomputable, RuntimeError):  # no kernel for this element type
        return {}
    for path, gradient in zip(leaves, sent, strict=True):
        if gradient is not None:
            found.update(dict.fromkeys(gradients.inputs.get(numbers[path], ()), gradient.double()))
    return found


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


def _step_in_blocks(meaning: Meaning, operands: Mapping[str, Tensor], mode: RunningError) -> dict[int | str, Tensor]:
    """A step of an optimizer, elementwise: in blocks that stay in the cache, with their errors."""
    computed: dict[int | str, Tensor] = {}
    parameters = meaning.arguments["parameters"]
    for place in range(len(parameters) if isinstance(parameters, tuple) else 0):
        arguments = {
            name: (value[place],) if isinstance(value, tuple) else value for name, value in meaning.arguments.items()
        }
        single = replace(meaning, arguments=arguments)
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
) -> dict[int, Score]:
    seeds: list[tuple[Tensor, Tensor]] = []
    accuracy = accuracy_of(meaning.operation, framework)
    for number, key in meaning.results.items():
        if number in gradients.outputs and key in computed and computed[key].requires_grad:
            seed = values(gradients.outputs[number])
            result = computed[key]
            size = result.detach().abs()
            approximate = precision.sums * (accuracy.absolute + accuracy.input * size.nan_to_num(0.0, 0.0))
            mode.add(result, precision.unit * size + precision.least + approximate)  # kernels save what they computed
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
            got = values(number)
            bounds = [_corrected(bound, want.detach(), number, simulation, narrow) for want, bound in candidates]
            scored = [
                (judge_result(got, want.detach(), bound, own), want, bound)
                for (want, _), bound in zip(candidates, bounds, strict=True)
            ]
            score, want, bound = min(scored, key=lambda item: item[0].ratio)
            if (
                score.ratio > 1
                and score.test == "element"
                and got.shape == want.shape
                and isinstance(mode, RunningError)
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
    exact = _exact(got, want)
    source, axis = operands.get("input"), meaning.arguments.get("dim")
    if exact.ratio == 0 or source is None or got.shape != want.shape:
        return exact
    if axis is None:
        flat = source.detach().reshape(-1)
        values = flat[got.reshape(-1).long()], flat[want.reshape(-1).long()]
    else:
        dim = int(axis) if isinstance(axis, int) else 0
        places = [item if item.dim() == source.dim() else item.unsqueeze(dim) for item in (got, want)]
        values = source.detach().gather(dim, places[0].long()), source.detach().gather(dim, places[1].long())
    return Score(0.0) if bool((values[0] == values[1]).all()) else exact


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


def _rounded(tensor: Tensor, dtype: str) -> Tensor:
    return tensor.to(_DTYPES[dtype]).to(torch.float64) if dtype in _DTYPES else tensor


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


def _length(result: Tensor, sources: Sequence[Tensor]) -> float:
    """Number of terms of a sum of products, by the sizes of what it was made of: √(mk · kn / mn) = k."""
    counts = sorted((item.numel() for item in sources), reverse=True)[:2]
    return max(math.sqrt(math.prod(counts) / max(result.numel(), 1)), 1.0) if len(counts) > 1 else 1.0
