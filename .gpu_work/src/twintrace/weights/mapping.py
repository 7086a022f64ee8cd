"""Which weight of one net is which of the other.

    left (torch)                      right (mindspore)
    encoder.0.attn.q.weight    f32    blocks.0.query.weight      0.80  alike in kind and shape; 'q' is nearest to 'query'
    encoder.0.norm.weight      f32    blocks.0.norm.gamma        1.00  the only layer_norm [16] here
    encoder.0.norm.counter     i64    –                          only left, because …
    head.a.weight, head.b.weight      out.x.weight, out.y.weight ambiguous: alike, and nothing tells them apart

Whole layers are paired, not single weights: what a layer's weights are called follows from its class (`layers.py`). Layers are
paired by path; by path but for a prefix; then by the tree that the paths form: where two trees have the same layers in them,
their branches are laid side by side by name, by what is in them, by number, by likeness of names, and in the end by their
neighbours. What is still open may be settled by equal values. What is not, is said, with a suggestion: order alone decides
nothing, because it is what a migration changes most easily.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..model.errors import WeightsError
from ..model.weights import WeightMap
from ..store.digest import fingerprint
from .likeness import assign
from .members import Match, Unclear, steps_between, to_weights
from .prediction import predict
from .states import State
from .transforms import apply, inverse
from .trees import Group, Node, below, by_contents, count, groups_of, tree_of


def map_states(left: State, right: State) -> WeightMap:
    """Pair the weights of two states."""
    return _Matcher(left, right).match()


def declare(left: State, right: State) -> WeightMap:
    """The map to hold weights against: who belongs to whom as `map_states` finds it, transformed as the layers' rules say.

    `map_states` also finds ways that fit without a rule, or casts; a certificate must not be granted for those.
    """
    found = map_states(left, right)
    try:
        rules = {(pair.left, pair.right): pair.steps for pair in predict(left, right.framework).pairs}
    except WeightsError:
        rules = {}
    pairs = []
    for pair in found.pairs:
        plain = tuple(step for step in pair.steps if not step.startswith("cast "))
        pairs.append(replace(pair, steps=rules.get((pair.left, pair.right), plain)))
    return replace(found, pairs=tuple(pairs))


class _Matcher:
    def __init__(self, left: State, right: State) -> None:
        self.left, self.right = left, right
        self.with_kind = left.live and right.live
        self.open = (groups_of(left), groups_of(right))
        self.all = (dict(self.open[0]), dict(self.open[1]))
        self.found: list[Match] = []
        self.unclear: list[Unclear] = []
        self.loose = False

    def match(self) -> WeightMap:
        self._by_path()
        self._by_prefix()
        for self.loose in (False, True):
            self._by_structure()
            self._by_neighbours()
        self._note_unclear()
        self._by_values()
        return to_weights(self.left, self.right, self.found, self.unclear)

    def _look(self, group: Group) -> tuple[Any, ...]:
        return group.signature(self.with_kind, self.loose)

    def _pair(self, left: Group, right: Group, confidence: float, because: str) -> None:
        self.found.append(Match((left, right), confidence, because))
        del self.open[0][left.path], self.open[1][right.path]

    def _alike(self, left: Group, right: Group) -> bool:
        return self._look(left) == self._look(right)

    # by path

    def _by_path(self) -> None:
        shifted = self._shifted()
        for path, left in list(self.open[0].items()):
            right = self.open[1].get(path)
            if right is not None and path not in shifted and self._fits(left, right):
                self._pair(left, right, 1.0, "same path")

    def _fits(self, left: Group, right: Group) -> bool:
        """Could they be one layer? Most of what both have must have the same shape."""
        if self._alike(left, right):
            return True
        common = [role for role in left.items if role in right.items]
        good = [
            role
            for role in common
            if steps_between(left.items[role], right.items[role], live=self.with_kind) is not None
        ]
        return bool(good) and 2 * len(good) >= len(common)

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
        if count >= 2 or (count and count == min(len(self.open[0]), len(self.open[1]))):
            change = f"without the prefix {one!r}" if one and not two else f"with the prefix {two!r}" if not one else ""
            for left, right in list(self._with_prefixes(one, two)):
                self._pair(left, right, 0.97, f"same path {change or f'with {two!r} for {one!r}'}")

    def _prefixes(self, side: int) -> list[str]:
        counts = Counter(
            ".".join(parts[:depth])
            for parts in (path.split(".") for path in self.open[side])
            for depth in range(1, min(len(parts), 5))
        )
        return ["", *(prefix for prefix, count in counts.items() if 2 * count >= len(self.open[side]))]

    def _with_prefixes(self, one: str, two: str) -> Iterator[tuple[Group, Group]]:
        for path, left in self.open[0].items():
            if one and path != one and not path.startswith(f"{one}."):
                continue
            rest = path[len(one) :].lstrip(".") if one else path
            right = self.open[1].get(".".join(filter(None, (two, rest))))
            if right is not None and self._alike(left, right):
                yield left, right

    # by the tree of paths

    def _by_structure(self) -> None:
        if not (self.open[0] and self.open[1]):
            return
        trees = [tree_of(list(groups.values()), self._look) for groups in self.open]
        self._lay(trees[0], trees[1], 0.7 if self.loose else 0.95)

    def _lay(self, left: Node, right: Node, sure: float, because: str = "") -> None:
        """Two branches side by side."""
        left, right = left.inner(), right.inner()
        both = left.group is not None and right.group is not None and self._alike(left.group, right.group)
        if both and left.group and right.group and left.group.path in self.open[0] and right.group.path in self.open[1]:
            self._pair(left.group, right.group, sure, because or f"the only {left.group} in its place")
        ones, others = dict(left.children), dict(right.children)
        for name in [name for name in ones if name in others]:
            if ones[name].deep == others[name].deep and not self._renumbered(ones, others, name):
                self._lay(ones.pop(name), others.pop(name), sure, because)
        kinds = [by_contents(ones), by_contents(others)]
        for contents in [contents for contents in kinds[0] if contents in kinds[1]]:
            names = kinds[0][contents], kinds[1][contents]
            order = assign(*names) if len(names[0]) == len(names[1]) else None
            for one, other, factor, reason in order or ():
                self._lay(ones.pop(one), others.pop(other), sure * factor, reason if factor < 1 else because)
        for name in [name for name in ones if name in others]:
            self._lay(ones.pop(name), others.pop(name), sure * 0.95, because)
        if len(ones) == len(others) == 1 and (ones[next(iter(ones))].children or others[next(iter(others))].children):
            self._lay(next(iter(ones.values())), next(iter(others.values())), sure * 0.9, because)
        self._gather(ones.values(), others.values(), sure * 0.9)

    def _gather(self, ones: Iterable[Node], others: Iterable[Node], sure: float) -> None:
        """What is left of two branches that are nested differently: layer by layer, without regard to nesting."""
        ones, others = list(ones), list(others)
        self._branches(ones, others, sure)
        sides: list[dict[Any, list[Group]]] = [{}, {}]
        for side, nodes in enumerate((ones, others)):
            for group in (group for node in nodes for group in node.groups() if group.path in self.open[side]):
                sides[side].setdefault(self._look(group), []).append(group)
        for looks in [looks for looks in sides[0] if looks in sides[1]]:
            names = [[group.path for group in kinds[looks]] for kinds in sides]
            order = assign(names[0], names[1]) if len(names[0]) == len(names[1]) else None
            for one, other, factor, because in order or ():
                self._pair(self.open[0][one], self.open[1][other], sure * factor, because)

    def _branches(self, ones: Sequence[Node], others: Sequence[Node], sure: float) -> None:
        """Branches with the same layers in them at different depths, the largest first."""
        kinds: list[dict[tuple[Any, ...], list[tuple[str, Node]]]] = [{}, {}]
        for side, nodes in enumerate((ones, others)):
            for path, node in (found for top in nodes for found in below(top)):
                if len(node.deep) > 1 and (node.group is not None or len(node.children) > 1):
                    kinds[side].setdefault(node.deep, []).append((path, node))
        for deep in sorted((deep for deep in kinds[0] if deep in kinds[1]), key=len, reverse=True):
            alive = [
                {
                    path: node
                    for path, node in kinds[side][deep]
                    if all(g.path in self.open[side] for g in node.groups())
                }
                for side in (0, 1)
            ]
            if not alive[0] or len(alive[0]) != len(alive[1]):
                continue
            for one, other, factor, because in assign(list(alive[0]), list(alive[1])) or ():
                self._lay(alive[0][one], alive[1][other], sure * factor, because if factor < 1 else "")

    def _renumbered(self, ones: Mapping[str, Node], others: Mapping[str, Node], name: str) -> bool:
        """A number that is on both sides among numbers that are not: what it numbers may have moved."""
        if not name.isdigit():
            return False
        alike = [{key for key, node in side.items() if node.deep == ones[name].deep} for side in (ones, others)]
        return alike[0] != alike[1] and len(alike[0]) == len(alike[1])

    # by neighbours

    def _by_neighbours(self) -> None:
        """What is left: by being the only one of its kind and shape, by its name, by standing between two that are known."""
        for between in (False, True):
            before = -1
            while before != len(self.found):
                before = len(self.found)
                sides = [self._looks(0, between), self._looks(1, between)]
                for looks in [looks for looks in sides[0] if looks in sides[1]]:
                    self._settle(sides[0][looks], sides[1][looks], between)

    def _note_unclear(self) -> None:
        """What could belong together, and in more than one way."""
        for self.loose in (False, True):
            sides = [self._looks(0, False), self._looks(1, False)]
            noted = [
                {g.path for ones, _, _ in self.unclear for g in ones},
                {g.path for _, others, _ in self.unclear for g in others},
            ]
            for looks in [looks for looks in sides[0] if looks in sides[1]]:
                ones = [group for group in sides[0][looks] if group.path not in noted[0]]
                others = [group for group in sides[1][looks] if group.path not in noted[1]]
                if ones and others:
                    because = f"{len(ones)} and {len(others)} {ones[0]}s that nothing tells apart"
                    self.unclear.append((ones, others, because))

    def _settle(self, ones: Sequence[Group], others: Sequence[Group], between: bool) -> None:
        if len(ones) == len(others) == 1:
            because = f"the only {ones[0]} " + ("between these two layers" if between else "that is left")
            self._pair(ones[0], others[0], (0.7 if between else 0.85) - 0.2 * self.loose, because)
        elif len(ones) == len(others) and not between:
            for one, other, factor, because in assign([g.path for g in ones], [g.path for g in others]) or ():
                self._pair(self.open[0][one], self.open[1][other], (0.6 if self.loose else 0.85) * factor, because)

    def _looks(self, side: int, between: bool) -> dict[Any, list[Group]]:
        """The open layers by what they look like; `between`: also by their neighbours, where both are paired already.

        A neighbour that is itself open says nothing: of three alike in a row the order is all that there is.
        """
        known = {match.sides[side].path: number for number, match in enumerate(self.found)}
        listed = [None, *self.all[side].values(), None]
        found: dict[Any, list[Group]] = {}
        for before, group, after in zip(listed, listed[1:], listed[2:], strict=False):
            if group is None or group.path not in self.open[side]:
                continue
            around = [-1 if near is None else known.get(near.path) for near in (before, after)]
            if not between:
                found.setdefault(self._look(group), []).append(group)
            elif None not in around:
                found.setdefault((*self._look(group), *around), []).append(group)
        return found

    # by values

    def _by_values(self) -> None:
        """Equal values settle what names and shapes leave open."""
        still = []
        for ones, others, because in self.unclear:
            prints = [self._prints(self.left, ones), self._prints(self.right, others)]
            for value, group in prints[0].items():
                other = prints[1].get(value)
                if group is not None and other is not None:
                    self._pair(group, other, 1.0, "same values")
            ones, others = [g for g in ones if g.path in self.open[0]], [g for g in others if g.path in self.open[1]]
            if ones and others:
                still.append((ones, others, because))
        self.unclear = still

    def _prints(self, state: State, groups: Sequence[Group]) -> dict[str, Group | None]:
        """The layers by the fingerprint of their largest weight in torch's layout; None where two have the same."""
        found: dict[str, Group | None] = {}
        for group in groups:
            item = max(group.items.values(), key=lambda item: count(item.spec))
            array = state.read(item.name)
            value = fingerprint(apply(inverse(item.layout) or (), [array], [item.spec]))
            found[value] = None if value in found else group
        return found
