"""Pairs of the weights of two nets.

    left (torch)                      right (mindspore)
    encoder.0.attn.q.weight    f32    blocks.0.query.weight      0.90  alike, and called the same: q
    encoder.0.norm.weight      f32    blocks.0.norm.gamma        0.80  the only layer_norm [16] in its place
    encoder.0.norm.counter     i64    –                          only left, because …
    head.a.weight, head.b.weight      out.x.weight, out.y.weight ambiguous: alike, and nothing tells them apart

Whole layers are paired, not single weights: the names of a layer's weights follow from its class (`layers.py`). Layers are
paired by path; by path but for a prefix; then, place by place (`places.py`), by the words of their names (`wording.py`), by
their numbers, by being the only ones that are left; by the order of use, where traces tell it (`uses.py`); by equal values
(`equality.py`). The rest is told, with a suggestion. Resemblance of names decides nothing, nor does the order
of a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..model.errors import WeightsError
from ..model.weights import Pair, WeightMap
from ..model.words import dotted
from .derivation import derivation
from .equality import by_equality, settle
from .fusion import fusions, unclear_fusions
from .members import Match, Unclear, steps_between, to_weights
from .places import Group, Places, groups_of, places
from .prediction import predict
from .states import State
from .uses import Uses
from .wording import WEAK, Wording

PATH, PREFIX, WORDS, NUMBERS, REST = 1.0, 0.97, 0.9, 0.85, 0.8
"""Confidence of a pair, by its evidence."""
LOOSE = 0.1
"""By how much less sure it is where the layers are of different kinds, or one is transposed."""


def map_states(left: State, right: State, uses: Uses | None = None) -> WeightMap:
    """Pair the weights of two states."""
    return settle(left, right, _Matcher(left, right, uses).match())


def declare(left: State, right: State, uses: Uses | None = None) -> WeightMap:
    """The map to hold weights against: equal values before structure, and the layouts that the layers' rules declare.

    `map_states` also finds ways that fit without a rule, or casts; a certificate must not be granted for those.
    """
    map = by_equality(left, right, _Matcher(left, right, uses).match())
    try:
        rules = {(pair.left, pair.right): pair.steps for pair in predict(left, right.framework).pairs}
    except WeightsError:
        rules = {}
    pairs = []
    for pair in map.pairs:
        plain = tuple(step for step in pair.steps if not step.startswith("cast "))
        ruled = rules.get((pair.left, pair.right), plain)
        pairs.append(replace(pair, steps=ruled or (plain if _by_ones(left, right, pair, plain) else ())))
    return replace(map, pairs=tuple(pairs))


def _by_ones(left: State, right: State, pair: Pair, steps: Sequence[str]) -> bool:
    """True if the two differ by axes of one element alone: a norm's [C] beside the [1, C, 1, 1] of somebody's own."""
    if len(pair.left) != 1 or len(steps) != 1 or not steps[0].startswith("reshape"):
        return False
    shapes = left.items[pair.left[0]].spec.shape, right.items[pair.right].spec.shape
    one, two = ([size for size in shape if size != 1] for shape in shapes)
    return one == two


class _Matcher:
    def __init__(self, left: State, right: State, uses: Uses | None) -> None:
        self.left, self.right, self.uses = left, right, uses
        self.with_kind = left.live and right.live
        self.all = (groups_of(left), groups_of(right))
        self.open = (dict(self.all[0]), dict(self.all[1]))
        self.found: list[Match] = []
        self.unclear: list[Unclear] = []
        self.fused: list[Pair] = []
        self.loose = False
        self.places = Places()
        self.known_idle: dict[tuple[int, str], bool] = {}

    def match(self) -> WeightMap:
        self._by_path()
        self._by_prefix()
        in_order = self.uses.in_order if self.uses else None
        self.places = places(self._with_values(0), self._with_values(1), self._look, in_order)
        for self.loose in (False, True):
            before = -1
            while before != len(self.found) + len(self.unclear):
                before = len(self.found) + len(self.unclear)
                self._by_wording()
                self._fused()
                self._the_rest()
        self._note_unclear()
        return to_weights(self.left, self.right, self.found, self.unclear, self.fused)

    def _look(self, group: Group) -> tuple[Any, ...]:
        return group.signature(self.with_kind, self.loose)

    def _pair(self, left: Group, right: Group, confidence: float, because: str) -> None:
        if self.places.counted(left):
            confidence, because = NUMBERS, f"{because}; its branch by the order of their numbers"
        self.found.append(Match((left, right), confidence - LOOSE * self.loose, because))
        del self.open[0][left.path], self.open[1][right.path]

    def _with_values(self, side: int) -> dict[str, Group]:
        """The layers without those that hold nothing of their own."""
        groups, open_ = self.all[side], self.open[side]
        return {path: group for path, group in groups.items() if path not in open_ or not self._idle(side, group)}

    def _idle(self, side: int, group: Group) -> bool:
        """True if all that it holds follows from its shape: then it needs no partner."""
        if (side, group.path) not in self.known_idle:
            state = (self.left, self.right)[side]
            idle = all(item.counter or derivation(item, state) for item in group.items.values())
            self.known_idle[side, group.path] = idle
        return self.known_idle[side, group.path]

    # by path

    def _by_path(self) -> None:
        shifted = self._shifted()
        for path, left in list(self.open[0].items()):
            right = self.open[1].get(path)
            if right is not None and path not in shifted and self._fits(left, right):
                self._pair(left, right, PATH, "same path")

    def _fits(self, left: Group, right: Group) -> bool:
        """True if they could be one layer: most of their common weights have the same shape."""
        if self._look(left) == self._look(right):
            return True
        common = [role for role in left.items if role in right.items]
        fits = [steps_between(left.items[role], right.items[role], live=self.with_kind) is not None for role in common]
        return any(fits) and 2 * sum(fits) >= len(common)

    def _shifted(self) -> set[str]:
        """Paths that end in numbers which are not the same on both sides: `1` here may be `2` there."""
        families: list[dict[tuple[Any, ...], set[str]]] = [{}, {}]
        for side in (0, 1):
            for path, group in self.open[side].items():
                for depth, part in enumerate(parts := path.split(".")):
                    if part.isdigit():
                        key = (".".join(parts[:depth]), ".".join(parts[depth + 1 :]), group.signature(self.with_kind))
                        families[side].setdefault(key, set()).add(path)
        uneven: set[str] = set()
        for key in families[0].keys() & families[1].keys():
            left, right = families[0][key], families[1][key]
            if left != right and len(left) == len(right) > 1 and left & right:
                uneven |= left | right
        return uneven

    # by path but for a prefix

    def _by_prefix(self) -> None:
        best: tuple[int, str, str] = (0, "", "")
        for one in self._prefixes(0):
            for two in self._prefixes(1):
                if (one or two) and (count := len(list(self._with_prefixes(one, two)))) > best[0]:
                    best = (count, one, two)
        count, one, two = best
        least = min(map(len, self.all))
        if count == least or 2 * count >= max(least, 4):  # a prefix of the nets, not of a branch that looks alike
            change = f"without the prefix {one!r}" if one and not two else f"with the prefix {two!r}" if not one else ""
            for left, right in list(self._with_prefixes(one, two)):
                self._pair(left, right, PREFIX, f"same path {change or f'with {two!r} for {one!r}'}")

    def _prefixes(self, side: int) -> list[str]:
        counts = Counter(
            ".".join(parts[:depth])
            for parts in (path.split(".") for path in self.open[side])
            for depth in range(1, min(len(parts), 5))
        )
        total = len(self.open[side])
        named = {prefix for prefix in counts if not any(part.isdigit() for part in prefix.split("."))}
        return ["", *(p for p, count in counts.items() if count == total or (2 * count >= total and p in named))]

    def _with_prefixes(self, one: str, two: str) -> Iterator[tuple[Group, Group]]:
        for path, left in self.open[0].items():
            if one and path != one and not path.startswith(f"{one}."):
                continue
            rest = path[len(one) :].lstrip(".") if one else path
            if one and two and rest[:1].isdigit():
                continue  # branches that are numbered, and called differently: see `places`
            right = self.open[1].get(dotted(two, rest))
            if right is not None and self._look(left) == self._look(right):
                yield left, right

    # in the same place, and alike

    def _cells(
        self, place: Callable[[int, Group], Any] | None = None, but: tuple[Container[str], Container[str]] = ((), ())
    ) -> dict[Any, tuple[list[Group], list[Group]]]:
        """The open layers of both sides that have the same place and look alike, by both."""
        cells: dict[Any, tuple[list[Group], list[Group]]] = {}
        for side in (0, 1):
            for path, group in self.open[side].items():
                if path not in but[side]:
                    key = ((place or self._place)(side, group), self._look(group))
                    cells.setdefault(key, ([], []))[side].append(group)
        return cells

    def _by_wording(self) -> None:
        """Layers whose names have the same words; of several with the same words, in the order of their numbers."""
        for ones, others in self._cells().values():
            while ones and others and (pairs := self._named_alike(ones, others)):
                for one, other, confidence, because in pairs:
                    self._pair(one, other, confidence, because)
                    ones.remove(one)
                    others.remove(other)

    def _named_alike(self, ones: Sequence[Group], others: Sequence[Group]) -> list[tuple[Group, Group, float, str]]:
        names = [[self.places.wording(side, group) for group in cell] for side, cell in enumerate((ones, others))]
        strong = [[name.without(WEAK) for name in side] for side in names]
        for own, sure in ((names, WORDS), (strong, WORDS), ([_telling(side) for side in strong], NUMBERS)):
            pairs = list(self._equal(ones, others, own, sure))
            if pairs:
                return pairs
        counted = [_telling([name.counted() for name in side]) for side in strong]
        return list(self._equal(ones, others, counted, 0.0))

    def _equal(
        self, ones: Sequence[Group], others: Sequence[Group], names: Sequence[Sequence[Wording]], sure: float
    ) -> Iterator[tuple[Group, Group, float, str]]:
        """Pairs of layers with equal words; `sure` is 0 where only numbers are to decide."""
        for words in dict.fromkeys(name.words for name in names[0]):
            cell = [
                sorted((name.numbers, group.order, group) for name, group in zip(side, groups, strict=True) if name.words == words)
                for side, groups in zip(names, (ones, others), strict=True)
            ]  # fmt: skip
            told = " ".join(sorted(words))
            if len(cell[0]) == len(cell[1]) == 1 and sure and words:
                one, other = cell[0][0][2], cell[1][0][2]
                if not self._doubtful(one, other, named=True):
                    yield one, other, sure, f"alike, and called the same: {told}"
            elif len(cell[0]) == len(cell[1]) > 1 and all(
                len({c for c, _, _ in s}) == len(s) and s[0][0] for s in cell
            ):
                for (_, _, one), (_, _, other) in zip(*cell, strict=True):
                    if not self._doubtful(one, other, named=False):
                        yield one, other, NUMBERS, f"alike, in the order of their numbers: {one.path} and {other.path}"

    def _the_rest(self) -> None:
        """The only layers of their look that are left somewhere, if as many of each look are left there on both sides."""
        for where, place in (("place", self._place), ("company", self._company)):
            places: dict[Any, list[tuple[list[Group], list[Group]]]] = {}
            for (at, _), cell in self._cells(place).items():
                places.setdefault(at, []).append(cell)
            for cells in places.values():
                lone = [cell for cell in cells if len(cell[0]) != len(cell[1])]
                if all(self._idle(side, group) for cell in lone for side in (0, 1) for group in cell[side]):
                    for ones, others in cells:
                        if len(ones) == len(others) == 1 and self._eliminated(ones[0], others[0]):
                            self._pair(ones[0], others[0], REST, f"the only {ones[0]} in its {where} that is left")
        if self.uses is not None:
            for ones, others in self._cells().values():
                for one, other in self.uses.in_order(ones, others):
                    self._pair(one, other, NUMBERS, "alike, and used in the same order")

    def _place(self, side: int, group: Group) -> int:
        return self.places.at[side].get(group.path, 0)

    def _company(self, side: int, group: Group) -> Any:
        """The layers around this one that are paired already: of the innermost module that has any."""
        path = group.path
        while path:
            path = path.rpartition(".")[0]
            inside = [f"{match.sides[side].path}.".startswith(f"{path}." if path else "") for match in self.found]
            near = frozenset(number for number, own in enumerate(inside) if own)
            if near:
                return self._place(side, group), near
        return (side, group.path)

    def _eliminated(self, left: Group, right: Group) -> bool:
        words = [self.places.wording(side, group) for side, group in enumerate((left, right))]
        open_ = left.path in self.open[0] and right.path in self.open[1]
        return open_ and not words[0].contradicts(words[1]) and not self._doubtful(left, right, named=False)

    def _doubtful(self, left: Group, right: Group, named: bool) -> str:
        """A reason to think that one may be kept transposed where shapes do not tell; "" if there is none."""
        shapes = [group.items["weight"].plain.shape for group in (left, right) if "weight" in group.items]
        if self.with_kind or len(shapes) != 2 or any(len(shape) != 2 for shape in shapes):
            return ""
        if shapes[0][0] == shapes[0][1]:
            turned = any(item.turned for state in (self.left, self.right) for item in state.items.values())
            return "square, and may be transposed as others are" if turned else ""
        if named or self.left.framework == self.right.framework or any("bias" in g.items for g in (left, right)):
            return ""
        here = [g for path, g in self.all[0].items() if self._place(0, g) == self._place(0, left)]
        counts = Counter(item.spec.shape for group in here for item in group.items.values())
        both = counts[shapes[0]] == counts[shapes[0][::-1]]
        return "the other framework may keep both of these matrices transposed" if both else ""

    def _fused(self) -> None:
        """One weight against several: how they lie in it is known of some classes only."""
        for fusion in fusions(self.open, self.places, self._look):
            sides = ([fusion.one], list(fusion.parts)) if fusion.whole == 0 else (list(fusion.parts), [fusion.one])
            told = f"{', '.join(group.path for group in fusion.parts)} in one piece"
            if fusion.known:
                self.fused += [replace(pair, confidence=WORDS, because=told) for pair in fusion.pairs]
            else:
                because = f"{told}: one after the other, or head by head, nothing tells"
                self.unclear.append(Unclear(*sides, because, fusion.pairs))
            for side in (0, 1):
                for group in sides[side]:
                    del self.open[side][group.path]

    def _note_unclear(self) -> None:
        """Weights that could belong together in more than one way."""
        noted: tuple[set[str], set[str]] = (set(), set())
        for wholes, parts in unclear_fusions(self.open, self.places):
            self.unclear.append(
                Unclear(wholes, parts, "some of these are in one piece on the other side, and nothing tells which")
            )
            noted[0].update(group.path for group in wholes)
            noted[1].update(group.path for group in parts)
        for anywhere in (False, True):
            for ones, others in self._cells((lambda side, group: 0) if anywhere else None, noted).values():
                if ones and others:
                    doubt = self._doubtful(ones[0], others[0], named=False) if len(ones) == len(others) == 1 else ""
                    because = doubt or f"{len(ones)} and {len(others)} {ones[0]}s that nothing tells apart"
                    self.unclear.append(Unclear(ones, others, because))
                    noted[0].update(group.path for group in ones)
                    noted[1].update(group.path for group in others)


def _telling(names: Sequence[Wording]) -> list[Wording]:
    """The names without the words that all of them have."""
    common = frozenset.intersection(*(name.words for name in names)) if len(names) > 1 else frozenset()
    return [name.without(common) for name in names]
