"""Stages of a pipeline: which ranks make the same calls, and what of their calls is one for the whole.

    rank 0   embedding, blocks.0 ─send─▶ rank 1   blocks.1, head        stages 0 and 1

A value that is sent is the value that is received, bit by bit: that is how the stages hang together. The sending itself is left
out. Modules around the layers of several stages are one call, from the first one's arguments to the last one's result; the updates
of the stages are one update.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from ..model.records import Call, Role
from ..model.sites import Kind, Phase
from ..model.values import Nest, TensorRef, Token, Value, leaves
from ..model.words import dotted
from ..store.trace import Journal
from .collectives import collective_of, groups_of
from .merging import SENDING, Merged, renumbered_call
from .meshes import Mesh


def stages_by_sending(journals: Sequence[Journal]) -> list[int]:
    """Stage of each rank: the number of ranks, at most, that a value goes through before it comes to it in the forward pass.

    Ranks that send nothing forward and run other modules than all others are stages in their order.
    """
    links = {(place, other) for place, journal in enumerate(journals) for other in _sends_to(journal, journals)}
    levels = [0] * len(journals)
    for _ in journals:
        for one, two in links:
            levels[two] = max(levels[two], min(levels[one] + 1, len(journals)))
    if links and max(levels) < len(journals):  # no circle
        return levels
    held = [
        frozenset(call.site.name for call in journal.calls() if call.site.kind is Kind.MODULE and call.parameters)
        for journal in journals
    ]
    kinds = list(dict.fromkeys(held))
    apart = all(not one & two for number, one in enumerate(kinds) for two in kinds[number + 1 :])
    if len(kinds) > 1 and apart and all(kinds):
        return [kinds.index(own) for own in held]
    return [0] * len(journals)


def _sends_to(journal: Journal, journals: Sequence[Journal]) -> Iterator[int]:
    """Positions of the ranks that a rank sends to before its backward pass begins."""
    calls = list(journal.calls())
    backward = min((gradient.order for call in calls for gradient in call.gradients), default=None)
    places = {other.header.rank: place for place, other in enumerate(journals)}
    for call in calls:
        if call.site.name not in SENDING or (backward is not None and call.order > backward):
            continue
        given = [*call.args[1:2], *(call.kwargs.get(name) for name in ("dst", "group_dst"))]
        for rank in given:
            if isinstance(rank, int) and places.get(rank, -1) >= 0 and rank != journal.header.rank:
                yield places[rank]


def join_stages(merged: Merged) -> None:
    """Makes one call of the modules and of the updates of several stages, in place."""
    inside = {call.parent for call in merged.calls}
    around: dict[tuple[str, int], list[Call]] = {}
    updates: dict[tuple[str, int], list[Call]] = {}
    for call in sorted(merged.calls, key=lambda call: call.order):
        if call.site.phase is Phase.UPDATE and call.parent is None:
            updates.setdefault((call.site.name, call.site.call), []).append(call)
        elif (
            call.site.kind is Kind.MODULE
            and call.site.phase is Phase.FORWARD
            and call.id in inside
            and not call.parameters
        ):
            around.setdefault((call.site.name, call.site.call), []).append(call)
    changed: dict[int, Call | None] = {}
    parents: dict[int, int] = {}
    for calls in around.values():
        first, last = calls[0], calls[-1]
        if len(calls) == 1:
            continue
        gradients = [item for item in first.gradients if item.role is Role.INPUT]
        gradients += [item for item in last.gradients if item.role is Role.OUTPUT]
        changed[first.id] = replace(
            first,
            site=replace(first.site, type=last.site.type),
            output=last.output,
            gradients=tuple(gradients),
            order=last.order,
        )
        for other in calls[1:]:
            changed[other.id], parents[other.id] = None, first.id
    for calls in updates.values():
        if len(calls) > 1:
            changed |= dict.fromkeys((call.id for call in calls[1:]), None)
            changed[calls[0].id] = replace(
                calls[0],
                args=tuple(
                    _one_after_the_other(values) for values in zip(*(call.args for call in calls), strict=False)
                ),
                kwargs={
                    name: _one_after_the_other([call.kwargs.get(name) for call in calls]) for name in calls[0].kwargs
                },
                output=_one_after_the_other([call.output for call in calls]),
                order=calls[-1].order,
            )
    kept = [changed.get(call.id, call) for call in merged.calls]
    merged.calls = [
        replace(call, parent=parents.get(call.parent, call.parent)) if call.parent in parents else call
        for call in kept
        if call is not None
    ]


def drop_across_stages(merged: Merged, mesh: Mesh, stages: Sequence[int]) -> None:
    """Takes out collectives of ranks of several stages, in place: each stage has other tensors there, which are none of one whole.

    What they leave is seen where it is taken.
    """
    across = {
        axis for axis in mesh.rank_axes if any(len({stages[place] for place in line}) > 1 for line in mesh.lines(axis))
    }

    micro = mesh.shape[-1] if mesh.micro else 1

    def spans(call: Call) -> bool:
        collective = collective_of(call, mesh)
        if collective is None:
            return False
        if collective.axes is not None:
            return bool(across.intersection(collective.axes))
        # A group that lies along no axis: the first and the last stage.
        return any(len({stages[rank * micro] for rank in ranks}) > 1 for ranks in groups_of(call))

    merged.calls = [call for call in merged.calls if not spans(call)]


def tie_stages(merged: Merged, bits: Callable[[int], object]) -> None:
    """Makes one of a weight that two stages of a pipeline hold each a copy of, in place: an embedding and the head tied to it.

    Its gradient is the sum of what the stages send back to it. `bits` tells the bits of a group.
    """
    held: dict[object, tuple[int, str]] = {}
    same: dict[int, tuple[int, str, str]] = {}
    for call in sorted(merged.calls, key=lambda call: call.order):
        for slot, number in call.parameters.items():
            name = dotted(call.site.name, slot)
            known = held.setdefault(bits(number), (number, name)) if bits(number) is not None else (number, name)
            if known[0] != number and _stage_of(merged, known[0]) != _stage_of(merged, number):
                same.setdefault(number, (known[0], known[1], name))
    if not same:
        return
    numbers = {number: first for number, (first, _, _) in same.items()}
    updates = [call for call in merged.calls if call.site.phase is Phase.UPDATE]
    taken = {
        number: (call, gradient)
        for call in updates
        for number, gradient in zip(_listed(call.args[0]), _listed(call.kwargs.get("gradients")), strict=False)
    }
    for number, (first, one, two) in same.items():
        if number in taken and first in taken:
            groups = [merged.groups[taken[item][1]][0] for item in (first, number)]
            merged.tied.append((taken[first][0], f"{one}, {two}", tuple(groups)))
    merged.calls = [
        _without_parameters(call, numbers) if call.site.phase is Phase.UPDATE else renumbered_call(call, numbers)
        for call in merged.calls
    ]
    by_name = {gradient.slot: gradient for gradient in merged.gradients}
    for _, one, two in same.values():
        if one in by_name and two in by_name:
            joined = _both(merged, by_name[one].tensor, by_name[two].tensor)
            merged.gradients = [
                replace(item, tensor=joined) if item.slot == one else item
                for item in merged.gradients
                if item.slot != two
            ]


def _stage_of(merged: Merged, number: int) -> tuple[int, ...]:
    return tuple(sorted({place for place, _ in merged.groups[number]}))


def _both(merged: Merged, one: int, two: int) -> int:
    """The group of a gradient of which each of two stages has a part."""
    own = {place: number for place, number in (*merged.groups[one], *merged.groups[two])}
    first = merged.groups[one][0]
    # Stages between them have no part of it.
    group = tuple(
        (place, own[place]) if place in own else (~first[0], first[1]) for place in range(len(merged.groups[one]))
    )
    merged.groups.append(group)
    return len(merged.groups) - 1


def _listed(value: Value) -> list[int]:
    return [leaf.id for _, leaf in leaves(value) if isinstance(leaf, TensorRef)]


def _without_parameters(call: Call, numbers: Collection[int]) -> Call:
    """An optimizer's step without some of its parameters."""
    listed = call.args[0]
    assert isinstance(listed, Nest)
    gone = {key for key, item in listed.items if isinstance(item, TensorRef) and item.id in numbers}
    if not gone:
        return call
    kept = [key for key, _ in listed.items if key not in gone]
    places = {key: str(place) for place, key in enumerate(kept)}

    def thinned(value: Value) -> Value:
        if not isinstance(value, Nest):
            return value
        if value.items and all(key.isdigit() for key, _ in value.items):
            return Nest(value.kind, tuple((places[key], item) for key, item in value.items if key in places))
        return Nest(value.kind, tuple((key, thinned(item)) for key, item in value.items))

    def counted(value: Value) -> Value:
        if not isinstance(value, Nest):
            return value
        items: list[tuple[str, Value]] = []
        for key, item in value.items:
            if key == "parameters" and isinstance(item, int):
                items.append((key, item - len(gone)))
            else:
                items.append((key, counted(item)))
        return Nest(value.kind, tuple(items))

    return replace(
        call,
        args=(thinned(listed), *call.args[1:]),
        kwargs={name: counted(value) if name == "groups" else thinned(value) for name, value in call.kwargs.items()},
        output=thinned(call.output),
    )


def _one_after_the_other(values: Sequence[Value]) -> Value:
    """Lists, and what is numbered like them, as one; everything else as the first has it."""
    nests = [value for value in values if isinstance(value, Nest)]
    if not nests or len(nests) < len(values):
        return (
            values[0] if all(value == values[0] for value in values) else Token("stages", " | ".join(map(str, values)))
        )
    if all(key.isdigit() for nest in nests for key, _ in nest.items):
        items, offset = [], 0
        for nest in nests:
            items += [(str(int(key) + offset), item) for key, item in nest.items]
            offset += 1 + max((int(key) for key, _ in nest.items), default=-1)
        return Nest(nests[0].kind, tuple(items))
    keys = dict.fromkeys(key for nest in nests for key, _ in nest.items)
    held = [dict(nest.items) for nest in nests]
    return Nest(nests[0].kind, tuple((key, _one_after_the_other([own.get(key) for own in held])) for key in keys))
