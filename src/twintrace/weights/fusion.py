"""One weight against several: query, key and value, gate and up, the gates of a recurrent layer.

    qkv.weight [24, 8]           q.weight, k.weight, v.weight [8, 8]        rows 0:8, 8:16, 16:24; the other way: stack
    gate_up_proj.weight          gate_proj.weight, up_proj.weight

Names and shapes tell which weights belong together. How they lie in the one weight they do not tell: one after the other, or
head by head, or in groups of heads, as models differ. So this is a suggestion, which equal values confirm or correct
(`equality.py`); only where the layer's class says how they lie (PyTorch's MultiheadAttention) it is more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.weights import Pair
from .places import Group, Look, Places
from .states import Item
from .transforms import inverse
from .wording import Wording, concept

ORDERS = (
    ("q", "k", "v"), ("k", "v"), ("gate", "up"), ("mu", "logvar"), ("i", "f", "g", "out"), ("in", "forget", "cell", "out"),
    ("r", "z", "n"), ("reset", "update", "new"),
)  # fmt: skip
"""Words for parts of one weight, in the order in which they lie in it if nothing else is known."""
_MOST = 4


@dataclass(frozen=True)
class Fusion:
    """Layers that are one on one side (`whole`, 0 or 1) and several on the other; the pairs, if the parts lie in this order."""

    whole: int
    one: Group
    parts: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    known: bool
    """Does the class say how the parts lie?"""
    named: bool
    """True if names are equal but for the word of each part."""


def fusions(open_: tuple[Mapping[str, Group], Mapping[str, Group]], places: Places, look: Look) -> list[Fusion]:
    """All that are clear: the parts of no other weight, the weight of no other parts."""
    candidates = [fusion for whole in (0, 1) for fusion in _of_side(open_, places, look, whole)]
    return _clear(candidates) or _clear([fusion for fusion in candidates if fusion.named])


def unclear_fusions(
    open_: tuple[Mapping[str, Group], Mapping[str, Group]], places: Places
) -> list[tuple[list[Group], list[Group]]]:
    """(left, right): all matrices of each place where some could be made of others."""
    unclear = {
        places.at[whole].get(fusion.one.path, 0) for whole in (0, 1) for fusion in _of_side(open_, places, None, whole)
    }
    matrices = [[group for group in side.values() if group.matrices] for side in open_]
    return [
        ([g for g in matrices[0] if places.at[0].get(g.path, 0) == place],
         [g for g in matrices[1] if places.at[1].get(g.path, 0) == place])
        for place in sorted(unclear)
    ]  # fmt: skip


def _clear(candidates: Sequence[Fusion]) -> list[Fusion]:
    uses = Counter(group.path for fusion in candidates for group in (fusion.one, *fusion.parts))
    return [f for f in candidates if all(uses[group.path] == 1 for group in (f.one, *f.parts))]


def _of_side(
    open_: tuple[Mapping[str, Group], Mapping[str, Group]], places: Places, look: Look | None, whole: int
) -> Iterator[Fusion]:
    others = open_[1 - whole].values()
    looks = {(places.at[1 - whole].get(group.path, 0), look(group)) for group in others} if look else set()
    clusters: dict[int, list[tuple[Group, ...]]] = {}
    for place, parts in _clusters(others, places, 1 - whole):
        clusters.setdefault(place, []).append(parts)
    for path, one in open_[whole].items():
        place = places.at[whole].get(path, 0)
        matrices = one.matrices
        if look and (place, look(one)) in looks:
            continue  # it has a counterpart in one piece
        fits = [[p for p in clusters.get(place, ()) if any(_pairs(item, p, whole))] for item in matrices]
        for chosen in itertools.product(*fits) if fits else ():
            parts = tuple(dict.fromkeys(group for cluster in chosen for group in cluster))
            pairs = [
                pair for item, cluster in zip(matrices, chosen, strict=True) for pair in _pairs(item, cluster, whole)
            ]
            for item in (item for item in one.items.values() if len(item.plain.shape) == 1 and len(matrices) == 1):
                pairs += _pairs(item, chosen[0], whole)
            common = Wording(frozenset.intersection(*(places.wording(1 - whole, group).words for group in parts)))
            own = places.wording(whole, one)
            if len(parts) == sum(map(len, chosen)) and not common.contradicts(own):
                named = common.words - {"projection"} == own.words - {"projection", "in", "qkv", "kv"}
                yield Fusion(whole, one, parts, tuple(pairs), one.kind == "attention", named)


def _clusters(groups: Iterable[Group], places: Places, side: int) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """(place, layers in order) whose names differ in one word that is known to order them, or in one number."""
    alike: dict[tuple[object, ...], dict[str, Group]] = {}
    for group in groups:
        for at, token in enumerate(group.tokens):
            rest = (*group.tokens[:at], None, *group.tokens[at + 1 :])
            alike.setdefault((places.at[side].get(group.path, 0), rest), {})[token] = group
    for (place, _), members in alike.items():
        words = {concept(token): group for token, group in members.items()}
        for order in ORDERS:
            if all(word in words for word in order):
                yield place, tuple(words[word] for word in order)  # type: ignore[misc]
        if 2 <= len(members) <= _MOST and all(token.isdigit() for token in members):
            yield place, tuple(members[token] for token in sorted(members, key=int))  # type: ignore[misc]


def _pairs(item: Item, parts: Sequence[Group], whole: int) -> Iterator[Pair]:
    """Steps from one weight to its parts, or back, if their rows add up."""
    role = next((role for role in ("weight", "bias") if role in item.role), "")
    pieces = [group.items.get(role) for group in parts]
    if None in pieces:
        return
    members = [piece for piece in pieces if piece is not None]
    if any(piece.plain.shape[1:] != item.plain.shape[1:] or not piece.plain.shape for piece in members):
        return
    ends = [sum(piece.plain.shape[0] for piece in members[: number + 1]) for number in range(len(members))]
    if not item.plain.shape or ends[-1] != item.plain.shape[0]:
        return
    turn = ("permute 1 0",) if item.turned else ()
    if whole == 0:
        for piece, start, end in zip(members, (0, *ends), ends, strict=False):
            steps = (*(inverse(item.layout) or ()), *turn, f"rows {start}:{end}", *piece.layout)
            steps += ("permute 1 0",) if piece.turned else ()
            yield Pair((item.name,), piece.name, steps, 0.5, f"part of {item.name}")
    elif not any(piece.layout or piece.turned for piece in members):
        names = tuple(piece.name for piece in members)
        yield Pair(names, item.name, ("stack", *item.layout, *turn), 0.5, "in one piece")
