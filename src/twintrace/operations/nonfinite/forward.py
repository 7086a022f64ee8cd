"""Causes of a result that is not finite, from the operation and the ranges of its inputs.

    log(input: 0 … 3.2, 12 zeros)                 log of zero: 12 of 80 elements of the input are 0
    matmul(input: -300 … 310, other: …) in f16    overflow: results go beyond 65504, the largest number of f16
    softmax(input: 64 -inf, rows of 16)           rows of nothing but -inf: every exponential is 0, and their sum too

A rule looks at one group of operations. The first that fits is the cause; where none does, the range of the type decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model.nonfinite import Source, ValueRange
from .terms import Cause, largest, vanishes

Terms = Mapping[str, ValueRange]
Settings = Mapping[str, Any]
Ranges = Sequence[ValueRange]

LOGS = frozenset(("log", "log2", "log10", "log1p", "logit", "xlogy"))
DIVISIONS = frozenset(
    ("div", "reciprocal", "rsqrt", "remainder", "fmod", "floor_divide", "trunc_divide", "floor_mod", "addcdiv")
)
EXPONENTIALS = {"exp": 1.0, "expm1": 1.0, "exp2": math.log(2), "sinh": 1.0, "cosh": 1.0}
"""Operations that grow like exp(factor · x)."""
SOFTMAXES = frozenset(("softmax", "log_softmax", "softmin", "logsumexp", "gumbel_softmax", "cross_entropy"))
ATTENTIONS = frozenset(("scaled_dot_product_attention", "multi_head_attention"))
NORMS = frozenset((
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "l2_normalize", "cosine_similarity",
))  # fmt: skip
PRODUCTS = frozenset((
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "conv", "conv_transpose", "einsum", "tensordot", "bilinear",
    "outer", "mul", "addcmul", "square", "dot", "prod", "cumprod", "pow",
))  # fmt: skip
SUMS = frozenset((
    "add", "sub", "sum", "mean", "cumsum", "var", "std", "var_mean", "std_mean", "vector_norm", "mse_loss", "l1_loss",
    "smooth_l1_loss", "huber_loss", "nll_loss", "add_all", "index_add", "scatter_add", "lerp", "avg_pool", "adaptive_avg_pool",
    "bias_add", "cdist", "half_square_sum", "norm", "nansum", "diff", "addr",
))  # fmt: skip
LOSSES = frozenset(
    ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "cross_entropy", "poisson_nll_loss")
)
_IN_PLACE = {"add", "sub", "lerp", "bias_add", "add_all", "diff", "mul", "square", "pow", "addcmul"}
REDUCES = LOSSES | NORMS | (SUMS | PRODUCTS) - _IN_PLACE
"""Operations in which one infinity reaches results that have finite values beside it: it is not merely handed on."""
_DOMAINS: Mapping[str, tuple[float, float]] = {
    "acos": (-1, 1), "asin": (-1, 1), "acosh": (1, math.inf), "atanh": (-1, 1), "erfinv": (-1, 1), "lgamma": (0, math.inf),
    "digamma": (0, math.inf),
}  # fmt: skip
_GUARD = "add a small epsilon, or clamp what comes in"


def cause_of_result(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    """Cause of results that are not finite, or None where the ranges do not tell."""
    for rule in _RULES:
        cause = rule(operation, terms, settings, made)
        if cause is not None:
            return cause
    return None


def _has(made: Ranges, *kinds: str) -> bool:
    return any(getattr(term.counts, kind) for term in made for kind in kinds)


def _logs(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    if operation == "binary_cross_entropy":
        x = terms.get("input")
        if x is None or x.lo is None or x.hi is None or 0 < x.lo <= x.hi < 1:
            return None
        why = f"log of a probability of 0: the input is {x.lo:.6g} … {x.hi:.6g}"
        return Cause(Source.LOGARITHM, why, "use binary_cross_entropy_with_logits")
    if operation not in LOGS:
        return None
    x = terms.get("other" if operation == "xlogy" else "input")
    if x is None or x.lo is None or x.hi is None:
        return None
    end = -1.0 if operation == "log1p" else 0.0
    upper = operation == "logit" and x.hi >= 1
    if upper and settings.get("eps") is None:
        return Cause(Source.LOGARITHM, f"logit of 1 or more: the input goes up to {x.hi:.6g}", _GUARD)
    if x.lo < end and _has(made, "nan"):
        return Cause(Source.LOGARITHM, f"{operation} of a negative number: the input goes down to {x.lo:.6g}", _GUARD)
    if x.zeros and end == 0.0:
        why = f"{operation} of zero: {x.zeros:,} of {x.elements:,} elements of the input are 0"
        return Cause(Source.LOGARITHM, why, _GUARD)
    why = f"{operation} at the end of its domain: the input goes down to {x.lo:.6g}"
    return Cause(Source.LOGARITHM, why, _GUARD) if x.lo <= end else None


def _divisions(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    if operation not in DIVISIONS:
        return None
    names = {"reciprocal": "input", "rsqrt": "input", "addcdiv": "tensor2"}
    below = terms.get(names.get(operation, "other"))
    if below is None:
        return None
    above = (
        None if operation in ("reciprocal", "rsqrt") else terms.get("tensor1" if operation == "addcdiv" else "input")
    )
    if operation == "rsqrt" and below.below_zero and _has(made, "nan"):
        return Cause(Source.ROOT, f"rsqrt of a negative number: the input goes down to {below.lo:.6g}", _GUARD)
    if below.zeros:
        many = "the divisor is 0" if not below.is_tensor or below.elements == 1 else (
            f"{below.zeros:,} of {below.elements:,} elements of the {'input' if above is None else 'divisor'} are 0"
        )  # fmt: skip
        both = above is not None and above.zeros > 0 and _has(made, "nan")
        text = "one divided by the root of zero" if operation == "rsqrt" else "division by zero"
        rest = f", and {above.zeros:,} of what is divided" if both and above is not None else ""
        why = f"{'zero divided by zero' if both else text}: {many}{rest}"
        return Cause(Source.DIVISION, why, "add an epsilon to the divisor, or leave out what is divided by 0")
    if above is not None and above.counts.inf and below.counts.inf and _has(made, "nan"):
        return Cause(Source.CANCELLED, "infinity divided by infinity")
    return None


def _roots(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    x = terms.get("input")
    if x is None:
        return None
    if operation == "sqrt" and x.below_zero:
        why = f"sqrt of a negative number: the input goes down to {x.lo:.6g}"
        return Cause(Source.ROOT, why, "clamp what comes in at 0")
    if operation == "pow":
        exponent = terms.get("other") or terms.get("exponent")
        if exponent is None or exponent.lo is None or exponent.hi is None:
            return None
        if x.zeros and exponent.lo < 0 and _has(made, "posinf", "neginf"):
            why = f"zero to the power of {exponent.lo:.4g}: {x.zeros:,} of {x.elements:,} elements are 0"
            return Cause(Source.DIVISION, why, _GUARD)
        if x.below_zero and _has(made, "nan") and not (exponent.lo == exponent.hi == int(exponent.lo)):
            why = f"a negative number to a power that is no integer: the input goes down to {x.lo:.6g}"
            return Cause(Source.ROOT, why, _GUARD)
    return None


def _domains(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    x = terms.get("input")
    if operation not in _DOMAINS or x is None or x.lo is None or x.hi is None:
        return None
    low, high = _DOMAINS[operation]
    ends = operation in ("atanh", "erfinv", "lgamma", "digamma")  # infinite there
    if low <= x.lo and x.hi <= high and not (ends and (x.lo == low or x.hi == high)):
        return None
    why = f"{operation} outside ({low:g}, {high:g}): the input is {x.lo:.6g} … {x.hi:.6g}"
    return Cause(Source.DOMAIN, why, "clamp what comes in")


def _exponentials(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    x = terms.get("input")
    if operation not in EXPONENTIALS or x is None or x.size is None or not _has(made, "posinf", "neginf"):
        return None
    end = math.log(largest(made[0].spec.dtype)) / EXPONENTIALS[operation]
    reached = x.size if operation in ("sinh", "cosh") else x.hi or 0.0
    if reached <= end * 0.999:
        return None
    why = f"overflow: {operation} of {reached:.6g}, and {made[0].spec.dtype} ends at {operation}({end:.4g})"
    return Cause(Source.OVERFLOW, why, "subtract the maximum before it, or use log_softmax or logsumexp")


def _softmaxes(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    if operation in ATTENTIONS:
        padding = terms.get("key_padding_mask")
        if padding is not None and padding.spec.shape and _has(made, "nan"):
            closed = padding.elements - padding.zeros if padding.spec.dtype == "b8" else padding.counts.neginf
            if closed >= padding.spec.shape[-1]:
                keys = f"{closed:,} of {padding.elements:,} keys, a row has {padding.spec.shape[-1]}"
                return _masked(f"the padding closes {keys}")
        mask = terms.get("attn_mask")
        if mask is None or not mask.spec.shape:
            return None
        closed = mask.zeros if mask.spec.dtype == "b8" else mask.counts.neginf
        if closed >= mask.spec.shape[-1] and _has(made, "nan"):
            return _masked(f"the mask closes {closed:,} of {mask.elements:,} places, rows have {mask.spec.shape[-1]}")
        return None
    if operation not in SOFTMAXES:
        return None
    x = terms.get("input") or terms.get("logits")
    if x is None:
        return None
    if x.counts.posinf:
        why = f"{operation} of +inf: infinity minus infinity; {x.counts.posinf:,} elements of the input are +inf"
        return Cause(Source.CANCELLED, why)
    axis = settings.get("dim", 1 if operation == "cross_entropy" else -1)
    row = _along(x.spec.shape, axis)
    if x.counts.neginf >= max(row, 1) and not (operation == "cross_entropy" and not _has(made, "nan")):
        return _masked(f"{x.counts.neginf:,} of {x.elements:,} elements of the input are -inf, and rows have {row}")
    if operation == "cross_entropy" and x.counts.neginf:
        why = f"a target has a score of -inf: its probability is 0, and {x.counts.neginf:,} of {x.elements:,} scores are -inf"
        return Cause(Source.LOGARITHM, why, "leave masked classes out of the targets (ignore_index)")
    return None


def _along(shape: Sequence[int], axes: Any) -> int:
    """Number of elements along these axes, or this axis."""
    known = [axis for axis in (axes if isinstance(axes, tuple) else (axes,)) if isinstance(axis, int)]
    return math.prod(shape[axis] for axis in known if -len(shape) <= axis < len(shape))


def _masked(numbers: str) -> Cause:
    why = f"a row of nothing but -inf has no softmax (0/0): {numbers}"
    advice = "let every row attend to something, or mask with a large finite number and zero the row afterwards"
    return Cause(Source.MASKED, why, advice)


def _averages(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    x = terms.get("input")
    target = terms.get("target")
    mean = settings.get("reduction", "mean") == "mean"
    if operation in ("cross_entropy", "nll_loss") and target is not None and mean:
        ignored = settings.get("ignore_index", -100)
        if target.lo is not None and target.lo == target.hi == ignored:
            why = f"every target is ignore_index ({ignored}): the mean over no element is 0/0"
            return Cause(Source.EMPTY, why, "skip such a batch, or use reduction='sum' and divide by at least 1")
    if x is None:
        return None
    spreads = ("var", "std", "var_mean", "std_mean")
    averages = settings.get("reduction") == "mean" or operation in ("mean", "nanmean", *spreads)
    if averages and x.elements == 0:
        return Cause(Source.EMPTY, f"{operation} of an empty tensor is 0/0", "skip empty batches")
    if operation in spreads:
        many = _along(x.spec.shape, settings.get("dim") or tuple(range(len(x.spec.shape))))
        correction = settings.get("correction", 1)
        if isinstance(correction, int | float) and many <= correction:
            why = f"{operation} of {many} element with correction {correction:g} divides by zero"
            return Cause(Source.EMPTY, why, "use correction=0, or more elements")
    return None


def _norms(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    if operation not in NORMS:
        return None
    x = terms.get("input") or terms.get("x1")
    eps = settings.get("eps")
    variance = terms.get("running_var")
    if variance is not None and variance.below_zero:
        return Cause(Source.ROOT, f"the running variance goes down to {variance.lo:.6g}: the root of a negative number")
    if x is None:
        return None
    if x.counts.inf:
        why = f"{operation} of a row with an infinity: infinity minus its own mean, or divided by it"
        return Cause(Source.CANCELLED, why)
    if isinstance(eps, int | float) and vanishes(eps, x.spec.dtype) and x.size is not None:
        rounded = "" if eps == 0 else f" (eps={eps:g} is 0 in {x.spec.dtype})"
        if x.is_constant or x.zeros or (variance is not None and variance.zeros):
            why = f"zero divided by zero: no epsilon{rounded} where a row has no variance or no length; the input is {x.told()}"
            return Cause(Source.DIVISION, why, "give eps a value that the type can hold")
    if x.size is not None and x.size**2 > largest(x.spec.dtype):
        why = f"overflow: squares of values up to {x.size:.6g} go beyond the range of {x.spec.dtype}"
        return Cause(Source.OVERFLOW, why)
    return None


def _casts(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    x = terms.get("input")
    if operation not in ("cast", "to", "half", "type", "copy", "_to_copy") or x is None or x.size is None or not made:
        return None
    end = largest(made[0].spec.dtype)
    if x.size > end:
        why = f"overflow: {x.spec.dtype} values up to {x.size:.6g} are cast to {made[0].spec.dtype}, which ends at {end:.6g}"
        return Cause(Source.OVERFLOW, why, "scale before the cast, or use bf16, which has the range of f32")
    return None


def _written(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    """A number that stands in the call is not finite itself."""
    numbers = [term for term in terms.values() if not term.is_tensor and term.counts]
    if not numbers or (any(term.counts.inf for term in numbers) and _has(made, "nan")):
        return None
    what = "NaN" if numbers[0].counts.nan else "infinite"
    return Cause(Source.DATA, f"the number {numbers[0].name} in the call is {what}", "look at where Python has it from")


def _infinities(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    """Infinities that come in, in operations that add or multiply."""
    endless = [term for term in terms.values() if term.counts.inf]
    if not endless or not _has(made, "nan"):
        return None
    first = endless[0]
    if operation in PRODUCTS:
        zeros = [term for term in terms.values() if term is not first and term.zeros]
        if operation in ("mul", "addcmul"):
            if not zeros:
                return None
            why = f"zero times infinity: {first.name} has {first.counts}, and {zeros[0].name} has {zeros[0].zeros:,} zeros"
            return Cause(Source.ZERO_TIMES, why, "choose with torch.where or masked_fill; do not multiply by a mask")
        sides = "(times zero, or against the other sign)"
        return Cause(Source.ZERO_TIMES, f"an infinity in a sum of products {sides}: {first.name} has {first.counts}")
    if operation in SUMS:
        counts = [term.counts for term in endless]
        both = any(item.posinf for item in counts) and any(item.neginf for item in counts)
        if both or len(counts) > 1 or operation in REDUCES:
            told = "; ".join(f"{term.name} has {term.counts}" for term in endless)
            return Cause(Source.CANCELLED, f"infinity minus infinity: {told}")
    return None


def _overflows(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    """Finite operands in operations that add and multiply: whatever is not finite went beyond the range of its type."""
    if operation not in PRODUCTS | SUMS or any(term.counts for term in terms.values()) or not made:
        return None
    end = largest(made[0].spec.dtype)
    bound = _bound(operation, terms)
    sizes = ", ".join(term.told() for term in terms.values() if term.is_tensor) or "numbers"
    if bound is not None and bound < end / 2:
        why = f"the kernel cannot have computed it: from {sizes} no result beyond {bound:.4g} can come"
        advice = (
            "look for memory that is written too late or too early; repeat with deterministic kernels or on the CPU"
        )
        return Cause(Source.KERNEL, why, advice)
    cancelled = _has(made, "nan") and not _has(made, "posinf", "neginf")
    inside = " (two partial sums overflowed, with different signs)" if cancelled else ""
    why = f"overflow: from {sizes} results go beyond {end:.6g}, the largest number of {made[0].spec.dtype}{inside}"
    narrow = made[0].spec.dtype in ("f16", "c32") or made[0].spec.dtype.startswith("f8")
    wider = "compute this in f32 or bf16, or scale what comes in"
    return Cause(Source.OVERFLOW, why, wider if narrow else "find out why the values are this large: see led")


def _bound(operation: str, terms: Terms) -> float | None:
    """Largest magnitude that a result may have; None where it is not known. A sum of products is at most the product of norms."""
    tensors = [term for term in terms.values() if term.is_tensor]
    sizes = [term.size for term in tensors]
    lengths = [term.norm for term in tensors]
    if any(size is None for size in (*sizes, *lengths)) or not tensors:
        return None
    known, norms = [size or 0.0 for size in sizes], [length or 0.0 for length in lengths]
    factor = max([1.0, *(term.size or 0.0 for term in terms.values() if not term.is_tensor)])
    if operation in ("add", "sub", "add_all"):
        return sum(known) * factor + factor
    if operation == "square":
        return known[0] ** 2
    if operation == "mul":
        return math.prod(known) * factor
    if operation in ("sum", "cumsum", "mean"):
        return norms[0] * math.sqrt(max(tensors[0].elements, 1))
    if operation in ("linear", "matmul", "mm", "bmm", "conv", "addmm", "baddbmm") and len(tensors) >= 2:
        if operation in ("addmm", "baddbmm"):
            return (norms[-1] * norms[-2] + known[0]) * factor**2
        return norms[0] * norms[1] + sum(known[2:])
    return None


def _types(operation: str, terms: Terms, settings: Settings, made: Ranges) -> Cause | None:
    """An infinity of a narrow type, made of values that come near its end."""
    if not made or not _has(made, "posinf", "neginf") or any(term.counts for term in terms.values()):
        return None
    sizes = [term.size for term in terms.values() if term.is_tensor and term.size is not None]
    end = largest(made[0].spec.dtype)
    if sizes and max(sizes) > math.sqrt(end):
        why = f"overflow: values up to {max(sizes):.6g} come in, and {made[0].spec.dtype} ends at {end:.6g}"
        return Cause(Source.OVERFLOW, why, "compute this in a type with a wider range, or scale what comes in")
    return None


_RULES: tuple[Callable[[str, Terms, Settings, Ranges], Cause | None], ...] = (
    _logs, _divisions, _roots, _domains, _exponentials, _softmaxes, _averages, _norms, _casts, _written, _infinities,
    _overflows, _types,
)  # fmt: skip
