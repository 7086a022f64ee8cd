"""A framework's page: all that the contract must know of it.

    page = TorchPage()
    x = page.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    page.functions["relu"].call(x)
    page.differentiate(lambda x: loss_of(model(x)), x, model=model).parameters["first.weight"]

Gradients come from one method, `differentiate`, so that a framework whose tensors have no `backward` can answer it too.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..frameworks import registry
from ..frameworks.protocol import Framework

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Function:
    """A function of the framework, its name in a trace at level api, and that of the kernel that does its work."""

    call: Callable[..., Any]
    api: str
    kernel: str = ""


@dataclass(frozen=True)
class Derivatives:
    """Results of the framework itself: a value, its gradients by the inputs and by the model's parameters."""

    value: Array
    inputs: tuple[Array | None, ...]
    parameters: Mapping[str, Array] = field(default_factory=dict)


class Point(NamedTuple):
    """A namedtuple with tensors in it."""

    x: Any
    y: Any


@dataclass
class Pair:
    """A dataclass with a tensor in it."""

    tensor: Any
    name: str


class Page(ABC):
    """Facts that a framework's tests fill in.

    `functions` has `add`, `mul`, `relu` and `total` (of all elements), and, where the framework has them, `add_` (in place) and
    `checkpoint` (a function and its tensor; computed again on the way back). `models` has, each as a function that makes one:

        mlp          last(relu(norm(first(x)))): a linear layer 3 -> 4, a layer norm with eps 1e-5, a linear layer 4 -> 2
        shared       layer(relu(layer(x))): one linear layer 3 -> 3, called twice
        forked       add(relu(x), mul(x, 2.0)), without parameters
        broken       bad(good(x)): a linear layer 3 -> 3, then a module that raises RuntimeError("bad layer")
        structured   rearranged(layer, items, options): a linear layer 3 -> 3; called as model([x, (y,)], options={…})
        buffered     has a buffer `seen` f32[3], zeros, to which each call adds 1 in place; answers add(x, seen)

    Submodules are attributes of these names.
    """

    name: str
    functions: Mapping[str, Function]
    models: Mapping[str, Callable[[], Any]]
    own_kernels: tuple[str, ...] = ()
    """Kernels that the framework runs for itself, more or fewer of them with the number of recorders."""

    @property
    def adapter(self) -> Framework:
        """The adapter under test."""
        return registry.by_name(self.name)

    @property
    def file(self) -> str:
        """Where the page's models are written: what stacks must lead to."""
        return inspect.getfile(type(self))

    @abstractmethod
    def tensor(self, values: Array, dtype: str = "f32", *, requires_grad: bool = False) -> Any:
        """A tensor of the element type `dtype` with these bytes; NotImplementedError if the framework has no such type."""

    @abstractmethod
    def array(self, tensor: Any) -> Array:
        """The tensor's values in their storage type, by the framework's own means, not by the adapter's."""

    @abstractmethod
    def differentiate(self, function: Callable[..., Any], *inputs: Any, model: Any = None) -> Derivatives:
        """Run `function(*inputs)`, which answers with a scalar, forward and backward, once."""

    @abstractmethod
    def update(self, model: Any) -> None:
        """One step of an optimizer with the gradients of the last `differentiate`."""

    @abstractmethod
    def hook_count(self, model: Any) -> int:
        """Number of hooks, modes and replaced functions that there are now, on the model and in the whole process."""

    @abstractmethod
    def unpleasant(self) -> Mapping[str, Any]:
        """Tensors that are easily read wrongly, by name: transposed, empty, of rank 0, conjugated, overlapping …"""

    @abstractmethod
    def unreadable(self) -> Any:
        """A tensor that has no values."""

    @abstractmethod
    def token(self) -> tuple[Any, tuple[str, str]]:
        """A value that only this framework knows (a dtype, a generator), and the kind and text it is recorded with."""

    def overwrite(self, tensor: Any, value: float) -> None:
        """Write to a tensor as a user might, through memory shared with numpy. Left out by a framework that shares none."""
        raise NotImplementedError(f"{self.name} shares no memory")

    def ones(self, *shape: int, requires_grad: bool = False) -> Any:
        """A tensor of ones."""
        return self.tensor(np.ones(shape, np.float32), requires_grad=requires_grad)

    def numbers(self, *shape: int, seed: int = 0, requires_grad: bool = False) -> Any:
        """A tensor of random numbers, the same for the same seed."""
        values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        return self.tensor(values, requires_grad=requires_grad)


def rearranged(layer: Callable[[Any], Any], items: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Computation of the model `structured`: nested structures in, the same tensors through a layer, other structures out."""
    first, (second,) = items
    return {
        "list": [layer(first), None],
        "tuple": (layer(second), 7),
        "point": Point(x=layer(options["point"].x), y=0.5),
        "pair": Pair(tensor=layer(options["pair"].tensor), name=options["pair"].name),
    }
