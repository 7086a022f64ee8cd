"""Calls of the ranks that correspond to each other, as one call of groups of tensors.

    rank 0   linear#3 in blocks.0.up (2, 7)
    rank 1   linear#3 in blocks.0.up (2, 9)     ->  one call, of the groups ((0, 2), (1, 2)) and ((0, 7), (1, 9))

Corresponding calls have the same phase, kind, name and module around them, and the same turn among those. A group is one tensor
on all ranks; equal groups are the data flow, as equal numbers are on one rank. The ranks of one stage of a pipeline correspond
to each other; to the others their tensors are lent: a rank that has no part in a call counts as a copy of one that has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.records import Call, Gradient, is_kept
from ..model.values import Nest, TensorRef, Token, Value, leaves, mapped, tensor_slots
from ..operations.sides import inputs_of
from ..store.trace import Journal
from .collectives import as_torch_says
from .meshes import Mesh

Member = tuple[int, int]
"""Position of a journal, and the number of a tensor in it; `~position` for no part of a sum, of the shape of that tensor."""
Group = tuple[Member, ...]
"""One tensor on the ranks, in their order."""
Address = tuple[str, str, str, str, int]

SENDING = frozenset(f"torch.distributed.{name}" for name in ("send", "isend"))
_POINT_TO_POINT = SENDING | frozenset(f"torch.distributed.{name}" for name in ("recv", "irecv", "batch_isend_irecv"))

DIFFERENT = "ranks"
"""Kind of the token in the place of an argument that is another on each rank."""


@dataclass(slots=True)
class Merged:
    """The calls that all ranks make, with numbers of groups in the place of tensors; those that only some make."""

    calls: list[Call] = field(default_factory=list)
    gradients: list[Gradient] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    """By number, in the order of the first rank."""
    members: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    """The calls of the ranks that one call is made of, by its id."""
    places: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Positions of the ranks that make a call, by its id."""
    lone: list[tuple[Call, tuple[int, ...]]] = field(default_factory=list)
    """Calls that only some ranks make, and the positions of these."""
    lone_gradients: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Parameters of which only some ranks have a gradient, and the positions of these."""
    tied: list[tuple[Call, str, tuple[Member, ...]]] = field(default_factory=list)
    """Updates of a weight that two stages hold: one of them, its names, and the gradients that the stages take for it."""
    untaken: list[tuple[Call, str]] = field(default_factory=list)
    """Calls that the ranks make with other arguments, and what differs."""

    def numbers(self) -> Mapping[Group, int]:
        return {group: number for number, group in enumerate(self.groups)}


@dataclass(frozen=True, slots=True)
class Stage:
    """Ranks that make the same calls: all of them, or those of one stage of a pipeline.

    `lenders`: for each position of the mesh, the position in this stage whose tensors stand for those of that rank.
    """

    places: tuple[int, ...]
    lenders: tuple[int, ...]


def stages_of(mesh: Mesh, stages: Sequence[int]) -> list[Stage]:
    """Stages by the number of each position's; of the positions of a stage, the one in the most similar place of the mesh lends."""
    ordered = []
    for number in sorted(set(stages)):
        places = tuple(place for place, stage in enumerate(stages) if stage == number)

        def unlike(place: int, other: int) -> tuple[int, int]:
            here, there = mesh.coordinates(place), mesh.coordinates(other)
            return sum(one != two for one, two in zip(here, there, strict=True)), other

        lenders = tuple(min(places, key=lambda other: unlike(place, other)) for place in range(mesh.size))
        ordered.append(Stage(places, lenders))
    return ordered


def merge(journals: Sequence[Journal], mesh: Mesh, stages: Sequence[int] = ()) -> Merged:
    """Corresponding calls of the journals as one; ids, parents and order are those of the first rank of each stage.

    Args:
        journals: of the positions of the mesh, in their order.
        mesh: the grid of the ranks.
        stages: number of the stage of each position, in the order of the forward pass; all are of one if there are none.
    """
    by_address = [_by_address(journal) for journal in journals]
    whole = stages_of(mesh, stages or [0] * len(journals))
    span = 1 + max((call.id for calls in by_address for call in calls.values()), default=0)
    of_ranks, shaped = Merged(), []
    groups: dict[Group, None] = {}
    gradients: list[tuple[Gradient, Group]] = []
    for number, stage in enumerate(whole):
        clock = _Clock([by_address[place] for place in stage.places], number, len(whole))
        shaped += _merge_stage(by_address, stage, of_ranks, clock, number * span)
        of_ranks.lone_gradients += _lone_gradients(journals, stage)
        gradients += [
            (clock.of_gradient(gradient), group)
            for gradient, group in _parameter_gradients([journals[place] for place in stage.places], stage)
        ]
    for _, ranks, stage, _ in shaped:
        groups.update(dict.fromkeys(_groups_of(ranks, stage)))
    groups.update(dict.fromkeys(group for _, group in gradients))
    of_ranks.groups = sorted(groups)
    numbers = of_ranks.numbers()
    for call, ranks, stage, clock in shaped:
        merged = _merged(call, ranks, stage, numbers, clock)
        of_ranks.calls.append(merged)
        of_ranks.members[merged.id] = tuple(ranks)
        of_ranks.places[merged.id] = stage.places
    of_ranks.calls.sort(key=lambda call: call.id)
    of_ranks.gradients = [replace(gradient, tensor=numbers[group]) for gradient, group in gradients]
    return of_ranks


_Shaped = tuple[Call, list[Call], Stage, "_Clock"]


def _merge_stage(
    by_address: Sequence[Mapping[Address, Call]], stage: Stage, merged: Merged, clock: _Clock, offset: int
) -> list[_Shaped]:
    """Corresponding calls of one stage, the first rank's with ids and parents that no other stage has."""
    seen: dict[Address, list[int]] = {}
    for place in stage.places:
        for address in by_address[place]:
            seen.setdefault(address, []).append(place)
    for address, places in seen.items():
        if len(places) < len(stage.places):
            merged.lone.append((by_address[places[0]][address], tuple(places)))
    first = by_address[stage.places[0]]
    together = {
        call.id: (call, [by_address[place][address] for place in stage.places])
        for address, call in first.items()
        if len(seen[address]) == len(stage.places)
    }
    parents = {call.id: call.parent for call in first.values()}
    shaped: list[_Shaped] = []
    for call, ranks in together.values():
        differs = _shapes_differ(ranks)
        if differs:
            merged.untaken.append((call, differs))
            continue
        parent = call.parent
        while parent is not None and parent not in together:
            parent = parents.get(parent)
        placed = replace(call, id=call.id + offset, parent=None if parent is None else parent + offset)
        shaped.append((placed, ranks, stage, clock))
    return shaped


class _Clock:
    """Places in the order of events where a pipeline has several stages: forward stage by stage, backward the other way."""

    def __init__(self, calls: Sequence[Mapping[Address, Call]], stage: int, stages: int) -> None:
        begin = [gradient.order for call in calls[0].values() for gradient in call.gradients]
        self._stage, self._stages = stage, stages
        self._backward = min(begin, default=_EVENTS)

    def of_call(self, call: Call) -> int:
        turn = 0
        if self._stages > 1:
            turn = self._stage if call.order < self._backward else 2 * self._stages
        return turn * _EVENTS + ROOM * call.order

    def of_gradient(self, gradient: Gradient) -> Gradient:
        turn = 2 * self._stages - 1 - self._stage if self._stages > 1 else 0
        return replace(gradient, order=turn * _EVENTS + ROOM * gradient.order)


ROOM = 8
"""Distance of two events in the order, for what comes between them."""
_EVENTS = 1 << 40
"""More events than a step has: what one stage does lies before what the next does."""


def _without_sending(calls: Sequence[Call]) -> list[Call]:
    """Calls without those that send or receive, and the memory that is received into."""
    received = {
        number
        for call in calls
        if call.site.name in _POINT_TO_POINT and call.after
        for number in inputs_of(call).values()
    }
    return [
        call
        for call in calls
        if call.site.name not in _POINT_TO_POINT
        and not (not inputs_of(call) and any(getattr(call.output, "id", None) == number for number in received))
    ]


def _by_address(journal: Journal) -> dict[Address, Call]:
    known: dict[Address, Call] = {}
    turns: dict[tuple[str, str, str, str], int] = {}
    calls = _without_sending([as_torch_says(call) for call in journal.calls() if not is_kept(call)])
    for call in sorted(calls, key=lambda call: call.id):
        site = call.site
        name = (str(site.phase), str(site.kind), site.name, site.path)
        turn = turns[name] = turns.get(name, -1) + 1
        address = (*name, turn)
        known[address] = call
    return known


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


def group_of(tensors: Sequence[int], stage: Stage) -> Group:
    """The group of one tensor of each rank of a stage."""
    own = dict(zip(stage.places, tensors, strict=True))
    return tuple((lender, own[lender]) for lender in stage.lenders)


def _groups_of(ranks: Sequence[Call], stage: Stage) -> list[Group]:
    parts = [[*dict(tensor_slots(call.args, call.kwargs)).values(), *_tensors(call.output).values()] for call in ranks]
    groups = [group_of(tensors, stage) for tensors in zip(*parts, strict=True)]
    for name in ("parameters", "buffers", "after"):
        groups += [group_of([getattr(call, name)[slot] for call in ranks], stage) for slot in getattr(ranks[0], name)]
    groups += [group for _, group in _gradients(ranks, stage)]
    return groups


def _gradients(ranks: Sequence[Call], stage: Stage) -> list[tuple[Gradient, Group]]:
    """Gradients that all ranks have of a call, with their groups."""
    others = [{(item.role, item.slot, item.count): item.tensor for item in call.gradients} for call in ranks]
    gradients = []
    for gradient in ranks[0].gradients:
        key = gradient.role, gradient.slot, gradient.count
        if all(key in known for known in others):
            gradients.append((gradient, group_of([known[key] for known in others], stage)))
    return gradients


def _parameter_gradients(journals: Sequence[Journal], stage: Stage) -> list[tuple[Gradient, Group]]:
    others = [{(item.slot, item.count): item.tensor for item in journal.parameter_gradients()} for journal in journals]
    return [
        (gradient, group_of([known[gradient.slot, gradient.count] for known in others], stage))
        for gradient in journals[0].parameter_gradients()
        if all((gradient.slot, gradient.count) in known for known in others)
    ]


def _lone_gradients(journals: Sequence[Journal], stage: Stage) -> list[tuple[str, tuple[int, ...]]]:
    seen: dict[str, list[int]] = {}
    for place in stage.places:
        for name in {item.slot for item in journals[place].parameter_gradients()}:
            seen.setdefault(name, []).append(place)
    return [(name, tuple(places)) for name, places in sorted(seen.items()) if len(places) < len(stage.places)]


def _merged(call: Call, ranks: Sequence[Call], stage: Stage, numbers: Mapping[Group, int], clock: _Clock) -> Call:
    def number(tensors: Sequence[int]) -> int:
        return numbers[group_of(tensors, stage)]

    def value(of: Sequence[Value]) -> Value:
        return _value(of, number)

    def held(name: str) -> dict[str, int]:
        return {slot: number([getattr(rank, name)[slot] for rank in ranks]) for slot in getattr(call, name)}

    return replace(
        call,
        args=tuple(value([rank.args[place] for rank in ranks]) for place in range(len(call.args))),
        kwargs={name: value([rank.kwargs.get(name) for rank in ranks]) for name in call.kwargs},
        output=value([rank.output for rank in ranks]),
        parameters=held("parameters"),
        buffers=held("buffers"),
        after=held("after"),
        gradients=tuple(
            clock.of_gradient(replace(gradient, tensor=numbers[group])) for gradient, group in _gradients(ranks, stage)
        ),
        order=clock.of_call(call),
    )


def _value(values: Sequence[Value], number: Callable[[Sequence[int]], int]) -> Value:
    first = values[0]
    if all(isinstance(value, TensorRef) for value in values):
        return TensorRef(number([value.id for value in values if isinstance(value, TensorRef)]))
    if isinstance(first, Nest) and all(
        isinstance(value, Nest) and [key for key, _ in value.items] == [key for key, _ in first.items]
        for value in values
    ):
        nests = [value for value in values if isinstance(value, Nest)]
        items = tuple(
            (key, _value([nest.items[place][1] for nest in nests], number))
            for place, (key, _) in enumerate(first.items)
        )
        return Nest(first.kind, items)
    if all(value == first for value in values):
        return first
    return Token(DIFFERENT, " | ".join(map(str, values)))


def renumbered(value: Value, numbers: Mapping[int, int]) -> Value:
    """A value with other numbers for some of its tensors."""
    return mapped(
        value, lambda leaf, _: TensorRef(numbers.get(leaf.id, leaf.id)) if isinstance(leaf, TensorRef) else leaf
    )


def renumbered_call(call: Call, numbers: Mapping[int, int]) -> Call:
    """A call that takes other tensors for some of its own."""
    return replace(
        call,
        args=tuple(renumbered(value, numbers) for value in call.args),
        kwargs={name: renumbered(value, numbers) for name, value in call.kwargs.items()},
        parameters={name: numbers.get(number, number) for name, number in call.parameters.items()},
    )
