"""Functions of each element: arithmetic, comparisons, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import KERNELS, TYPES, Kernel, Random, Result, kernel, matching, tensor_of, unary, wide

_REAL = (
    "acos acosh asin asinh atan atanh cos cosh deg2rad rad2deg digamma erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 "
    "reciprocal rsqrt sqrt sin sinc sinh tan tanh sigmoid i0"
)
_ANY = (
    "abs neg positive real imag conj angle square sign sgn signbit ceil floor trunc frac isfinite isinf isnan isneginf isposinf "
    "logical_not bitwise_not view_as_real view_as_complex"
)
for _name in _REAL.split():
    KERNELS[_name] = unary(getattr(torch, _name), real=True)
for _name in _ANY.split():
    KERNELS[_name] = unary(getattr(torch, _name), real=False)
_ACTIVATIONS = "logsigmoid softsign tanhshrink relu relu6 silu mish selu hardswish hardsigmoid"
for _name in _ACTIVATIONS.split():
    KERNELS[_name] = unary(getattr(F, _name), real=_name not in ("relu", "relu6"))


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
        return function(matching(input, other), matching(other, input)) if isinstance(like, Tensor) else like

    return call


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
    return torch.add(matching(input, other), matching(other, input), alpha=alpha)


@kernel("sub")
def _sub(input: Any, other: Any, alpha: Any) -> Result:
    one, two = matching(input, other), matching(other, input)
    if one.dtype == torch.bool or two.dtype == torch.bool:  # torch subtracts none, MindSpore's arithmetic does
        one, two = one.long() if one.dtype == torch.bool else one, two.long() if two.dtype == torch.bool else two
    return torch.sub(one, two, alpha=alpha)


@kernel("isclose")
def _isclose(input: Tensor, other: Any, rtol: float, atol: float, equal_nan: bool) -> Result:
    return torch.isclose(input, matching(other, input), rtol, atol, equal_nan)


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
        low = min if min is None else matching(min, input)
        high = max if max is None else matching(max, input)
        return torch.clamp(input, low, high)
    if min is None and max is None:
        return input.clone()
    return torch.clamp(input, min, max)


@kernel("where")
def _where(condition: Tensor, input: Any, other: Any) -> Result:
    like = next((item for item in (input, other) if isinstance(item, Tensor)), condition.double())
    one, two = matching(input, like), matching(other, like)
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
