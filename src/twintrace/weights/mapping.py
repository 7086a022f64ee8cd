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

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.errors import WeightsError
from ..model.tensors import Spec
from ..model.weights import Ambiguity, Pair, Unpaired, WeightMap
from ..store.digest import fingerprint
from .layers import UNKNOWN, counterpart
from .states import Item, State
from .transforms import apply, inverse, result

# Names that weights of layers have; anything else is a parameter that somebody put into a module of their own.
_ORDINARY = re.compile(
    r"weight(\.[gv])?|bias|running_(mean|var)|num_batches_tracked|(weight|bias)_[ih]h(_l\d+(_reverse)?)?|in_proj_\w+|\w_proj_weight|bias_[kv]"
)
_FAMILIES = {"layer_norm": "norm", "group_norm": "norm", "rms_norm": "norm", "instance_norm": "batch_norm"}


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


def predict(
    left: State, framework: str, *, mint: bool = False, rename: Callable[[str], str] | None = None
) -> WeightMap:
    """The map to a net of another framework that is built alike, given one side only.

    mint     name the weights as mindspore.mint.nn does, not as mindspore.nn
    rename   what to make of each name
    """
    pairs, alone, ambiguous = [], [], []
    taken: dict[str, str] = {}
    for item in left.items.values():
        if item.same_as is not None and framework == "mindspore":
            alone.append(Unpaired(item.name, f"tied to {item.same_as}, which is carried over", harmless=True))
            continue
        if item.role == "weight.g":
            continue  # goes with its direction
        if item.counter and framework == "mindspore" and not mint:
            alone.append(
                Unpaired(item.name, "a count of batches, which MindSpore's nn layers do not keep", harmless=True)
            )
            continue
        name, steps = _predicted(item, framework, mint)
        name = rename(name) if rename else name
        sources: tuple[str, ...] = (item.name,)
        if item.role == "weight.v":
            lengths = _lengths_of(item, left)
            if lengths is None:
                alone.append(Unpaired(item.name, "a direction (weight_norm) whose length is not there"))
                continue
            sources, steps = (lengths.name, item.name), (f"weight_norm {_dimension(lengths, item)}", *steps)
        if name in taken:
            raise WeightsError(f"{taken[name]} and {item.name} would both be called {name}. Rename one of them.")
        taken[name] = item.name
        because = (
            item.hint if not left.live else f"{item.kind} {item.role}" if item.kind else "no known layer: named alike"
        )
        pair = Pair(sources, name, steps, item.sure, because)
        if item.sure < 0.5:
            ambiguous.append(Ambiguity(sources, (name,), item.hint, (pair,)))
        else:
            pairs.append(pair)
    return WeightMap(left.label, framework, tuple(pairs), tuple(alone), (), tuple(ambiguous))


def _predicted(item: Item, framework: str, mint: bool) -> tuple[str, tuple[str, ...]]:
    path, role, rule = item.path, item.role, UNKNOWN
    undo = inverse(item.layout) or ()
    if role in ("weight.g", "weight.v"):
        role = "weight"
    if framework == "mindspore" and not mint:
        rule = counterpart(framework, item.kind)
        around = {inside: name for name, inside in counterpart(framework, item.outer).children.items()}
        head, _, last = path.rpartition(".")
        path = ".".join(filter(None, (head, around.get(last, last))))
        for name, inside in rule.children.items():
            if not inside:  # the weights are one level further down
                path, rule = f"{path}.{name}".lstrip("."), counterpart(framework, "BatchNorm2d")
    own = next((own for own, known in rule.roles.items() if known == role), role)
    return ".".join(filter(None, (path, own))), _simple((*undo, *rule.layout.get(role, ())))


def _simple(steps: Sequence[str]) -> tuple[str, ...]:
    """Without a step that is undone by the next."""
    kept: list[str] = []
    for step in steps:
        if kept and inverse([kept[-1]]) == (step,):
            kept.pop()
        else:
            kept.append(step)
    return tuple(kept)


def _lengths_of(direction: Item, state: State) -> Item | None:
    return next(
        (item for item in state.items.values() if item.path == direction.path and item.role == "weight.g"), None
    )


def _dimension(lengths: Item, direction: Item) -> str:
    """The dimension of a weight norm, as its length's shape says; the layer's own setting where that says nothing."""
    if not lengths.spec.shape:
        return "None"
    long = [axis for axis, size in enumerate(lengths.spec.shape) if size > 1]
    return str(long[0]) if len(long) == 1 else str(direction.norm)


# Layers and the tree that their paths form --------------------------------------------------------------------------


@dataclass
class _Group:
    """A layer: its weights by role. `order` is its place in the state."""

    path: str
    order: int
    items: dict[str, Item] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return next((item.rule.kind for item in self.items.values() if item.rule.kind), "")

    def signature(self, with_kind: bool, loose: bool = False) -> tuple[Any, ...]:
        """Equal for layers that could be the same one; `loose`: whatever their kind, if they have as many elements."""
        if loose:
            counts = (_count(item.spec) for item in self.items.values() if not item.counter and item.role != "weight.g")
            return tuple(sorted(counts))
        kind = _FAMILIES.get(self.kind, self.kind)
        if kind in ("norm", "batch_norm"):  # one framework may leave out what the other always has
            size = next((item.plain.shape for item in self.items.values() if item.plain.shape), ())
            return (kind, size)
        shapes = {}
        for role, item in self.items.items():
            if not item.counter and role != "weight.g":
                shapes["weight" if role == "weight.v" else role] = tuple(
                    size for axis, size in enumerate(item.plain.shape) if axis < 2 or size != 1
                )
        return (kind if with_kind else "", *sorted(shapes.items()))

    def __str__(self) -> str:
        shapes = sorted({item.plain.shape for item in self.items.values() if item.plain.shape}, key=len)
        return f"{self.kind or 'layer'} {list(shapes[-1]) if shapes else ''}".strip()


@dataclass
class _Node:
    """A place in the tree of paths."""

    name: str
    group: _Group | None = None
    children: dict[str, _Node] = field(default_factory=dict)
    deep: tuple[Any, ...] = ()

    def groups(self) -> Iterator[_Group]:
        if self.group is not None:
            yield self.group
        for child in self.children.values():
            yield from child.groups()

    def inner(self) -> _Node:
        """This node, or the first below it where there is anything to choose."""
        node = self
        while node.group is None and len(node.children) == 1:
            node = next(iter(node.children.values()))
        return node


def _groups(state: State) -> dict[str, _Group]:
    """The layers of a state. A weight that no layer is known to have stands for itself: its name is its path."""
    found: dict[str, _Group] = {}
    for item in state.items.values():
        if item.same_as is None:
            alone = not item.rule.kind and not _ORDINARY.fullmatch(item.role)
            path, role = (".".join(filter(None, (item.path, item.role))), "value") if alone else (item.path, item.role)
            found.setdefault(path, _Group(path, len(found))).items[role] = item
    return found


def _tree(groups: Iterable[_Group], look: Callable[[_Group], Any]) -> _Node:
    root = _Node("")
    for group in groups:
        node = root
        for part in group.path.split(".") if group.path else ():
            node = node.children.setdefault(part, _Node(part))
        node.group = group
    _sign(root, look)
    return root


def _sign(node: _Node, look: Callable[[_Group], Any]) -> None:
    """Note at each node what is below it, in any order."""
    signatures: list[Any] = []
    for child in node.children.values():
        _sign(child, look)
        signatures.extend(child.deep)
    if node.group is not None:
        signatures.append(repr(look(node.group)))
    node.deep = tuple(sorted(signatures))


@dataclass(frozen=True)
class _Match:
    """Two layers that belong together."""

    sides: tuple[_Group, _Group]
    confidence: float
    because: str


class _Matcher:
    def __init__(self, left: State, right: State) -> None:
        self.left, self.right = left, right
        self.with_kind = left.live and right.live
        self.open = (_groups(left), _groups(right))
        self.all = (dict(self.open[0]), dict(self.open[1]))
        self.found: list[_Match] = []
        self.unclear: list[tuple[list[_Group], list[_Group], str]] = []
        self.misfits: list[str] = []
        self.loose = False

    def match(self) -> WeightMap:
        self._by_path()
        self._by_prefix()
        for self.loose in (False, True):
            self._by_structure()
            self._by_neighbours()
        self._note_unclear()
        self._by_values()
        return self._finish()

    def _look(self, group: _Group) -> tuple[Any, ...]:
        return group.signature(self.with_kind, self.loose)

    def _pair(self, left: _Group, right: _Group, confidence: float, because: str) -> None:
        self.found.append(_Match((left, right), confidence, because))
        del self.open[0][left.path], self.open[1][right.path]

    def _alike(self, left: _Group, right: _Group) -> bool:
        return self._look(left) == self._look(right)

    # by path

    def _by_path(self) -> None:
        shifted = self._shifted()
        for path, left in list(self.open[0].items()):
            right = self.open[1].get(path)
            if right is not None and path not in shifted and self._fits(left, right):
                self._pair(left, right, 1.0, "same path")

    def _fits(self, left: _Group, right: _Group) -> bool:
        """Could they be one layer? Most of what both have must have the same shape."""
        if self._alike(left, right):
            return True
        common = [role for role in left.items if role in right.items]
        good = [role for role in common if self._steps(left.items[role], right.items[role]) is not None]
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

    def _with_prefixes(self, one: str, two: str) -> Iterator[tuple[_Group, _Group]]:
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
        trees = [_tree(list(groups.values()), self._look) for groups in self.open]
        self._lay(trees[0], trees[1], 0.7 if self.loose else 0.95)

    def _lay(self, left: _Node, right: _Node, sure: float, because: str = "") -> None:
        """Two branches side by side."""
        left, right = left.inner(), right.inner()
        both = left.group is not None and right.group is not None and self._alike(left.group, right.group)
        if both and left.group and right.group and left.group.path in self.open[0] and right.group.path in self.open[1]:
            self._pair(left.group, right.group, sure, because or f"the only {left.group} in its place")
        ones, others = dict(left.children), dict(right.children)
        for name in [name for name in ones if name in others]:
            if ones[name].deep == others[name].deep and not self._renumbered(ones, others, name):
                self._lay(ones.pop(name), others.pop(name), sure, because)
        kinds = [_by_contents(ones), _by_contents(others)]
        for contents in [contents for contents in kinds[0] if contents in kinds[1]]:
            names = kinds[0][contents], kinds[1][contents]
            order = _assign(*names) if len(names[0]) == len(names[1]) else None
            for one, other, factor, reason in order or ():
                self._lay(ones.pop(one), others.pop(other), sure * factor, reason if factor < 1 else because)
        for name in [name for name in ones if name in others]:
            self._lay(ones.pop(name), others.pop(name), sure * 0.95, because)
        if len(ones) == len(others) == 1 and (ones[next(iter(ones))].children or others[next(iter(others))].children):
            self._lay(next(iter(ones.values())), next(iter(others.values())), sure * 0.9, because)
        self._gather(ones.values(), others.values(), sure * 0.9)

    def _gather(self, ones: Iterable[_Node], others: Iterable[_Node], sure: float) -> None:
        """What is left of two branches that are nested differently: layer by layer, without regard to nesting."""
        ones, others = list(ones), list(others)
        self._branches(ones, others, sure)
        sides: list[dict[Any, list[_Group]]] = [{}, {}]
        for side, nodes in enumerate((ones, others)):
            for group in (group for node in nodes for group in node.groups() if group.path in self.open[side]):
                sides[side].setdefault(self._look(group), []).append(group)
        for looks in [looks for looks in sides[0] if looks in sides[1]]:
            names = [[group.path for group in kinds[looks]] for kinds in sides]
            order = _assign(names[0], names[1]) if len(names[0]) == len(names[1]) else None
            for one, other, factor, because in order or ():
                self._pair(self.open[0][one], self.open[1][other], sure * factor, because)

    def _branches(self, ones: Sequence[_Node], others: Sequence[_Node], sure: float) -> None:
        """Branches with the same layers in them at different depths, the largest first."""
        kinds: list[dict[tuple[Any, ...], list[tuple[str, _Node]]]] = [{}, {}]
        for side, nodes in enumerate((ones, others)):
            for path, node in (found for top in nodes for found in _below(top)):
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
            for one, other, factor, because in _assign(list(alive[0]), list(alive[1])) or ():
                self._lay(alive[0][one], alive[1][other], sure * factor, because if factor < 1 else "")

    def _renumbered(self, ones: Mapping[str, _Node], others: Mapping[str, _Node], name: str) -> bool:
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

    def _settle(self, ones: Sequence[_Group], others: Sequence[_Group], between: bool) -> None:
        if len(ones) == len(others) == 1:
            because = f"the only {ones[0]} " + ("between these two layers" if between else "that is left")
            self._pair(ones[0], others[0], (0.7 if between else 0.85) - 0.2 * self.loose, because)
        elif len(ones) == len(others) and not between:
            for one, other, factor, because in _assign([g.path for g in ones], [g.path for g in others]) or ():
                self._pair(self.open[0][one], self.open[1][other], (0.6 if self.loose else 0.85) * factor, because)

    def _looks(self, side: int, between: bool) -> dict[Any, list[_Group]]:
        """The open layers by what they look like; `between`: also by their neighbours, where both are paired already.

        A neighbour that is itself open says nothing: of three alike in a row the order is all that there is.
        """
        known = {match.sides[side].path: number for number, match in enumerate(self.found)}
        listed = [None, *self.all[side].values(), None]
        found: dict[Any, list[_Group]] = {}
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

    def _prints(self, state: State, groups: Sequence[_Group]) -> dict[str, _Group | None]:
        """The layers by the fingerprint of their largest weight in torch's layout; None where two have the same."""
        found: dict[str, _Group | None] = {}
        for group in groups:
            item = max(group.items.values(), key=lambda item: _count(item.spec))
            array = state.read(item.name)
            value = fingerprint(apply(inverse(item.layout) or (), [array], [item.spec]))
            found[value] = None if value in found else group
        return found

    # from layers to weights

    def _finish(self) -> WeightMap:
        pairs: list[Pair] = []
        used: tuple[set[str], set[str]] = (set(), set())
        for match in self.found:
            for pair in self._weights(*match.sides, match.confidence, match.because):
                pairs.append(pair)
                used[0].update(pair.left)
                used[1].add(pair.right)
        pairs.extend(self._tied(pairs, used))
        order = {name: number for number, name in enumerate(self.right.items)}
        pairs.sort(key=lambda pair: order[pair.right])
        ambiguous = []
        for ones, others, because in self.unclear:
            suggestion = tuple(
                pair
                for one, other in zip(ones, others, strict=False)
                for pair in self._weights(one, other, 0.3, "by order alone")
            )
            names = (
                tuple(i.name for g in ones for i in g.items.values()),
                tuple(i.name for g in others for i in g.items.values()),
            )
            ambiguous.append(Ambiguity(*names, because, suggestion))
            used[0].update(names[0])
            used[1].update(names[1])
        alone = self._alone(self.left, self.right, used[0]), self._alone(self.right, self.left, used[1])
        return WeightMap(self.left.label, self.right.label, tuple(pairs), *alone, tuple(ambiguous), tuple(self.misfits))

    def _weights(self, left: _Group, right: _Group, confidence: float, because: str) -> Iterator[Pair]:
        if not left.items.keys() & right.items.keys():
            yield from self._reshaped(left, right, confidence, because)
            return
        for role, item in left.items.items():
            other = right.items.get(role)
            if other is not None:
                steps = self._steps(item, other)
                if steps is None:
                    self.misfits.append(f"{item.name} is {item.spec}, {other.name} is {other.spec}")
                else:
                    yield self._doubted(
                        Pair((item.name,), other.name, steps, round(confidence, 2), because), item, other
                    )
        if "weight.v" in left.items and "weight" in right.items and "weight.g" in left.items:
            g, v, w = left.items["weight.g"], left.items["weight.v"], right.items["weight"]
            steps = (f"weight_norm {_dimension(g, v)}", *w.layout)
            yield Pair(
                (g.name, v.name), w.name, steps, round(confidence, 2), f"{because}; length and direction made one"
            )
        if "weight.v" in right.items and "weight" in left.items and "weight.g" in right.items:
            w, g, v = left.items["weight"], right.items["weight.g"], right.items["weight.v"]
            undo = inverse(w.layout) or ()
            yield Pair((w.name,), v.name, undo, round(confidence, 2), f"{because}; as the direction")
            yield Pair(
                (w.name,),
                g.name,
                (*undo, f"lengths {_dimension(g, v)}"),
                round(confidence, 2),
                f"{because}; its lengths",
            )

    def _doubted(self, pair: Pair, left: Item, right: Item) -> Pair:
        """A square matrix of a class that is not known may be kept transposed: nothing but its values would tell."""
        shape = left.spec.shape
        known = (bool(left.rule.kind), bool(right.rule.kind))
        if self.with_kind and len(shape) == 2 and shape[0] == shape[1] > 1 and known[0] != known[1]:
            doubt = "square, and of a class that is not known: it may be transposed"
            return replace(pair, confidence=min(pair.confidence, 0.7), because=f"{pair.because}; {doubt}")
        return pair

    def _reshaped(self, left: _Group, right: _Group, confidence: float, because: str) -> Iterator[Pair]:
        """Layers of different kinds: their weights by the number of elements."""
        others = {_count(item.spec): item for item in right.items.values()}
        for item in left.items.values():
            other = others.get(_count(item.spec))
            steps = self._steps(item, other) if other is not None else None
            if other is not None and steps is not None:
                yield Pair((item.name,), other.name, steps, round(confidence, 2), because)

    def _steps(self, left: Item, right: Item) -> tuple[str, ...] | None:
        """How the left becomes the right; None if it cannot."""
        told = _simple((*(inverse(left.layout) or ()), *right.layout))
        tries = [told] if self.with_kind else [told, (), ("insert axis 2",), ("drop axis 2",)]
        for steps in tries:
            try:
                if result(steps, [left.spec]).shape != right.spec.shape:
                    continue
            except WeightsError:
                continue
            return steps if left.spec.dtype == right.spec.dtype else (*steps, f"cast {right.spec.dtype}")
        if left.rule.kind == right.rule.kind != "" or left.spec.dtype != right.spec.dtype:
            return None
        return _relaid(left.spec.shape, right.spec.shape)

    def _tied(self, pairs: Sequence[Pair], used: tuple[set[str], set[str]]) -> Iterator[Pair]:
        """Names on the right that share another's memory come from the same source."""
        sources = {pair.right: pair for pair in pairs}
        for item in self.right.items.values():
            if item.same_as in sources:
                pair = sources[item.same_as]
                used[1].add(item.name)
                yield replace(pair, right=item.name, because=f"tied to {item.same_as}")

    def _alone(self, state: State, other: State, used: set[str]) -> tuple[Unpaired, ...]:
        return tuple(self._unpaired(item, state, other) for item in state.items.values() if item.name not in used)

    def _unpaired(self, item: Item, state: State, other: State) -> Unpaired:
        partner = next((p for p in self.found if p.sides[state is self.right].path == item.path), None)
        if item.same_as is not None:
            return Unpaired(item.name, f"tied to {item.same_as}", harmless=True)
        if item.counter:
            return Unpaired(item.name, f"a count of batches, which {other.framework} does not keep here", harmless=True)
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


def _relaid(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[str, ...] | None:
    """How one shape becomes the other in layers of different kinds: axes of one, trailing axes in one, transposed."""
    alike = [size for size in left if size != 1] == [size for size in right if size != 1]
    if alike or (left[:1] == right[:1] and math.prod(left) == math.prod(right)):
        return ("reshape " + " ".join(map(str, right)),)
    return ("permute 1 0",) if len(left) == 2 and left == right[::-1] else None


def _count(spec: Spec) -> int:
    return math.prod(spec.shape)


def _below(node: _Node, path: str = "") -> Iterator[tuple[str, _Node]]:
    """A node and all below it, with their paths."""
    here = f"{path}.{node.name}".lstrip(".")
    yield here, node
    for child in node.children.values():
        yield from _below(child, here)


def _by_contents(nodes: Mapping[str, _Node]) -> dict[tuple[Any, ...], list[str]]:
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, node in nodes.items():
        found.setdefault(node.deep, []).append(name)
    return found


# Names that could be each other's -----------------------------------------------------------------------------------


def _assign(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, float, str]] | None:
    """(left, right, confidence, reason) for equally many names of things that are alike; None if names do not decide."""
    if len(left) == 1:
        return [(left[0], right[0], 1.0, "alike, and the only ones")]
    if set(left) == set(right) and not any(name.rpartition(".")[2].isdigit() for name in left):
        return [(name, name, 1.0, "same name") for name in left]
    shorts = [_shortened(left), _shortened(right)]
    numbers = [[_number(short) for short in side] for side in shorts]
    if all(None not in side and len(set(side)) == len(side) for side in numbers):
        orders = [sorted(range(len(side)), key=lambda at, side=side: side[at]) for side in numbers]  # type: ignore[misc]
        return [
            (left[one], right[other], 0.9, f"alike, in the order of their numbers: {left[one]!r} and {right[other]!r}")
            for one, other in zip(*orders, strict=True)
        ]
    return _nearest(left, right, *shorts)


def _nearest(
    left: Sequence[str], right: Sequence[str], ones: Sequence[str], others: Sequence[str]
) -> list[tuple[str, str, float, str]] | None:
    """Each name with the one that it resembles most, if that is clear in both directions."""
    scores = [[difflib.SequenceMatcher(None, one, other).ratio() for other in others] for one in ones]
    chosen: list[tuple[str, str, float, str]] = []
    for at, row in enumerate(scores):
        best = max(range(len(row)), key=row.__getitem__)
        column = [scores[number][best] for number in range(len(ones))]
        rivals = [
            *(value for number, value in enumerate(row) if number != best),
            *(v for n, v in enumerate(column) if n != at),
        ]
        if row[best] < 0.25 or max(rivals) > row[best] - 0.15:
            return None
        chosen.append((left[at], right[best], 0.85, f"alike; {left[at]!r} is nearest to {right[best]!r} by name"))
    return chosen


def _shortened(names: Sequence[str]) -> list[str]:
    """The names without what all of them begin and end with, whole words and numbers at a time."""
    parts = [re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]+", name) for name in names]
    head = tail = 0
    shortest = min(map(len, parts))
    while head < shortest - 1 and len({part[head] for part in parts}) == 1:
        head += 1
    while tail < shortest - head - 1 and len({part[-1 - tail] for part in parts}) == 1:
        tail += 1
    return ["".join(part[head : len(part) - tail]).lower() for part in parts]


def _number(short: str) -> int | None:
    """The one number that tells a name from those like it: digits, a word, or a letter of the alphabet."""
    found = re.fullmatch(r"\D*(\d+)\D*", short)
    if found:
        return int(found[1])
    words = [part for part in re.split(r"[._]", short) if part in _WORDS]
    if len(words) == 1:
        return _WORDS[words[0]]
    letter = re.fullmatch(r"[._]?([a-h])[._]?", short)
    return ord(letter[1]) - ord("a") + 1 if letter else None


_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "first": 1, "second": 2, "third": 3, "fourth": 4, "last": 99, "pre": 1, "post": 2, "in": 1, "mid": 2, "out": 3,
    "input": 1, "hidden": 2, "output": 3,
}  # fmt: skip
