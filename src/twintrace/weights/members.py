"""From layers to weights: the result of each weight of two paired layers, and leftovers.

    conv      weight -> weight, bias -> bias          by role, and how one layout becomes the other
    fc        weight.g + weight.v -> weight           length and direction made one
    norm      – -> gamma                              one framework always has it: it must be 1

Weights that stay behind are told with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..model.errors import WeightsError
from ..model.weights import Ambiguity, Pair, Unpaired, WeightMap
from .derivation import ZEROS, derivation
from .places import Group, count
from .states import Item, State
from .transforms import inverse, result, simple


@dataclass(frozen=True)
class Match:
    """Two layers that belong together."""

    sides: tuple[Group, Group]
    confidence: float
    because: str


@dataclass(frozen=True)
class Unclear:
    """Layers that could belong together in more than one way, and why nothing tells which."""

    left: Sequence[Group]
    right: Sequence[Group]
    because: str
    suggestion: tuple[Pair, ...] = ()
    """The likeliest way; without one, the layers in their order."""


def to_weights(
    left: State, right: State, layers: Sequence[Match], unclear: Sequence[Unclear], fused: Sequence[Pair] = ()
) -> WeightMap:
    """The map that follows from the layers that were paired. `fused`: pairs of one weight with several."""
    return _Writer(left, right, layers, unclear, fused).write()


class _Writer:
    def __init__(
        self, left: State, right: State, layers: Sequence[Match], unclear: Sequence[Unclear], fused: Sequence[Pair]
    ) -> None:
        self.left, self.right, self.found, self.unclear, self.fused = left, right, layers, unclear, fused
        self.live = left.live and right.live
        self.misfits: list[str] = []

    def write(self) -> WeightMap:
        pairs: list[Pair] = []
        used: tuple[set[str], set[str]] = (set(), set())
        whole = (p for match in self.found for p in self._weights(*match.sides, match.confidence, match.because))
        for pair in (*whole, *self.fused):
            pairs.append(pair)
            used[0].update(pair.left)
            used[1].add(pair.right)
        pairs.extend(self._tied(pairs, used))
        order = {name: number for number, name in enumerate(self.right.items)}
        pairs.sort(key=lambda pair: order[pair.right])
        ambiguous = []
        fitting = len(self.misfits)  # a suggestion that does not fit is none
        for unclear in self.unclear:
            suggestion = unclear.suggestion or tuple(
                pair
                for one, other in zip(unclear.left, unclear.right, strict=False)
                for pair in self._weights(one, other, 0.3, "by order alone")
            )
            del self.misfits[fitting:]
            names = (
                tuple(i.name for g in unclear.left for i in g.items.values()),
                tuple(i.name for g in unclear.right for i in g.items.values()),
            )
            ambiguous.append(Ambiguity(*names, unclear.because, suggestion))
            used[0].update(names[0])
            used[1].update(names[1])
        sides = ((self.left, self.right, used[0]), (self.right, self.left, used[1]))
        alone = [
            tuple(self._unpaired(item, state, other) for item in state.items.values() if item.name not in seen)
            for state, other, seen in sides
        ]
        return WeightMap(
            self.left.label, self.right.label, tuple(pairs), alone[0], alone[1], tuple(ambiguous), tuple(self.misfits)
        )

    def _weights(self, left: Group, right: Group, confidence: float, because: str) -> Iterator[Pair]:
        if not left.items.keys() & right.items.keys():
            yield from self._reshaped(left, right, confidence, because)
            return
        sure = round(confidence, 2)
        for role, item in left.items.items():
            other = right.items.get(role)
            if other is not None:
                steps = steps_between(item, other, live=self.live)
                if steps is None:
                    self.misfits.append(f"{item.name} is {item.spec}, {other.name} is {other.spec}")
                else:
                    yield self._doubted(Pair((item.name,), other.name, steps, sure, because), item, other)
        if "weight.v" in left.items and "weight" in right.items and "weight.g" in left.items:
            g, v, w = left.items["weight.g"], left.items["weight.v"], right.items["weight"]
            steps = (f"weight_norm {dimension(g, v)}", *w.layout)
            yield Pair((g.name, v.name), w.name, steps, sure, f"{because}; length and direction made one")
        if "weight.v" in right.items and "weight" in left.items and "weight.g" in right.items:
            w, g, v = left.items["weight"], right.items["weight.g"], right.items["weight.v"]
            undo = inverse(w.layout) or ()
            yield Pair((w.name,), v.name, undo, sure, f"{because}; as the direction")
            yield Pair((w.name,), g.name, (*undo, f"lengths {dimension(g, v)}"), sure, f"{because}; its lengths")

    def _doubted(self, pair: Pair, left: Item, right: Item) -> Pair:
        """A square matrix of a class that is not known may be kept transposed: nothing but its values would tell."""
        shape = left.spec.shape
        known = (bool(left.rule.kind), bool(right.rule.kind))
        if self.live and len(shape) == 2 and shape[0] == shape[1] > 1 and known[0] != known[1]:
            doubt = "square, and of a class that is not known: it may be transposed"
            return replace(pair, confidence=min(pair.confidence, 0.7), because=f"{pair.because}; {doubt}")
        return pair

    def _reshaped(self, left: Group, right: Group, confidence: float, because: str) -> Iterator[Pair]:
        """Layers of different kinds: their weights by the number of elements."""
        others = {count(item.spec): item for item in right.items.values()}
        for item in left.items.values():
            other = others.get(count(item.spec))
            steps = steps_between(item, other, live=self.live) if other is not None else None
            if other is not None and steps is not None:
                yield Pair((item.name,), other.name, steps, round(confidence, 2), because)

    def _tied(self, pairs: Sequence[Pair], used: tuple[set[str], set[str]]) -> Iterator[Pair]:
        """Names on the right that share another's memory come from the same source."""
        sources = {pair.right: pair for pair in pairs}
        for item in self.right.items.values():
            if item.same_as in sources:
                pair = sources[item.same_as]
                used[1].add(item.name)
                yield replace(pair, right=item.name, because=f"tied to {item.same_as}")

    def _unpaired(self, item: Item, state: State, other: State) -> Unpaired:
        partner = next((p for p in self.found if p.sides[state is self.right].path == item.path), None)
        if item.same_as is not None:
            return Unpaired(item.name, f"tied to {item.same_as}", harmless=True)
        if item.counter:
            return Unpaired(item.name, f"a count of batches, which {other.framework} does not keep here", harmless=True)
        derived = derivation(item, state)
        weighted = any(other.path == item.path and other.role == "weight" for other in state.items.values())
        if derived and not (derived == ZEROS and partner is None and weighted):
            return Unpaired(item.name, f"{derived}: it is not needed", harmless=True)
        if partner is not None and item.role in item.rule.neutral:
            value = item.rule.neutral[item.role]
            because = f"{item.kind} always has it, {other.framework}'s layer here has none: it must be {value:g}"
            return Unpaired(item.name, because, harmless=True, neutral=value)
        if partner is not None:
            there = ", ".join(i.name for i in partner.sides[state is self.left].items.values())
            return Unpaired(
                item.name, f"its layer is paired, but {other.framework}'s has no {item.role}: it has {there}"
            )
        return Unpaired(item.name, f"{other.label} has no layer like this ({item.kind or 'unknown'} {item.spec})")


def steps_between(left: Item, right: Item, *, live: bool) -> tuple[str, ...] | None:
    """Steps that make the right of the left; None if there are none. `live`: their classes, and so their layouts, are known."""
    turn = ("permute 1 0",) if left.turned != right.turned else ()
    told = simple((*(inverse(left.layout) or ()), *turn, *right.layout))
    tries = [told] if live else [told, (), ("insert axis 2",), ("drop axis 2",)]
    for steps in tries:
        try:
            if result(steps, [left.spec]).shape != right.spec.shape:
                continue
        except WeightsError:
            continue
        return steps if left.spec.dtype == right.spec.dtype else (*steps, f"cast {right.spec.dtype}")
    if left.rule.kind == right.rule.kind != "" or left.spec.dtype != right.spec.dtype:
        return None
    # Steps from one shape to the other in layers of different kinds: axes of one, trailing axes in one, transposed.
    alike = [size for size in left.spec.shape if size != 1] == [size for size in right.spec.shape if size != 1]
    if alike or (
        left.spec.shape[:1] == right.spec.shape[:1] and math.prod(left.spec.shape) == math.prod(right.spec.shape)
    ):
        return ("reshape " + " ".join(map(str, right.spec.shape)),)
    return ("permute 1 0",) if len(left.spec.shape) == 2 and left.spec.shape == right.spec.shape[::-1] else None


def lengths_of(direction: Item, state: State) -> Item | None:
    """The lengths that go with a direction, of a weight norm."""
    return next(
        (item for item in state.items.values() if item.path == direction.path and item.role == "weight.g"), None
    )


def dimension(lengths: Item, direction: Item) -> str:
    """The dimension of a weight norm, as its length's shape says; the layer's own setting where that says nothing."""
    if not lengths.spec.shape:
        return "None"
    long = [axis for axis, size in enumerate(lengths.spec.shape) if size > 1]
    return str(long[0]) if len(long) == 1 else str(direction.norm)
