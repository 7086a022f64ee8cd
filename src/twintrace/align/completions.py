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
from .units import operation
from .values import numel
from .webs import Bond, Web

_BIASED = frozenset(("linear", "matmul", "conv", "conv_transpose"))
_WINDOWED = frozenset(("conv", "conv_transpose", "max_pool", "avg_pool", "unfold"))
_STEPS = 4
"""Reshapes and casts between a product and the sum that adds its bias; two are common (`[B·T, C]` to `[B, T, C]`, a cast)."""


def completed(web: Web, bond: Bond) -> Bond:
    """The bond with the calls that complete it; the bond itself where nothing is missing."""
    if len(bond.left) != 1 or len(bond.right) != 1:
        return bond
    calls = [web.strands[which].calls[bond.side(which)[0]] for which in (0, 1)]
    what = [operation(call) for call in calls]
    members: list[tuple[int, ...]] = [bond.left, bond.right]
    if what[0] in _BIASED and what[1] in _BIASED and all(call.site.kind is not Kind.MODULE for call in calls):
        for which in (0, 1):
            members[which] = _with_sum(web, which, bond)
    if what[0] == what[1] and what[0] in _WINDOWED and not any(_opens(web, which, bond) for which in (0, 1)):
        for which in (0, 1):
            members[which] = (*_padding(web, which, bond), *members[which])
    if members == [bond.left, bond.right]:
        return bond
    return replace(bond, left=tuple(sorted(members[0])), right=tuple(sorted(members[1])), named=False)


def _opens(web: Web, which: int, bond: Bond) -> bool:
    """Is it a module whose functions are recorded? They are completed themselves."""
    return bool(web.strands[which].children[bond.side(which)[0]])


def _bias(web: Web, which: int, index: int) -> int | None:
    """The tensor that a call adds to its product."""
    strand = web.strands[which]
    what, name = operation(strand.calls[index]), strand.calls[index].site.name
    slots = [slot for slot in strand.inputs(index) if slot.part is Part.INPUT]
    for slot, rank in zip(slots, ranks([slot.slot for slot in slots]), strict=True):
        if operand_of(what, slot.part, slot.slot, rank, name) == "bias":
            return slot.tensor
    return None


def _with_sum(web: Web, which: int, bond: Bond) -> tuple[int, ...]:
    """This side's call, and the sum after it that adds what the other side's call takes as its bias."""
    own, other = bond.side(which)[0], bond.side(1 - which)[0]
    added = _bias(web, 1 - which, other)
    if added is None or _bias(web, which, own) is not None:
        return (own,)
    strand, flow = web.strands[which], web.flow(which)
    way, here = [own], own
    for _ in range(_STEPS):
        users = [
            user
            for slot in strand.outputs(here)
            for user in flow.users.get(slot.tensor, ())
            if strand.calls[user].site.kind is not Kind.MODULE
        ]
        if len(users) != 1 or not web.is_free(which, users[0]):
            break
        here = users[0]
        way.append(here)
        if operation(strand.calls[here]) == "add":
            return (
                tuple(way)
                if any(_is_bias(web, which, tensor, added) for tensor in _others(web, which, way))
                else (own,)
            )
        if not web.hands_on(which, here):
            break
    return (own,)


def _others(web: Web, which: int, way: list[int]) -> Iterator[int]:
    """Operands of the last call of a chain that the chain itself does not give it."""
    strand = web.strands[which]
    given = {slot.tensor for slot in strand.outputs(way[-2])}
    return (slot.tensor for slot in strand.inputs(way[-1]) if slot.tensor not in given)


def _is_bias(web: Web, which: int, tensor: int, added: int) -> bool:
    """Is it the other side's bias: by its values, or as a parameter of its size where the two sides have other parameters?"""
    if web.key(which, tensor) == web.key(1 - which, added):
        return True
    strands = web.strands
    own, other = strands[which].tensor(web.source(which, tensor)), strands[1 - which].tensor(added)
    if web.classes.shared(web.classes.of(1 - which, added)) or numel(own) != numel(other):
        return False
    return own.producer is None and own.requires_grad


def _padding(web: Web, which: int, bond: Bond) -> tuple[int, ...]:
    """The padding without a partner that made what this side takes of what the other side takes."""
    own, other = bond.side(which)[0], bond.side(1 - which)[0]
    into = [next(iter(web.strands[w].inputs(index)), None) for w, index in ((which, own), (1 - which, other))]
    if into[0] is None or into[1] is None:
        return ()
    sizes = [numel(web.strands[w].tensor(slot.tensor)) for w, slot in ((which, into[0]), (1 - which, into[1]))]
    if sizes[0] <= sizes[1]:
        return ()
    makers = [m for m in web.flow(which).makers.get(into[0].tensor, ()) if web.is_free(which, m)]
    strand = web.strands[which]
    if not makers or operation(strand.calls[makers[-1]]) != "pad" or not strand.inputs(makers[-1]):
        return ()
    padded = strand.inputs(makers[-1])[0].tensor
    pair = (padded, into[1].tensor) if which == 0 else (into[1].tensor, padded)
    return (makers[-1],) if web.same_origin(*pair) else ()
