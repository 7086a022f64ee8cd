"""Kernels of optimizers: the one that updates a parameter on one side, beside those that do it on the other.

    left     _fused_adam_ ─▶ parameter, moments
    right    lerp_ ─▶ moment      mul_, addcmul_ ─▶ moment      sqrt, div, add_, addcdiv_ ─▶ parameter

They write over the parameter and over the optimizer's state: what belongs together before it belongs together after it. Kernels
that are alike on both sides are paired one by one, as any others are.
"""

from __future__ import annotations

from ..model.pairs import Part
from ..model.sites import Kind, Phase
from .pairing import Link, Pairing
from .tensors import Mapper


def bind_updates(pairing: Pairing, mapper: Mapper, units: tuple[set[int], set[int]]) -> None:
    """Bind the one kernel that updates a parameter on one side to those that do it on the other, among free calls of `units`."""
    sides = _updates(pairing, units, 0), _updates(pairing, units, 1)
    owner = {tensor: number for number, (_, written) in enumerate(sides[1]) for tensor in written}
    for left, ours in sides[0]:
        partners = {tensor: mapper.partner(0, tensor) for tensor in ours}
        places = {owner[partner] for partner in partners.values() if partner in owner}
        if len(places) != 1:
            continue
        right, theirs = sides[1][places.pop()]
        if min(len(left), len(right)) != 1 or max(len(left), len(right)) == 1:
            continue
        met = {tensor: partner for tensor, partner in partners.items() if partner in theirs}
        rest = (
            [tensor for tensor in ours if tensor not in met],
            [tensor for tensor in theirs if tensor not in met.values()],
        )
        if len(rest[0]) == len(rest[1]) == 1:
            met[rest[0][0]] = rest[1][0]
        for tensor, partner in met.items():
            mapper.expect(ours[tensor], theirs[partner])
        pairing.bind(Link(tuple(left), tuple(right), "the kernels that update one parameter", 0.8))


def _updates(pairing: Pairing, units: tuple[set[int], set[int]], which: int) -> list[tuple[list[int], dict[int, int]]]:
    """Free kernels of optimizers' steps, those that give each other tensors together; with what each group writes over and
    changes: the tensors as they came in, and as they were left.
    """
    tree, flow = pairing.trees[which], pairing.flow(which)
    free = [
        index
        for index in sorted(units[which])
        if tree.calls[index].site.phase is Phase.UPDATE
        and tree.calls[index].site.kind is Kind.OP
        and pairing.is_free(which, index)
    ]
    group = {index: [index] for index in free}
    for index in free:
        for slot in tree.outputs(index):
            for user in flow.users.get(slot.tensor, ()):
                if user in group and group[user] is not group[index] and tree.tensor(slot.tensor).spec.shape:
                    group[index] += group[user]
                    group.update(dict.fromkeys(group[user], group[index]))
    found = []
    for members in {id(members): sorted(members) for members in group.values()}.values():
        written: dict[int, int] = {}
        for index in members:
            inputs = {slot.slot: slot.tensor for slot in tree.inputs(index)}
            for slot in tree.outputs(index):
                name = slot.slot if slot.part is Part.AFTER else next(iter(tree.calls[index].mutates), None)
                if name not in inputs:
                    continue
                before = tree.same.get(inputs[name], inputs[name])
                first = next((first for first, last in written.items() if last == before), before)
                inside = first == before and not {*members}.isdisjoint(flow.makers.get(before, ()))
                if not inside:
                    written[first] = slot.tensor
        bits = {number: tree.tensor(number).fingerprint for number in (*written, *written.values())}
        changed = {first: last for first, last in written.items() if bits[first] is None or bits[first] != bits[last]}
        found.append((members, changed))
    return found
