"""A framework on a few pages: tensors over numpy, a tape, modules, and hooks for whoever wants to listen.

    net = Linear(3, 4)
    total(relu(net(Tensor([[1.0, 2.0, 3.0]])))).backward()
    net.weight.grad                              f32[3, 4]

    HOOKS.modules    around every call of a module        HOOKS.updates     around every step of an optimizer
    HOOKS.calls      around every public function         HOOKS.backwards   around every backward pass
    HOOKS.kernels    around all that touches values       node.before, node.after   the gradients that come and go

A hook is called with what runs, its arguments, and a function that goes on; it answers with the result. It goes in with
`append` and out with `remove`, in any order. Values live in `tensor.array`; bf16 and fp8, which numpy does not have, in an
unsigned integer of their width with the type's name in `tensor.dtype` (they can be held and passed on, not computed with).
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Around: TypeAlias = Callable[[Any, Sequence[Any], Mapping[str, Any], Callable[[], Any]], Any]
Backward: TypeAlias = "Callable[[Tensor], Sequence[Tensor | None]]"
P = ParamSpec("P")
R = TypeVar("R")

NAMES = {
    np.dtype(code): name
    for code, name in {
        "f8": "f64", "f4": "f32", "f2": "f16", "c8": "c64", "c16": "c128", "?": "b8",
        "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64",
    }.items()
}  # fmt: skip


@dataclass
class Hooks:
    """Where a tool may listen in. The last that came is the outermost."""

    modules: list[Around] = field(default_factory=list)
    calls: list[Around] = field(default_factory=list)
    kernels: list[Around] = field(default_factory=list)
    updates: list[Around] = field(default_factory=list)
    backwards: list[Around] = field(default_factory=list)


class State(threading.local):
    """State of a thread: is the tape running, are we inside a public function, inside how many backward passes?"""

    taping = True
    inside = False
    backwards = 0


class Generator:
    """Random numbers, and whether dropout is to use them."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(0)
        self.dropout = True


HOOKS, STATE, RANDOM = Hooks(), State(), Generator()
_counter = itertools.count()


def now() -> int:
    """A number that is higher than those of all nodes and storages so far, and lower than those to come."""
    return next(_counter)


def _through(hooks: list[Around], what: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], R]) -> R:
    for around in hooks:
        run = functools.partial(around, what, args, kwargs, run)
    return run()


@contextmanager
def taping(on: bool) -> Iterator[None]:
    """Switch the tape on or off."""
    before, STATE.taping = STATE.taping, on
    try:
        yield
    finally:
        STATE.taping = before


# --- tensors and the tape -----------------------------------------------------------------------------------------


class Storage:
    """Memory that several tensors may share, and how often it was written to. Its number is never given to another."""

    def __init__(self) -> None:
        self.number, self.version = now(), 0


class Node:
    """One step of the tape: turns the gradient of a result into those of the `targets`, which are older nodes."""

    def __init__(self, backward: Backward, targets: Sequence[Node | None] = (), *, leaf: bool = False) -> None:
        self.number = -1 if leaf else now()
        self.backward, self.targets = backward, tuple(targets)
        self.before: list[Callable[[Tensor], None]] = []
        self.after: list[Callable[[Sequence[Tensor | None]], None]] = []


class Tensor:
    """An array with a history."""

    def __init__(self, values: Any, dtype: str = "", *, requires_grad: bool = False, device: str = "cpu") -> None:
        self.array: Array = values if isinstance(values, np.ndarray) else np.asarray(values, np.float32)
        self.dtype = dtype or NAMES[self.array.dtype]
        self.requires_grad, self.device = requires_grad, device
        self.storage, self.is_view = Storage(), False
        self.grad: Tensor | None = None
        self._node: Node | None = None

    @classmethod
    def meta(cls, *shape: int) -> Tensor:
        """A tensor of which only the shape is known."""
        return cls(np.broadcast_to(np.float32(0), shape), device="meta")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def node(self) -> Node | None:
        """Where its gradient goes: to what made it or, for a leaf, into `grad`."""
        if self._node is None and self.requires_grad:
            self._node = Node(self._collect, leaf=True)
        return self._node

    def backward(self, gradient: Tensor | None = None) -> None:
        """Walk the tape back from here; gradients are added up in the leaves."""
        start = gradient or Tensor(np.ones_like(self.array))
        _through(HOOKS.backwards, Tensor.backward, (self,), {}, functools.partial(_walk_back, self, start))

    def _collect(self, gradient: Tensor) -> Sequence[Tensor | None]:
        self.grad = gradient if self.grad is None else _add(self.grad, gradient)
        return ()

    def __add__(self, other: Tensor | float) -> Tensor:
        return add(self, other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return mul(self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul(self, other)


class Parameter(Tensor):
    """A tensor that a module learns."""

    def __init__(self, values: Any) -> None:
        super().__init__(values, requires_grad=True)


def _walk_back(root: Tensor, start: Tensor) -> None:
    if root.node is None:
        raise RuntimeError("backward: this tensor has no history")
    waiting = {root.node: start}
    STATE.backwards += 1
    try:
        while waiting:
            node = max(waiting, key=lambda node: node.number)  # the youngest: all that used its result has run
            gradient = waiting.pop(node)
            for before in tuple(node.before):
                before(gradient)
            sent = node.backward(gradient)
            for after in tuple(node.after):
                after(sent)
            for target, part in zip(node.targets, sent, strict=True):
                if target is not None and part is not None:
                    waiting[target] = _add(waiting[target], part) if target in waiting else part
    finally:
        STATE.backwards -= 1


def _tape(result: Tensor, inputs: Sequence[Any], backward: Backward) -> Tensor:
    """Write down how `result` came about, if anybody can want its gradient."""
    targets = [value.node if isinstance(value, Tensor) else None for value in inputs]
    if STATE.taping and any(targets):
        result.requires_grad, result._node = True, Node(backward, targets)
    return result


def _kept(value: Any) -> Any:
    """A value for the way back; a copy, since the tensor may be written to before."""
    return Tensor(value.array.copy()) if isinstance(value, Tensor) and STATE.taping else value


# --- kernels: all that touches values -----------------------------------------------------------------------------


def _kernel(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """A computation on arrays as one on tensors, which HOOKS.kernels sees. It knows no tape."""

    def kernel(*args: Any) -> Any:
        return _through(HOOKS.kernels, kernel, args, {}, lambda: _wrap(compute(*map(_values, args)), args))

    kernel.__name__ = name
    return kernel


def _values(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype != NAMES[value.array.dtype]:
        raise TypeError(f"{value.dtype}{list(value.shape)} can be held and passed on, not computed with")
    return value.array if isinstance(value, Tensor) else value


def _wrap(result: Any, args: Sequence[Any]) -> Any:
    """A result's own memory is a new tensor; an argument's memory is a view of it, or the argument itself, written to."""
    if isinstance(result, tuple):
        return tuple(_wrap(part, args) for part in result)
    sources = [value for value in args if isinstance(value, Tensor)]
    for source in sources:
        if result is source.array:
            source.storage.version += 1
            return source
    made = Tensor(
        np.asarray(result), device=next((source.device for source in sources if source.device != "cpu"), "cpu")
    )
    for source in sources:
        if np.may_share_memory(made.array, source.array):
            made.storage, made.is_view = source.storage, True
    return made


def _sum_down(a: Array, shape: tuple[int, ...]) -> Any:
    a = a.sum(axis=tuple(range(a.ndim - len(shape))))
    return a.sum(axis=tuple(axis for axis, size in enumerate(shape) if size != a.shape[axis]), keepdims=True)


def _normal(a: Array, eps: float) -> tuple[Array, Array]:
    centred = a - a.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + a.dtype.type(eps))
    return centred * scale, scale


def _normal_backward(g: Array, normal: Array, scale: Array) -> Any:
    return scale * (g - g.mean(axis=-1, keepdims=True) - normal * (g * normal).mean(axis=-1, keepdims=True))


_add = _kernel("add", lambda a, b: a + b)
_add_ = _kernel("add_", lambda a, b: np.add(a, b, out=a))
_mul = _kernel("mul", lambda a, b: a * b)
_matmul = _kernel("matmul", lambda a, b: a @ b)
_transpose = _kernel("transpose", lambda a: a.T)
_reshape = _kernel("reshape", lambda a, shape: a.reshape(shape))
_relu = _kernel("relu", lambda a: np.maximum(a, 0))
_positive = _kernel("positive", lambda a: (a > 0).astype(a.dtype))
_sum_to = _kernel("sum_to", _sum_down)
_stretch = _kernel("stretch", lambda a, shape: np.broadcast_to(a, shape).copy())
_normalise = _kernel("normalise", _normal)
_normalise_backward = _kernel("normalise_backward", _normal_backward)


# --- public functions: kernels, and the way back ------------------------------------------------------------------


def function(forward: Callable[P, R]) -> Callable[P, R]:
    """A function that HOOKS.calls sees, unless another public function has called it."""

    @functools.wraps(forward)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        def run() -> R:
            before, STATE.inside = STATE.inside, True
            try:
                return forward(*args, **kwargs)
            finally:
                STATE.inside = before

        return _through([] if STATE.inside else HOOKS.calls, call, args, kwargs, run)

    return call


def _fit(gradient: Tensor, like: Any) -> Tensor | None:
    """The gradient of an operand that may have been stretched to the result's shape; None for a plain number."""
    if not isinstance(like, Tensor):
        return None
    return gradient if gradient.shape == like.shape else _sum_to(gradient, like.shape)


@function
def add(a: Tensor, b: Tensor | float) -> Tensor:
    left, right = _kept(a), _kept(b)
    return _tape(_add(a, b), (a, b), lambda g: (_fit(g, left), _fit(g, right)))


@function
def mul(a: Tensor, b: Tensor | float) -> Tensor:
    left, right = _kept(a), _kept(b)
    return _tape(_mul(a, b), (a, b), lambda g: (_fit(_mul(g, right), left), _fit(_mul(g, left), right)))


@function
def matmul(a: Tensor, b: Tensor) -> Tensor:
    left, right = _kept(a), _kept(b)
    return _tape(_matmul(a, b), (a, b), lambda g: (_matmul(g, _transpose(right)), _matmul(_transpose(left), g)))


@function
def relu(a: Tensor) -> Tensor:
    mask = _positive(a)
    return _tape(_relu(a), (a,), lambda g: (_mul(g, mask),))


@function
def total(a: Tensor) -> Tensor:
    shape = a.shape
    return _tape(_sum_to(a, ()), (a,), lambda g: (_stretch(g, shape),))


@function
def reshape(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    before = a.shape
    return _tape(_reshape(a, shape), (a,), lambda g: (_reshape(g, before),))


@function
def add_(a: Tensor, b: Tensor | float) -> Tensor:
    """Add `b` to `a`, in its place."""
    before, other, right = a.node, b.node if isinstance(b, Tensor) else None, _kept(b)
    taped = STATE.taping and bool(before or other)
    if taped and (a.is_view or (before and before.number < 0)):
        raise RuntimeError("add_: the tape cannot follow a write to a leaf or to a view. Write under taping(False).")
    _add_(a, b)
    if taped:
        a.requires_grad, a._node = True, Node(lambda g: (g, _fit(g, right)), (before, other))
    return a


@function
def linear(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return add(matmul(a, weight), bias)


@function
def layer_norm(a: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    normal, scale = _normalise(a, eps)
    kept = _kept(normal)
    return add(mul(_tape(normal, (a,), lambda g: (_normalise_backward(g, kept, scale),)), weight), bias)


@function
def dropout(a: Tensor, p: float, *, generator: Generator = RANDOM) -> Tensor:
    if not generator.dropout:
        return a
    kept = generator.numbers.random(a.shape) >= p
    return mul(a, Tensor((kept / (1 - p)).astype(a.array.dtype)))


def checkpoint(forward: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`forward(*inputs)`, of which nothing is kept: it runs again on the way back."""

    def back(gradient: Tensor) -> Sequence[Tensor | None]:
        with taping(True):
            again = forward(*copies)
        again.backward(gradient)
        return [copy.grad for copy in copies]

    copies = [Tensor(value.array.copy(), value.dtype, requires_grad=value.requires_grad) for value in inputs]
    with taping(False):
        result = forward(*inputs)
    return _tape(result, inputs, back)


# --- modules ------------------------------------------------------------------------------------------------------


class Module:
    """Parameters, buffers, other modules and settings, under their attributes' names; `forward` says what it does."""

    training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _through(HOOKS.modules, self, args, kwargs, functools.partial(self.forward, *args, **kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def modules(self, prefix: str = "") -> dict[str, Module]:
        """This one and all below it, by path."""
        modules = {prefix: self}
        for name, value in vars(self).items():
            if isinstance(value, Module):
                modules |= value.modules(f"{prefix}.{name}" if prefix else name)
        return modules

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers, by path."""
        everything = ((path, item) for path, module in self.modules().items() for item in vars(module).items())
        return {f"{path}.{name}".lstrip("."): value for path, (name, value) in everything if isinstance(value, Tensor)}

    def train(self, mode: bool = True) -> None:
        for module in self.modules().values():
            module.training = mode


class Linear(Module):
    """`a @ weight + bias`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(RANDOM.numbers.uniform(-1, 1, (inputs, outputs)).astype(np.float32))
        self.bias = Parameter(np.zeros(outputs, np.float32))

    def forward(self, a: Tensor) -> Tensor:
        return linear(a, self.weight, self.bias)


class LayerNorm(Module):
    """Mean 0 and variance 1 along the last axis, then `* weight + bias`."""

    def __init__(self, size: int, *, eps: float = 1e-5) -> None:
        self.size, self.eps = size, eps
        self.weight, self.bias = Parameter(np.ones(size, np.float32)), Parameter(np.zeros(size, np.float32))

    def forward(self, a: Tensor) -> Tensor:
        return layer_norm(a, self.weight, self.bias, eps=self.eps)


class Descent:
    """The optimizer: plain gradient descent."""

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        self.parameters, self.rate = list(parameters), rate

    def step(self) -> None:
        _through(HOOKS.updates, self, (), {}, self._step)

    def _step(self) -> None:
        with taping(False):
            for parameter in self.parameters:
                if parameter.grad is not None:
                    add_(parameter, mul(parameter.grad, -self.rate))
                    parameter.grad = None
