"""Dispatch modes: a bound carried with every tensor, results rounded to an element type, nothing at all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .composed import COMPOSED
from .registry import (
    FUNCTION_UNITS,
    RULES,
    WALK,
    Error,
    Tensor,
    aten,
    flat,
)


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
        outputs = [item for item in flat(result) if item.is_floating_point()]
        if not outputs:
            return result
        if rule is not None:
            self._store(result, rule(self, result, *args, **kwargs))
        elif any(item.is_floating_point() for item in flat(args)):
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
        for item, error in zip(flat(result), errors, strict=False):
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

    def fresh(self) -> NoError:
        return self

    def __enter__(self) -> NoError:  # type: ignore[override]
        return self

    def of(self, tensor: Tensor) -> Error:
        return None

    def add(self, tensor: Tensor, error: Tensor) -> None:
        pass


def _floating(args: Sequence[Any]) -> bool:
    return any(item.is_floating_point() for item in flat(args))


_TABLE: dict[Any, Callable[..., Any]] = {}


def _decompositions() -> dict[Any, Callable[..., Any]]:
    if not _TABLE:
        from torch._decomp import core_aten_decompositions, decomposition_table

        _TABLE.update(decomposition_table)
        _TABLE.update(core_aten_decompositions())
    return _TABLE


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
