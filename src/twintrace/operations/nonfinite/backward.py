"""Causes of a gradient that is not finite, from the operation, the forward's ranges and the gradients that came in.

sqrt at 0            its derivative is infinite there; times a gradient of 0 it is NaN
log behind a where   the branch that was not taken is differentiated too: 0 · (1 / 0)
matmul in f16        overflow: the gradients that come in are large (a loss scale), or the forward's values are
"""

from __future__ import annotations

from collections.abc import Mapping

from ...model.nonfinite import Source, ValueRange
from ...model.tensors import Spec, Statistics
from .forward import ATTENTIONS, NORMS, PRODUCTS, SOFTMAXES, SUMS, Ranges, Settings, Terms, cause_of_result
from .terms import Cause, largest, vanishes

_AT_ZERO: Mapping[str, str] = {
    "sqrt": "1 / (2 · sqrt(x))", "log": "1 / x", "log2": "1 / (x · ln 2)", "log10": "1 / (x · ln 10)", "reciprocal": "-1 / x²",
    "rsqrt": "-1 / (2 · x · sqrt(x))", "xlogy": "log(x)", "digamma": "trigamma(x)", "lgamma": "digamma(x)",
}  # fmt: skip
_AT_ONE: Mapping[str, str] = {
    "acos": "-1 / sqrt(1 - x²)", "asin": "1 / sqrt(1 - x²)", "atanh": "1 / (1 - x²)", "acosh": "1 / sqrt(x² - 1)",
}  # fmt: skip
_LINEAR = frozenset(("linear", "matmul", "mul", "add", "sub", "sum", "mean"))
"""Operations whose gradients are sums of products: at most gradient · value · number of gradients."""
_NAN = ValueRange("", Spec("", ()), Statistics(None, None, None, None, 1, 0, 0, 0))
_SAFE = "move the argument away from that point before the function (add an epsilon, clamp); a torch.where behind it does not help"


def cause_of_gradient(
    operation: str,
    terms: Terms,
    settings: Settings,
    results: Ranges,
    incoming: Ranges,
    made: Ranges,
) -> Cause | None:
    """Cause of gradients that are not finite although those that came in are, or None where the ranges do not tell.

    `terms` and `results` are the forward's operands and results, `incoming` the gradients of the results.
    """
    return (
        _slopes(operation, terms, settings, results, incoming)
        or _divisors(operation, terms)
        or _rows(operation, terms, settings, results)
        or _products(operation, terms, results, incoming, made)
    )


def _slopes(
    operation: str,
    terms: Terms,
    settings: Settings,
    results: Ranges,
    incoming: Ranges,
) -> Cause | None:
    x = terms.get("other" if operation == "xlogy" else "input")
    if x is None or x.lo is None or x.hi is None:
        return None
    idle = any(term.zeros for term in incoming)
    times = "; times a gradient of 0 that is NaN" if idle else ""
    many = f"{x.zeros:,} of {x.elements:,} elements of its input are 0"
    if operation in _AT_ZERO and x.zeros:
        why = f"the derivative of {operation} at 0 is infinite ({_AT_ZERO[operation]}): {many}"
        return Cause(Source.SLOPE, why + times, _SAFE)
    if operation in _AT_ONE and (abs(x.lo) >= 1 >= x.lo or x.hi >= 1 or x.lo <= -1):
        why = f"the derivative of {operation} at ±1 is infinite ({_AT_ONE[operation]}): its input is {x.lo:.6g} … {x.hi:.6g}"
        return Cause(Source.SLOPE, why + times, _SAFE)
    if operation == "log1p" and x.lo <= -1:
        why = f"the derivative of log1p at -1 is infinite: its input goes down to {x.lo:.6g}"
        return Cause(Source.SLOPE, why + times, _SAFE)
    if operation == "pow" and x.zeros:
        exponent = terms.get("other") or terms.get("exponent")
        if exponent is not None and exponent.lo is not None and exponent.lo < 1:
            why = f"the derivative of x^{exponent.lo:.4g} at 0 is infinite: {many}"
            return Cause(Source.SLOPE, why + times, _SAFE)
    if operation == "pow" and x.below_zero:
        why = f"a power of a negative number has no derivative by its exponent: the input goes down to {x.lo:.6g}"
        return Cause(Source.ROOT, why, _SAFE)
    zeros = sum(term.zeros for term in results)
    lengths = ("std", "std_mean", "vector_norm", "norm", "cdist", "pairwise_distance", "hypot")
    if operation in lengths and (zeros or x.is_constant):
        what = "standard deviation" if operation.startswith("std") else "norm"
        return Cause(Source.SLOPE, f"the derivative of a {what} at 0 is 0/0: {zeros:,} results are 0{times}", _SAFE)
    if operation == "atan2" and x.zeros and (other := terms.get("other")) is not None and other.zeros:
        return Cause(Source.SLOPE, "the derivative of atan2 at (0, 0) is 0/0", _SAFE)
    if operation == "cumprod" and x.zeros:
        why = f"the derivative of a product divides by its factors: {x.zeros:,} of them are 0"
        return Cause(Source.DIVISION, why, _SAFE)
    if operation in ("exp", "expm1", "exp2", "sinh", "cosh") and any(term.counts.inf for term in results) and idle:
        why = f"zero times infinity: {operation} overflowed in the forward pass, and its gradient is 0 there"
        return Cause(Source.ZERO_TIMES, why, _SAFE)
    return None


def _divisors(operation: str, terms: Terms) -> Cause | None:
    below = terms.get("tensor2" if operation == "addcdiv" else "other")
    if operation not in ("div", "addcdiv", "remainder", "fmod") or below is None or not below.zeros:
        return None
    many = f"{below.zeros:,} of {below.elements:,} divisors are 0" if below.is_tensor else "the divisor is 0"
    return Cause(Source.DIVISION, f"the derivative of a quotient divides by the divisor: {many}", _SAFE)


def _rows(operation: str, terms: Terms, settings: Settings, results: Ranges) -> Cause | None:
    """Rows that have no softmax, no variance or no length."""
    if operation in SOFTMAXES | ATTENTIONS:
        return cause_of_result(operation, terms, settings, [_NAN, *results])
    x = terms.get("input") or terms.get("x1")
    eps = settings.get("eps")
    if operation in NORMS and x is not None and isinstance(eps, int | float) and vanishes(eps, x.spec.dtype):
        rounded = "" if eps == 0 else f" (eps={eps:g} is 0 in {x.spec.dtype})"
        why = f"a row without variance or length divides by zero in the backward pass{rounded}; the input is {x.told()}"
        return Cause(Source.DIVISION, why, "give eps a value that the type can hold")
    return None


def _products(
    operation: str,
    terms: Terms,
    results: Ranges,
    incoming: Ranges,
    made: Ranges,
) -> Cause | None:
    """A backward pass multiplies by the gradient and adds up: finite values that are not, are beyond the range of the type."""
    endless = [term for term in (*terms.values(), *results) if term.counts]
    if endless and any(term.counts.nan for term in made):
        here = f"{endless[0].counts} here ({endless[0].name or 'its result'})"
        return Cause(Source.ZERO_TIMES, f"the forward pass had {here}, and the gradient is multiplied by it", _SAFE)
    if not made or endless:
        return None
    dtype = made[0].spec.dtype
    sizes = [term.size for term in incoming if term.size is not None]
    reached = max(sizes, default=0.0)
    forward = max((term.size or 0.0 for term in (*terms.values(), *results)), default=0.0)
    end = largest(dtype)
    many = max((term.elements for term in incoming), default=1)
    if operation in _LINEAR and sizes and reached * max(forward, 1.0) * many < end / 2:
        why = f"the kernel cannot have computed it: from gradients up to {reached:.4g} and values up to {forward:.4g}"
        return Cause(Source.KERNEL, why, "repeat with deterministic kernels, or on the CPU")
    # Derivatives of the other functions have at most the square of a value of the forward pass.
    if operation in PRODUCTS | SUMS or max(reached, 1.0) * max(forward, 1.0) ** 2 > end:
        why = f"overflow: gradients up to {reached:.4g} come in and meet values up to {forward:.4g}; {dtype} ends at {end:.6g}"
        narrow = dtype in ("f16", "c32") or dtype.startswith("f8")
        advice = "lower the loss scale" if narrow else "find out why they are this large: see led"
        return Cause(Source.OVERFLOW, why, advice)
    return None
