"""Pair the calls of two runs of one program: by name, place and order.

    left                          right
    layer1 / torch.relu #3        layer1 / torch.relu #4        paired: an extra relu before them does not shift them
    layer1 / torch.relu #4        layer1 / torch.relu #5

Calls are compared within the module call that they were made in, and only with calls of the same name there. As many on both
sides: they go in order, unless their source lines say otherwise. More on one side: source lines, shapes and values say which
are the extra ones, and the parameters that values come from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from ..model.pairs import Part
from ..model.records import Call
from ..model.sites import Kind
from .features import Numbering, shapes_of, values_of
from .sequences import match_sequences
from .trees import CallTree
from .units import is_parameter, operand, operation
from .values import is_constant, numel

_SAME_PROGRAM = 0.5


class Named(NamedTuple):
    """A pair of calls, by position; `sure` unless source lines, shapes and values had to decide."""

    left: int
    right: int
    sure: bool


def same_program(left: CallTree, right: CallTree) -> bool:
    """Do most names and places of the smaller side occur on the other as well?"""
    if left.framework != right.framework:
        return False
    ours, theirs = (
        {(call.site.phase, call.site.kind, call.site.name, call.site.path) for call in side.calls}
        for side in (left, right)
    )
    kinds = {key[1] for key in ours} & {key[1] for key in theirs}
    ours, theirs = ({key for key in side if key[1] in kinds} for side in (ours, theirs))
    fewest = min(len(ours), len(theirs))
    return fewest > 0 and len(ours & theirs) >= _SAME_PROGRAM * fewest


def by_name(left: CallTree, right: CallTree) -> list[Named]:
    """Pairs of calls with the same name in the same place."""
    nested = all(any(call.site.kind is Kind.MODULE for call in side.calls) for side in (left, right))
    found: list[Named] = []
    everything: tuple[Sequence[int], Sequence[int]] = (range(len(left)), range(len(right)))
    waiting = [(left.roots, right.roots) if nested else everything]
    while waiting:
        ours, theirs = waiting.pop()
        pairs = list(_within(left, right, ours, theirs))
        found += pairs
        for one, two, _ in pairs:
            if nested and left.children[one] and right.children[two]:
                waiting.append((left.children[one], right.children[two]))
    return sorted(found)


def _within(left: CallTree, right: CallTree, ours: Iterable[int], theirs: Iterable[int]) -> Iterable[Named]:
    groups = _grouped(left, ours)
    others = _grouped(right, theirs)
    for key, members in groups.items():
        partners = others.get(key)
        if partners is None:
            continue
        if len(members) == len(partners) and _are_counterparts(left, right, members, partners):
            yield from (Named(one, two, True) for one, two in zip(members, partners, strict=True))
        else:
            yield from _told_apart(left, right, members, partners)


def _grouped(tree: CallTree, members: Iterable[int]) -> dict[tuple[str, ...], list[int]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for index in members:
        site = tree.calls[index].site
        groups.setdefault((site.phase, site.kind, site.name, site.path), []).append(index)
    return groups


def _are_counterparts(left: CallTree, right: CallTree, ours: list[int], theirs: list[int]) -> bool:
    """True of calls from the same lines; of one on each side unless it is a function in another line that takes other shapes."""
    if _same_lines(left, right, ours, theirs):
        return True
    (one, two) = ours[0], theirs[0]
    is_module = left.calls[one].site.kind is Kind.MODULE
    return len(ours) == 1 and (is_module or shapes_of(left, one) == shapes_of(right, two))


def _same_lines(left: CallTree, right: CallTree, ours: list[int], theirs: list[int]) -> bool:
    return all(
        line_of(left.calls[one]) == line_of(right.calls[two])
        for one, two in zip(ours, theirs, strict=True)
        if left.calls[one].stack and right.calls[two].stack
    )


def line_of(call: Call) -> tuple[tuple[str, str], ...]:
    """Where it was called from: functions and their code, which stay when lines are added above them."""
    return tuple((frame.function, frame.code or str(frame.line)) for frame in call.stack[:3])


def _told_apart(left: CallTree, right: CallTree, ours: list[int], theirs: list[int]) -> Iterable[Named]:
    """Of calls with one name in one place: which belong together, when there are more of them on one side."""
    numbering = Numbering()
    rows = [
        [[numbering.of(describe(tree, index)) for _, _, describe in _TELLING] for index in members]
        for tree, members in ((left, ours), (right, theirs))
    ]
    worth = [(weight, against) for weight, against, _ in _TELLING]
    tiers = ((0, 1, 2, 3), (1, 2, 3), (1, 2), (1, 4), (1, 3), (0, 1))
    for link in match_sequences(rows[0], rows[1], worth, tiers, least=0.5):
        yield Named(ours[link.left], theirs[link.right], link.sure)


_TELLING: tuple[tuple[float, float, Callable[[CallTree, int], Hashable]], ...] = (
    (4.0, 4.0, lambda tree, index: line_of(tree.calls[index]) or None),
    (3.0, 6.0, shapes_of),
    (6.0, 0.0, lambda tree, index: values_of(tree, index, "out")),
    (3.0, 0.0, lambda tree, index: values_of(tree, index, "in")),
    (6.0, 0.0, lambda tree, index: _descent(tree, index)),
)
_HOPS = 8


def _descent(tree: CallTree, index: int) -> Hashable | None:
    """The parameters that a call has, or the nearest one that its values come from, and how far away that is.

    Where a record has neither paths nor source lines every linear has one name; its weights still tell which it is, and after an
    extra call, when no other value is as it was, they are all that does.
    """
    for hops in range(_HOPS):
        held = _held(tree, index)
        if held:
            return hops, held
        makers = [tree.tensor(slot.tensor).producer for slot in (*tree.outputs(index), *tree.inputs(index))]
        found = [tree.position[maker] for maker in makers if maker is not None and maker in tree.position]
        before = [maker for maker in found if maker != index]
        if not before:
            return None
        index = before[0]
    return None


def _held(tree: CallTree, index: int) -> tuple[str, ...]:
    """The bits of a call's parameters: those that its operation calls so, or else whatever no call made and wants a gradient."""
    what = operation(tree.calls[index])
    slots = [slot for slot in tree.inputs(index) if slot.part is not Part.BUFFER]
    if tree.calls[index].site.kind is Kind.MODULE:
        slots = [slot for slot in slots if slot.part is Part.PARAMETER]
    slots = [slot for slot in slots if is_parameter(tree, index, slot, what)]
    known = [slot for slot in slots if operand(tree.calls[index], slot, what) in ("weight", "bias")]
    tensors = [tree.tensor(slot.tensor) for slot in known or slots]
    return tuple(
        tensor.fingerprint
        for tensor in tensors
        if tensor.fingerprint and not (tensor.statistics and is_constant(tensor.statistics, numel(tensor)))
    )
