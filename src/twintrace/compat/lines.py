"""Dumps that have a line for each tensor: what lines are called, and which of them are one call.

    1  Functional_linear_forward_input.0    ┐
    2  Functional_linear_forward_output     ┘ call 0
    3  Functional_linear_forward_input.0    ┐
    4  Functional_linear_forward_output     ┘ call 1
    5  Functional_linear_backward_input.0   ┐ gradients of call 1: the last call of that name, with such results, that has none
    6  Functional_linear_backward_output.0  ┘

A call ends where its name ends, where an input follows an output, and where a slot comes twice. Where the tool counts its calls
(`NN_Conv2d_0_forward_input.0`) the number decides. Values that come out of one call and go into another are recognised by their
fingerprints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from ..model.records import Call, Frame, Gradient, Role
from ..model.sites import Kind, Phase, Site
from ..model.tensors import Tensor
from ..model.values import Nest, TensorRef, Value, tensor_slots

_TORCH: Mapping[str, str] = MappingProxyType({
    "Functional": "torch.nn.functional.", "Tensor": "torch.Tensor.", "Aten": "torch.ops.aten.", "VF": "torch._VF.",
    "NPU": "torch_npu.", "Distributed": "torch.distributed.", "Torch": "torch.", "Function": "",
})  # fmt: skip
"""Family of functions -> beginning of their names in a trace, longer ones first. `Function` is ours, for those outside torch."""
_MINDSPORE = {"Tensor": "mindspore.Tensor.", "Functional": "mindspore.ops."}
_MODULES = ("Module", "NN")


class LineName(NamedTuple):
    """A line's name, taken apart. `call` is there where the tool counts calls."""

    family: str
    operation: str
    call: int | None
    backward: bool
    output: bool
    slot: str

    @property
    def kind(self) -> Kind:
        return Kind.MODULE if self.family in _MODULES else Kind.API

    @property
    def label(self) -> str:
        """Name of the call: `Functional_linear`, `NN_Conv2d_0`."""
        return f"{self.family}_{self.operation}{'' if self.call is None else f'_{self.call}'}"

    def site_name(self, framework: str = "torch") -> str:
        """Name in a trace: `torch.nn.functional.linear`; of a module only the class is known."""
        if self.kind is Kind.MODULE:
            return self.operation
        return (_MINDSPORE if framework == "mindspore" else _TORCH).get(self.family, f"{framework}.") + self.operation

    def __str__(self) -> str:
        return line_name(self.label, "output" if self.output else "input", self.slot, backward=self.backward)


def line_name(label: str, part: str, slot: str, *, backward: bool = False) -> str:
    """`Functional_linear_forward_input.0`."""
    return f"{label}_{'backward' if backward else 'forward'}_{part}{'.' if slot else ''}{slot}"


def family_of(name: str, families: Iterable[str]) -> tuple[str, str]:
    """The first of these families whose functions' names begin like this one, and the rest of the name; "" if there is none."""
    fitting = ((family, name.removeprefix(_TORCH[family])) for family in families if name.startswith(_TORCH[family]))
    return next(fitting, ("", name))


class Line(NamedTuple):
    """A line: its place in the dump, its tensor, which may be that of an earlier line, and its name."""

    order: int
    tensor: int
    name: LineName


@dataclass(slots=True)
class _Chunk:
    """The lines of one call in one direction: tensors by slot."""

    order: int
    name: LineName
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def takes(self, name: LineName) -> bool:
        """True if a line of this name belongs to the same call as the lines before it."""
        if name[:4] != self.name[:4] or name.slot in (self.outputs if name.output else self.inputs):
            return False
        return name.call is not None or name.output or not self.outputs


def _chunks(lines: Iterable[Line]) -> list[_Chunk]:
    """The lines by call and direction, in order. Those of a call that has a number may lie apart."""
    chunks: list[_Chunk] = []
    counted: dict[tuple[object, ...], _Chunk] = {}
    for order, tensor, name in lines:
        last = chunks[-1:] if name.call is None else [counted[name[:4]]] if name[:4] in counted else []
        if not last or not last[0].takes(name):
            last = [_Chunk(order, name)]
            chunks += last
            counted[name[:4]] = last[0]
        (last[0].outputs if name.output else last[0].inputs)[name.slot] = tensor
    return chunks


def fold(
    lines: Iterable[Line],
    tensors: dict[int, Tensor],
    stacks: Mapping[str, tuple[Frame, ...]],
    *,
    framework: str = "torch",
    swapped: bool = False,
) -> list[Call]:
    """The calls; `tensors` learn which call put them out, and which want a gradient.

    `stacks` are by the names of calls. `swapped`: the later tools call the gradient of a result "backward input", because that is
    what goes into the backward.
    """
    calls: list[Call] = []
    counts: dict[tuple[Phase, str], int] = {}
    owners: dict[str, list[int]] = {}
    for chunk in _chunks(lines):
        name = chunk.name
        if name.backward and swapped:
            chunk.inputs, chunk.outputs = chunk.outputs, chunk.inputs
        if name.backward:
            candidates = [calls[index] for index in reversed(owners.get(name.label, []))]
            owner = next((call for call in candidates if name.call is not None or _fits(chunk, call, tensors)), None)
            if owner is not None:
                calls[owner.id] = _with_gradients(owner, chunk, tensors)
                continue
        else:
            owners.setdefault(name.label, []).append(len(calls))
        phase = Phase.BACKWARD if name.backward else Phase.FORWARD
        counter = (phase, f"{name.family}_{name.operation}")
        number = counts.get(counter, 0) if name.call is None else name.call
        counts[counter] = number + 1
        site = Site(
            name.kind, name.site_name(framework), number, phase, "", name.operation if name.kind is Kind.MODULE else ""
        )
        calls.append(_call(len(calls), site, chunk, stacks.get(name.label, ())))
    _link(calls, tensors)
    return calls


def _call(identity: int, site: Site, chunk: _Chunk, stack: tuple[Frame, ...]) -> Call:
    """A backward whose forward was not recorded takes the gradients of the results and gives those of the arguments."""
    into, out = chunk.inputs, chunk.outputs
    if site.phase is Phase.BACKWARD:
        into, out = out, into
    positional = {slot: tensor for slot, tensor in into.items() if not slot.startswith("kw.")}
    named = {slot.removeprefix("kw."): tensor for slot, tensor in into.items() if slot.startswith("kw.")}
    result = TensorRef(out[""]) if "" in out else _nested(out) if out else None
    arguments = _arguments(positional), dict(_nested(named).items)
    return Call(identity, site, None, *arguments, result, stack=stack, order=chunk.order, tensors_only=True)


def _fits(chunk: _Chunk, call: Call, tensors: Mapping[int, Tensor]) -> bool:
    """True if the call has no gradients yet, and these have the shapes of what they are gradients of.

    The old tool gave the gradients of the arguments in an order of autograd's own, so only the results are asked.
    """
    put_out = call.returned
    for slot, gradient in chunk.outputs.items():
        result = put_out.get(slot, put_out.get("") if slot == "0" else None)
        if result is None or tensors[result].spec.shape != tensors[gradient].spec.shape:
            return False
    return not call.gradients


def _with_gradients(call: Call, chunk: _Chunk, tensors: dict[int, Tensor]) -> Call:
    bare = isinstance(call.output, TensorRef)
    count = max((gradient.count + 1 for gradient in call.gradients), default=0)
    gradients = [
        Gradient(Role.OUTPUT, "" if bare and slot == "0" else slot, tensor, call.id, count, tensor)
        for slot, tensor in chunk.outputs.items()
    ]
    gradients += [Gradient(Role.INPUT, slot, tensor, call.id, count, tensor) for slot, tensor in chunk.inputs.items()]
    for slot, tensor in tensor_slots(call.args, call.kwargs):
        if slot in chunk.inputs:
            tensors[tensor] = replace(tensors[tensor], requires_grad=True)
    return replace(call, gradients=(*call.gradients, *gradients))


# --- arguments, results, what flows between calls ---------------------------------------------------------------------


def _nested(slots: Mapping[str, int]) -> Nest:
    """Tensors by slot, as the nest that they were taken out of: a tuple, or a dict where a slot has a name."""
    groups: dict[str, dict[str, int]] = {}
    for slot, tensor in slots.items():
        head, _, rest = slot.partition(".")
        groups.setdefault(head, {})[rest] = tensor
    items: list[tuple[str, Value]] = [
        (head, TensorRef(inside[""]) if "" in inside else _nested(inside)) for head, inside in groups.items()
    ]
    if not all(head.isdecimal() for head in groups):
        return Nest("dict", tuple(items))
    return Nest("tuple", tuple(sorted(items, key=lambda entry: int(entry[0]))))


def _arguments(slots: Mapping[str, int]) -> tuple[Value, ...]:
    """By position; what was no tensor is not in a dump, and None stands in its place. What has no number follows."""
    nest = dict(_nested(slots).items)
    by_number = {int(key): nest.pop(key) for key in [*nest] if key.isdecimal() and len(key) < 5}
    return (*(by_number.get(position) for position in range(max(by_number, default=-1) + 1)), *nest.values())


def mark(tensor: Tensor) -> tuple[str, str]:
    """Key that tensors with the same values have in common."""
    return str(tensor.spec), tensor.fingerprint or f"tensor {tensor.id}"


def _link(calls: Sequence[Call], tensors: dict[int, Tensor]) -> None:
    """A value that goes in and has come out before comes from there."""
    made: dict[tuple[str, str], int] = {}
    for call in calls:
        for _, tensor in tensor_slots(call.args, call.kwargs):
            producer = made.get(mark(tensors[tensor]))
            if producer is not None:
                tensors[tensor] = replace(tensors[tensor], producer=producer)
        for tensor in call.returned.values():
            key = mark(tensors[tensor])
            if call.site.kind is Kind.MODULE:  # what it gives out was made by a function inside it, as a rule
                made.setdefault(key, call.id)
            else:
                made[key] = call.id
            tensors[tensor] = replace(tensors[tensor], producer=made[key])
