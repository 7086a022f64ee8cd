"""Distance of a recorded result from its float64 counterpart, in units of what rounding allows.

Three tests, each of which a right kernel passes (1 is the limit of each):

    element   |y - f(x)| of every element, over u·|f(x)| plus the running error bound (`rounding/`)
    spread    root mean square of the error, over that of a random walk of the sums: products in TF32 are beyond it
    gain      part of the error that is a multiple of the result, whole or of one channel: a result times 0.999 in bf16

`spread`, and `gain` of channels, are asked of sums of products, whose errors are independent; an elementwise function of few values
rounds them all the same way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..model.tensors import UNITS
from .evaluation import COARSE, DTYPES, SINGLE
from .meanings import Meaning
from .rounding import FUNCTION_UNITS
from .traits import accuracy_of, traits_of

Tensor = torch.Tensor

_FUNCTION_UNITS = {"mindspore": 256.0, "msadapter": 256.0}
"""Units of elementary functions inside other operations (exp in a softmax): up to 160 were seen of MindSpore 2.10 on CPU."""
_CHANNELS = 4096
_SPREAD = 4.0
"""Random walks of rounded sums were seen at up to 1.4 times √terms·u·(q + |y|) (oneDNN, MKL, MindSpore); TF32 operands at 25."""
_SAMPLE = 1 << 14
_NEARLY_ONE = 0.1
"""Share of the energy of a channel that varies, below which its results are nearly one number."""
_GROWS = 2.0
"""Factor within which errors grow with the results as a gain says."""
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
_NARROWED = frozenset(("scaled_dot_product_attention",))
"""Operations whose running error bound in 16 bits is so wide that their errors are simulated instead."""


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
        return _range(self.dtype)[0]

    @property
    def largest(self) -> float:
        return _range(self.dtype)[1]


@functools.cache
def _range(dtype: str) -> tuple[float, float]:
    known = DTYPES.get(dtype)
    if known is None or not known.is_floating_point:
        return 0.0, math.inf
    limits = torch.finfo(known)
    least = limits.tiny if limits.tiny <= torch.finfo(torch.float32).tiny else limits.tiny * limits.eps / 2
    return least, limits.max


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


@functools.cache
def _kernel() -> Callable[..., tuple[float, int, int, int]] | None:
    """The compiled walk over the elements, or None where it cannot be had."""
    try:
        from . import scores_numba

        kernel: Callable[..., tuple[float, int, int, int]] = scores_numba.load()
        empty = np.empty(0)
        kernel(empty, empty, empty, 0.0, 0.0, 0.0, 0.0, np.zeros(3), np.empty(0, np.int64))
    except Exception:  # noqa: BLE001 - not installed, at odds with this numpy or LLVM, switched off by NUMBA_DISABLE_JIT
        return None
    return kernel


class _Parts:
    """Sums and extremes of one result."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._start = 0
        self._worst = 0
        self._ratio = -1.0
        self.beyond = torch.empty(0, dtype=torch.int64)
        """Places of the elements beyond their limit."""
        self.finite = 0
        """Elements that are compared by their distance; the others are infinite or NaN on both sides, or wrong."""
        self.wanted = self.apart = self._limits = 0.0
        """Sums of squares."""

    def take(self, got: Tensor, want: Tensor, error: Tensor | None) -> None:
        """Take along all elements, compiled or in blocks that stay in the cache."""
        kernel = _kernel()
        given = [item for item in (got, want, error) if item is not None]
        if kernel is None or any(item.dtype != torch.float64 or item._is_zerotensor() for item in given):
            for start in range(0, got.numel(), BLOCK):
                end = start + BLOCK
                self.add(got[start:end], want[start:end], None if error is None else error[start:end])
            return
        precision, sums, places = self._precision, np.zeros(3), np.empty(got.numel(), np.int64)
        arrays = [np.ascontiguousarray(item.resolve_neg().numpy()) for item in given]
        arrays += [np.empty(0)] * (3 - len(given))
        limits = precision.unit, precision.least, precision.largest, _SATURATED * precision.largest
        self._ratio, self._worst, count, self.finite = kernel(*arrays, *limits, sums, places)
        self.apart, self.wanted, self._limits = sums.tolist()
        self.beyond = torch.from_numpy(places[:count].copy())

    def add(self, got: Tensor, want: Tensor, error: Tensor | None) -> None:
        """Take along a block of elements."""
        size = want.abs()
        limit = size * self._precision.unit
        limit += self._precision.least
        if error is not None:
            limit += error
        difference = (got - want).abs_() if not got.is_complex() else (got - want).abs()
        ratios = difference / limit
        ratio, finite = float(ratios.max()), got.numel()
        if not ratio <= 1:  # NaN, too, which is what infinities make of it
            ratios, regular = self._compared(got, want, limit, difference)
            ratio, finite = float(ratios.max()), int(regular.sum())
            self.beyond = torch.cat((self.beyond, (ratios > 1).nonzero().squeeze(1) + self._start))
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
            len(self.beyond) / got.numel(),
            self.rms(self.apart) / size if size else 0.0,
            limit=self.rms(self._limits),
        )


def judge_result(
    got: Tensor,
    want: Tensor,
    error: Tensor | None,
    precision: Precision,
    walk: Callable[[], Tensor] | None = None,
    terms: float = 1.0,
    simulated: Tensor | None = None,
    beyond: Callable[[Tensor], None] | None = None,
) -> Score:
    """The three tests of one result. `walk` computes √Σ(x·w)² where it is a sum of products of so many terms; `simulated` is the
    result of a kernel that holds something in 16 bits, which may overflow there, and whose errors may have a gain of their own.
    `beyond` is told the places of the elements that do not pass the first.
    """
    if got.shape != want.shape:
        if got.numel() != want.numel():
            return Score(math.inf, "shape")
        want = want.reshape(got.shape)
        error = None if error is None else error.reshape(got.shape)
    if not got.numel():
        return Score(0.0)
    if not (got.is_floating_point() or got.is_complex()):
        return exact(got, want)
    if simulated is not None and simulated.shape != want.shape:
        simulated = None
    if simulated is not None:
        want = torch.where(simulated.isfinite(), want, simulated)
    parts = _Parts(precision)
    error = None if error is None else _bounded(error, want, precision).reshape(-1)
    parts.take(got.reshape(-1), want.reshape(-1), error)
    score = parts.score(got, want)
    if len(parts.beyond) and beyond is not None:
        beyond(parts.beyond)
    if score.ratio > 1 or parts.finite < got.numel():
        return score
    if walk is None:
        once = precision.unit > COARSE and (precision.inner <= COARSE or precision.narrow) and not got.is_complex()
        return _systematic(score, got - (want if simulated is None else simulated), want, precision) if once else score
    size, spread = parts.rms(parts.wanted), parts.rms(parts.apart)
    rounded_once, steps = precision.unit * size + precision.least, _SPREAD * math.sqrt(terms) * precision.sums
    allowed = rounded_once + steps * size
    if spread > allowed:  # the result alone does not excuse it: its terms may cancel
        sizes = walk().reshape(got.shape).add(want.abs())
        allowed = rounded_once + steps * float(sizes.norm()) / math.sqrt(want.numel())
    if spread > allowed:
        return replace(score, ratio=spread / allowed, test="spread")
    return _gain(score, got - want, want, precision, terms)


def _index(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Place in the flat tensor as one index for each axis."""
    return tuple(int(item) for item in np.unravel_index(place, tuple(shape)))


def exact(got: Tensor, want: Tensor) -> Score:
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
    for name, axis in _channels(want):
        others = [other for other in range(want.dim()) if other != axis]
        # A gain is no larger than the error over the result, in root mean squares: most need no further look.
        norms = [torch.linalg.vector_norm(item, dim=others or ()) for item in (error, want)]
        if bool((norms[0] <= floor * norms[1]).all()):
            continue
        products, squares, sizes = error * want, want * want, want.abs()
        energy = squares.sum(others).reshape(-1)
        count = _distinct(want if axis is None else want.select(axis, 0))
        allowed = (
            floor
            + _GAIN_ERRORS * own / math.sqrt(max(count, 1))
            + precision.least / sizes.amax(others).reshape(-1).clamp_min(1e-300)
        )
        gain = (products.sum(others).reshape(-1) / energy).nan_to_num(0.0, 0.0, 0.0)
        ratio = gain.abs() / allowed
        if count >= _FEW and float(ratio.max()) > 1:
            # Terms that cancel leave more than the rounding of the result: the standard error is that of what the gain leaves over.
            shape = [1] * want.dim() if axis is None else [-1 if other == axis else 1 for other in range(want.dim())]
            left_over = (products - gain.reshape(shape) * squares).square_().sum(others).reshape(-1).sqrt() / energy
            repeated = math.sqrt(want.numel() / gain.numel() / count)
            ratio = gain.abs() / (allowed + _GAIN_ERRORS * repeated * left_over.nan_to_num(0.0, 0.0, 0.0))
        if count >= _FEW and float(ratio.max()) > max(1.0, best.ratio):
            ratio = ratio.masked_fill(_is_offset(error, want, gain, others), 0.0)
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


def _is_offset(error: Tensor, want: Tensor, gain: Tensor, others: list[int]) -> Tensor:
    """True for each channel whose results are nearly one number, and whose errors do not grow with them as a gain would have it:
    operands that are the same nearly everywhere are rounded alike.
    """
    means = want.mean(others, keepdim=True)
    centred = want - means
    spread, energy = centred.square().sum(others).reshape(-1), want.square().sum(others).reshape(-1)
    slope = (centred * error).sum(others).reshape(-1) / spread
    grows = slope / gain
    return (spread < _NEARLY_ONE * energy) & ~((grows > 1 / _GROWS) & (grows < _GROWS))


def _systematic(score: Score, error: Tensor, want: Tensor, precision: Precision) -> Score:
    """Errors that are a multiple of a 16-bit result, which was computed in float32 and rounded once: to nearest, without bias.

    A number that is held in 16 bits (a factor of 0.1) may make all of them too large by up to a unit.
    """
    count = _distinct(want)
    energy = float(want.square().sum())
    if count < _FEW or not energy:
        return score
    products, squares = error * want, want.square()
    gain = float(products.sum()) / energy
    # The standard error is that of what the gain leaves over; few large results may all be rounded one way.
    left_over = float((products - gain * squares).norm()) / energy
    spread = max(left_over, precision.unit * float(squares.norm()) / energy, precision.unit / math.sqrt(count))
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
