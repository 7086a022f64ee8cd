"""Gradients: the graph is MindSpore's, and so is its reading.

MSAdapter also runs on MindSpore 2.7, whose graph cannot be read. There a hook on each tensor tells the gradient of its value:

    h = mul(x, 2);  y = relu(h)          of h it is what mul gave and what relu took: told of both
    y = add(relu(h), mul(h, 3))          of h it is what relu and mul took together: told of neither, and a note says so

Which of the two it is, is known because every use is seen: all that MSAdapter computes goes through its functions. MindSpore's
adapter takes another way there, and calls with aliases; here an alias would have no device, and a write in place would go to it
and not to the user's tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms

from ...model.records import Role
from ..mindspore.gradients import (
    HAS_NODES,
    Gradients,
    edges_of,
    in_backward,
    is_quiet,
    is_recomputing,
    next_sequence_number,
    running,
    unseen,
)
from ..protocol import Open, Sink
from .patches import patch
from .tensors import is_tensor, storage

__all__ = [
    "HAS_NODES",
    "Gradients",
    "TensorHooks",
    "edges_of",
    "in_backward",
    "is_quiet",
    "is_recomputing",
    "next_sequence_number",
    "unseen",
]

_BENEATH: Any = ms.Tensor.__mro__[1]
_SHARED = (
    "this MindSpore tells the gradient of a tensor as a whole and not a call's share in it: where several calls take the same "
    "tensor, their inputs have no gradient here. From MindSpore 2.8 on they do."
)


def on_gradient(tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
    """Call back with the tensor's gradient, by a hook on the tensor; the result removes it."""
    try:
        number = _BENEATH.register_hook(tensor, lambda gradient: callback(gradient))
    except RuntimeError:  # a tensor that takes no part: made for something else, or of integers
        return lambda: None
    return lambda: _BENEATH.remove_hook(number)


def _nothing() -> None:
    pass


class _Value:
    """State of a tensor between two writes: who made it, who took it, and when it was used."""

    __slots__ = ("count", "makers", "takers", "unhook", "uses")

    def __init__(self) -> None:
        self.unhook: Callable[[], None] = _nothing
        self.makers: list[tuple[Open, str]] = []
        self.takers: list[tuple[Open, str, int, int]] = []
        self.uses: list[int] = []
        self.count = 0


class TensorHooks(Gradients):
    """Gradients from hooks on tensors. Calls are counted, so that each has a time and a module's call a span of it."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._values: dict[Any, _Value] = {}
        self._open: dict[int, tuple[int, list[tuple[str, _Value]]]] = {}
        self._hooks: list[Callable[[], None]] = []
        self._used_before: set[Any] = set()
        self._now = 0

    def install(self, names: Callable[[], dict[int, str]]) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from super().install(names)
        for executor in (running._JitExecutor, running._CellGraphExecutor):
            yield patch(executor, "__call__", self._before_a_graph)

    def begin(self, call: Open) -> list[tuple[str, Any, int]]:
        """Look at the inputs before the call writes to any of them."""
        self._open[call.id] = (self._now, [(slot, self._value(tensor)) for slot, tensor in call.inputs])
        return []

    def tap(
        self, call: Open | None, args: Any, kwargs: Any, mutates: Sequence[str] = ()
    ) -> tuple[Any, Any, Callable[[Any], Any]]:
        """The arguments as they are: here nothing is put into the graph."""
        return args, kwargs, lambda output: output

    def follow(self, call: Open, inputs: list[tuple[str, Any, int]], start: int) -> None:
        """The call has run: it took these values and made those."""
        begun, taken = self._open.pop(call.id, (self._now, []))
        mentions = Counter(id(value) for _, value in taken)
        for slot, value in taken:
            if mentions[id(value)] == 1:
                value.takers.append((call, slot, begun, self._now))
        for slot, tensor in call.outputs:
            value = self._value(tensor)
            if id(value) not in mentions:
                value.makers.append((call, slot))
        call.inputs.clear()
        call.outputs.clear()

    def flush(self) -> None:
        """A backward pass is over, and with the outermost its graph: the same tensors may be used in another."""
        super().flush()
        if not self._passes and not is_recomputing():
            self._forget()

    def are_pending(self) -> bool:
        """Is there a hook on a tensor?"""
        return bool(self._hooks) or super().are_pending()

    def remove(self) -> None:
        """Take every hook off again. In the middle of a graph, what was used in it before may not be told from what comes."""
        used = set(self._values) if is_recomputing() else set()
        super().remove()
        self._forget()
        self._used_before = used

    def _forget(self) -> None:
        self._used_before = set()
        self._values.clear()
        self._open.clear()
        while self._hooks:
            self._hooks.pop()()

    def counted(self, original: Callable[..., Any], mutates: Callable[..., Sequence[str]]) -> Callable[..., Any]:
        """A function whose calls are uses of the tensors that they take."""

        def call(*args: Any, **kwargs: Any) -> Any:
            for _, tensor in _tensors(args, kwargs):
                self._value(tensor).uses.append(self._now)
            self._now += 1
            try:
                return original(*args, **kwargs)
            finally:
                written = mutates(args, kwargs)
                for slot, tensor in _tensors(args, kwargs):
                    if slot in written:
                        self._values.pop(storage(tensor), None)  # from here on it holds another value

        return call

    def _before_a_graph(self, original: Any) -> Any:
        """A graph is compiled with the hooks of the tensors that it is given: they go without."""

        def __call__(executor: Any, /, *args: Any, **kwargs: Any) -> Any:
            for _, tensor in _tensors(args, kwargs):
                key = storage(tensor)
                self._used_before.add(key)
                self._values.pop(key, _Value()).unhook()
            return original(executor, *args, **kwargs)

        return __call__

    def _value(self, tensor: Any) -> _Value:
        key = storage(tensor)
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = _Value()
            if key in self._used_before:
                value.uses.append(-1)  # at no call's time
            value.unhook = on_gradient(tensor, self._report(value))
            self._hooks.append(value.unhook)
        return value

    def _report(self, value: _Value) -> Callable[[Any], None]:
        def report(gradient: Any) -> None:
            with unseen():
                for call, slot in value.makers:
                    self._sink.gradient(call, Role.OUTPUT, slot, gradient, value.count)
                for call, slot, begun, ended in value.takers:
                    if all(begun <= use < ended for use in value.uses):
                        self._sink.gradient(call, Role.INPUT, slot, gradient, value.count)
                    else:
                        self._sink.note("gradients", _SHARED)
            value.count += 1

        return report


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The tensors among a function's arguments, with their slots; of lists and tuples, those inside."""
    named = [(str(position), value) for position, value in enumerate(args)]
    for slot, value in (*named, *((f"kw.{name}", value) for name, value in kwargs.items())):
        for item in value if isinstance(value, list | tuple) else (value,):
            if is_tensor(item):
                yield slot, item
