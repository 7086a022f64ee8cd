"""The weights of a miniature module: what they are called, whose they are, how values get in, one pass through the net.

first.weight   own weight of a Linear
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..protocol import Run, Weight
from .miniature import Module, Parameter, Tensor, total


def is_net(value: object) -> bool:
    """Is this a miniature module?"""
    return isinstance(value, Module)


def weights_of(net: Module) -> Iterator[Weight]:
    """Every tensor of the net, in its order."""
    modules = net.modules()
    seen: dict[int, str] = {}
    for name, tensor in net.tensors().items():
        path, _, own = name.rpartition(".")
        around = modules.get(path.rpartition(".")[0]) if path else None
        first = seen.setdefault(id(tensor), name)
        yield Weight(
            name,
            tensor,
            path,
            own,
            _kinds(modules[path]),
            _kinds(around) if around is not None else (),
            isinstance(tensor, Parameter),
            first if first != name else None,
        )


def _kinds(module: Module) -> tuple[str, ...]:
    return tuple(kind.__name__ for kind in type(module).__mro__ if kind.__module__ == Module.__module__)


def is_tensor(value: object) -> bool:
    """Is this a miniature tensor?"""
    return isinstance(value, Tensor)


def spec_of(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Element type and shape."""
    return tensor.dtype, tensor.shape


def values_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values."""
    return np.asarray(tensor.array, order="C")


def load(net: Module, values: Mapping[str, tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Put values into the net, bit for bit."""
    targets = net.tensors()
    for name, (_, array) in values.items():
        targets[name].array[...] = array


def describe(net: Module) -> str:
    """The modules, one to a line."""
    return "\n".join(f"{path or '(net)'}: {type(module).__name__}" for path, module in net.modules().items())


def run(
    net: Module,
    inputs: Sequence[np.ndarray[Any, Any]],
    weigh: Callable[[str, tuple[int, ...]], np.ndarray[Any, Any]],
    *,
    training: bool = False,
    double: bool = False,
) -> Run:
    """One pass forward and back, on a copy."""
    net = copy.deepcopy(net)
    net.train(training)
    width = np.float64 if double else np.float32
    for tensor in net.tensors().values():
        tensor.array, tensor.dtype = tensor.array.astype(width), "f64" if double else "f32"
    arguments = [Tensor(array.astype(width), requires_grad=True) for array in inputs]
    output = net(*arguments)
    total(output * Tensor(weigh("0", output.shape).astype(width))).backward()
    return Run(
        {"0": output.array.astype(np.float64)},
        {
            str(number): item.grad.array.astype(np.float64)
            for number, item in enumerate(arguments)
            if item.grad is not None
        },
        {name: item.grad.array.astype(np.float64) for name, item in net.tensors().items() if item.grad is not None},
    )


def accuracy() -> Iterator[tuple[float, str]]:
    """The miniature has no elementary function that is not numpy's own."""
    yield 2.0**-23, "numpy"
