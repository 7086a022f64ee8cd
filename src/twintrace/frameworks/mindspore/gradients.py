"""Gradients that flow back through a call, read without touching the graph.

MindSpore's graph resembles torch's since 2.8: nodes with edges, sequence numbers and hooks (see `nodes.py`). No node is inserted; a
full backward hook, or `ops.HookBackward`, inserts some, and with them changes what is added up first.

Before 2.8 the graph cannot be seen. There the arguments of a call are replaced by aliases that tell their gradients: views of them,
each with a hook, which is a node more. (`ops.HookBackward` makes one too, and breaks gradients of gradients.) Aliases stay inside
the call: what it hands back, or leaves in a list or dict of the user's, is the user's own tensor again. A compiler takes the hooks
of the tensors that it is given for part of the function: it is given views without.

Which nodes are the call's own? Those with a sequence number above all that were seen before it: those of its inputs, and of
every result until then. MindSpore does not tell the number that is next.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import mindspore as ms
from mindspore import ops

from ...model.records import Role
from ..nodes import LEAF_NUMBER, NodeHooks
from ..protocol import Open, Sink
from .patches import patch
from .tensors import dtype_of, running, same_value

__all__ = [
    "Gradients",
    "edges_of",
    "in_backward",
    "is_quiet",
    "is_recomputing",
    "next_sequence_number",
    "running",
    "unseen",
]

HAS_NODES = hasattr(ms.Tensor, "_grad_node")
"""Can the graph be seen?"""
_MAX_DEPTH = 24
"""Containers within containers in which tensors are looked for, as in collect/flatten.py."""
_DIFFERENTIABLE = (ms.float16, ms.float32, ms.float64, ms.bfloat16, ms.complex64, ms.complex128)


class _Here(threading.local):
    """True while this thread's calls are the recorder's own."""

    quiet = False


class _Backward:
    """Number of backward passes that are running, and the highest sequence number that was seen."""

    depth = 0
    highest = -1


_HERE = _Here()


@contextmanager
def unseen() -> Iterator[None]:
    """Marks calls within as the recorder's own."""
    before, _HERE.quiet = _HERE.quiet, True
    try:
        yield
    finally:
        _HERE.quiet = before


def is_quiet() -> bool:
    """Is this call the recorder's own?"""
    return _HERE.quiet


def in_backward() -> bool:
    """Is a backward pass running?"""
    return _Backward.depth > 0


def is_recomputing() -> bool:
    """Inside a backward pass: is the tape running? Then a block is computed again; otherwise a user's own `bprop` is at work."""
    return bool(running._pynative_executor.grad_flag())


def edges_of(call: Open) -> list[tuple[str, Any, int]]:
    """(slot, node, output number) of each input that takes part in autograd. Asked before the call: in-place calls change it."""
    edges: list[tuple[str, Any, int]] = []
    for slot, tensor in call.inputs:
        node = getattr(tensor, "_grad_node", None)
        if node is not None:
            edges.append((slot, node, tensor._output_index))
    return edges


def next_sequence_number(inputs: list[tuple[str, Any, int]]) -> int:
    """No node with this number or above has been seen: what a call with these inputs makes, is above."""
    for _, node, _ in inputs:
        _seen(node._sequence_nr())
    return _Backward.highest + 1


def without_gradient(call: Open, mutates: Sequence[str], start: int) -> tuple[str, ...]:
    """Remark for a write in place that has left no node behind: nothing can be read of its way back."""
    written = [(slot, tensor) for slot, tensor in call.inputs if slot in mutates]
    nodes = [(slot, getattr(tensor, "_grad_node", None)) for slot, tensor in written]
    return tuple(
        f"argument {slot} was written to in place, and MindSpore keeps no gradient of that write"
        for slot, node in nodes
        if node is None or not start <= node._sequence_nr() < LEAF_NUMBER
    )


def _seen(number: int) -> None:
    if _Backward.highest < number < LEAF_NUMBER:
        _Backward.highest = number


class Gradients:
    """The hooks of one step, and the doors of every backward pass."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._nodes = NodeHooks(
            sink, unseen=unseen, identity=_id, target=lambda node, number: (_id(node), number), add=_add
        )
        self._taps: list[_Tap] = []
        self._hooked: dict[int, weakref.ref[Any]] = {}
        """Tensors with a hook of ours, by object."""
        self._handed_back: dict[int, set[int]] = {}
        """Of a call that is about to be followed: the arguments, by object, that are among its results."""
        self._names: Callable[[], dict[int, str]] = dict
        self._passes = 0

    def install(self, names: Callable[[], dict[int, str]]) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change. `names` gives the parameters whose gradients are wanted, by object."""
        self._names = names
        yield patch(running._PyNativeExecutor, "grad", self._around_backward)
        if not HAS_NODES:
            for executor in (running._JitExecutor, running._CellGraphExecutor):
                yield patch(executor, "__call__", self._around_graph)

    def begin(self, call: Open) -> list[tuple[str, Any, int]]:
        """A call is about to run whose gradients are wanted: what `follow` will have to know of its inputs."""
        return edges_of(call)

    def tap(
        self, call: Open | None, args: Any, kwargs: Any, mutates: Sequence[str] = ()
    ) -> tuple[Any, Any, Callable[[Any], Any]]:
        """The arguments to call with: the same, or where the graph cannot be seen, aliases that tell of their gradients.

        The third is to be called after the call, with its result or None: it puts the user's own tensors back into the
        containers among the arguments, and returns the result with the user's own tensors in it.
        """
        if HAS_NODES or call is None or not call.wants_gradients or not _is_taping():
            return args, kwargs, _unchanged
        wanted = {slot: tensor for slot, tensor in call.inputs if slot not in mutates and _is_tappable(tensor)}
        tapped = {slot: (tensor, self._alias(call, slot, tensor)) for slot, tensor in wanted.items()}
        originals = {id(alias): tensor for tensor, alias in tapped.values()}

        def alias_of(slot: str, tensor: Any) -> Any:
            mine, alias = tapped.get(slot, (None, tensor))
            return alias if mine is tensor else tensor

        def original_of(_: str, tensor: Any) -> Any:
            return originals.get(id(tensor), tensor)

        # The second argument holds the aliases, so that no other object gets their ids.
        def restore(output: Any, _: Any = tapped) -> Any:
            _exchanged((args, kwargs), "", original_of)
            handed_back: set[int] = set()

            def noted(slot: str, tensor: Any) -> Any:
                if id(tensor) in originals:
                    handed_back.add(id(originals[id(tensor)]))
                return original_of(slot, tensor)

            output = _exchanged(output, "", noted)
            if handed_back:
                self._handed_back[call.id] = handed_back
            return output

        return (
            tuple(_exchanged(value, str(position), alias_of) for position, value in enumerate(args)),
            {name: _exchanged(value, f"kw.{name}", alias_of) for name, value in kwargs.items()},
            restore,
        )

    def _alias(self, call: Open, slot: str, tensor: Any) -> Any:
        tap = _Tap(self._nodes.reporter(call, slot))
        self._taps.append(tap)
        with unseen():
            alias = tensor.expand_as(tensor)  # a view, whatever the strides
        self._hook(alias, tap)
        same_value(alias, tensor)
        return alias

    def _hook(self, tensor: Any, tap: _Tap) -> None:
        with suppress(RuntimeError):  # a result that takes no part: made by a kernel without a gradient
            self._nodes.keep(tensor.register_hook(tap.function()))
            place = id(tensor)
            self._hooked[place] = weakref.ref(tensor, lambda _: self._hooked.pop(place, None))

    def _around_graph(self, original: Any) -> Any:
        def bare(_: str, tensor: Any) -> Any:
            hooked = self._hooked.get(id(tensor))
            is_hooked = hooked is not None and hooked() is tensor
            return tensor.expand_as(tensor) if is_hooked else tensor

        def __call__(executor: Any, /, *args: Any, **kwargs: Any) -> Any:
            with unseen():
                given = tuple(_exchanged(value, "", bare) if type(value) is not list else value for value in args)
            return original(executor, *given, **kwargs)

        return __call__

    def _follow_outputs(self, call: Open) -> None:
        """Without nodes to hook: each result tells of its gradient itself. An argument that is handed back is no result."""
        handed_back = self._handed_back.pop(call.id, ())
        for slot, tensor in call.outputs:
            if id(tensor) not in handed_back and _is_tappable(tensor) and tensor._has_auto_grad():
                self._hook(tensor, _Tap(self._nodes.reporter(call, slot, Role.OUTPUT)))
        call.inputs.clear()
        call.outputs.clear()

    def follow(self, call: Open, inputs: list[tuple[str, Any, int]], start: int) -> None:
        """Hook the nodes that this call has made. The hooks keep the call, so the call lets go of its tensors."""
        if not HAS_NODES:
            self._follow_outputs(call)
            return
        ends: dict[int, tuple[Any, list[tuple[str, int]]]] = {}
        for slot, tensor in call.outputs:
            node = getattr(tensor, "_grad_node", None)
            if node is None:
                continue
            number = node._sequence_nr()
            _seen(number)
            if start <= number < LEAF_NUMBER:
                ends.setdefault(_id(node), (node, []))[1].append((slot, tensor._output_index))
        inputs = [*inputs, *_new_leaves(call, inputs)] if ends else []
        call.inputs.clear()
        call.outputs.clear()
        if ends:
            keys = [(slot, (_id(node), number)) for slot, node, number in inputs]
            self._nodes.follow(call, keys, list(ends.values()), start)

    def flush(self) -> None:
        """The backward pass is over."""
        self._nodes.flush()

    def are_pending(self) -> bool:
        """Is there a hook on a graph that is still there?"""
        return self._nodes.are_pending()

    def remove(self) -> None:
        """Take every hook off again."""
        while self._taps:
            self._taps.pop().silent = True
        self._nodes.remove()

    def _around_backward(self, original: Any) -> Any:
        def grad(executor: Any, function: Any, operation: Any, weights: Any, position: Any, *rest: Any) -> Any:
            self._passes += 1
            _Backward.depth += 1
            try:
                gradients = original(executor, function, operation, weights, position, *rest)
            finally:
                _Backward.depth -= 1
                self._passes -= 1
                self.flush()
            if weights is not None and not self._passes:  # a block that is computed again has a pass of its own inside
                with unseen():
                    self._report_parameters(operation, weights, position, gradients)
            return gradients

        return grad

    def _report_parameters(self, operation: Any, weights: Any, position: Any, given: Any) -> None:
        """The gradients that the user gets for these weights; in the order of the weights."""
        if not getattr(operation, "get_by_list", False):
            return
        both = operation.get_all or (getattr(operation, "get_by_position", False) and position is not None)
        gradients = given[1] if both else given
        wanted = [weights] if isinstance(weights, ms.Parameter) else list(weights)
        arrived = list(gradients) if isinstance(gradients, tuple | list) else [gradients]
        names = self._names()
        for parameter, gradient in zip(wanted, arrived, strict=False):
            if id(parameter) in names and gradient is not None:
                self._sink.parameter_gradient(names[id(parameter)], gradient)


def _new_leaves(call: Open, known: list[tuple[str, Any, int]]) -> Iterator[tuple[str, Any, int]]:
    """Inputs that have got their node in this call: the first that uses a parameter makes it (MSAdapter's have none before)."""
    slots = {slot for slot, _, _ in known}
    for slot, node, number in edges_of(call):
        if slot not in slots and node.is_leaf():
            yield slot, node, number


def _id(node: Any) -> int:
    """The node behind the Python object, of which there is a new one at each question."""
    unique = getattr(node, "_unique_id", None)
    if unique is not None:
        return int(unique() if callable(unique) else unique)
    return hash(str(node))  # 2.8: <ReLU, seq=4>; a leaf has its name, and all leaves have one number


class _Tap:
    """A hook that stays in the graph; it can be silenced, not removed."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self._report, self.silent = report, False

    def function(self) -> Callable[[Any], None]:
        """The hook as MindSpore wants it: a plain function."""

        def hook(gradient: Any) -> None:
            if not self.silent:
                with unseen():
                    self._report(gradient[0] if isinstance(gradient, tuple) else gradient)

        return hook


def _is_taping() -> bool:
    return bool(running._pynative_executor.grad_flag() and running._pynative_executor.enable_grad())


def _is_tappable(tensor: Any) -> bool:
    """Not a parameter that is no longer learnt: kernels write to those, and want them as they are."""
    if not isinstance(tensor, ms.Tensor) or dtype_of(tensor) not in _DIFFERENTIABLE:
        return False
    return not isinstance(tensor, ms.Parameter) or bool(tensor.requires_grad)


def _unchanged(output: Any) -> Any:
    return output


def _exchanged(value: Any, slot: str, exchange: Callable[[str, Any], Any], depth: int = 0) -> Any:
    """The value with `exchange(slot, tensor)` in the place of each tensor in it.

    Lists, dicts and dataclasses stay the objects that they are, since whoever is called may write to them; tuples are made
    anew where something in them changes.
    """
    if isinstance(value, ms.Tensor):
        return exchange(slot, value)
    if depth == _MAX_DEPTH:
        return value
    prefix = f"{slot}." if slot else ""
    make = tuple if type(value) is tuple else getattr(type(value), "_make", None)
    if isinstance(value, tuple) and make is not None:  # of another kind of tuples it is not known how they are made
        names = getattr(value, "_fields", range(len(value)))
        items = [
            _exchanged(old, f"{prefix}{name}", exchange, depth + 1) for name, old in zip(names, value, strict=True)
        ]
        return value if all(map(operator.is_, items, value)) else make(items)
    put: Callable[[Any, Any], None]
    if isinstance(value, list):
        held, put = list(enumerate(value)), value.__setitem__
    elif isinstance(value, MutableMapping):
        held, put = list(value.items()), value.__setitem__
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        held, put = [(name, getattr(value, name)) for name in names], functools.partial(object.__setattr__, value)
    else:
        return value
    for name, item in held:
        new = _exchanged(item, f"{prefix}{name}", exchange, depth + 1)
        if new is not item:
            with suppress(Exception):  # a class of the user's own that does not want it: its tensors stay as they are
                put(name, new)
    return value


def _add(total: Any, gradient: Any) -> Any:
    with running._no_grad():
        return gradient if total is None else ops.add(total, gradient)
