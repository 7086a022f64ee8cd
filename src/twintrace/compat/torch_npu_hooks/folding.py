"""Lines of a dump into calls: which lines belong to one call, and which gradients to which.

    1  Functional_linear_forward_input.0    ┐
    2  Functional_linear_forward_output     ┘ call 0
    3  Functional_linear_forward_input.0    ┐
    4  Functional_linear_forward_output     ┘ call 1
    5  Functional_linear_backward_input.0   ┐ gradients of call 1: the last call of that name, with such results, that has none
    6  Functional_linear_backward_output.0  ┘

A call ends where its name ends, where an input follows an output, and where a slot comes twice. Where the tool counts its calls
(ptdbg_ascend) the number decides. Values that come out of one call and go into another are recognised by their fingerprints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...model.records import Call, Frame, Gradient, Role
from ...model.sites import Kind, Phase, Site
from ...model.tensors import Tensor
from ...model.values import TensorRef, tensor_slots
from ..reading import arguments_of, link, mark, nested, result_of, results
from .names import LineName


@dataclass(slots=True)
class Chunk:
    """The lines of one call in one direction: tensors by slot."""

    name: LineName
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def takes(self, name: LineName) -> bool:
        """True if a line of this name belongs to the same call as the lines before it."""
        if name[:4] != self.name[:4]:
            return False
        if name.call is not None:
            return True
        ended = self.outputs and not name.output
        return not ended and name.slot not in (self.outputs if name.output else self.inputs)


def chunks(lines: Iterable[tuple[int, LineName]]) -> list[Chunk]:
    """The lines by call and direction, in order."""
    found: list[Chunk] = []
    for tensor, name in lines:
        if not found or not found[-1].takes(name):
            found.append(Chunk(name))
        (found[-1].outputs if name.output else found[-1].inputs)[name.slot] = tensor
    return found


def fold(
    lines: Iterable[tuple[int, LineName]],
    tensors: dict[int, Tensor],
    stacks: Mapping[tuple[str, str, int | None], tuple[Frame, ...]],
    *,
    swapped: bool = False,
) -> list[Call]:
    """The calls; `tensors` learn which call put them out, and which want a gradient.

    `swapped`: the later tools call the gradient of a result "backward input", because that is what goes into the backward.
    """
    calls: list[Call] = []
    counts: dict[tuple[Phase, str, str], int] = {}
    by_name: dict[tuple[str, str], list[int]] = {}
    for chunk in chunks(lines):
        if chunk.name.backward and swapped:
            chunk.inputs, chunk.outputs = chunk.outputs, chunk.inputs
        key = chunk.name.family, chunk.name.operation
        if chunk.name.backward:
            owner = _owner(chunk, [calls[index] for index in reversed(by_name.get(key, []))], tensors)
            if owner is not None:
                calls[owner] = _with_gradients(calls[owner], chunk, tensors)
                continue
        phase = Phase.BACKWARD if chunk.name.backward else Phase.FORWARD
        counter = (phase, *key)
        number = counts.get(counter, 0) if chunk.name.call is None else chunk.name.call
        counts[counter] = number + 1
        if not chunk.name.backward:
            by_name.setdefault(key, []).append(len(calls))
        calls.append(_call(len(calls), chunk, phase, number, stacks.get((*key, chunk.name.call), ())))
    link(calls, tensors)
    return [_with_parameters(call, calls, tensors) for call in calls]


def _call(identity: int, chunk: Chunk, phase: Phase, number: int, stack: tuple[Frame, ...]) -> Call:
    """A backward whose forward was not recorded takes the gradients of the results and gives those of the arguments."""
    into, out = (chunk.outputs, chunk.inputs) if phase is Phase.BACKWARD else (chunk.inputs, chunk.outputs)
    name = chunk.name
    site = Site(name.kind, name.site_name, number, phase, "", name.operation if name.kind is Kind.MODULE else "")
    positional = {slot: tensor for slot, tensor in into.items() if not slot.startswith("kw.")}
    named = {slot.removeprefix("kw."): tensor for slot, tensor in into.items() if slot.startswith("kw.")}
    first = min([*into.values(), *out.values()])
    return Call(
        identity,
        site,
        None,
        arguments_of(positional),
        dict(nested(named).items),
        result_of(out),
        stack=stack,
        order=first,
        tensors_only=True,
    )


def _owner(chunk: Chunk, candidates: Sequence[Call], tensors: Mapping[int, Tensor]) -> int | None:
    """The call that these are the gradients of: the one with its number, or the last that has none and fits."""
    if chunk.name.call is not None:
        return next((call.id for call in candidates if call.site.call == chunk.name.call), None)
    for call in candidates:
        if not call.gradients and _fits(chunk, call, tensors):
            return call.id
    return None


def _fits(chunk: Chunk, call: Call, tensors: Mapping[int, Tensor]) -> bool:
    """True if the gradients have the shapes of what they are gradients of.

    The old tool gave the gradients of the arguments in an order of autograd's own, so only the results are asked.
    """
    put_out = results(call)
    for slot, gradient in chunk.outputs.items():
        result = put_out.get(slot, put_out.get("") if slot == "0" else None)
        if result is None or tensors[result].spec.shape != tensors[gradient].spec.shape:
            return False
    return True


def _with_gradients(call: Call, chunk: Chunk, tensors: dict[int, Tensor]) -> Call:
    bare = isinstance(call.output, TensorRef)
    count = max((gradient.count + 1 for gradient in call.gradients), default=0)
    found = [
        Gradient(Role.OUTPUT, "" if bare and slot == "0" else slot, tensor, call.id, count, tensor)
        for slot, tensor in chunk.outputs.items()
    ]
    found += [Gradient(Role.INPUT, slot, tensor, call.id, count, tensor) for slot, tensor in chunk.inputs.items()]
    for slot, tensor in tensor_slots(call.args, call.kwargs):
        if slot in chunk.inputs:
            tensors[tensor] = replace(tensors[tensor], requires_grad=True)
    return replace(call, gradients=(*call.gradients, *found))


def _with_parameters(call: Call, calls: Sequence[Call], tensors: Mapping[int, Tensor]) -> Call:
    """A dump does not say what a module holds. The function before it, if it made what the module gives out, was called with it."""
    inside = calls[call.id - 1] if call.id else None
    made_by = {tensors[tensor].producer for tensor in results(call).values()}
    if call.site.kind is not Kind.MODULE or inside is None or made_by != {inside.id}:
        return call
    given = {mark(tensors[tensor]) for _, tensor in tensor_slots(call.args, call.kwargs)}
    held = {
        slot.removeprefix("kw."): tensor
        for slot, tensor in tensor_slots(inside.args, inside.kwargs)
        if tensors[tensor].producer is None and mark(tensors[tensor]) not in given
    }
    return replace(call, parameters=held)
