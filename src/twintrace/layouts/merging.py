"""Calls of the ranks that correspond to each other, as one call of groups of tensors.

    rank 0   linear#3 in blocks.0.up (2, 7)
    rank 1   linear#3 in blocks.0.up (2, 9)     ->  one call, of the groups (2, 2) and (7, 9)

Corresponding calls have the same phase, kind, name and module around them, and the same turn among those. A group is the numbers
of one tensor on all ranks; equal groups are the data flow, as equal numbers are on one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..model.records import Call, Gradient, is_kept
from ..model.values import Nest, TensorRef, Token, Value, leaves, tensor_slots
from ..store.trace import Journal

Group = tuple[int, ...]
"""Numbers of a tensor on the ranks, in their order."""
Address = tuple[str, str, str, str, int]

DIFFERENT = "ranks"
"""Kind of the token in the place of an argument that is another on each rank."""


@dataclass(slots=True)
class Merged:
    """The calls that all ranks make, with numbers of groups in the place of tensors; those that only some make."""

    calls: list[Call] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    """By number, in the order of the first rank."""
    lone: list[tuple[Call, tuple[int, ...]]] = field(default_factory=list)
    """Calls that only some ranks make, and the positions of these."""
    untaken: list[tuple[Call, str]] = field(default_factory=list)
    """Calls that the ranks make with other arguments, and what differs."""


def merge(journals: Sequence[Journal]) -> Merged:
    """Corresponding calls of the journals as one; ids, parents and order are those of the first rank."""
    by_address = [_by_address(journal) for journal in journals]
    first = by_address[0]
    seen: dict[Address, list[int]] = {}
    for position, calls in enumerate(by_address):
        for address in calls:
            seen.setdefault(address, []).append(position)
    found = Merged()
    for address, positions in seen.items():
        if len(positions) < len(journals):
            found.lone.append((by_address[positions[0]][address], tuple(positions)))
    together = [
        (call, [calls[address] for calls in by_address])
        for address, call in first.items()
        if len(seen[address]) == len(journals)
    ]
    kept = {call.id for call, _ in together}
    groups: dict[Group, None] = {}
    shaped: list[tuple[Call, list[Call]]] = []
    for call, ranks in together:
        differs = _shapes_differ(ranks)
        if differs:
            found.untaken.append((call, differs))
            continue
        shaped.append((call, ranks))
        for group in _groups_of(ranks):
            groups[group] = None
    parameters = _parameter_gradients(journals)
    for _, group in parameters:
        groups[group] = None
    found.groups = sorted(groups)
    numbers = {group: number for number, group in enumerate(found.groups)}
    for call, ranks in shaped:
        parent = call.parent
        while parent is not None and parent not in kept:
            parent = next((other.parent for other in first.values() if other.id == parent), None)
        found.calls.append(_merged(call, ranks, numbers, parent))
    found.calls.sort(key=lambda call: call.id)
    found.gradients = [replace(gradient, tensor=numbers[group]) for gradient, group in parameters]
    return found


def _by_address(journal: Journal) -> dict[Address, Call]:
    found: dict[Address, Call] = {}
    turns: dict[tuple[str, str, str, str], int] = {}
    for call in sorted((call for call in journal.calls() if not is_kept(call)), key=lambda call: call.id):
        site = call.site
        name = (str(site.phase), str(site.kind), site.name, site.path)
        turn = turns[name] = turns.get(name, -1) + 1
        address = (*name, turn)
        found[address] = call
    return found


def _shapes_differ(ranks: Sequence[Call]) -> str:
    """The difference between the calls of the ranks that keeps them from being one; empty if there is none."""
    first = ranks[0]
    slots = list(dict(tensor_slots(first.args, first.kwargs)))
    for call in ranks[1:]:
        if list(dict(tensor_slots(call.args, call.kwargs))) != slots:
            return "they take other arguments"
        if _tensors(call.output).keys() != _tensors(first.output).keys() or call.after.keys() != first.after.keys():
            return "they give other results"
        if call.parameters.keys() != first.parameters.keys() or call.buffers.keys() != first.buffers.keys():
            return "the modules hold other parameters"
    return ""


def _tensors(value: Value) -> dict[str, int]:
    return {slot: leaf.id for slot, leaf in leaves(value) if isinstance(leaf, TensorRef)}


def _groups_of(ranks: Sequence[Call]) -> list[Group]:
    found: list[Group] = []
    parts = [[*dict(tensor_slots(call.args, call.kwargs)).values(), *_tensors(call.output).values()] for call in ranks]
    found += zip(*parts, strict=True)
    for name in ("parameters", "buffers", "after"):
        found += [tuple(getattr(call, name)[slot] for call in ranks) for slot in getattr(ranks[0], name)]
    found += [group for _, group in _gradients(ranks)]
    return found


def _gradients(ranks: Sequence[Call]) -> list[tuple[Gradient, Group]]:
    """Gradients that all ranks have of a call, with their groups."""
    others = [{(item.role, item.slot, item.count): item.tensor for item in call.gradients} for call in ranks]
    found = []
    for gradient in ranks[0].gradients:
        key = gradient.role, gradient.slot, gradient.count
        if all(key in known for known in others):
            found.append((gradient, tuple(known[key] for known in others)))
    return found


def _parameter_gradients(journals: Sequence[Journal]) -> list[tuple[Gradient, Group]]:
    others = [{(item.slot, item.count): item.tensor for item in journal.parameter_gradients()} for journal in journals]
    return [
        (gradient, tuple(known[gradient.slot, gradient.count] for known in others))
        for gradient in journals[0].parameter_gradients()
        if all((gradient.slot, gradient.count) in known for known in others)
    ]


def _merged(call: Call, ranks: Sequence[Call], numbers: dict[Group, int], parent: int | None) -> Call:
    def held(name: str) -> dict[str, int]:
        return {slot: numbers[tuple(getattr(rank, name)[slot] for rank in ranks)] for slot in getattr(call, name)}

    return replace(
        call,
        parent=parent,
        args=tuple(_value([rank.args[place] for rank in ranks], numbers) for place in range(len(call.args))),
        kwargs={name: _value([rank.kwargs.get(name) for rank in ranks], numbers) for name in call.kwargs},
        output=_value([rank.output for rank in ranks], numbers),
        parameters=held("parameters"),
        buffers=held("buffers"),
        after=held("after"),
        gradients=tuple(replace(gradient, tensor=numbers[group]) for gradient, group in _gradients(ranks)),
    )


def _value(values: Sequence[Value], numbers: dict[Group, int]) -> Value:
    first = values[0]
    if all(isinstance(value, TensorRef) for value in values):
        return TensorRef(numbers[tuple(value.id for value in values if isinstance(value, TensorRef))])
    if isinstance(first, Nest) and all(
        isinstance(value, Nest) and [key for key, _ in value.items] == [key for key, _ in first.items]
        for value in values
    ):
        nests = [value for value in values if isinstance(value, Nest)]
        items = tuple(
            (key, _value([nest.items[place][1] for nest in nests], numbers))
            for place, (key, _) in enumerate(first.items)
        )
        return Nest(first.kind, items)
    if all(value == first for value in values):
        return first
    return Token(DIFFERENT, " | ".join(map(str, values)))
