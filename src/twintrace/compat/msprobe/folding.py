"""Records of a dump into calls: which gradients are whose, what is inside what.

    Functional.linear.0.forward            ┐ call, with the gradients
    Functional.linear.0.backward           ┘ of its results (`input`) and of its arguments (`output`)
    Module.fc1.Linear.forward.0            the module around it, says construct.json; it stands behind what it called
    Module.fc1.Linear.parameters_grad      gradients of fc1.weight and fc1.bias

A gradient is given to a result or an argument only if it has its shape; what fits nowhere has its place in the list: `node.0`.
So do the gradients that the real tool has of the arguments of PyTorch's functions: they are what autograd's last node gave, and
that may be a node inside the function (of a cross entropy the one behind its softmax), or have another order than the arguments.
Those of MindSpore's primitives it has as its hooks gave them, that of the last argument first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...model.records import Call, Frame, Gradient, Role
from ...model.sites import Kind, Phase, Site
from ...model.values import Nest, TensorRef, Value, leaves, tensor_slots
from ..reading import frame_of
from .dumps import Records
from .names import RecordName, parse
from .readings import Readings

# A trace has the user's own lines; those inside the framework are on the way to every call.
_INSIDE = re.compile(
    r"(?:site|dist)-packages/(?:torch|torch_npu|mindspore|mindtorch\w*|msadapter|mindnlp|msprobe|twintrace)/"
)
_DEEPEST = 1000


@dataclass(slots=True)
class _Draft:
    """A call that is not whole yet."""

    record: str
    name: RecordName
    phase: Phase
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = field(default_factory=dict)
    output: Value = None
    parameters: dict[str, int] = field(default_factory=dict)
    gradients: list[Gradient] = field(default_factory=list)
    order: int = 0
    begin: int = 0
    up: _Draft | None = None
    path: str = ""
    id: int = -1


@dataclass(slots=True)
class Folded:
    """Outputs of a call."""

    calls: list[Call]
    gradients: list[Gradient]


def fold(records: Records, readings: Readings) -> Folded:
    """The calls in the order in which they ended. `readings` learns the tensors, and what does not fit."""
    folding = _Folding(records, readings)
    for order, (name, entry) in enumerate(records.data.items()):
        folding.take(order, name, entry)
    return folding.finish()


class _Folding:
    def __init__(self, records: Records, readings: Readings) -> None:
        self._records, self._readings = records, readings
        self._drafts: dict[str, _Draft] = {}
        self._backward: list[tuple[int, str, RecordName, Mapping[str, Any]]] = []
        self._gradients: list[Gradient] = []
        self._saved: list[tuple[int, RecordName, str, Any]] = []

    # --- one record ---------------------------------------------------------------------------------------------

    def take(self, order: int, record: str, entry: Any) -> None:
        name = parse(record)
        if name is None:
            self._readings.problems.append((record, "this is not the name of a record"))
        elif name.what == "debug":
            self._saved.append((order, name, record, entry))
        elif not isinstance(entry, dict):
            self._readings.problems.append((record, f"expected an object, got {str(entry)[:60]}"))
        elif name.what == "forward":
            self._forward(order, record, name, entry)
        elif name.what == "backward":
            self._backward.append((order, record, name, entry))
        else:
            self._parameters_grad(order, record, name, entry)

    def _forward(self, order: int, record: str, name: RecordName, entry: Mapping[str, Any]) -> None:
        args = self._list(entry, "input_args", f"{record}.input") or self._list(entry, "input", f"{record}.input")
        named = self._readings.value(entry.get("input_kwargs"), f"{record}.input")
        held = self._readings.value(entry.get("parameters"), f"{record}.parameters")
        self._drafts[record] = _Draft(
            record,
            name,
            Phase.FORWARD,
            args,
            dict(named.items) if isinstance(named, Nest) else {},
            _single(self._readings.value(entry.get("output"), f"{record}.output")),
            {slot: leaf.id for slot, leaf in leaves(held) if isinstance(leaf, TensorRef)},
            order=order,
        )

    def _list(self, entry: Mapping[str, Any], key: str, name: str) -> tuple[Value, ...]:
        value = self._readings.value(entry.get(key), name)
        if isinstance(value, Nest):
            return tuple(item for _, item in value.items)
        return () if value is None else (value,)

    def _parameters_grad(self, order: int, record: str, name: RecordName, entry: Mapping[str, Any]) -> None:
        for parameter, value in entry.items():
            full = f"{name.name}.{parameter}" if name.name else parameter
            for count, element in enumerate(value if isinstance(value, list) else [value]):
                gradient = self._readings.value(element, f"{record}.{parameter}")
                if isinstance(gradient, TensorRef):
                    self._gradients.append(Gradient(Role.PARAMETER, full, gradient.id, None, count, order))

    # --- all of them --------------------------------------------------------------------------------------------

    def finish(self) -> Folded:
        for order, record, name, entry in self._backward:
            self._flow_back(order, record, name, entry)
        for order, name, record, entry in self._saved:
            self._save(order, name, record, entry)
        drafts = list(self._drafts.values())
        for draft in drafts:
            self._place(draft)
        _number(drafts)
        stacks: dict[tuple[str, ...], tuple[Frame, ...]] = {}
        counts = _Counts()
        calls = [self._call(draft, stacks, counts) for draft in sorted(drafts, key=lambda draft: draft.order)]
        _link(calls, self._readings)
        return Folded(calls, self._gradients)

    def _flow_back(self, order: int, record: str, name: RecordName, entry: Mapping[str, Any]) -> None:
        into = self._readings.value(entry.get("input"), f"{record}.input")
        out = self._readings.value(entry.get("output"), f"{record}.output")
        forward = self._drafts.get(str(replace(name, what="forward")))
        if forward is None:
            args = tuple(item for _, item in into.items) if isinstance(into, Nest) else (into,)
            self._drafts[record] = _Draft(record, name, Phase.BACKWARD, args, {}, _single(out), order=order)
            return
        results = [(slot, leaf.id) for slot, leaf in leaves(forward.output) if isinstance(leaf, TensorRef)]
        arguments = list(tensor_slots(forward.args, forward.kwargs))
        for role, value, ends in ((Role.OUTPUT, into, results), (Role.INPUT, out, arguments)):
            for slot, tensor in self._assigned(value, ends, forward, role, entry.get("by_node") is True):
                forward.gradients.append(Gradient(role, slot, tensor, None, 0, order))

    def _assigned(
        self, value: Value, ends: Sequence[tuple[str, int]], forward: _Draft, role: Role, by_node: bool
    ) -> Iterator[tuple[str, int]]:
        """Each gradient beside the slot that it belongs to."""
        gradients = [(place, leaf.id) for place, (_, leaf) in enumerate(leaves(value)) if isinstance(leaf, TensorRef)]
        by_node = by_node or (self._records.by_node and forward.name.kind is Kind.API)
        if role is Role.INPUT and by_node:
            yield from ((f"node.{place}", tensor) for place, tensor in gradients)
            return
        if last_first := role is Role.INPUT and self._records.last_first and forward.name.prefix == "Primitive":
            gradients.reverse()
        shapes = {tensor: self._readings.tensors[tensor].spec.shape for _, tensor in (*gradients, *ends)}
        for by_place in self._by_place(value, forward, role, ends, last_first):
            if all(place in by_place and shapes[by_place[place][1]] == shapes[tensor] for place, tensor in gradients):
                yield from ((by_place[place][0], tensor) for place, tensor in gradients)
                return
        wanting = [end for end in ends if role is Role.OUTPUT or self._readings.tensors[end[1]].requires_grad] or ends
        for place, tensor in gradients:
            fitting = [slot for slot, end in wanting if shapes[end] == shapes[tensor]]
            rivals = sum(shapes[other] == shapes[tensor] for _, other in gradients)
            yield (fitting[0] if len(fitting) == rivals == 1 else f"node.{place}"), tensor

    def _by_place(
        self, value: Value, forward: _Draft, role: Role, ends: Sequence[tuple[str, int]], last_first: bool
    ) -> Iterator[dict[int, tuple[str, int]]]:
        """Slots by the place of their gradient: among tensors, or among all that was given by position."""
        whole: list[tuple[str, Value]] = (
            list(leaves(forward.output))
            if role is Role.OUTPUT
            else [pair for place, item in enumerate(forward.args) for pair in leaves(item, str(place))]
        )
        count = sum(1 for _ in leaves(value))
        places = range(count)[::-1] if last_first else range(count)
        if count == len(ends):
            yield dict(zip(places, ends, strict=True))
        if count == len(whole):
            every = zip(places, whole, strict=True)
            yield {place: (slot, leaf.id) for place, (slot, leaf) in every if isinstance(leaf, TensorRef)}

    def _save(self, order: int, name: RecordName, record: str, entry: Any) -> None:
        """Values that the script saved itself; `loss_grad` is the gradient of `loss`."""
        value = self._readings.value(entry, record)
        owner = self._drafts.get(str(replace(name, name=name.name.removesuffix("_grad"))))
        if name.name.endswith("_grad") and owner is not None:
            for slot, leaf in leaves(value):
                if isinstance(leaf, TensorRef):
                    owner.gradients.append(Gradient(Role.SAVED, slot, leaf.id, None, 0, order))
            return
        self._drafts[record] = _Draft(record, name, Phase.FORWARD, (), {}, value, order=order)

    def _place(self, draft: _Draft) -> None:
        """The module around a call: the nearest that was recorded, and the path of the nearest."""
        construct = self._records.construct
        parent = construct.get(draft.record)
        for _ in range(_DEEPEST):
            if parent is None:
                return
            if parent == "optimizer":
                draft.phase = Phase.UPDATE
                return
            name = parse(parent)
            if name is not None and name.kind is Kind.MODULE:
                draft.path = draft.path or name.name
                draft.up = self._drafts.get(str(replace(name, what="forward")))
                if draft.up is not None and draft.up is not draft:
                    return
                draft.up = None
            parent = construct.get(parent)

    def _call(self, draft: _Draft, stacks: dict[tuple[str, ...], tuple[Frame, ...]], counts: _Counts) -> Call:
        name = draft.name
        called = name.site_name(self._records.framework)
        number = counts.number(name, (draft.phase, name.kind, called))
        site = Site(name.kind, called, number, draft.phase, draft.path, name.type)
        lines = self._records.stacks.get(draft.record, ())
        if lines not in stacks:
            stacks[lines] = _frames(lines)
        return Call(
            draft.id,
            site,
            None if draft.up is None else draft.up.id,
            draft.args,
            draft.kwargs,
            draft.output,
            draft.parameters,
            stack=stacks[lines],
            gradients=tuple([replace(gradient, of=draft.id) for gradient in draft.gradients]),
            order=draft.order,
        )


class _Counts:
    """Numbers of calls. A primitive's are counted for each attribute that holds one; in a trace, for each name."""

    def __init__(self) -> None:
        self._taken: dict[tuple[object, ...], set[int]] = {}

    def number(self, name: RecordName, called: tuple[object, ...]) -> int:
        taken = self._taken.setdefault(called, set())
        number = len(taken) if name.prefix == "Primitive" else name.call
        while number in taken:
            number += 1
        taken.add(number)
        return number


def _single(value: Value) -> Value:
    """A result that is one thing stands in a list of one."""
    if isinstance(value, Nest) and value.kind == "list":
        return value.items[0][1] if len(value.items) == 1 else Nest("tuple", value.items) if value.items else None
    return value


def _number(drafts: Sequence[_Draft]) -> None:
    """Numbers by beginning: a module began before what it called, although it stands behind it."""
    for draft in drafts:
        draft.begin = draft.order
    for draft in drafts:
        up, steps = draft.up, 0
        while up is not None and up.begin > draft.begin and steps < _DEEPEST:
            up.begin = draft.begin
            up, steps = up.up, steps + 1
    # Of those that begin with one record each is around the one before it, behind which it stands.
    for number, draft in enumerate(sorted(drafts, key=lambda draft: (draft.begin, -draft.order))):
        draft.id = number


def _frames(lines: tuple[str, ...]) -> tuple[Frame, ...]:
    frames = []
    for line in lines:
        frame = frame_of(line)
        if frame is not None:
            frames.append(frame)
        elif line and line != "Without call stack.":
            frames.append(Frame(line, 0, ""))
    return tuple(frame for frame in frames if not _INSIDE.search(frame.file)) or tuple(frames)


def _link(calls: Sequence[Call], readings: Readings) -> None:
    """Marks outputs that have not been seen before as made by their call."""
    seen: set[int] = set()
    for call in calls:
        inside = {tensor for _, tensor in tensor_slots(call.args, call.kwargs)} | set(call.parameters.values())
        for tensor in call.returned.values():
            if tensor not in seen and tensor not in inside:
                readings.tensors[tensor] = replace(readings.tensors[tensor], producer=call.id)
                seen.add(tensor)
        seen |= inside
