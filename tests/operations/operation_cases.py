"""Run a framework's own call under a recorder, make its meaning, compute it in float64, hold both side by side."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twintrace as tt
from twintrace.model.records import Call
from twintrace.operations import Meaning, Operand, meaning_of
from twintrace.operations.kernels import KERNELS, TYPES

UNITS = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "c64": 2.0**-24}
GENEROUS = 512.0
"""Units of the dtype, of the largest element, that a result may be away. The sharp bound is the judge's."""


class Recording:
    """Calls recorded in one session, each with its meaning."""

    def __init__(self, run: Callable[[], Any], model: Any = None, level: str = "api") -> None:
        with tempfile.TemporaryDirectory() as folder:
            with tt.record(Path(folder) / "trace", model or torch.nn.Identity(), level=level, keep="tensor"):
                run()
            (journal,) = tt.open(Path(folder) / "trace").journals()
            self.framework = journal.header.framework
            self.calls: list[Call] = list(journal.calls())
            tensors = [tensor for tensor in journal.tensors() if tensor.missing is None]
            self.specs = {tensor.id: tensor.spec for tensor in tensors}
            self._arrays = {tensor.id: np.array(journal.array(tensor)) for tensor in tensors}

    def call(self, name: str) -> Call:
        """The last call whose name, or whose class, ends so."""
        found = [call for call in self.calls if (call.site.type or call.site.name).rpartition(".")[2] == name]
        assert found, f"{name} is not among {[call.site.name for call in self.calls]}"
        return found[-1]

    def meaning(self, call: Call) -> Meaning:
        """Meaning of a call, which must have one."""
        meaning = meaning_of(call, self.framework, self.specs.__getitem__)
        assert meaning is not None, f"no meaning of {call.site}"
        return meaning

    def check(self, call: Call, units: float = GENEROUS) -> Meaning:
        """The recorded results are those of the meaning, in float64."""
        meaning = self.meaning(call)
        results = self.computed(meaning)
        assert meaning.results
        for number, key in meaning.results.items():
            assert_close(self.value(number), results[key], self.specs[number].dtype, units, meaning)
        return meaning

    def value(self, number: int) -> torch.Tensor:
        """A recorded tensor: floating ones in float64, others as they are."""
        array, spec = self._arrays[number], self.specs[number]
        if spec.dtype == "bf16":
            array = (array.reshape(-1).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        value = torch.from_numpy(array).reshape(spec.shape)
        if value.is_floating_point():
            return value.double()
        return value.to(torch.complex128) if value.is_complex() else value

    def computed(self, meaning: Meaning) -> dict[int | str, Any]:
        """Results of a meaning by their keys."""
        return computed(meaning, self.value)


def computed(meaning: Meaning, value_of: Callable[[int], torch.Tensor]) -> dict[int | str, Any]:
    """Results of a meaning by their keys, from the values of its operands."""

    def decoded(value: Any) -> Any:
        if isinstance(value, Operand):
            return value_of(value.tensor)
        return tuple(map(decoded, value)) if isinstance(value, tuple) else value

    arguments = {name: decoded(value) for name, value in meaning.arguments.items()}
    if meaning.operation in KERNELS:
        result = KERNELS[meaning.operation](**arguments)
    else:
        function = functools.reduce(getattr, meaning.operation.split(".")[1:], torch)
        arguments = {
            name: TYPES.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()
        }
        positions = sorted(filter(str.isdigit, arguments), key=int)
        named = {name: value for name, value in arguments.items() if not name.isdigit()}
        result = function(*(arguments[place] for place in positions), **named)
    return result if isinstance(result, dict) else dict(enumerate(_flat(result)))


def _flat(result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for item in result for leaf in _flat(item)] if isinstance(result, tuple | list) else []


def assert_close(got: torch.Tensor, want: Any, dtype: str, units: float, meaning: Meaning) -> None:
    """Equal where the type is exact, else within so many units of the largest element; infinities and NaN in the same places."""
    want = torch.as_tensor(want)
    assert got.shape == want.shape, (got.shape, want.shape, meaning)
    if dtype not in UNITS:
        assert torch.equal(got, want.to(got.dtype)), (got, want, meaning)
        return
    want = want.double() if not want.is_complex() else want
    assert torch.equal(torch.isnan(got), torch.isnan(want)), meaning
    finite = torch.isfinite(got) & torch.isfinite(want)
    if not finite.any():
        return
    gap, size = (got - want)[finite].abs().max().item(), want[finite].abs().max().item()
    unit = UNITS[dtype] * max(size, 1e-3)
    assert gap <= units * unit, (gap / unit, meaning)
