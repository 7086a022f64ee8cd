"""Differences that rounding can explain.

    output f32[8, 64], sums of 256, inputs apart by 2e-07          up to 1.5e-06, relative to the size of the values

Errors are relative and in the mean square: the root mean square of the difference, divided by that of the left values. Of
random rounding errors this is u·√K/5 or less for sums of K terms, u being half a unit in the last place, however the
sum is ordered; sequential, blocked or in vector lanes. Four times that, and the four roundings of an ordinary
formula, are allowed:

    allowed = gain · (u·(4 + √K/2)·√steps + 4·e)          e: by how much the inputs are apart, as measured

`gain` is what cancellation adds: the size of what was summed over the size of the sum. It is 1 unless the operation is of a
kind that cancels. `steps` counts elementary operations in one call. Functions that are computed by a polynomial (tanh, exp, erf)
are allowed 256·u more: implementations differ by that much in f32, and choose other polynomials on other machines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.tensors import UNITS, Statistics, Tensor
from ..operations import Traits

SPREAD = 4.0
"""Most by which an operation may enlarge an error, relative to the values."""


POLYNOMIAL = 256.0
"""Units by which two implementations of tanh, exp or erf differ, in f32; measured between PyTorch and MindSpore: up to 160."""


NOISE = 0.5
"""A relative error from which on two values have nothing in common: the gradient of a bias before a batch norm."""


UNDERFLOW = 104.0
"""exp(-104) is zero in f32."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The allowed difference of two values, and the reason."""

    bound: float
    because: str


@functools.cache
def unit(*dtypes: str) -> float:
    """The coarsest of the dtypes' units; 0 if all are exact."""
    return max((UNITS.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def of_average(decay: float) -> float:
    """Relative error of the weight 1 - β of a running average if β is kept in f32: 6e-05 for 0.999. Optimizers do so, or do not."""
    return UNITS["f32"] * decay / (1 - decay) if 0 < decay < 1 else 0.0


def elements(tensor: Tensor) -> int:
    """Number of elements."""
    return math.prod(tensor.spec.shape)


def size(tensor: Tensor) -> float:
    """The root mean square of the finite values; 0 if it is not known."""
    known = tensor.statistics
    return root_mean_square(known, elements(tensor)) if known else 0.0


def root_mean_square(known: Statistics, count: int) -> float:
    """Root mean square of the finite ones of `count` values; 0 if it is not known."""
    finite = count - known.nan - known.posinf - known.neginf
    return known.norm / math.sqrt(finite) if known.norm is not None and finite > 0 else 0.0


def reduction_length(result: Tensor, sources: Sequence[Tensor], traits: Traits) -> float:
    """Over how many terms each element of the result was summed, by the shapes alone.

    Of a product of matrices [m, k] and [k, n] it is √(mk · kn / mn) = k; of a reduction it is what came in over what goes out.
    """
    out = max(elements(result), 1)
    counts = sorted((elements(item) for item in sources), reverse=True)
    length = max((count / out for count in counts), default=1.0)
    if traits.contracts and len(counts) > 1:
        length = max(length, math.sqrt(counts[0] * counts[1] / out), math.sqrt(counts[0] * counts[-1] / out))
    return max(length, 1.0)


def cancellation(left: Tensor, right: Tensor, sources: Sequence[Tensor], traits: Traits, length: float) -> float:
    """The size of what was summed over the size of the sum; 1 where nothing cancels."""
    out = max(size(left), size(right))
    known = [item for item in sources if UNITS.get(item.spec.dtype)]
    sizes = sorted(
        (min(size(item), _largest(item)) if traits.exponential else size(item) for item in known), reverse=True
    )
    if not sizes or not out:
        return 1.0
    gain = 1.0
    if traits.selects:  # all of the error may be in the elements that were taken
        gain = max(gain, *(math.sqrt(elements(item) / max(elements(left), 1)) * size(item) / out for item in known))
    if traits.contracts and len(sizes) > 1:
        gain = max(gain, math.sqrt(length) * sizes[0] * sizes[1] / out)
    if traits.exponential:
        # Beyond 100 an exponential is infinite, or nothing: a mask of -1e9 makes no result uncertain.
        gain = max(gain, *(min(_largest(item), 100.0) for item in known))
    elif traits.cancels:
        gain = max(gain, sizes[0] / out * (math.sqrt(length) if traits.sums else 1.0))
    return gain


@dataclass(frozen=True, slots=True)
class Backward:
    """Origin of a gradient: the gradients of the results, and the values of the forward pass."""

    gradients: Sequence[Tensor]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


def backward_cancellation(left: Tensor, right: Tensor, made_of: Backward, traits: Traits) -> float:
    """The same for a gradient. Gradients have a unit of their own, so their sizes are compared with each other only; what the
    operation does to them is told by what it does to values: a norm that makes values ten times larger does so to gradients.
    """
    out = max(size(left), size(right))
    came = max((size(item) for item in made_of.gradients), default=0.0)
    if not out or not came:
        return 1.0
    values = [size(item) for item in made_of.inputs if UNITS.get(item.spec.dtype)]
    terms = max((elements(item) for item in made_of.gradients), default=1) / max(elements(left), 1)
    gain = math.sqrt(max(terms, 1.0)) * came / out  # a gradient that is added up: of a bias, of what was broadcast
    if traits.contracts:
        length = reduction_length(left, [*made_of.gradients, *made_of.inputs], traits)
        gain = max(gain, math.sqrt(length) * came * max(values, default=1.0) / out)
    elif traits.exponential and all(elements(item) == 1 for item in made_of.gradients):
        # Of a loss -log(p): p - 1, and it is p that is rounded. What a mean divides by says nothing of it.
        loss = max((size(item) for item in made_of.outputs), default=1.0)
        gain = 1.0 + max(
            (min(_largest(item), 100.0) for item in made_of.inputs if UNITS.get(item.spec.dtype)), default=0.0
        )
        gain /= -math.expm1(-loss) if loss else 1.0
    elif traits.exponential:  # of a softmax p: p·(g - Σ p·g)
        gain = max(gain, came * max((size(item) for item in made_of.outputs), default=1.0) / out)
    elif traits.cancels:
        taken = max(values, default=0.0)
        scale = max((size(item) for item in made_of.outputs), default=0.0) / taken if taken else 1.0
        gain = max(gain, came * scale / out)
    elif terms <= 1:
        return 1.0
    return max(gain, 1.0)


def _largest(tensor: Tensor) -> float:
    """The largest magnitude that an exponential sees: what lies further below the maximum (a mask of -1e9) gives zero."""
    known = tensor.statistics
    if known is None:
        return 1.0
    highest = abs(known.max or 0.0)
    return min(max(abs(known.min or 0.0), highest), highest + UNDERFLOW)


def allowance(
    left: Tensor,
    right: Tensor,
    sources: Sequence[Tensor],
    traits: Traits,
    *,
    incoming: float,
    calls: int = 1,
    tainted: bool = False,
    backward: Backward | None = None,
    steady: bool = False,
) -> Allowance:
    """The difference of a result that rounding explains, given its inputs and their differences.

    `tainted`: what came in is different beyond rounding. What follows from a difference is different, until it is as small as the
    rounding of this one operation. `backward`: it is a gradient. `steady`: nothing is put down to cancellation.
    """
    coarsest = unit(left.spec.dtype, right.spec.dtype)
    length = reduction_length(left, sources, traits)
    if tainted or steady:
        gain = 1.0
    elif backward is not None:
        gain = backward_cancellation(left, right, backward, traits)
    else:
        gain = cancellation(left, right, sources, traits, length)
    steps = max(traits.steps, calls)
    own = coarsest * (4 + math.sqrt(length) / 2) * math.sqrt(steps)
    aligned = gain * math.sqrt(length)  # the errors of what a mean was taken from all point the same way
    if gain > 1 and (traits.contracts or traits.sums) and aligned * own >= NOISE:
        gain = aligned
    if traits.approximates:
        own += POLYNOMIAL * min(coarsest, UNITS["f32"])  # what has 16 bits is computed in f32 and rounded once
    bound = own if tainted else gain * (own + SPREAD * incoming)
    coarser = left.spec.dtype if unit(left.spec.dtype) >= unit(right.spec.dtype) else right.spec.dtype
    reasons = [coarser]
    if traits.approximates:
        reasons.append("a function computed by approximation")
    if length >= 2:
        reasons.append(f"sums of {length:.0f}")
    if incoming and not tainted:
        reasons.append(f"what came in is {incoming:.1e} apart")
    if gain >= 2:
        reasons.append(f"cancellation of {gain:.1e}")
    return Allowance(bound, ", ".join(reasons))
