"""Recomputation of recorded calls in float64.

values = Values(read, spec)          recorded tensors of one side, as float64 tensors
evaluate(meaning, operand)           results of one operation
run(meanings, values)                several calls as one function, from the recorded values at its edge
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..model.tensors import UNITS, Spec
from . import kernels
from .meanings import Argument, Meaning, Operand, SpecOf

Tensor = torch.Tensor

SINGLE = 2.0**-24
DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
    "c128": torch.complex128, "c64": torch.complex64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "b8": torch.bool,
}  # fmt: skip
COARSE = 2.0**-12
"""Element types with a larger unit have 16 bits or fewer: sums of them are accumulated in float32 as a rule."""

_CACHE_BYTES = 128 << 20
"""Tensors of one kind that are held: most are asked for by the call that made them and by the next; more are no quicker."""
_UNCHECKED = "torch.ops.aten._"
"""Beginning of the names of kernels that PyTorch calls after it has checked their arguments: other shapes damage memory."""


class NotRecomputable(Exception):
    """A call cannot be recomputed; the message says why, as the end of a sentence."""


class Recent:
    """Tensors by number, those that were asked for last, up to a number of bytes."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, Tensor] = OrderedDict()
        self._bytes = 0

    def keep(self, number: int, tensor: Tensor) -> None:
        """Hold a tensor, instead of those that nobody has asked for."""
        self._bytes += tensor.nbytes - (self._held.pop(number).nbytes if number in self._held else 0)
        self._held[number] = tensor
        while self._bytes > _CACHE_BYTES and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes

    def get(self, number: int) -> Tensor | None:
        """A tensor; None if it is not held, or no longer."""
        if number in self._held:
            self._held.move_to_end(number)
        return self._held.get(number)


class Values:
    """Recorded tensors of one side by number, widened to float64; integers and truth values as they are.

    Args:
        read: the recorded values as an array, bf16 and fp8 widened to float32; None where they were not kept.
        spec: shape and element type.
        addends: bound on the roundings of what was added up to give a tensor (parts of a sum on several ranks), in units,
            element by element; None where nothing was.
    """

    def __init__(
        self,
        read: Callable[[int], Any],
        spec: Callable[[int], Spec],
        addends: Callable[[int], Any] | None = None,
    ) -> None:
        self._read = read
        self.spec = spec
        self._addends = addends
        self._recent = Recent()

    def __call__(self, number: int) -> Tensor:
        known = self._recent.get(number)
        if known is not None:
            return known
        array = self._read(number)
        if array is None:
            raise NotRecomputable(f"the values of {self.spec(number)} were not kept")
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.int64)
        wide = {"f": np.float64, "c": np.complex128}.get(array.dtype.kind, array.dtype)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            tensor = torch.from_numpy(np.array(array, dtype=wide, copy=True))
        self._recent.keep(number, tensor)
        return tensor

    def slack(self, number: int) -> Tensor | None:
        """Bound on the rounding of the parts that a tensor was added up of, which its call knows nothing of; None without any."""
        found = None if self._addends is None else self._addends(number)
        if found is None:
            return None
        return UNITS.get(self.spec(number).dtype, 0.0) * torch.from_numpy(np.array(found, dtype=np.float64))


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
            arguments = {name: _widened(item) for name, item in arguments.items()}
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


def _widened(argument: Any) -> Any:
    """An argument that is an element type as PyTorch has it, floating point ones as those that are computed with here."""
    if not isinstance(argument, str) or argument not in DTYPES:
        return argument
    dtype = DTYPES[argument]
    return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype


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
    meanings: Sequence[Meaning],
    values: Callable[[int], Tensor],
    copies: Mapping[int, int] | None = None,
    spec: SpecOf | None = None,
    wanted: Collection[int] | None = None,
) -> dict[int, Tensor]:
    """Results of several calls, one after the other, by the numbers of the recorded tensors.

    What one of them made is taken by the others as it was computed here; everything else is asked of `values`. `copies` names
    tensors that are others under a number of their own. `spec` gives the shapes that were recorded: kernels inside PyTorch, which
    check nothing, are called with no others. Only the `wanted` results are kept beyond their last use: a long slice would hold
    all scores of an attention at once.
    """
    made: dict[int, Tensor] = {}
    same = copies or {}
    last_use = {
        same.get(item.tensor, item.tensor): place
        for place, meaning in enumerate(meanings if wanted is not None else ())
        for _, item in meaning.operands()
    }

    def operand(_: str, number: int) -> Tensor:
        number = same.get(number, number)
        return made[number] if number in made else values(number)

    for place, meaning in enumerate(meanings):
        if spec is not None and meaning.operation.startswith(_UNCHECKED):
            for path, item in meaning.operands():
                if item.tensor < 0 or operand(path, item.tensor).shape != tuple(spec(item.tensor).shape):
                    raise NotRecomputable(
                        f"{meaning.called or meaning.operation} takes operands as they were recorded only"
                    )
        results = evaluate(meaning, operand)
        for number, key in meaning.results.items():
            if key in results:
                made[number] = results[key]
        if wanted is not None:
            del results
            for number in [number for number in made if number not in wanted and last_use.get(number, -1) <= place]:
                del made[number]
    return made


def rounded(tensor: Tensor, dtype: str) -> Tensor:
    return tensor.to(DTYPES[dtype]).to(torch.float64) if dtype in DTYPES else tensor
