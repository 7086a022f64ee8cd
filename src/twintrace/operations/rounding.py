"""Bound on the rounding error of a computation, carried along while it runs in float64.

    with RunningError(unit=2**-24, sum_unit=2**-24) as errors:
        y = torch.nn.functional.layer_norm(x, (64,))
        (g,) = torch.autograd.grad(y, x, gy)
    errors.of(y)      elementwise bound on the error that a kernel of that precision may have, same shape as y; None: exact
    errors.of(g)

Running error analysis (Wilkinson): every float64 tensor has a companion that bounds the error a right kernel may have made so far,
in each element. An operation passes on the errors of its operands by its derivative and adds its own:

    a·b               |a|·E(b) + |b|·E(a) + u·|a·b|
    A @ B             |A|·E(B) + E(A)·|B| + 2·√K·s·|A|·|B|            K terms summed in precision s, in any order
    exp, tanh, …      |f'(x)|·E(x) + c·u·|f(x)|                       c units: no two libraries have the same polynomial

It works below autograd, on the few kernels that everything else is composed of, so it needs no rule for a layer norm or for a
backward pass. An operation with neither a rule nor a decomposition is in `unknown`; its result counts as inexact by eight units.

2·√K instead of K: rounding errors are independent enough that the worst case is never seen; at K = 16384 it would excuse
8 % in float32.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Tensor = torch.Tensor
Error = Tensor | None
aten = torch.ops.aten

FUNCTION_UNITS = 8.0
"""Units of an elementary function. Vectorised erf is off by 6.5 units of 1 in float32 (PyTorch 2.13), the worst of those tried."""

WALK = 3.0
"""Random walks stay within three standard deviations at every element of a sum; `tests/operations/test_rounding.py`."""


_SINGLE = 2.0**-24
_RANGE = 1e-12, 1e12
"""Largest elements of two factors whose products float32 can hold, and sums of them."""
_MANY = 64
"""Terms of a sum of which some stand for all."""
_COARSELY = 1.001
"""Factor that makes up for float32's rounding of a sum of 2**13 magnitudes."""


class RunningError(TorchDispatchMode):
    """Dispatch mode that carries an error bound with every tensor it sees.

    Args:
        unit: half a unit in the last place of the precision in which intermediate results are held.
        sum_unit: the same of the precision in which sums are accumulated.
        function_units: units by which an elementary function (exp, tanh, erf) may be off.
        least: half the smallest subnormal of that precision, the absolute error of any rounding.
    """

    def __init__(
        self, unit: float, sum_unit: float, function_units: float = FUNCTION_UNITS, least: float = 0.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.unit = unit
        self.sum_unit = sum_unit
        self.function_units = function_units
        self.least = least
        self.product_unit = sum_unit
        """Precision in which products of matrices are accumulated."""
        self.largest_sum = math.inf
        """Largest share of the sum of magnitudes that a sum may be off by, whatever its length."""
        self.stride = 1
        """Of the magnitudes that a product of two matrices sums, one in so many is counted. The bound is smaller then: what keeps
        to it keeps to the whole one, which costs as much as the product itself."""
        self.unknown: set[str] = set()
        self._errors: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}
        self._shared: set[int] = set()
        """Storages whose errors are a rule's own tensor, which may be that of another storage, too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: `torch._dynamo` need not be imported, which takes two seconds."""
        return False

    def fresh(self) -> RunningError:
        """A mode of the same settings that has seen nothing yet."""
        other = RunningError(self.unit, self.sum_unit, self.function_units, self.least)
        other.product_unit, other.largest_sum, other.stride = self.product_unit, self.largest_sum, self.stride
        return other

    def of(self, tensor: Tensor) -> Error:
        """Error bound of a tensor, in its shape; None where it is exact."""
        if tensor._is_zerotensor():  # the gradient of a sign: zeros without memory
            return None
        known = self._errors.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return None
        return known[1].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def walk(self, terms: float) -> float:
        """Error of summing so many terms, over the sum of their magnitudes."""
        return min(WALK * math.sqrt(terms) * self.sum_unit, self.largest_sum)

    def walks(self, terms: Tensor) -> Tensor:
        """The same for each of many sums."""
        return (WALK * self.sum_unit * terms.clamp_min(0).sqrt()).clamp_max(self.largest_sum)

    def rounded(self, value: Tensor, units: float = 1.0) -> Tensor:
        """Error of rounding these values once; what is not finite is not rounded."""
        error = value.abs()
        if not math.isfinite(float(error.sum())):
            error.nan_to_num_(0.0, 0.0, 0.0)
        error = error.mul_(units * self.unit)
        return error.add_(self.least) if self.least else error

    def add(self, tensor: Tensor, error: Tensor) -> None:
        """Add to the error bound of a tensor: it was rounded once more before somebody else used it."""
        with torch.no_grad():
            own = self.of(tensor)
            self._set(tensor, error if own is None else own + error)

    def _set(self, tensor: Tensor, error: Error) -> None:
        if error is None or not tensor.numel() or tensor._is_zerotensor():
            return
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        elements = storage.nbytes() // tensor.element_size()
        if tensor.numel() == elements and tensor.is_contiguous():
            flat = error.double().expand(tensor.shape).contiguous().view(-1)
            self._errors[place] = storage, flat if flat.storage_offset() == 0 else flat.clone()
            self._shared.add(place)
            return
        known = self._errors.get(place)
        if known is None:
            flat = torch.zeros(elements, dtype=torch.float64, device=tensor.device)
        else:
            own = (
                place not in self._shared
                and error.untyped_storage().data_ptr() != known[1].untyped_storage().data_ptr()
            )
            flat = known[1] if own else known[1].clone()
        self._shared.discard(place)
        self._errors[place] = storage, flat
        flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).copy_(error)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name.removeprefix("aten::")
        if function.is_view or name in _EXACT:
            return function(*args, **kwargs)
        if (
            name.endswith("_")
            and not name.startswith("__")
            and name not in RULES
            and args
            and isinstance(args[0], Tensor)
        ):
            return self._in_place(function, name, args, kwargs)
        rule = RULES.get(name)
        if rule is None:
            decomposition = COMPOSED.get(name) or _decompositions().get(function)
            if decomposition is not None and _floating(args):
                with self:
                    result = decomposition(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        result = function(*args, **kwargs)
        outputs = [item for item in _flat(result) if item.is_floating_point()]
        if not outputs:
            return result
        if rule is not None:
            self._store(result, rule(self, result, *args, **kwargs))
        elif any(item.is_floating_point() for item in _flat(args)):
            self.unknown.add(name)
            for item in outputs:
                self._set(item, self.rounded(item, 8.0))
        return result

    def _in_place(self, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The out-of-place function, whose value and error are then copied into the first argument."""
        if name in _RESHAPED:  # the same storage, and with it its errors
            return function(*args, **kwargs)
        overloads = getattr(aten, name.removesuffix("_"), None)
        if overloads is None:
            self.unknown.add(name)
            return function(*args, **kwargs)
        target = args[0]
        with self:
            # Overloads of the two are not always called alike: pow_.Scalar, pow.Scalar.
            value = overloads(*args, **kwargs)
        if value.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
            return function(*args, **kwargs)  # transpose_ and its like: another view, with the same errors
        error = self.of(value)
        target.copy_(value)
        if error is None and self.of(target) is not None:
            error = torch.zeros_like(value)
        self._set(target, error)
        return target

    def _store(self, result: Any, errors: Any) -> None:
        if isinstance(result, Tensor):
            self._set(result, errors)
            return
        for item, error in zip(_flat(result), errors, strict=False):
            if item.is_floating_point():
                self._set(item, error)


class RoundedResults(TorchDispatchMode):
    """Dispatch mode that rounds every result to an element type, as if all values were held in it, and goes on in float64."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.is_view or not isinstance(result, Tensor) or result.dtype is not torch.float64:
            return result
        return result.copy_(result.to(self._dtype)) if function._schema.is_mutable else result.to(self._dtype).double()


class NoError(contextlib.nullcontext[None]):
    """Stand-in for `RunningError` by which everything is exact: the cheapest bound, to which kernels that round once keep."""

    unit = least = function_units = 0.0

    def of(self, tensor: Tensor) -> Error:
        return None

    def add(self, tensor: Tensor, error: Tensor) -> None:
        pass


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [item for part in value for item in _flat(part)]
    return []


def _floating(args: Sequence[Any]) -> bool:
    return any(item.is_floating_point() for item in _flat(args))


_TABLE: dict[Any, Callable[..., Any]] = {}


def _decompositions() -> dict[Any, Callable[..., Any]]:
    if not _TABLE:
        from torch._decomp import core_aten_decompositions, decomposition_table

        _TABLE.update(decomposition_table)
        _TABLE.update(core_aten_decompositions())
    return _TABLE


def _variance(x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Tensor:
    dims = list(range(x.dim())) if dim is None or (isinstance(dim, list | tuple) and not dim) else dim
    centred = x - x.mean(dims, True)
    total = centred.mul(centred).sum(dims, keepdim)
    return total / max(_terms(x, total) - (1 if correction is None else correction), 0)


def _deviation(x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, correction, keepdim).sqrt()


def _normalized(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(dims, True)
    centred = x - mean
    inverse = (centred.mul(centred).mean(dims, True) + eps).rsqrt()
    return centred.mul(inverse), mean, inverse


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, inverse = _normalized(x, list(range(x.dim() - len(shape), x.dim())), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, inverse


def _native_group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, c: int, places: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, inverse = _normalized(x.reshape(n, groups, c // groups * places), [2], eps)
    y = y.reshape(x.shape)
    shape = [1, c] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    return y, mean.reshape(n, groups), inverse.reshape(n, groups)


def _native_batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The running averages are not written: whoever wants their new values computes them."""
    shape = [1, x.shape[1]] + [1] * (x.dim() - 2)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    if training:
        y, mean, inverse = _normalized(x, dims, eps)
    else:
        inverse = (variance + eps).rsqrt().reshape(shape)
        y = (x - mean.reshape(shape)) * inverse
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    saved = (mean.reshape(-1), inverse.reshape(-1)) if training else (x.new_zeros(0), x.new_zeros(0))
    return y, *saved


COMPOSED: dict[str, Callable[..., Any]] = {
    "native_batch_norm": _native_batch_norm,
    "var": _variance,
    "std": _deviation,
    "native_layer_norm": _native_layer_norm,
    "native_group_norm": _native_group_norm,
}
"""Decompositions that torch makes of primitives below ATen, or in another order than kernels compute in."""


_EXACT = frozenset(
    [
        "detach",
        "alias",
        "lift_fresh",
        "empty",
        "empty_like",
        "new_empty",
        "empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "arange",
        "scalar_tensor",
        "eye",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "isnan",
        "isinf",
        "isfinite",
        "logical_and",
        "logical_or",
        "logical_not",
        "argmax",
        "argmin",
        "sign",
        "floor",
        "ceil",
        "round",
        "trunc",
        "any",
        "all",
        "nonzero",
        "bernoulli",
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randperm",
        "uniform",
        "normal",
        "bitwise_and",
        "bitwise_or",
        "bitwise_not",
        "heaviside",
        "_local_scalar_dense",
        "item",
        "equal",
        "is_nonzero",
        "randint_like",
        "multinomial",
        "signbit",
        "new_empty_strided",
        "resize_",
        "set_",
        "zero_",
        "bucketize",
        "searchsorted",
        "one_hot",
        "unique2",
        "_unique2",
        "histc",
        "bincount",
    ]
)

_RESHAPED = frozenset((
    "transpose_", "t_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_", "requires_grad_",
))  # fmt: skip
"""Functions that write no value: they change the shape of a tensor in place."""

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _sum(*errors: Error) -> Error:
    """Sum of those that are there; shapes are broadcast."""
    known = [error for error in errors if error is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    total = known[0] + known[1]
    for error in known[2:]:
        total = total.add_(error) if error.numel() <= total.numel() else total + error
    return total


def _times(factor: Tensor | float, error: Error) -> Error:
    """`factor·error`; zero where either is, whatever the other (an infinite derivative of an exact zero, a masked score)."""
    if error is None:
        return None
    product = factor * error
    if math.isfinite(float(product.sum())):
        return product
    product = torch.where(error == 0, error, product)
    return product.masked_fill(factor == 0, 0.0) if isinstance(factor, Tensor) else product


def _magnitude(value: Any) -> Any:
    """|value|; of integers and truth values as float64."""
    if not isinstance(value, Tensor):
        return abs(value)
    return value.abs() if value.is_floating_point() or value.is_complex() else value.double().abs()


def _of(mode: RunningError, value: Any) -> Error:
    return mode.of(value) if isinstance(value, Tensor) and value.is_floating_point() else None


# --- arithmetic ----------------------------------------------------------------------------------------------------


@_rule("add", "sub", "rsub")
def _add(mode: RunningError, y: Tensor, a: Any, b: Any, alpha: Any = 1) -> Error:
    scale = abs(alpha)
    errors = _sum(_of(mode, a), _times(scale, _of(mode, b)))
    own = mode.rounded(y)
    if scale != 1 and isinstance(b, Tensor):
        # The product is rounded before it is added, where there is no fused instruction.
        own = own + mode.rounded(scale * b, 1.0 + _is_rounded(alpha))
    return own if errors is None else own.add_(errors)


@_rule("mul")
def _mul(mode: RunningError, y: Tensor, a: Any, b: Any) -> Error:
    ea, eb = _of(mode, a), _of(mode, b)
    if ea is None and eb is None and _is_power_of_two(a, b):
        return None
    units = 1.0 + _is_rounded(a, b)
    if ea is None and eb is None:
        return mode.rounded(y, units)
    total = y.abs().mul_(units * mode.unit).add_(mode.least)
    for value, error in ((b, ea), (a, eb)):
        if error is not None:
            size = _magnitude(value)
            total = total.addcmul_(size, error) if isinstance(size, Tensor) else total.add_(error, alpha=size)
    if ea is not None and eb is not None:
        total = total.addcmul_(ea, eb)
    if math.isfinite(float(total.sum())):
        return total
    both = ea * eb if ea is not None and eb is not None else None
    return _sum(_times(_magnitude(b), ea), _times(_magnitude(a), eb), both, mode.rounded(y, units))


def _is_rounded(*values: Any) -> bool:
    """True if a number among these is not one of float32: kernels hold it rounded."""
    return any(isinstance(value, float) and _in_single(value) != value for value in values)


@functools.lru_cache(1024)
def _in_single(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def _is_power_of_two(*values: Any) -> bool:
    """Multiplication by 0.5 or -2 is exact."""
    return any(isinstance(value, int | float) and value and math.frexp(abs(value))[0] == 0.5 for value in values)


@_rule("div")
def _div(mode: RunningError, y: Tensor, a: Any, b: Any, rounding_mode: str | None = None) -> Error:
    if rounding_mode is not None:
        return None
    size = _magnitude(b)
    own = mode.rounded(y, 1.0 + _is_rounded(a, b))
    return _sum(_times(1 / size, _of(mode, a)), _times(y.abs() / size, _of(mode, b)), own)


@_rule("addcmul")
def _addcmul(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Error:
    product = _sum(_mul(mode, a * b, a, b), mode.rounded(a * b))
    return _sum(_of(mode, x), _times(abs(value), product), mode.rounded(y))


@_rule("addcdiv")
def _addcdiv(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Error:
    quotient = _sum(_div(mode, a / b, a, b), mode.rounded(a / b))
    return _sum(_of(mode, x), _times(abs(value), quotient), mode.rounded(y))


@_rule("lerp")
def _lerp(mode: RunningError, y: Tensor, a: Tensor, b: Tensor, weight: Any) -> Error:
    share = _magnitude(weight)
    return _sum(
        _times(1 + share, _of(mode, a)), _times(share, _of(mode, b)), mode.rounded(y) + mode.rounded(share * (b - a))
    )


@_rule("pow")
def _pow(mode: RunningError, y: Tensor, x: Any, exponent: Any) -> Error:
    if not isinstance(exponent, Tensor) and isinstance(x, Tensor):
        units = 1.0 if exponent in (1, 2, -1, 0.5) else mode.function_units
        slope = (exponent * x.pow(exponent - 1)).abs() if exponent else torch.zeros_like(x)
        return _sum(_times(slope, _of(mode, x)), mode.rounded(y, units))
    base, power = _magnitude(x), exponent if isinstance(exponent, Tensor) else torch.as_tensor(exponent)
    base = base if isinstance(base, Tensor) else torch.as_tensor(float(base), dtype=y.dtype)
    # x**p = exp(p·log x): the exponent's rounding is magnified.
    growth = (power * base.log()).abs().nan_to_num(0.0, 0.0, 0.0)
    return _sum(
        _times((power * y / base).abs(), _of(mode, x)),
        _times((y * base.log()).abs(), _of(mode, exponent)),
        mode.rounded(y, mode.function_units) + mode.rounded(growth * y),
    )


# --- functions of one argument --------------------------------------------------------------------------------------

_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda x, y: y.abs(),
    "exp2": lambda x, y: y.abs(),
    "expm1": lambda x, y: (y + 1).abs(),
    "log": lambda x, y: 1 / x.abs(),
    "log2": lambda x, y: 1.4427 / x.abs(),
    "log10": lambda x, y: 0.4343 / x.abs(),
    "log1p": lambda x, y: 1 / (1 + x).abs(),
    "rsqrt": lambda x, y: 0.5 * (y / x).abs(),
    "reciprocal": lambda x, y: y * y,
    "sin": lambda x, y: x.cos().abs(),
    "cos": lambda x, y: x.sin().abs(),
    "tan": lambda x, y: 1 + y * y,
    "sinh": lambda x, y: x.cosh(),
    "cosh": lambda x, y: x.sinh().abs(),
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "erf": lambda x, y: 1.1284 * (-x * x).exp(),
    "erfc": lambda x, y: 1.1284 * (-x * x).exp(),
    "atan": lambda x, y: 1 / (1 + x * x),
    "asin": lambda x, y: 1 / (1 - x * x).sqrt(),
    "acos": lambda x, y: 1 / (1 - x * x).sqrt(),
    "asinh": lambda x, y: 1 / (1 + x * x).sqrt(),
    "acosh": lambda x, y: 1 / (x * x - 1).sqrt(),
    "atanh": lambda x, y: 1 / (1 - x * x).abs(),
    "digamma": lambda x, y: torch.polygamma(1, x).abs(),
    "lgamma": lambda x, y: torch.digamma(x).abs(),
    "erfinv": lambda x, y: 0.8863 * (y * y).exp(),
    "i0": lambda x, y: torch.special.i1(x).abs(),
    "special_i1": lambda x, y: torch.special.i0(x) + (y / x).abs().nan_to_num(1.0),
}
_ROUNDED_ONCE = frozenset(("reciprocal",))
_ABSOLUTE = frozenset(("erf", "erfc"))
"""Approximated with the same absolute error everywhere: 1 + erf(x) loses what erf has near -1 and near 0."""


def _function(name: str) -> Rule:
    slope = _SLOPES[name]

    def rule(mode: RunningError, y: Tensor, x: Tensor, *_: Any, **__: Any) -> Error:
        units = 1.0 if name in _ROUNDED_ONCE else mode.function_units
        size = torch.ones_like(y) if name in _ABSOLUTE else y
        error = _of(mode, x)
        passed = _times(slope(x, y), error)
        passed = None if passed is None else passed.nan_to_num(0.0, math.inf, math.inf)
        return _sum(passed, mode.rounded(size, units))

    return rule


for _name in _SLOPES:
    RULES[_name] = _function(_name)


@_rule("sqrt")
def _sqrt(mode: RunningError, y: Tensor, x: Tensor) -> Error:
    error = _of(mode, x)
    passed = None
    if error is not None:  # √(x + e) - √x is at most √e, which is what counts at 0
        passed = torch.minimum((0.5 * error / y).nan_to_num(math.inf, math.inf), error.sqrt())
    return _sum(passed, mode.rounded(y))


@_rule(
    "neg", "abs", "relu", "clone", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold", "copy", "lift_fresh_copy",
    "copysign", "nextafter", "hardshrink_backward", "softshrink_backward",
)  # fmt: skip
def _passed_on(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **_: Any) -> Error:
    error = _of(mode, x)
    return None if error is None else error.expand_as(y)


@_rule("leaky_relu", "prelu", "_prelu_kernel", "elu", "hardswish", "hardsigmoid")
def _bent(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **_: Any) -> Error:
    """Functions of one argument whose slope is at most 1.5 (hardswish), or that of a given weight."""
    slope = 1.5 + max((float(abs(item)) for item in args if isinstance(item, int | float)), default=0.0)
    return _sum(_times(slope, _of(mode, x)), mode.rounded(y, mode.function_units))


@_rule("linspace")
def _linspace(mode: RunningError, y: Tensor, start: float, end: float, *_: Any, **__: Any) -> Error:
    """Steps from either end, each a rounded step times its number."""
    return mode.rounded(torch.full_like(y, max(abs(start), abs(end))), 2.0)


@_rule("angle")
def _angle(mode: RunningError, y: Tensor, x: Tensor) -> Error:
    """Of real numbers 0 or π."""
    return None if x.is_floating_point() else mode.rounded(torch.full_like(y, math.pi), mode.function_units)


@_rule("atan2")
def _atan2(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    square = a * a + b * b
    return _sum(
        _times(b.abs() / square, _of(mode, a)),
        _times(a.abs() / square, _of(mode, b)),
        mode.rounded(y, mode.function_units),
    )


@_rule("hypot")
def _hypot(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    return _sum(_of(mode, a), _of(mode, b), mode.rounded(y, 4.0))


@_rule("polygamma")
def _polygamma(mode: RunningError, y: Tensor, order: int, x: Tensor) -> Error:
    return _sum(_times(torch.polygamma(order + 1, x).abs(), _of(mode, x)), mode.rounded(y, mode.function_units))


@_rule("_to_copy")
def _cast(mode: RunningError, y: Tensor, x: Tensor, **_: Any) -> Error:
    """A cast is part of the computation; beside a tie an error of its argument may decide for the neighbour."""
    error = _of(mode, x)
    if error is None or not x.is_floating_point():
        return None
    return error + _unit_of(y.dtype) * y.abs().double() if y.dtype != torch.float64 else error.clone()


def _unit_of(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


@_rule("where")
def _where(mode: RunningError, y: Tensor, condition: Tensor, a: Any, b: Any) -> Error:
    ea, eb = _of(mode, a), _of(mode, b)
    if ea is None and eb is None:
        return None
    zero = torch.zeros((), dtype=torch.float64, device=y.device)
    return torch.where(condition, zero if ea is None else ea, zero if eb is None else eb).expand_as(y)


@_rule("maximum", "minimum", "fmax", "fmin")
def _larger(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    ea, eb = _of(mode, a), _of(mode, b)
    if ea is None or eb is None:
        only = eb if ea is None else ea
        return None if only is None else only.expand_as(y)
    return torch.maximum(*torch.broadcast_tensors(ea, eb))


@_rule("masked_fill")
def _masked_fill(mode: RunningError, y: Tensor, x: Tensor, mask: Tensor, value: Any) -> Error:
    error = _of(mode, x)
    return None if error is None else error.expand_as(y).masked_fill(mask, 0.0)


@_rule("fmod", "remainder")
def _remainder(mode: RunningError, y: Tensor, x: Any, other: Any) -> Error:
    return _sum(_of(mode, x), mode.rounded(torch.as_tensor(x).expand_as(y)))


# --- sums ------------------------------------------------------------------------------------------------------------


def _terms(x: Tensor, y: Tensor) -> float:
    return max(x.numel() / max(y.numel(), 1), 1.0)


@_rule("sum", "nansum")
def _reduce(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    if not x.is_floating_point():
        return None
    kwargs = {key: value for key, value in kwargs.items() if key != "dtype"}
    terms = _terms(x, y)
    size = x.abs().sum(*args, **kwargs)
    error = _of(mode, x)
    passed = None if error is None else error.sum(*args, **kwargs)
    total = _sum(passed, mode.walk(terms) * size if terms > 1 else None, _of_repeats(mode, x, size, *args))
    return None if total is None else total + mode.rounded(y)


def _of_repeats(mode: RunningError, x: Tensor, size: Tensor, dims: Any = None, *_: Any) -> Error:
    """Error of summing terms that repeat themselves, one after another, beyond that of a random walk; None if none do.

    The gradient of a mean is one value many times, and adding it rounds in one direction for as long as the sum has one exponent:
    Σ|Sₖ| = n/2·Σ|x| for n equal terms and their partial sums Sₖ.
    """
    axes = sorted(axis % x.dim() for axis in ([dims] if isinstance(dims, int) else dims or range(x.dim())))
    if not axes or not x.numel():
        return None
    lines = x.movedim(axes, list(range(-len(axes), 0))).flatten(-len(axes))
    repeats = (lines[..., 1:] == lines[..., :-1]).logical_and_(lines[..., 1:] != 0).sum(-1)
    if not repeats.any():
        return None
    return (repeats.reshape(size.shape) * (mode.sum_unit / 2)).clamp_max(mode.largest_sum) * size


@_rule("mean")
def _mean(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    error = _reduce(mode, y, x, *args, **kwargs)
    return None if error is None else error / _terms(x, y) + mode.rounded(y)


@_rule("cumsum")
def _cumsum(mode: RunningError, y: Tensor, x: Tensor, dim: int, **_: Any) -> Error:
    if not x.is_floating_point():
        return None
    error = _of(mode, x)
    length = x.shape[dim] if x.dim() else 1
    passed = None if error is None else error.cumsum(dim)
    return _sum(passed, mode.walk(length) * x.abs().cumsum(dim), mode.rounded(y))


@_rule("amax", "amin")
def _extreme(mode: RunningError, y: Tensor, x: Tensor, dim: Any = (), keepdim: bool = False) -> Error:
    error = _of(mode, x)
    return None if error is None else error.amax(dim, keepdim)


@_rule("max", "min", "median", "sort", "topk", "mode", "kthvalue", "cummax", "cummin")
def _selected(mode: RunningError, result: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Values taken out of x. Which ones an error may have changed: so the largest error along the axis counts."""
    error = _of(mode, x)
    if error is None:
        return None if isinstance(result, Tensor) else (None, None)
    if isinstance(result, Tensor):
        return error.max().expand_as(result)
    return error.max().expand_as(result[0]), None


@_rule("prod")
def _prod(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    """The product of the largest that each factor may be, less the product: a factor of zero with an error is not exact."""
    error = _of(mode, x)
    if error is None:
        return mode.rounded(y, _terms(x, y))
    largest = (x.abs() + error).prod(*args, **kwargs)
    return (largest - y.abs()).clamp_min(0.0) + mode.rounded(largest, _terms(x, y))


@_rule("cumprod")
def _cumprod(mode: RunningError, y: Tensor, x: Tensor, dim: int, **_: Any) -> Error:
    error, terms = _of(mode, x), x.shape[dim] if x.dim() else 1
    if error is None:
        return mode.rounded(y, terms)
    largest = (x.abs() + error).cumprod(dim)
    return (largest - y.abs()).clamp_min(0.0) + mode.rounded(largest, terms)


@_rule("logcumsumexp")
def _logcumsumexp(mode: RunningError, y: Tensor, x: Tensor, dim: int) -> Error:
    size = x.nan_to_num(0.0, 0.0, 0.0).abs().cummax(dim).values
    own = mode.unit * (size + y.nan_to_num(0.0, 0.0, 0.0).abs() + mode.function_units) + mode.walk(x.shape[dim])
    error = _of(mode, x)
    return _sum(own, None if error is None else error.cummax(dim).values)


@_rule("_cdist_forward")
def _cdist(mode: RunningError, y: Tensor, a: Tensor, b: Tensor, p: float, how: Any = None) -> Error:
    """By differences, or of two norms and a product, which cancel: |a|² + |b|² - 2ab, from 25 rows on for p = 2."""
    terms = max(a.shape[-1], 1)
    own = mode.rounded(y, 4.0) + mode.walk(terms) * y
    if p == 2 and max(a.shape[-2], b.shape[-2]) > _DIRECT_ROWS:
        size = a.norm(dim=-1).unsqueeze(-1) + b.norm(dim=-1).unsqueeze(-2)
        squared = mode.walk(terms + 2) * size * size
        own = own + torch.minimum(squared / (2 * y), squared.sqrt()).nan_to_num(0.0)
    ea, eb = _of(mode, a), _of(mode, b)
    passed = [None if e is None else e.norm(dim=-1) for e in (ea, eb)]
    return _sum(
        own,
        None if passed[0] is None else passed[0].unsqueeze(-1).expand_as(y),
        None if passed[1] is None else passed[1].unsqueeze(-2).expand_as(y),
    )


_DIRECT_ROWS = 25
"""Rows up to which PyTorch computes distances from differences (`use_mm_for_euclid_dist_if_necessary`)."""


@_rule("_cdist_backward")
def _cdist_backward(
    mode: RunningError, y: Tensor, g: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor
) -> Error:
    """Σ g·|a-b|^(p-1)·sign / d^(p-1) over the rows of b: as many terms, which may cancel."""
    difference = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    scale = distance.unsqueeze(-1)
    slope = (
        (difference / scale).nan_to_num(0.0, 0.0, 0.0) ** max(p - 1, 0.0) if math.isfinite(p) else (difference == scale)
    )
    error, own = mode.of(distance), _of(mode, g)
    relative = mode.unit * 8.0 + mode.walk(b.shape[-2])
    size = (g.abs().unsqueeze(-1) * slope).sum(-2)
    total = relative * size + mode.rounded(y)
    if own is not None:
        total = total + (own.unsqueeze(-1) * slope).sum(-2)
    if error is not None:
        share = (error / distance).nan_to_num(0.0, 0.0).clamp_max(1.0)
        total = total + ((g.abs() * share).unsqueeze(-1) * slope).sum(-2) * max(p - 1, 1.0)
    return total


@_rule("_ctc_loss")
def _ctc_loss(mode: RunningError, result: Any, scores: Tensor, *_: Any, **__: Any) -> Any:
    """Sums of exponentials over the steps, in logarithms: each step adds units of what was summed so far."""
    loss, alpha = result
    units = mode.function_units * math.sqrt(max(scores.shape[0], 1))
    error = _of(mode, scores)
    passed = None if error is None else error.amax((0, 2)).sum() * scores.shape[0] if error.dim() > 2 else error.sum()
    return [_sum(mode.rounded(item.abs() + 1.0, units), passed) for item in (loss, alpha)]


@_rule("_ctc_loss_backward")
def _ctc_loss_backward(
    mode: RunningError,
    y: Tensor,
    g: Tensor,
    scores: Tensor,
    targets: Any,
    lengths: Any,
    sizes: Any,
    loss: Tensor,
    *_: Any,
    **__: Any,
) -> Error:
    """g·(p - posterior): both are exponentials of numbers as large as the loss."""
    units = mode.function_units * math.sqrt(max(scores.shape[0], 1))
    seed = g.abs().reshape(1, -1, 1) if scores.dim() > 2 else g.abs()
    parts = y.abs() + 2 * seed * scores.exp()
    return parts * mode.unit * units * (1 + loss.abs().max())


@_rule("multilabel_margin_loss_backward", "multi_margin_loss_backward")
def _margin_backward(mode: RunningError, y: Tensor, g: Tensor, x: Tensor, *_: Any, **__: Any) -> Error:
    """As many equal steps as there are classes."""
    return mode.rounded(y, mode.function_units) + mode.walk(x.shape[-1]) * y.abs()


@_rule("linalg_vector_norm")
def _vector_norm(
    mode: RunningError, y: Tensor, x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Error:
    error = _of(mode, x)
    passed = None if error is None else torch.linalg.vector_norm(error, ord, dim, keepdim)
    return _sum(passed, (2 * mode.sum_unit + mode.walk(_terms(x, y))) * y.abs(), mode.rounded(y))


# --- products --------------------------------------------------------------------------------------------------------


def _product(
    mode: RunningError,
    multiply: Callable[[Tensor, Tensor], Tensor],
    a: Tensor,
    b: Tensor,
    terms: int,
    scattered: bool = False,
) -> Tensor:
    """Error of a sum of products: those of the operands, and its own. `scattered`: parts of it meet in memory."""
    ma, mb = a.abs(), b.abs()
    ea, eb = mode.of(a), mode.of(b)
    unit = mode.sum_unit if scattered else mode.product_unit
    share = min(WALK * math.sqrt(terms) * unit, mode.largest_sum)
    counted = ma, mb
    if mode.stride > 1 and multiply is torch.matmul and ma.dim() == mb.dim() == 2 and terms > _MANY:
        counted = ma[:, :: mode.stride].contiguous(), mb[:: mode.stride].contiguous()
    total = share * (multiply(*counted) if unit < _SINGLE else coarse_product(multiply, *counted))
    if ea is not None:
        total = total + multiply(ea, mb if eb is None else mb + eb)
    if eb is not None:
        total = total + multiply(ma, eb)
    return total


def coarse_product(multiply: Callable[..., Any], *factors: Tensor) -> Any:
    """A product of tensors without negative elements, in float32 where its range allows: bounds need three digits, not 16."""
    sizes = [float(item.max()) if item.numel() else 1.0 for item in factors]
    if not all(_RANGE[0] < size < _RANGE[1] for size in sizes):
        return multiply(*factors)
    result = multiply(*(item.float() for item in factors))
    if isinstance(result, dict):
        return {key: item.double().mul_(_COARSELY) for key, item in result.items()}
    return result.double().mul_(_COARSELY)


@_rule("mm", "bmm", "mv", "dot", "vdot")
def _mm(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    return _product(mode, torch.matmul, a, b, a.shape[-1]) + mode.rounded(y)


@_rule("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Error:
    product = abs(alpha) * _product(mode, torch.matmul, a, b, a.shape[-1])
    return _sum(_times(abs(beta), _of(mode, x)), product, mode.rounded(y) + mode.rounded(abs(beta) * x))


@_rule("convolution")
def _convolution(mode: RunningError, y: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, *settings: Any) -> Error:
    terms = math.prod(w.shape[1:]) if not settings[3] else math.prod(w.shape[2:]) * x.shape[1]

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = aten.convolution.default(a, b, None, *settings)
        return result

    error = _product(mode, multiply, x, w, terms, scattered=bool(settings[3]))
    if bias is not None:
        own = _of(mode, bias)
        size = bias.abs() if own is None else bias.abs() + own / mode.unit
        error = error + mode.unit * size.reshape(-1, *[1] * (y.dim() - 2))
    return error + mode.rounded(y)


@_rule("convolution_backward")
def _convolution_backward(
    mode: RunningError, y: Any, g: Tensor, x: Tensor, w: Tensor, sizes: Any, *settings: Any
) -> Any:
    def multiply(a: Tensor, b: Tensor, c: Tensor) -> Any:
        return aten.convolution_backward.default(a, b, c, sizes, *settings)

    own = multiply(g.abs(), x.abs(), w.abs())
    over = g.numel() / g.shape[1]  # batch and places: what the gradients of weight and bias are summed over
    terms = (g.shape[1] * math.prod(w.shape[2:]), over, over)
    parts = [multiply(error, x.abs(), w.abs()) for error in [mode.of(g)] if error is not None]
    ex, ew = mode.of(x), mode.of(w)
    if ex is not None or ew is not None:
        zero = torch.zeros((), dtype=g.dtype, device=g.device)
        spread = multiply(g.abs(), zero.expand_as(x) if ex is None else ex, zero.expand_as(w) if ew is None else ew)
        parts.append((spread[0], spread[1], None))
    errors: list[Error] = []
    for place, value in enumerate(y):
        if value is None:
            errors.append(None)
            continue
        walk = mode.walk(terms[place]) * own[place]
        repeated = _of_repeats(mode, g, own[place], [0, *range(2, g.dim())]) if place == 2 else None
        errors.append(_sum(walk, repeated, mode.rounded(value), *(part[place] for part in parts)))
    return [error for error, value in zip(errors, y, strict=True) if value is not None]


# --- values moved, and added where they meet -------------------------------------------------------------------------


def _moved(name: str) -> Rule:
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        error = _of(mode, x)
        return None if error is None else packet(error, *args, **kwargs)

    return rule


for _name in [
    "index",
    "index_select",
    "gather",
    "take",
    "flip",
    "roll",
    "repeat",
    "tril",
    "triu",
    "diag_embed",
    "diagonal_copy",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "pixel_shuffle",
    "pixel_unshuffle",
    "im2col",
    "unfold_copy",
    "masked_select",
    "masked_scatter_backward",
    "atleast_2d",
    "select_backward",
    "slice_backward",
    "diagonal_backward",
    "rot90",
    "channel_shuffle",
]:
    if hasattr(aten, _name):
        RULES[_name] = _moved(_name)


@_rule("constant_pad_nd")
def _pad(mode: RunningError, y: Tensor, x: Tensor, pad: Any, value: Any = 0) -> Error:
    error = _of(mode, x)
    return None if error is None else aten.constant_pad_nd(error, pad, 0.0)


@_rule("embedding")
def _embedding(mode: RunningError, y: Tensor, weight: Tensor, index: Tensor, *_: Any, **__: Any) -> Error:
    error = _of(mode, weight)
    return None if error is None else torch.nn.functional.embedding(index, error)


@_rule("cat", "stack")
def _joined(mode: RunningError, y: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Error:
    errors = [_of(mode, item) for item in tensors]
    if all(error is None for error in errors):
        return None
    known = [torch.zeros_like(item) if error is None else error for item, error in zip(tensors, errors, strict=True)]
    joined = torch.stack if y.dim() > tensors[0].dim() else torch.cat
    return joined(known, dim)


def _added(name: str, value_at: int) -> Rule:
    """Rule of a linear function that adds values up where they meet: how many is counted by the function itself."""
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Any, *args: Any, **kwargs: Any) -> Any:
        value = args[value_at]

        def of(other: Tensor) -> Tensor:
            changed = [
                torch.zeros_like(item) if place < value_at and _is_float(item) else item
                for place, item in enumerate(args)
            ]
            changed[value_at] = other
            result: Tensor = packet(*changed, **kwargs)
            return result

        count, error = of(torch.ones_like(value)), _of(mode, value)
        own = mode.walks(count) * of(value.abs()) * (count > 1)
        base = [_of(mode, item) for item in args[:value_at] if _is_float(item) and item.shape == y.shape]
        return _sum(own, None if error is None else of(error), *base)

    return rule


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


for _name, _place in {
    "embedding_dense_backward": 0,
    "index_add": 3,
    "scatter_add": 3,
    "max_pool2d_with_indices_backward": 0,
    "max_pool3d_with_indices_backward": 0,
    "adaptive_max_pool2d_backward": 0,
    "adaptive_max_pool3d_backward": 0,
    "replication_pad1d_backward": 0,
    "replication_pad2d_backward": 0,
    "replication_pad3d_backward": 0,
    "col2im": 0,
    "unfold_backward": 0,
}.items():
    RULES[_name] = _added(_name, _place)


@_rule("index_put", "_unsafe_index_put")
def _index_put(
    mode: RunningError, y: Tensor, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Error:
    ex, ev = _of(mode, x), _of(mode, values)
    zero = torch.zeros_like(x)
    if not accumulate:
        if ex is None and ev is None:
            return None
        moved: Tensor = aten.index_put(
            zero if ex is None else ex, indices, torch.zeros_like(values) if ev is None else ev
        )
        return moved
    count = aten.index_put(zero, indices, torch.ones_like(values), True)
    size = aten.index_put(zero, indices, values.abs(), True)
    passed = None if ev is None else aten.index_put(zero, indices, ev, True)
    return _sum(ex, passed, mode.walks(count) * size * (count > 1))


@_rule("masked_scatter")
def _masked_scatter(mode: RunningError, y: Tensor, x: Tensor, mask: Tensor, source: Tensor) -> Error:
    ex, es = _of(mode, x), _of(mode, source)
    if ex is None and es is None:
        return None
    base = torch.zeros_like(y) if ex is None else ex.expand_as(y)
    return base.masked_scatter(mask, torch.zeros_like(source) if es is None else es)


@_rule("scatter_reduce")
def _scatter_reduce(
    mode: RunningError, y: Tensor, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, **_: Any
) -> Error:
    """Products and extremes; sums are composed of `scatter_add`."""
    errors = [error.max() for error in (_of(mode, x), _of(mode, source)) if error is not None]
    passed = torch.stack(errors).max().expand_as(y) if errors else None
    if reduce != "prod":
        return passed
    met = torch.zeros_like(x).scatter_add(dim, index, torch.ones_like(source))
    return _sum(_times(y.abs(), passed), mode.rounded(y) * (met + 1))


@_rule("scatter")
def _scatter(mode: RunningError, y: Tensor, x: Tensor, dim: int, index: Tensor, source: Any, **_: Any) -> Error:
    ex, es = _of(mode, x), _of(mode, source)
    if ex is None and es is None:
        return None
    base = torch.zeros_like(x) if ex is None else ex
    return base.scatter(dim, index, es if es is not None else 0.0)


def _averaged(name: str) -> Rule:
    """Rule of a linear function with weights that are not negative: pooling, interpolation."""
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
        error = _of(mode, x)
        terms = max(_terms(x, y), _terms(y, x))
        size = packet(x.abs(), *args, **kwargs)
        return _sum(
            None if error is None else packet(error, *args, **kwargs),
            (4 * mode.sum_unit + mode.walk(terms)) * size + mode.rounded(y),
        )

    return rule


_POOLS = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}
_SUMS = {1: torch.nn.functional.avg_pool1d, 2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}


def _interpolated(name: str, axes: int) -> Rule:
    """Rule of linear interpolation: a weight is a difference of places, and off by the rounding of a place."""
    packet, averaged = getattr(aten, name), _averaged(name)
    backward = name.endswith("_backward")

    def rule(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
        off = 2 * axes * mode.sum_unit * max(*x.shape[2:], *y.shape[2:])
        if backward:  # an output's weights of all that it was made of sum to one, and these are neighbours
            near = _SUMS[axes](packet(x.abs(), *args, **kwargs), 3, 1, 1) * 3.0**axes
        else:
            near = packet(_POOLS[axes](x.abs(), 3, 1, 1), *args, **kwargs)
        return _sum(averaged(mode, y, x, *args, **kwargs), off * near)

    return rule


@_rule("upsample_bicubic2d", "upsample_bicubic2d_backward")
def _bicubic(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    """Weights of both signs: bounded by the largest value."""
    error = _of(mode, x)
    size = x.abs().max() * max(_terms(x, y), 1.0)
    return _sum(None if error is None else 2 * error.max().expand_as(y), mode.rounded(size.expand_as(y), 32.0))


for _name in [
    "avg_pool2d_backward",
    "avg_pool3d_backward",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "upsample_nearest2d_backward",
    "upsample_nearest3d_backward",
    "_upsample_nearest_exact1d_backward",
    "_upsample_nearest_exact2d_backward",
    "_upsample_nearest_exact3d_backward",
    "upsample_nearest1d_backward",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "upsample_nearest1d",
    "upsample_nearest2d",
]:
    RULES[_name] = _averaged(_name)
for _axes, _name in enumerate(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), 1):
    RULES[_name] = _interpolated(_name, _axes)
    RULES[f"{_name}_backward"] = _interpolated(f"{_name}_backward", _axes)


def _places(mode: RunningError, x: Tensor, grid: Tensor) -> float:
    """Cells by which a place on a grid may be off: units of the largest axis, whose half is multiplied and added."""
    return mode.unit * 4 * max(x.shape[2:])


@_rule("grid_sampler_3d")
def _grid_sampler(mode: RunningError, y: Tensor, x: Tensor, grid: Tensor, *_: Any) -> Error:
    """Weights that sum to one, each off by as many cells as its place: bounded by the largest value of the channel."""
    largest = x.abs().flatten(2).amax(-1).reshape(*y.shape[:2], 1, 1, 1)
    ex, eg = _of(mode, x), _of(mode, grid)
    off = torch.as_tensor(_places(mode, x, grid)) + (0.0 if eg is None else eg.max() * max(x.shape[2:]))
    passed = None if ex is None else ex.max().expand_as(y)
    return _sum((6 * off + 8 * mode.sum_unit) * largest.expand_as(y), passed, mode.rounded(y))


@_rule("grid_sampler_3d_backward")
def _grid_sampler_backward(mode: RunningError, result: Any, g: Tensor, x: Tensor, grid: Tensor, *settings: Any) -> Any:
    """Of the image: the same weights, added where they meet. Of the grid: differences of neighbours over all channels."""
    error, off = _of(mode, g), _places(mode, x, grid)
    spread = aten.grid_sampler_3d_backward(g.abs() if error is None else g.abs() + error, x, grid, *settings)[0].abs()
    met = max(8 * g[:, 0].numel() / max(x[:, 0].numel(), 1), 8.0)
    sent = 0.0 if error is None else error.max()
    image = (mode.walk(met) + 6 * off) * (spread + g.abs().max()) + sent
    size = g.abs().sum(1).unsqueeze(-1) * x.abs().max() * max(x.shape[2:])
    places = (mode.walk(8 * x.shape[1]) + 6 * off) * size + sent * x.abs().max() * max(x.shape[2:])
    return [bound.expand_as(item) for bound, item in zip((image, places), result, strict=True) if item is not None]


@_rule(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d_with_indices",
)
def _max_pool(mode: RunningError, result: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    error = _of(mode, x)
    return (None, None) if error is None else (error.max().expand_as(result[0]), None)


# --- softmax: relative to exp of the distance from the maximum ------------------------------------------------------


@_rule("_softmax", "_safe_softmax")
def _softmax(mode: RunningError, y: Tensor, x: Tensor, dim: int, *_: Any) -> Error:
    # Beyond that exp is zero in any precision.
    distance = (x.amax(dim, True) - x).clamp_max(1e4).nan_to_num(0.0, 1e4, 0.0)
    units = mode.function_units + mode.walk(x.shape[dim] if x.dim() else 1) / mode.unit
    own = y * mode.unit * (distance + units)
    error = _of(mode, x)
    if error is None:
        return own
    passed = _times(y, error)
    assert passed is not None
    return own + passed + y * passed.sum(dim, True)


@_rule("_log_softmax")
def _log_softmax(mode: RunningError, y: Tensor, x: Tensor, dim: int, *_: Any) -> Error:
    finite = x.nan_to_num(0.0, 0.0, 0.0).abs()
    terms = mode.walk(x.shape[dim] if x.dim() else 1)
    own = (
        mode.unit * (finite + finite.amax(dim, True) + mode.function_units + y.nan_to_num(0.0, 0.0, 0.0).abs()) + terms
    )
    error = _of(mode, x)
    if error is None:
        return own
    return own + error + _times(y.exp(), error).sum(dim, True)  # type: ignore[union-attr]


@_rule("logsumexp")
def _logsumexp(mode: RunningError, y: Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Error:
    size = x.nan_to_num(0.0, 0.0, 0.0).abs().amax(dim, keepdim)
    own = mode.unit * (size + y.abs() + mode.function_units) + mode.walk(_terms(x, y))
    error = _of(mode, x)
    return _sum(own, None if error is None else error.amax(dim, keepdim))
