"""Float64 computation of each operation: one function for each row of the catalog, with the same argument names.

    KERNELS["layer_norm"](input=x, normalized_shape=(8,), weight=w, bias=None, eps=1e-5)

Floating tensors come as float64 (complex128), integers and bools as they are. A kernel returns a tensor, a tuple of them, or a dict
from the key of a result (`0`, `running_mean`) to its tensor where the call wrote to its arguments. Every kernel can be
differentiated by autograd, writes to none of its inputs, and looks at no value in Python.
Written out in plain steps where a library function would hide its intermediate results, as attention does: bounds are carried
through them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .steps import STEPS

Result = Any  # Tensor | tuple[Tensor, ...] | dict[int | str, Tensor]
Kernel = Callable[..., Result]
KERNELS: dict[str, Kernel] = {**STEPS}
"""Kernel of each operation."""

TYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float64, "f16": torch.float64, "bf16": torch.float64, "c32": torch.complex128,
    "c64": torch.complex128, "c128": torch.complex128, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "b8": torch.bool,
    "f8e4m3fn": torch.float64, "f8e5m2": torch.float64, "f8e4m3fnuz": torch.float64, "f8e5m2fnuz": torch.float64,
    **{f"u{bits}": getattr(torch, f"uint{bits}") for bits in (16, 32, 64) if hasattr(torch, f"uint{bits}")},  # from 2.3 on
}  # fmt: skip
"""Type in which a recorded element type is computed."""


class Random(ValueError):
    """The result depends on random numbers, and is not told by the arguments."""


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Enter a function into the table."""

    def enter(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return enter


def wide(value: Any) -> Any:
    """Integers and bools as float64, for functions whose result is real."""
    return (
        value.double() if isinstance(value, Tensor) and not (value.is_floating_point() or value.is_complex()) else value
    )


def tensor_of(value: Any, like: Tensor | None = None) -> Tensor:
    """A number as a tensor."""
    if isinstance(value, Tensor):
        return value
    kind = torch.float64 if isinstance(value, float) else torch.complex128 if isinstance(value, complex) else None
    return torch.tensor(value, dtype=kind, device=like.device if like is not None else None)


def _unary(function: Callable[[Tensor], Tensor], *, real: bool) -> Kernel:
    if real:
        return lambda input: function(wide(tensor_of(input)))
    return lambda input: function(tensor_of(input))


_REAL = (
    "acos acosh asin asinh atan atanh cos cosh deg2rad rad2deg digamma erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 "
    "reciprocal rsqrt sqrt sin sinc sinh tan tanh sigmoid i0"
)
_ANY = (
    "abs neg positive real imag conj angle square sign sgn signbit ceil floor trunc frac isfinite isinf isnan isneginf isposinf "
    "logical_not bitwise_not view_as_real view_as_complex"
)
for _name in _REAL.split():
    KERNELS[_name] = _unary(getattr(torch, _name), real=True)
for _name in _ANY.split():
    KERNELS[_name] = _unary(getattr(torch, _name), real=False)
_ACTIVATIONS = "logsigmoid softsign tanhshrink relu relu6 silu mish selu hardswish hardsigmoid"
for _name in _ACTIVATIONS.split():
    KERNELS[_name] = _unary(getattr(F, _name), real=_name not in ("relu", "relu6"))


@kernel("complex")
def _complex(real: Tensor, imag: Tensor) -> Result:
    return torch.complex(wide(tensor_of(real)), wide(tensor_of(imag)))


@kernel("polar")
def _polar(abs: Tensor, angle: Tensor) -> Result:
    return torch.polar(wide(tensor_of(abs)), wide(tensor_of(angle)))


@kernel("identity")
def _identity(input: Tensor) -> Result:
    return input.clone() if isinstance(input, Tensor) else input


@kernel("detach")
def _detach(input: Tensor) -> Result:
    return input.detach()


@kernel("cast")
def _cast(input: Tensor, dtype: str) -> Result:
    return input.to(TYPES[dtype]).clone()


@kernel("nonzero")
def _nonzero(input: Tensor, as_tuple: bool) -> Any:
    return torch.nonzero(input, as_tuple=True) if as_tuple else torch.nonzero(input)


def _binary(function: Callable[..., Tensor], *, real: bool) -> Kernel:
    def call(input: Any, other: Any) -> Result:
        if not isinstance(input, Tensor) and not isinstance(other, Tensor):
            input = tensor_of(input)
        if real:
            input, other = wide(input), wide(other)
        like = input if isinstance(input, Tensor) else other
        return function(_matching(input, other), _matching(other, input)) if isinstance(like, Tensor) else like

    return call


def _matching(value: Any, other: Any) -> Any:
    """A number as a tensor without axes, of a type that does not change the other's."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool) or (
        isinstance(value, int) and isinstance(other, Tensor) and not other.dtype.is_floating_point
    ):
        return torch.tensor(value, device=other.device)
    kind = torch.complex128 if isinstance(value, complex) else torch.float64
    return torch.tensor(value, dtype=kind, device=other.device)


_REAL_PAIRS = "atan2 hypot logaddexp logaddexp2 xlogy copysign ldexp div"
_PAIRS = (
    "pow heaviside remainder fmod maximum minimum fmax fmin nextafter gcd lcm eq ne lt le gt ge logical_and "
    "logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift outer kron mul"
)
for _name in _REAL_PAIRS.split():
    KERNELS[_name] = _binary(getattr(torch, _name), real=True)
for _name in _PAIRS.split():
    KERNELS[_name] = _binary(getattr(torch, _name), real=False)
# As a division that is rounded down it has a gradient.
KERNELS["floor_divide"] = _binary(lambda one, two: torch.div(one, two, rounding_mode="floor"), real=False)
KERNELS["trunc_divide"] = _binary(lambda one, two: torch.div(one, two, rounding_mode="trunc"), real=False)
KERNELS["div_no_nan"] = _binary(
    lambda one, two: torch.where(two == 0, 0.0, one / torch.where(two == 0, 1.0, two)), real=True
)


@kernel("add")
def _add(input: Any, other: Any, alpha: Any) -> Result:
    return torch.add(_matching(input, other), _matching(other, input), alpha=alpha)


@kernel("sub")
def _sub(input: Any, other: Any, alpha: Any) -> Result:
    one, two = _matching(input, other), _matching(other, input)
    if one.dtype == torch.bool or two.dtype == torch.bool:  # torch subtracts none, MindSpore's arithmetic does
        one, two = one.long() if one.dtype == torch.bool else one, two.long() if two.dtype == torch.bool else two
    return torch.sub(one, two, alpha=alpha)


@kernel("isclose")
def _isclose(input: Tensor, other: Any, rtol: float, atol: float, equal_nan: bool) -> Result:
    return torch.isclose(input, _matching(other, input), rtol, atol, equal_nan)


@kernel("lerp")
def _lerp(input: Tensor, end: Tensor, weight: Any) -> Result:
    return input + weight * (end - input)


@kernel("addcmul")
def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Result:
    return input + value * tensor1 * tensor2


@kernel("addcdiv")
def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Result:
    return input + value * tensor1 / tensor2


@kernel("clamp")
def _clamp(input: Tensor, min: Any, max: Any) -> Result:
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        low = min if min is None else _matching(min, input)
        high = max if max is None else _matching(max, input)
        return torch.clamp(input, low, high)
    if min is None and max is None:
        return input.clone()
    return torch.clamp(input, min, max)


@kernel("where")
def _where(condition: Tensor, input: Any, other: Any) -> Result:
    like = condition if not isinstance(input, Tensor) and not isinstance(other, Tensor) else None
    one = _matching(input, other if isinstance(other, Tensor) else like or condition.double())
    two = _matching(other, input if isinstance(input, Tensor) else like or condition.double())
    return torch.where(condition.bool(), one, two)


@kernel("nan_to_num")
def _nan_to_num(input: Tensor, nan: Any, posinf: Any, neginf: Any) -> Result:
    return torch.nan_to_num(input, nan, posinf, neginf)


@kernel("round")
def _round(input: Tensor, decimals: int) -> Result:
    return torch.round(input, decimals=decimals) if decimals else torch.round(input)


@kernel("logit")
def _logit(input: Tensor, eps: Any) -> Result:
    return torch.logit(input, eps)


@kernel("gelu")
def _gelu(input: Tensor, approximate: str) -> Result:
    if approximate == "tanh":
        return 0.5 * input * (1 + torch.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)))
    return 0.5 * input * torch.erfc(-input / math.sqrt(2))


@kernel("quick_gelu")
def _quick_gelu(input: Tensor) -> Result:
    return input * torch.sigmoid(1.702 * input)


@kernel("leaky_relu")
def _leaky_relu(input: Tensor, negative_slope: float) -> Result:
    return torch.where(input > 0, input, input * negative_slope)


@kernel("elu")
def _elu(input: Tensor, alpha: float) -> Result:
    return torch.where(input > 0, input, alpha * torch.expm1(torch.clamp(input, max=0)))


@kernel("celu")
def _celu(input: Tensor, alpha: float) -> Result:
    return torch.where(input > 0, input, alpha * torch.expm1(torch.clamp(input, max=0) / alpha))


@kernel("hardtanh")
def _hardtanh(input: Tensor, min_val: Any, max_val: Any) -> Result:
    return F.hardtanh(input, min_val, max_val)


@kernel("hardshrink")
def _hardshrink(input: Tensor, lambd: float) -> Result:
    return F.hardshrink(input, lambd)


@kernel("softshrink")
def _softshrink(input: Tensor, lambd: float) -> Result:
    return F.softshrink(input, lambd)


@kernel("softplus")
def _softplus(input: Tensor, beta: float, threshold: float) -> Result:
    return F.softplus(input, beta, threshold)


@kernel("threshold")
def _threshold(input: Tensor, threshold: Any, value: Any) -> Result:
    return F.threshold(input, threshold, value)


@kernel("prelu")
def _prelu(input: Tensor, weight: Tensor) -> Result:
    if weight.numel() > 1 and weight.dim() == 1 and input.dim() > 1:
        weight = weight.reshape((-1,) + (1,) * (input.dim() - 2))
    return torch.where(input > 0, input, weight.reshape(()) * input if weight.numel() == 1 else weight * input)


@kernel("rrelu")
def _rrelu(input: Tensor, lower: float, upper: float, training: bool) -> Result:
    if training:
        raise Random("rrelu draws its slopes")
    return _leaky_relu(input, (lower + upper) / 2)


@kernel("glu")
def _glu(input: Tensor, dim: int) -> Result:
    one, two = input.chunk(2, dim)
    return one * torch.sigmoid(two)


@kernel("swiglu")
def _swiglu(input: Tensor, dim: int) -> Result:
    one, two = input.chunk(2, dim)
    return F.silu(one) * two


@kernel("softmax")
def _softmax(input: Tensor, dim: int) -> Result:
    return torch.softmax(wide(input), dim)


@kernel("softmin")
def _softmin(input: Tensor, dim: int) -> Result:
    return torch.softmax(-wide(input), dim)


@kernel("log_softmax")
def _log_softmax(input: Tensor, dim: int) -> Result:
    return torch.log_softmax(wide(input), dim)


@kernel("gumbel_softmax")
def _gumbel_softmax(logits: Tensor, tau: float, hard: bool, dim: int) -> Result:
    raise Random("gumbel_softmax draws its noise")


@kernel("dropout", "feature_dropout", "alpha_dropout")
def _dropout(input: Tensor, p: float, training: bool) -> Result:
    if training and 0 < p < 1:
        raise Random("dropout draws its mask")
    return input * 0 if training and p >= 1 else input.clone()


def _dropout_given(output: Tensor, input: Tensor, p: float, training: bool) -> Result:
    """The result of a dropout whose mask is read off its result: what was kept, scaled."""
    if not training or p <= 0:
        return input.clone()
    return torch.where(output != 0, input / (1 - p), 0.0) if p < 1 else input * 0


GIVEN_RESULT: dict[str, Kernel] = {"dropout": _dropout_given, "feature_dropout": _dropout_given}
"""Kernels of calls that draw a mask, which is read off the recorded result (the first argument): scale and places are checked."""


@kernel("random")
def _random(distribution: str, size: Sequence[int], dtype: str) -> Result:
    raise Random(f"{distribution} numbers are drawn")


@kernel("empty")
def _empty(size: Sequence[int], dtype: str) -> Result:
    raise Random("the memory is not initialised")


# --- reductions ---


@kernel("sum")
def _sum(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return (
        torch.sum(input, tuple(dim), keepdim)
        if dim
        else torch.sum(input)
        if input.dtype == torch.bool
        else input.clone()
    )


@kernel("mean")
def _mean(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.mean(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


@kernel("nansum")
def _nansum(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.nansum(input, tuple(dim), keepdim) if dim else torch.nansum(input)


@kernel("nanmean")
def _nanmean(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.nanmean(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


def _by_axis(function: Callable[..., Tensor]) -> Kernel:
    """A reduction that PyTorch has for one axis only, for several."""

    def call(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
        for place in sorted(dim, reverse=True):
            input = function(input, place, keepdim)
        return input if dim else input.clone()

    return call


KERNELS["prod"] = _by_axis(torch.prod)


@kernel("all")
def _all(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return _by_axis(torch.all)(input.bool(), dim, keepdim)


@kernel("any")
def _any(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return _by_axis(torch.any)(input.bool(), dim, keepdim)


@kernel("amax")
def _amax(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.amax(input, tuple(dim), keepdim) if dim else input.clone()


@kernel("amin")
def _amin(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.amin(input, tuple(dim), keepdim) if dim else input.clone()


@kernel("logsumexp")
def _logsumexp(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.logsumexp(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


@kernel("count_nonzero")
def _count_nonzero(input: Tensor, dim: Sequence[int]) -> Result:
    return torch.count_nonzero(input, tuple(dim)) if dim else (input != 0).long()


def _moments(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    count = math.prod(input.shape[place] for place in dim)
    mean = input.mean(tuple(dim), keepdim=True)
    squares = (input - mean).square().sum(tuple(dim), keepdim=keepdim)
    variance = squares / count if correction == 0 else squares / max(count - correction, 0)
    return variance, mean if keepdim else mean.squeeze(tuple(dim))


@kernel("var")
def _var(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)[0]


@kernel("std")
def _std(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)[0].sqrt()


@kernel("var_mean")
def _var_mean(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)


@kernel("std_mean")
def _std_mean(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    variance, mean = _moments(input, dim, correction, keepdim)
    return variance.sqrt(), mean


@kernel("vector_norm")
def _vector_norm(input: Tensor, ord: Any, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.linalg.vector_norm(input, ord, tuple(dim), keepdim)


@kernel("argmax")
def _argmax(input: Tensor, dim: Any, keepdim: bool) -> Result:
    return torch.argmax(input, dim, keepdim)


@kernel("argmin")
def _argmin(input: Tensor, dim: Any, keepdim: bool) -> Result:
    return torch.argmin(input, dim, keepdim)


def _with_places(function: Callable[..., Any]) -> Kernel:
    return lambda input, dim, keepdim: tuple(function(input, dim, keepdim))


for _name in ("max", "min", "median"):
    KERNELS[f"{_name}_dim"] = _with_places(getattr(torch, _name))
KERNELS["median"] = _unary(torch.median, real=False)
KERNELS["mode"] = _with_places(torch.mode)


@kernel("kthvalue")
def _kthvalue(input: Tensor, k: int, dim: int, keepdim: bool) -> Result:
    return tuple(torch.kthvalue(input, k, dim, keepdim))


@kernel("quantile")
def _quantile(input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Result:
    axis = 0 if dim is None else dim
    values = (input.reshape(-1) if dim is None else input).sort(axis).values
    last = values.shape[axis] - 1
    shares = torch.as_tensor(q, dtype=torch.float64, device=input.device)
    place = shares.reshape(-1) * last
    below, above = place.floor().long(), place.ceil().long()
    share = {
        "lower": torch.zeros_like(place), "higher": torch.ones_like(place), "nearest": (place.round() != below).double(),
        "midpoint": torch.full_like(place, 0.5), "linear": place - below,
    }[interpolation]  # fmt: skip
    one, two = values.index_select(axis, below), values.index_select(axis, above)
    shape = [1] * values.dim()
    shape[axis] = -1
    found = (one + share.reshape(shape) * (two - one)).movedim(axis, 0)
    missing = input.isnan().any() if dim is None else input.isnan().any(axis)
    found = torch.where(missing, math.nan, found)
    if keepdim:
        found = found.reshape(-1, *[1] * input.dim()) if dim is None else found.unsqueeze(axis + 1)
    return found.squeeze(0) if shares.dim() == 0 else found


def _along(function: Callable[..., Any], *, places: bool) -> Kernel:
    if places:
        return lambda input, dim: tuple(function(input, dim))
    return lambda input, dim: function(input, dim)


for _name in ("cumsum", "cumprod"):
    KERNELS[_name] = _along(getattr(torch, _name), places=False)
for _name in ("cummax", "cummin"):
    KERNELS[_name] = _along(getattr(torch, _name), places=True)


@kernel("logcumsumexp")
def _logcumsumexp(input: Tensor, dim: int) -> Result:
    """The library's value; its gradient from plain steps, since the library's takes logarithms of gradients."""
    top = input.detach().amax(dim, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
    plain = (input - top).exp().cumsum(dim).clamp_min(1e-300).log() + top
    return plain + (torch.logcumsumexp(input.detach(), dim) - plain.detach()).nan_to_num(0.0)


@kernel("diff")
def _diff(input: Tensor, n: int, dim: int, prepend: Any, append: Any) -> Result:
    return torch.diff(input, n, dim, prepend, append)


@kernel("sort")
def _sort(input: Tensor, dim: int, descending: bool, stable: bool) -> Result:
    return tuple(torch.sort(input, dim=dim, descending=descending, stable=True))


@kernel("argsort")
def _argsort(input: Tensor, dim: int, descending: bool, stable: bool) -> Result:
    return torch.argsort(input, dim=dim, descending=descending, stable=True)


@kernel("topk")
def _topk(input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Result:
    return tuple(torch.topk(input, k, dim, largest, sorted))


@kernel("unique")
def _unique(input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: Any) -> Result:
    return torch.unique(input, sorted, return_inverse, return_counts, dim)


@kernel("bincount")
def _bincount(input: Tensor, weights: Any, minlength: int) -> Result:
    return torch.bincount(input, weights, minlength)


@kernel("histc")
def _histc(input: Tensor, bins: int, min: Any, max: Any) -> Result:
    return torch.histc(input, bins, min, max)


@kernel("searchsorted")
def _searchsorted(sorted_sequence: Tensor, input: Any, right: bool) -> Result:
    return torch.searchsorted(sorted_sequence, input, right=right)


@kernel("bucketize")
def _bucketize(input: Any, boundaries: Tensor, right: bool) -> Result:
    return torch.bucketize(input, boundaries, right=right)


# --- contractions ---


@kernel("matmul")
def _matmul(input: Tensor, other: Tensor, transpose_a: bool, transpose_b: bool) -> Result:
    return torch.matmul(input.mT if transpose_a else input, other.mT if transpose_b else other)


@kernel("bias_add")
def _bias_add(input: Tensor, bias: Tensor, dim: int) -> Result:
    return input + bias.reshape((-1,) + (1,) * (input.dim() - 1 - dim))


@kernel("add_all")
def _add_all(tensors: Sequence[Tensor]) -> Result:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total.clone()


@kernel("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Result:
    return F.linear(input, weight, bias)


@kernel("bilinear")
def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Result:
    product = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return product if bias is None else product + bias


@kernel("addmm")
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.matmul(mat1, mat2) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("addbmm")
def _addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.matmul(batch1, batch2).sum(0) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("addr")
def _addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.outer(vec1, vec2) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("einsum")
def _einsum(equation: str, operands: Sequence[Tensor]) -> Result:
    return torch.einsum(equation, *operands)


@kernel("multi_dot")
def _multi_dot(tensors: Sequence[Tensor]) -> Result:
    return torch.linalg.multi_dot(list(tensors))


@kernel("tensordot")
def _tensordot(input: Tensor, other: Tensor, dims: Any) -> Result:
    return torch.tensordot(input, other, dims if isinstance(dims, int) else [list(side) for side in dims])


@kernel("cdist")
def _cdist(x1: Tensor, x2: Tensor, p: float) -> Result:
    return torch.cdist(x1, x2, p, compute_mode="donot_use_mm_for_euclid_dist")


@kernel("cross")
def _cross(input: Tensor, other: Tensor, dim: int) -> Result:
    return torch.linalg.cross(input, other, dim=dim)


def _padded(input: Tensor, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    flat = [cells for sides in reversed(padding) for cells in sides]
    return F.pad(input, flat, value=value) if any(flat) else input


def _even(padding: Sequence[tuple[int, int]]) -> list[int] | None:
    return [before for before, _ in padding] if all(before == behind for before, behind in padding) else None


_CONVOLUTIONS: Mapping[int, Kernel] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: Mapping[int, Kernel] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@kernel("conv")
def _conv(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Result:
    even = _even(padding)
    if weight.dim() == len(stride) + 3:  # MindSpore's one-dimensional weights have an axis of length 1
        weight = weight.squeeze(2)
    if even is None:
        input, even = _padded(input, padding), [0] * len(padding)
    return _CONVOLUTIONS[len(even)](input, weight, bias, stride, even, dilation, groups)


@kernel("conv_transpose")
def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Result:
    """Cells are cut off before and behind; `output_padding` adds cells behind."""
    count = len(stride)
    even = _even(padding)
    if even is not None and all(
        more < max(step, gap) for more, step, gap in zip(output_padding, stride, dilation, strict=True)
    ):
        return _TRANSPOSED[count](input, weight, bias, stride, even, output_padding, groups, dilation)
    whole = _TRANSPOSED[count](input, weight, None, stride, [0] * count, [0] * count, groups, dilation)
    whole = _padded(
        whole, [(0, max(more - behind, 0)) for more, (_, behind) in zip(output_padding, padding, strict=True)]
    )
    for axis, ((before, behind), more) in enumerate(zip(padding, output_padding, strict=True)):
        place = whole.dim() - count + axis
        length = whole.shape[place] - before - max(behind - more, 0)
        whole = whole.narrow(place, before, length)
    return whole if bias is None else whole + bias.reshape((-1,) + (1,) * count)


_MAX_POOLS: Mapping[int, Kernel] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG_POOLS: Mapping[int, Kernel] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@kernel("max_pool")
def _max_pool(input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any) -> Result:
    """Greatest element of each window, and its place in the flattened input."""
    count = len(kernel_size)
    sides = [(before, behind + more) for (before, behind), more in zip(padding, ceil_mode, strict=True)]
    padded = _padded(input, sides, -math.inf)
    values, places = _MAX_POOLS[count](padded, kernel_size, stride, 0, dilation, False, True)
    found, rest = torch.zeros_like(places), places
    scale = 1
    for axis in reversed(range(count)):
        length, whole = input.shape[axis - count], padded.shape[axis - count]
        found = found + (rest % whole - sides[axis][0]) * scale
        rest, scale = torch.div(rest, whole, rounding_mode="floor"), scale * length
    return values, found


@kernel("avg_pool")
def _avg_pool(
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: bool,
    divisor_override: Any,
) -> Result:
    """Sum of each window over its cells; those that `ceil_mode` adds never count."""
    count = len(kernel_size)
    pool, cells = _AVG_POOLS[count], math.prod(kernel_size)
    more = [(0, extra) for extra in ceil_mode]
    sums = pool(_padded(_padded(input, padding), more), kernel_size, stride) * cells
    if divisor_override:
        return sums / divisor_override
    ones = torch.ones_like(input[:1, :1] if input.dim() > count + 1 else input[:1]).detach()
    inside = _padded(_padded(ones, padding, 1.0 if count_include_pad else 0.0), more)
    return sums / (pool(inside, kernel_size, stride) * cells)


@kernel("lp_pool")
def _lp_pool(input: Tensor, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool) -> Result:
    pool = F.lp_pool1d if len(kernel_size) == 1 else F.lp_pool2d
    size = kernel_size[0] if len(kernel_size) == 1 else tuple(kernel_size)
    return pool(input, float(norm_type), size, stride[0] if len(stride) == 1 else tuple(stride), ceil_mode)


@kernel("adaptive_avg_pool")
def _adaptive_avg_pool(input: Tensor, output_size: Sequence[int]) -> Result:
    pools: tuple[Kernel, ...] = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    return pools[len(output_size) - 1](input, output_size)


@kernel("adaptive_max_pool")
def _adaptive_max_pool(input: Tensor, output_size: Sequence[int]) -> Result:
    pools: tuple[Kernel, ...] = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
    return pools[len(output_size) - 1](input, output_size, True)


@kernel("unfold")
def _unfold(input: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Result:
    return F.unfold(input, kernel_size, dilation, padding, stride)


@kernel("fold")
def _fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Result:
    return F.fold(input, output_size, kernel_size, dilation, padding, stride)


@kernel("unfold_axis")
def _unfold_axis(input: Tensor, dim: int, size: int, step: int) -> Result:
    return input.unfold(dim, size, step).clone()


@kernel("scaled_dot_product_attention")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Result:
    """Written out: scores, mask, softmax, weighted sum. Kernels group queries by the number of keys, whatever is set."""
    key, value = _for_each_query(key, query), _for_each_query(value, query)
    return _attention_weights(query, key, attn_mask, dropout_p, is_causal, scale) @ value


@kernel("attention_backward")
def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float,
) -> Result:
    """Gradients of query, key and value. PyTorch's kernel checks no shapes."""
    heads = key.shape[-3]
    key, value = _for_each_query(key, query), _for_each_query(value, query)
    weights = _attention_weights(query, key, attn_mask, dropout_p, is_causal, scale)
    sent = grad_out @ value.transpose(-2, -1)
    scores = weights * (sent - (sent * weights).sum(-1, keepdim=True)) * scale
    sums = scores.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ grad_out
    return scores @ key, *(item.unflatten(-3, (heads, -1)).sum(-3) for item in sums)


def _for_each_query(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values, each as often as there are queries for it."""
    if query.dim() < 3 or query.shape[-3] == tensor.shape[-3]:
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _attention_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float
) -> Tensor:
    """Softmax of the scores. A row without a key is 0."""
    if dropout_p > 0:
        raise Random("attention draws the mask of its dropout")
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


@kernel("multi_head_attention")
def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj: Any,
    in_proj_bias: Tensor | None,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    num_heads: int,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    training: bool,
    need_weights: bool,
    average_attn_weights: bool,
    batch_first: bool,
) -> Result:
    if training and dropout_p > 0:
        raise Random("attention draws the mask of its dropout")
    batched = query.dim() == 3
    if batched and batch_first:
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    apart = isinstance(in_proj, tuple)
    separate = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), in_proj if apart else (), strict=False))
    output, weights = F.multi_head_attention_forward(
        query, key, value, query.shape[-1], num_heads, None if apart else in_proj, in_proj_bias, bias_k, bias_v,
        add_zero_attn, 0.0, out_proj_weight, out_proj_bias, training=False, key_padding_mask=_additive(key_padding_mask),
        attn_mask=_additive(attn_mask), use_separate_proj_weight=apart, average_attn_weights=average_attn_weights, **separate,
    )  # fmt: skip
    output = output.transpose(0, 1) if batched and batch_first else output
    return (output, weights) if need_weights else output


def _additive(mask: Tensor | None) -> Tensor | None:
    if mask is None or mask.is_floating_point():
        return mask
    return torch.zeros(mask.shape, dtype=torch.float64, device=mask.device).masked_fill(mask.bool(), -math.inf)


# --- normalisation ---


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> Result:
    if weight is not None:
        value = value * weight.reshape(shape)
    return value if bias is None else value + bias.reshape(shape)


@kernel("batch_norm")
def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Result:
    """Momentum as in PyTorch: the share of the new value."""
    axes = [0, *range(2, input.dim())]
    shape = [1, -1] + [1] * (input.dim() - 2)
    if not training and running_mean is not None and running_var is not None:
        scaled = (input - running_mean.reshape(shape)) * torch.rsqrt(running_var.reshape(shape) + eps)
        return _affine(scaled, weight, bias, shape)
    mean = input.mean(axes)
    centred = input - mean.reshape(shape)
    var = centred.square().mean(axes)
    output = _affine(centred * torch.rsqrt(var.reshape(shape) + eps), weight, bias, shape)
    if running_mean is None or running_var is None or momentum is None:
        return output
    count = input.numel() // input.shape[1]
    return {
        0: output,
        "running_mean": (1 - momentum) * running_mean + momentum * mean,
        "running_var": (1 - momentum) * running_var + momentum * var * (count / max(count - 1, 1)),
    }


@kernel("instance_norm")
def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Result:
    shape = [1, -1] + [1] * (input.dim() - 2)
    if not use_input_stats and running_mean is not None and running_var is not None:
        scaled = (input - running_mean.reshape(shape)) * torch.rsqrt(running_var.reshape(shape) + eps)
        return _affine(scaled, weight, bias, shape)
    axes = list(range(2, input.dim()))
    mean = input.mean(axes, keepdim=True)
    centred = input - mean
    var = centred.square().mean(axes, keepdim=True)
    output = _affine(centred * torch.rsqrt(var + eps), weight, bias, shape)
    if running_mean is None or running_var is None:
        return output
    count = math.prod(input.shape[2:])
    unbiased = var * (count / max(count - 1, 1))
    return {
        0: output,
        "running_mean": (1 - momentum) * running_mean + momentum * mean.mean(0).reshape(-1),
        "running_var": (1 - momentum) * running_var + momentum * unbiased.mean(0).reshape(-1),
    }


@kernel("layer_norm")
def _layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Result:
    """The normalised tensor, its mean and the reciprocal of its deviation."""
    count = len(normalized_shape) if isinstance(normalized_shape, tuple | list) else 1
    axes = list(range(input.dim() - count, input.dim()))
    mean = input.mean(axes, keepdim=True)
    centred = input - mean
    scale = torch.rsqrt(centred.square().mean(axes, keepdim=True) + eps)
    output = centred * scale
    output = output if weight is None else output * weight
    return (output if bias is None else output + bias), mean, scale


@kernel("group_norm")
def _group_norm(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Result:
    grouped = input.reshape(input.shape[0], num_groups, -1)
    mean = grouped.mean(-1, keepdim=True)
    centred = grouped - mean
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    shape = [1, -1] + [1] * (input.dim() - 2)
    return _affine((centred * scale).reshape(input.shape), weight, bias, shape), mean.squeeze(-1), scale.squeeze(-1)


@kernel("rms_norm")
def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: float) -> Result:
    count = len(normalized_shape) if isinstance(normalized_shape, tuple | list) else 1
    axes = list(range(input.dim() - count, input.dim()))
    scale = torch.rsqrt(input.square().mean(axes, keepdim=True) + eps)
    output = input * scale
    return (output if weight is None else output * weight), scale


@kernel("local_response_norm")
def _local_response_norm(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Result:
    return F.local_response_norm(input, size, alpha, beta, k)


@kernel("normalize")
def _normalize(input: Tensor, p: float, dim: int, eps: float) -> Result:
    return input / torch.linalg.vector_norm(input, p, dim, True).clamp_min(eps)


@kernel("weight_norm")
def _weight_norm(v: Tensor, g: Tensor, dim: int) -> Result:
    """A direction times a length for each place on an axis."""
    others = [axis for axis in range(v.dim()) if axis != dim]
    return v * (g / v.square().sum(others, keepdim=True).sqrt())


@kernel("l2_normalize")
def _l2_normalize(input: Tensor, dim: Sequence[int], eps: float) -> Result:
    """The bound is on the sum of squares, before the root."""
    return input * torch.rsqrt(input.square().sum(tuple(dim), keepdim=True).clamp_min(eps))


@kernel("renorm")
def _renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Result:
    return torch.renorm(input, p, dim, maxnorm)


# --- losses ---


def _reduced(value: Tensor, reduction: str, count: Any = None) -> Result:
    if reduction == "none":
        return value
    if reduction == "sum":
        return value.sum()
    return value.mean() if count is None else value.sum() / count


def _weighted(value: Tensor, weight: Tensor | None, reduction: str) -> Result:
    if weight is None:
        return _reduced(value, reduction)
    return _reduced(value * weight, reduction, weight.expand_as(value).sum() if reduction == "mean" else None)


@kernel("mse_loss")
def _mse_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    return _weighted((input - target).square(), weight, reduction)


@kernel("l1_loss")
def _l1_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    return _weighted((input - target).abs(), weight, reduction)


@kernel("smooth_l1_loss")
def _smooth_l1_loss(input: Tensor, target: Tensor, beta: float, reduction: str) -> Result:
    gap = (input - target).abs()
    if beta == 0:
        return _reduced(gap, reduction)
    return _reduced(torch.where(gap < beta, 0.5 * gap.square() / beta, gap - 0.5 * beta), reduction)


@kernel("huber_loss")
def _huber_loss(input: Tensor, target: Tensor, delta: float, weight: Tensor | None, reduction: str) -> Result:
    gap = (input - target).abs()
    return _weighted(torch.where(gap <= delta, 0.5 * gap.square(), delta * (gap - 0.5 * delta)), weight, reduction)


@kernel("cross_entropy")
def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Result:
    return F.cross_entropy(
        input,
        target if target.is_floating_point() else target.long(),
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@kernel("nll_loss")
def _nll_loss(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Result:
    return F.nll_loss(input, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


@kernel("binary_cross_entropy")
def _binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    log, other = torch.log(input).clamp_min(-100), torch.log1p(-input).clamp_min(-100)
    loss = -(target * log + (1 - target) * other)
    return _reduced(loss if weight is None else loss * weight, reduction)


@kernel("binary_cross_entropy_with_logits")
def _bce_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str
) -> Result:
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * input - factor * F.logsigmoid(input)
    return _reduced(loss if weight is None else loss * weight, reduction)


@kernel("kl_div")
def _kl_div(input: Tensor, target: Tensor, log_target: bool, reduction: str) -> Result:
    loss = target.exp() * (target - input) if log_target else torch.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0]
    return _reduced(loss, reduction)


@kernel("poisson_nll_loss")
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: str) -> Result:
    return F.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=reduction)


@kernel("ctc_loss")
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
    reduction: str,
) -> Result:
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank=blank, reduction=reduction, zero_infinity=zero_infinity
    )


_LOSSES = (
    "soft_margin_loss multilabel_soft_margin_loss multilabel_margin_loss multi_margin_loss hinge_embedding_loss "
    "cosine_embedding_loss margin_ranking_loss triplet_margin_loss gaussian_nll_loss cosine_similarity pairwise_distance"
)
for _name in _LOSSES.split():
    KERNELS[_name] = getattr(F, _name)


@kernel("dice_loss")
def _dice_loss(input: Tensor, target: Tensor, smooth: float) -> Result:
    both = (input * target).sum()
    return 1 - 2 * both / (input.square().sum() + target.square().sum() + smooth)


@kernel("half_square_sum")
def _half_square_sum(input: Tensor) -> Result:
    return input.square().sum() / 2


# --- movement ---


@kernel("reshape")
def _reshape(input: Tensor, shape: Sequence[int]) -> Result:
    return input.reshape(tuple(shape)).clone()


@kernel("permute")
def _permute(input: Tensor, dims: Sequence[int]) -> Result:
    return input.permute(tuple(dims)).clone()


@kernel("expand")
def _expand(input: Tensor, size: Sequence[int]) -> Result:
    return input.expand(tuple(size)).clone()


@kernel("tile")
def _tile(input: Tensor, dims: Sequence[int]) -> Result:
    return input.repeat(tuple(dims))


def _index(index: Sequence[Any], like: Tensor) -> tuple[Any, ...]:
    found = []
    for item in index:
        if isinstance(item, tuple | list):
            found.append(torch.tensor(item, device=like.device))
        elif isinstance(item, Tensor) and item.dtype not in (torch.bool, torch.uint8, torch.int64):
            found.append(item.long())
        else:
            found.append(item)
    return tuple(found)


@kernel("getitem")
def _getitem(input: Tensor, index: Sequence[Any]) -> Result:
    negative = [axis for axis, item in enumerate(index) if isinstance(item, slice) and (item.step or 1) < 0]
    if negative:
        raise NotImplementedError("a slice that goes backward")
    return input[_index(index, input)].clone()


@kernel("setitem")
def _setitem(input: Tensor, index: Sequence[Any], value: Any) -> Result:
    output = input.clone()
    output[_index(index, input)] = value.to(output.dtype) if isinstance(value, Tensor) else value
    return output


@kernel("cat")
def _cat(tensors: Sequence[Tensor], dim: int) -> Result:
    return torch.cat(_one_type(tensors), dim)


@kernel("cut")
def _cut(input: Tensor, pieces: Sequence[Any], factor: float = 1.0) -> tuple[Tensor, ...]:
    """Pieces of the ranks: of each, along one axis after the other, what is taken of it."""
    found = []
    whole = input if factor == 1.0 else input * factor
    for cuts in pieces:
        piece = whole
        for dim, segments in cuts:
            piece = torch.cat([piece.narrow(dim, start, length) for start, length in segments], dim)
        found.append(piece)
    return tuple(found)


@kernel("joined")
def _joined(tensors: Sequence[Tensor], steps: Sequence[Any]) -> Tensor:
    """Tensors of the ranks as one, so many of them at a time."""
    found = list(tensors)
    for count, how, dim, segments in steps:
        found = [_together(found[start : start + count], how, dim, segments) for start in range(0, len(found), count)]
    (whole,) = found
    return whole


def _together(tensors: Sequence[Tensor], how: str, dim: int, segments: Sequence[Any]) -> Tensor:
    if how == "first":
        return tensors[0]
    if how == "cat":
        pieces = [tensors[which].narrow(dim, start, length) for which, start, length in segments]
        return torch.cat(pieces or list(tensors), dim)
    stacked = torch.stack(list(tensors))
    if how in ("max", "min"):
        return stacked.amax(0) if how == "max" else stacked.amin(0)
    total = stacked.sum(0)
    return total / len(tensors) if how == "mean" else total


@kernel("stack")
def _stack(tensors: Sequence[Tensor], dim: int) -> Result:
    return torch.stack(_one_type(tensors), dim)


def _one_type(tensors: Sequence[Any]) -> list[Tensor]:
    found = [tensor_of(item) for item in tensors]
    kind = found[0].dtype
    for item in found:
        kind = torch.promote_types(kind, item.dtype)
    return [item.to(kind) for item in found]


@kernel("split")
def _split(input: Tensor, sizes: Sequence[int], dim: int) -> Result:
    return tuple(part.clone() for part in torch.split(input, list(sizes), dim))


@kernel("unbind")
def _unbind(input: Tensor, dim: int) -> Result:
    return tuple(part.clone() for part in torch.unbind(input, dim))


@kernel("gather")
def _gather(input: Tensor, dim: int, index: Tensor) -> Result:
    return torch.gather(input, dim, index.long())


@kernel("gather_nd")
def _gather_nd(input: Tensor, indices: Tensor) -> Result:
    return input[tuple(indices.long().unbind(-1))]


@kernel("index_select")
def _index_select(input: Tensor, dim: int, index: Tensor) -> Result:
    found = torch.index_select(input, dim, index.long().reshape(-1))
    return found.reshape(input.shape[:dim] + index.shape + input.shape[dim + 1 :]) if index.dim() != 1 else found


@kernel("take")
def _take(input: Tensor, index: Tensor) -> Result:
    return input.reshape(-1)[index.long()]


@kernel("embedding")
def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None) -> Result:
    """Rows of the weight; the padding row gets no gradient."""
    return F.embedding(input.long(), weight, padding_idx)


@kernel("embedding_bag")
def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Any,
    mode: str,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: Any,
) -> Result:
    rows = weight[input.long()]
    kept = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx % weight.shape[0]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if input.dim() == 2:
        return _bag(rows, kept, mode)
    starts = offsets[:-1] if include_last_offset else offsets
    place = torch.arange(input.shape[0], device=input.device)
    if include_last_offset:
        kept = kept & (place < offsets[-1])
    bag = torch.searchsorted(starts, place, right=True) - 1  # an empty bag begins where the next one does
    empty = weight.new_zeros(starts.shape[0], weight.shape[1])
    count = empty[:, :1].index_add(0, bag, kept.double().unsqueeze(1))
    if mode == "max":
        wanted = bag.unsqueeze(1).expand_as(rows)
        rows = rows.masked_fill(~kept.unsqueeze(1), -math.inf)
        return torch.where(count > 0, (empty - math.inf).scatter_reduce(0, wanted, rows, "amax"), 0.0)
    total = empty.index_add(0, bag, torch.where(kept.unsqueeze(1), rows, 0.0))
    return total / count.clamp_min(1.0) if mode == "mean" else total


def _bag(rows: Tensor, kept: Tensor, mode: str) -> Tensor:
    """Sum, mean or maximum over the rows of each bag that are kept; zeros where there is none."""
    count = kept.sum(1, keepdim=True)
    if mode == "max":
        largest = rows.masked_fill(~kept.unsqueeze(-1), -math.inf).amax(1)
        return torch.where(count > 0, largest, 0.0)
    total = torch.where(kept.unsqueeze(-1), rows, 0.0).sum(1)
    return total / count.clamp_min(1).double() if mode == "mean" else total


@kernel("one_hot")
def _one_hot(input: Tensor, num_classes: int, on_value: Any, off_value: Any, dim: int) -> Result:
    places = torch.arange(num_classes, device=input.device).reshape((-1,) + (1,) * (input.dim() - dim))
    hot = input.long().unsqueeze(dim) == places
    if isinstance(on_value, int) and isinstance(off_value, int):
        return torch.where(hot, torch.tensor(on_value), torch.tensor(off_value))
    return torch.where(hot, _matching(on_value, hot.double()), _matching(off_value, hot.double()))


@kernel("scatter")
def _scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> Result:
    if isinstance(src, Tensor):
        return torch.scatter(input, dim, index.long(), src.to(input.dtype))
    return torch.scatter(input, dim, index.long(), src)


@kernel("scatter_add")
def _scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Result:
    return torch.scatter_add(input, dim, index.long(), src.to(input.dtype))


@kernel("scatter_reduce")
def _scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Result:
    index = index.long()
    ones = torch.ones_like(src)
    if reduce not in ("sum", "mean"):
        return torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    met = torch.zeros_like(input).scatter_add(dim, index, ones)
    kept = input if include_self else torch.where(met > 0, 0.0, input)
    total = torch.scatter_add(kept, dim, index, src)
    if reduce == "sum":
        return total
    return total / torch.where(met > 0, met + (1.0 if include_self else 0.0), 1.0)


@kernel("index_add")
def _index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Result:
    return torch.index_add(input, dim, index, source.to(input.dtype), alpha=alpha)


@kernel("index_copy")
def _index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Result:
    return torch.index_copy(input, dim, index.long(), source.to(input.dtype))


@kernel("index_fill")
def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Result:
    return torch.index_fill(input, dim, index.long(), value)


@kernel("index_put")
def _index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool) -> Result:
    places = tuple(_index(indices, input))
    if any(isinstance(item, slice) for item in places):
        if accumulate:
            raise NotImplementedError("a full slice beside indices that accumulate")
        return _setitem(input, places, values)
    return torch.index_put(input, places, tensor_of(values).to(input.dtype), accumulate)


@kernel("masked_fill")
def _masked_fill(input: Tensor, mask: Tensor, value: Any) -> Result:
    value = _matching(value, input).to(input.dtype) if not isinstance(value, Tensor) else value.to(input.dtype)
    return torch.where(mask.bool(), value, input)


@kernel("masked_select")
def _masked_select(input: Tensor, mask: Tensor) -> Result:
    return torch.masked_select(input, mask.bool())


@kernel("masked_scatter")
def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Result:
    return torch.masked_scatter(input, mask.bool(), source)


@kernel("copy")
def _copy(input: Tensor, src: Any) -> Result:
    return tensor_of(src).to(input.dtype).expand_as(input).clone()


@kernel("fill")
def _fill(input: Tensor, value: Any) -> Result:
    return tensor_of(value).to(input.dtype).expand_as(input).clone()


@kernel("fill_diagonal")
def _fill_diagonal(input: Tensor, value: Any) -> Result:
    return input.clone().fill_diagonal_(value)


@kernel("flip")
def _flip(input: Tensor, dims: Sequence[int]) -> Result:
    return torch.flip(input, tuple(dims))


@kernel("roll")
def _roll(input: Tensor, shifts: Any, dims: Any) -> Result:
    return torch.roll(input, shifts, dims)


@kernel("rot90")
def _rot90(input: Tensor, k: int, dims: Sequence[int]) -> Result:
    return torch.rot90(input, k, tuple(dims))


@kernel("pad")
def _pad(input: Tensor, pad: Sequence[int], mode: str, value: Any) -> Result:
    return F.pad(input, tuple(pad), mode, value) if mode == "constant" else F.pad(input, tuple(pad), mode)


@kernel("repeat_interleave")
def _repeat_interleave(input: Tensor, repeats: Any, dim: Any) -> Result:
    repeats = repeats[0] if isinstance(repeats, tuple) and len(repeats) == 1 else repeats
    return torch.repeat_interleave(input, torch.tensor(repeats) if isinstance(repeats, tuple) else repeats, dim)


@kernel("tril")
def _tril(input: Tensor, diagonal: int) -> Result:
    return torch.tril(input, diagonal)


@kernel("triu")
def _triu(input: Tensor, diagonal: int) -> Result:
    return torch.triu(input, diagonal)


@kernel("diag")
def _diag(input: Tensor, diagonal: int) -> Result:
    return torch.diag(input, diagonal)


@kernel("diagonal")
def _diagonal(input: Tensor, offset: int, dim1: int, dim2: int) -> Result:
    return torch.diagonal(input, offset, dim1, dim2).clone()


@kernel("diag_embed")
def _diag_embed(input: Tensor, offset: int, dim1: int, dim2: int) -> Result:
    return torch.diag_embed(input, offset, dim1, dim2)


@kernel("meshgrid")
def _meshgrid(tensors: Sequence[Tensor], indexing: str) -> Result:
    return tuple(grid.clone() for grid in torch.meshgrid(*tensors, indexing=indexing))


@kernel("broadcast_tensors")
def _broadcast_tensors(tensors: Sequence[Tensor]) -> Result:
    return tuple(tensor.clone() for tensor in torch.broadcast_tensors(*tensors))


@kernel("pixel_shuffle")
def _pixel_shuffle(input: Tensor, upscale_factor: int) -> Result:
    return F.pixel_shuffle(input, upscale_factor)


@kernel("pixel_unshuffle")
def _pixel_unshuffle(input: Tensor, downscale_factor: int) -> Result:
    return F.pixel_unshuffle(input, downscale_factor)


@kernel("channel_shuffle")
def _channel_shuffle(input: Tensor, groups: int) -> Result:
    return F.channel_shuffle(input, groups)


@kernel("depth_to_space")
def _depth_to_space(input: Tensor, block_size: int) -> Result:
    """Blocks first, then channels: not the order of pixel_shuffle."""
    n, c, h, w = input.shape
    cells = input.reshape(n, block_size, block_size, c // block_size**2, h, w)
    return cells.permute(0, 3, 4, 1, 5, 2).reshape(n, c // block_size**2, h * block_size, w * block_size)


@kernel("space_to_depth")
def _space_to_depth(input: Tensor, block_size: int) -> Result:
    n, c, h, w = input.shape
    cells = input.reshape(n, c, h // block_size, block_size, w // block_size, block_size)
    return cells.permute(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h // block_size, w // block_size)


@kernel("mirror_pad")
def _mirror_pad(input: Tensor, paddings: Any, mode: str) -> Result:
    """Mirrored around the edge (REFLECT) or with it (SYMMETRIC), axis by axis."""
    sides = paddings.tolist() if isinstance(paddings, Tensor) else paddings
    skip = 1 if mode.upper() == "REFLECT" else 0
    for axis, (before, behind) in enumerate(sides):
        length = input.shape[axis]
        pieces = [input.narrow(axis, skip, before).flip(axis)] if before else []
        pieces.append(input)
        pieces += [input.narrow(axis, length - skip - behind, behind).flip(axis)] if behind else []
        input = torch.cat(pieces, axis)
    return input.clone()


@kernel("interpolate")
def _interpolate(
    input: Tensor, size: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool, antialias: bool
) -> Result:
    """`scales` are ratios of output to input; where the sizes say the same, the sizes are used."""
    by_size = all(
        abs(after / before - scale) < 1e-12 for after, before, scale in zip(size, input.shape[2:], scales, strict=True)
    )
    flags: dict[str, Any] = {"mode": mode, "antialias": antialias}
    if mode in ("linear", "bilinear", "bicubic", "trilinear"):
        flags["align_corners"] = align_corners
    if by_size:
        return F.interpolate(input, size=tuple(size), **flags)
    return F.interpolate(input, scale_factor=tuple(scales), recompute_scale_factor=False, **flags)


@kernel("grid_sample")
def _grid_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Result:
    if input.dim() == 5:
        return F.grid_sample(input, grid, mode, padding_mode, align_corners)
    from torch._decomp.decompositions import grid_sampler_2d  # the same in plain steps

    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    grid = (grid + 1) - 1  # kernels begin with that sum, and round it
    sampled = grid_sampler_2d(input, grid, modes.index(mode), paddings.index(padding_mode), bool(align_corners))
    return sampled + 0.0 * grid[..., 0].unsqueeze(1)  # the nearest sample has a gradient of zeros


@kernel("affine_grid")
def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Result:
    axes = []
    for length in reversed(size[2:]):  # x is the last axis
        steps = torch.linspace(-1, 1, length, dtype=torch.float64, device=theta.device)
        axes.append(steps * 0 if length == 1 else steps if align_corners else steps * (length - 1) / length)
    places = torch.meshgrid(*reversed(axes), indexing="ij")
    base = torch.stack([*reversed(places), torch.ones_like(places[0])], -1)
    return (base.reshape(-1, base.shape[-1]) @ theta.transpose(1, 2)).reshape(theta.shape[0], *size[2:], theta.shape[1])


# --- creation ---


@kernel("zeros")
def _zeros(size: Sequence[int], dtype: str) -> Result:
    return torch.zeros(tuple(size), dtype=TYPES[dtype])


@kernel("ones")
def _ones(size: Sequence[int], dtype: str) -> Result:
    return torch.ones(tuple(size), dtype=TYPES[dtype])


@kernel("full")
def _full(size: Sequence[int], fill_value: Any, dtype: str) -> Result:
    return tensor_of(fill_value).to(TYPES[dtype]).expand(tuple(size)).clone()


@kernel("arange")
def _arange(start: Any, end: Any, step: Any, dtype: str) -> Result:
    return torch.arange(start, end, step, dtype=TYPES[dtype])


@kernel("linspace")
def _linspace(start: Any, end: Any, steps: int, dtype: str) -> Result:
    return torch.linspace(start, end, steps, dtype=TYPES[dtype])


@kernel("eye")
def _eye(n: int, m: int, dtype: str) -> Result:
    return torch.eye(n, m, dtype=TYPES[dtype])


@kernel("tensor")
def _tensor(data: Any, dtype: str) -> Result:
    return torch.tensor(data, dtype=TYPES[dtype])


# --- recurrent ---


def _recurrent(function: Kernel, states: int) -> Kernel:
    """PyTorch's kernel, which reads beyond parameters and states that are too few, behind a check of their number."""

    def call(
        input: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Result:
        if train and dropout > 0 and num_layers > 1:
            raise Random("dropout between the layers draws its masks")
        rows = num_layers * (2 if bidirectional else 1)
        one = 4 if has_biases else 2
        if len(params) not in (rows * one, rows * (one + 1)):  # + 1: projections
            raise ValueError(f"{len(params)} parameters for {rows} layers and directions")
        if hx is None:
            shape = (
                (rows, params[1].shape[1])
                if input.dim() == 2
                else (rows, input.shape[0 if batch_first else 1], params[1].shape[1])
            )
            hx = (input.new_zeros(shape),) * states
        single = isinstance(hx, tuple) and states == 1
        state = tuple(hx) if states > 1 else hx[0] if single else hx
        if any(item.shape[0] != rows for item in (state if states > 1 else (state,))):
            raise ValueError(f"a state of another number than {rows} layers and directions")
        return function(input, state, list(params), has_biases, num_layers, 0.0, train, bidirectional, batch_first)

    return call


KERNELS["lstm"] = _recurrent(torch.lstm, 2)
KERNELS["gru"] = _recurrent(torch.gru, 1)


@kernel("rnn")
def _rnn(nonlinearity: str, **arguments: Any) -> Result:
    return _recurrent(torch.rnn_tanh if nonlinearity == "tanh" else torch.rnn_relu, 1)(**arguments)


@kernel("flat_lstm")
def _flat_lstm(
    input: Tensor, h: Tensor, c: Tensor, weight: Tensor, input_size: int, hidden_size: int, has_bias: bool
) -> Result:
    """One layer, all parameters in one row: input weights, hidden weights, one bias."""
    gates = 4 * hidden_size
    flat = weight.reshape(-1)
    cuts = [gates * input_size, gates * hidden_size] + ([gates] if has_bias else [])
    w_ih, w_hh, *bias = torch.split(flat, cuts)
    params = [w_ih.reshape(gates, input_size), w_hh.reshape(gates, hidden_size)]
    params += [bias[0], torch.zeros_like(bias[0])] if has_bias else []
    return torch.lstm(input, (h, c), params, has_bias, 1, 0.0, False, False, False)


@kernel("lstm_cell")
def _lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Result:
    hx = (_no_state(input, w_hh),) * 2 if hx is None else tuple(hx)
    return torch.lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh)


@kernel("gru_cell")
def _gru_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Result:
    return torch.gru_cell(input, _no_state(input, w_hh) if hx is None else hx, w_ih, w_hh, b_ih, b_hh)


@kernel("rnn_cell")
def _rnn_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, nonlinearity: str) -> Result:
    function = torch.rnn_tanh_cell if nonlinearity == "tanh" else torch.rnn_relu_cell
    return function(input, _no_state(input, w_hh) if hx is None else hx, w_ih, w_hh, b_ih, b_hh)


def _no_state(input: Tensor, w_hh: Tensor) -> Tensor:
    """The state that a cell begins with: zeros."""
    return input.new_zeros((*input.shape[:-1], w_hh.shape[1]))


def _fused_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Result:
    shape = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    return torch.native_layer_norm(input, list(shape), weight, bias, eps)


def _fused_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Result:
    mean, var = (None if item is None else item.detach().clone() for item in (running_mean, running_var))
    training = training or mean is None or var is None
    output = F.batch_norm(input, mean, var, weight, bias, training, 0.0 if momentum is None else momentum, eps)
    return {0: output} | {
        name: item for name, item in (("running_mean", mean), ("running_var", var)) if item is not None and training
    }


FUSED: dict[str, Kernel] = {
    "layer_norm": _fused_layer_norm,
    "batch_norm": _fused_batch_norm,
    "group_norm": F.group_norm,
    "log_softmax": torch.log_softmax,
}
"""PyTorch's own kernels of operations that have another one above: they show what sums and intermediate values in 16 bits do."""
