"""Take along the calls that complete one side of a pair: the sum that adds the bias, the padding that comes before.

    left     x, w, b ─▶ linear                         b goes into the left call and into no call of the right pair:
    right    x, w ─▶ matmul ─▶ reshape ─▶ add ◀─ b      the sum that adds it belongs to the product

    left     x ─▶ pad ─▶ conv                          the left one takes what a padding made of the tensor that the right one
    right    x ─▶ conv (pad_mode="same")               takes: the padding belongs to the convolution

That is so however small the bias is, when the product alone has the same values as the product with its bias to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..model.pairs import Part
from ..model.sites import Kind
from ..operations.operands import operand_of, ranks
from .pairing import Link, Pairing
from .units import operation
from .values import numel

_BIASED = frozenset(("linear", "matmul", "conv", "conv_transpose"))
_WINDOWED = frozenset(("conv", "conv_transpose", "max_pool", "avg_pool", "unfold"))
_STEPS = 4
"""Reshapes and casts between a product and the sum that adds its bias; two are common (`[B·T, C]` to `[B, T, C]`, a cast)."""


def completed(pairing: Pairing, link: Link) -> Link:
    """The link with the calls that complete it; the link itself where nothing is missing."""
    if len(link.left) != 1 or len(link.right) != 1:
        return link
    calls = [pairing.trees[which].calls[link.side(which)[0]] for which in (0, 1)]
    what = [operation(call) for call in calls]
    members: list[tuple[int, ...]] = [link.left, link.right]
    if what[0] in _BIASED and what[1] in _BIASED and all(call.site.kind is not Kind.MODULE for call in calls):
        for which in (0, 1):
            members[which] = _with_sum(pairing, which, link)
    if what[0] == what[1] and what[0] in _WINDOWED and not any(_opens(pairing, which, link) for which in (0, 1)):
        for which in (0, 1):
            members[which] = (*_padding(pairing, which, link), *members[which])
    if members == [link.left, link.right]:
        return link
    return replace(link, left=tuple(sorted(members[0])), right=tuple(sorted(members[1])), named=False)


def _opens(pairing: Pairing, which: int, link: Link) -> bool:
    """Is it a module whose functions are recorded? They are completed themselves."""
    return bool(pairing.trees[which].children[link.side(which)[0]])


def _bias(pairing: Pairing, which: int, index: int) -> int | None:
    """The tensor that a call adds to its product."""
    tree = pairing.trees[which]
    what, name = operation(tree.calls[index]), tree.calls[index].site.name
    slots = [slot for slot in tree.inputs(index) if slot.part is Part.INPUT]
    for slot, rank in zip(slots, ranks([slot.slot for slot in slots]), strict=True):
        if operand_of(what, slot.part, slot.slot, rank, name) == "bias":
            return slot.tensor
    return None


def _with_sum(pairing: Pairing, which: int, link: Link) -> tuple[int, ...]:
    """This side's call, and the sum after it that adds what the other side's call takes as its bias."""
    own, other = link.side(which)[0], link.side(1 - which)[0]
    added = _bias(pairing, 1 - which, other)
    if added is None or _bias(pairing, which, own) is not None:
        return (own,)
    tree, flow = pairing.trees[which], pairing.flow(which)
    way, here = [own], own
    for _ in range(_STEPS):
        users = [
            user
            for slot in tree.outputs(here)
            for user in flow.users.get(slot.tensor, ())
            if tree.calls[user].site.kind is not Kind.MODULE
        ]
        if len(users) != 1 or not pairing.is_free(which, users[0]):
            break
        here = users[0]
        way.append(here)
        if operation(tree.calls[here]) == "add":
            return (
                tuple(way)
                if any(_is_bias(pairing, which, tensor, added) for tensor in _others(pairing, which, way))
                else (own,)
            )
        if not pairing.hands_on(which, here):
            break
    return (own,)


def _others(pairing: Pairing, which: int, way: list[int]) -> Iterator[int]:
    """Operands of the last call of a chain that the chain itself does not give it."""
    tree = pairing.trees[which]
    given = {slot.tensor for slot in tree.outputs(way[-2])}
    return (slot.tensor for slot in tree.inputs(way[-1]) if slot.tensor not in given)


def _is_bias(pairing: Pairing, which: int, tensor: int, added: int) -> bool:
    """Is it the other side's bias: by its values, or as a parameter of its size where the two sides have other parameters?"""
    if pairing.key(which, tensor) == pairing.key(1 - which, added):
        return True
    trees = pairing.trees
    own, other = trees[which].tensor(pairing.source(which, tensor)), trees[1 - which].tensor(added)
    if pairing.classes.shared(pairing.classes.of(1 - which, added)) or numel(own) != numel(other):
        return False
    return own.producer is None and own.requires_grad


def _padding(pairing: Pairing, which: int, link: Link) -> tuple[int, ...]:
    """The padding without a partner that made what this side takes of what the other side takes."""
    own, other = link.side(which)[0], link.side(1 - which)[0]
    into = [next(iter(pairing.trees[w].inputs(index)), None) for w, index in ((which, own), (1 - which, other))]
    if into[0] is None or into[1] is None:
        return ()
    sizes = [numel(pairing.trees[w].tensor(slot.tensor)) for w, slot in ((which, into[0]), (1 - which, into[1]))]
    if sizes[0] <= sizes[1]:
        return ()
    makers = [m for m in pairing.flow(which).makers.get(into[0].tensor, ()) if pairing.is_free(which, m)]
    tree = pairing.trees[which]
    if not makers or operation(tree.calls[makers[-1]]) != "pad" or not tree.inputs(makers[-1]):
        return ()
    padded = tree.inputs(makers[-1])[0].tensor
    pair = (padded, into[1].tensor) if which == 0 else (into[1].tensor, padded)
    return (makers[-1],) if pairing.same_origin(*pair) else ()
