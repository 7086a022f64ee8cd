"""Layers, and the places that they have in their nets.

    encoder.0.attn.q.weight, .bias      Group encoder.0.attn.q: a linear [16, 16], its weights by role
    encoder.0…, encoder.1…              Series: branches that are numbered; what is in them weighs 512 and 512 elements

`places(left, right)` lays the numbered branches of two nets side by side. Weights in paired branches have the same place on both
sides, however it is nested and called there; and only what has the same place is compared further.

Branches are recognised by how many elements their matrices have: that is the same whether query, key and value are one weight
or three, kept transposed or not, nested or flat, with or without biases and buffers. They are paired in the order of their numbers,
or the other way round where the sizes say so: the decoder of an autoencoder is often numbered from its end.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model.tensors import Spec
from ..model.words import dotted
from .states import Item, State
from .wording import ORDINALS, WEAK, Wording, tokens, wording

# Names that weights of layers have; anything else is a parameter that somebody put into a module of their own.
_ORDINARY = re.compile(
    r"weight(\.[gv])?|bias|running_(mean|var)|num_batches_tracked|(weight|bias)_[ih]h(_l\d+(_reverse)?)?|in_proj_\w+|\w_proj_weight|bias_[kv]"
)
NEAR = 1 / 16
"""Share by which the sizes of two branches may differ. A block of a transformer has the size of 12 square matrices; with one more
or less it is another block."""
Look = Callable[["Group"], Any]
InOrder = Callable[[Sequence["Group"], Sequence["Group"]], Sequence[tuple["Group", "Group"]]]
_FAMILIES = {"layer_norm": "norm", "group_norm": "norm", "rms_norm": "norm", "instance_norm": "batch_norm"}


@dataclass(eq=False)
class Group:
    """A layer: its weights by role. `order` is its place in the state."""

    path: str
    order: int
    items: dict[str, Item] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of layer, "" where it is not known."""
        return next((item.rule.kind for item in self.items.values() if item.rule.kind), "")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words and numbers of its path."""
        return tokens(self.path)

    @property
    def matrices(self) -> list[Item]:
        """Its weights that have rows."""
        return [item for item in self.items.values() if len(item.plain.shape) > 1]

    def signature(self, with_kind: bool, loose: bool = False) -> tuple[Any, ...]:
        """Equal for layers that could be the same one. `loose`: whatever their kind and whichever axis comes first."""
        if loose:
            items = [item for item in self.items.values() if not item.counter and item.role != "weight.g"]
            shapes = sorted(tuple(sorted(_flat(_long(item.spec.shape)))) for item in items)
            return tuple([shape for shape in shapes if len(shape) > 1] or shapes)
        kind = _FAMILIES.get(self.kind, self.kind)
        if kind in ("norm", "batch_norm"):  # one framework may leave out what the other always has
            size = next((item.plain.shape for item in self.items.values() if item.plain.shape), ())
            return (kind, _long(size))
        sizes = {}
        for role, item in self.items.items():
            if not item.counter and role != "weight.g":
                sizes["weight" if role == "weight.v" else role] = _long(item.plain.shape)
        if kind.startswith("conv") and len(sizes.get("weight", ())) == 2:
            kind = "linear"  # a convolution of one element
        return (kind if with_kind else "", *sorted(sizes.items()))

    def __str__(self) -> str:
        shapes = sorted({item.plain.shape for item in self.items.values() if item.plain.shape}, key=len)
        return f"{self.kind or 'layer'} {list(shapes[-1]) if shapes else ''}".strip()


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the axes that are one long: [C] and [1, 1, 1, C] hold the same."""
    return tuple(size for size in shape if size != 1)


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a matrix that a layer without windows would have in its place."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 2 else shape


def groups_of(state: State) -> dict[str, Group]:
    """The layers of a state. A weight that no layer is known to have stands for itself: its name is its path."""
    groups: dict[str, Group] = {}
    for item in state.items.values():
        if item.same_as is None:
            alone = not item.rule.kind and not _ORDINARY.fullmatch(item.role)
            path, role = (dotted(item.path, item.role), "value") if alone else (item.path, item.role)
            groups.setdefault(path, Group(path, len(groups))).items[role] = item
    return groups


@dataclass
class _Node:
    """A word or number in the tree that the names form."""

    children: dict[str, _Node] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    """The layers here and below."""

    def series(self, above: tuple[str, ...] = ()) -> Iterator[_Series]:
        """The topmost numbered branches below this node."""
        numbers = sorted((name for name in self.children if name.isdigit()), key=int)
        if not numbers:
            numbers = sorted((name for name in self.children if name in ORDINALS), key=ORDINALS.__getitem__)
        if len(numbers) > 1:
            yield _Series(above, [self.children[number] for number in numbers])
        for name, child in self.children.items():
            if len(numbers) < 2 or name not in numbers:
                yield from child.series((*above, name))

    @property
    def size(self) -> tuple[int, int]:
        """(elements in matrices, elements in vectors if there are no matrices)."""
        counts = [0, 0]
        for item in (item for group in self.groups for item in group.items.values()):
            counts[len(_long(item.spec.shape)) < 2] += 0 if item.counter else count(item.spec)
        return counts[0], 0 if counts[0] else counts[1]


@dataclass
class _Series:
    above: tuple[str, ...]
    members: list[_Node]

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [member.size for member in self.members]


def _tree(groups: Iterable[Group]) -> _Node:
    root = _Node()
    for group in groups:
        node = root
        node.groups.append(group)
        for token in group.tokens:
            node = node.children.setdefault(token, _Node())
            node.groups.append(group)
    return root


@dataclass
class Places:
    """Places of layers: of equal numbers in `at[side][path]` are those in the same branch; `depth` tokens lead there."""

    at: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    depth: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    count: int = 0
    by_number: set[int] = field(default_factory=set)
    """Places that only the order of numbers paired."""

    def counted(self, left: Group) -> bool:
        """True if the left layer is in a branch that only its number paired."""
        return self.at[0].get(left.path, 0) in self.by_number

    def tokens(self, side: int, group: Group) -> tuple[str, ...]:
        """The words and numbers of a layer's name below its branch."""
        return group.tokens[self.depth[side].get(group.path, 0) :]

    def wording(self, side: int, group: Group) -> Wording:
        """The words of a layer's name below its branch."""
        return wording(self.tokens(side, group))


def places(
    left: Mapping[str, Group], right: Mapping[str, Group], look: Look, in_order: InOrder | None = None
) -> Places:
    """The places of two nets' layers.

    look        signature of a layer, equal for layers that could be the same one
    in_order    pairs layers by the order of their use, where that is known; it comes before that of numbers
    """
    pairing = Places()
    _lay(pairing, _tree(left.values()), _tree(right.values()), (0, 0), look, in_order)
    return pairing


def _lay(
    pairing: Places, left: _Node, right: _Node, depths: tuple[int, int], look: Look, in_order: InOrder | None
) -> None:
    """Pair the numbered branches below two nodes, and those below them."""
    sides = [list(left.series()), list(right.series())]
    while sides[0] and sides[1]:
        pairs = _paired(sides[0], sides[1], look)
        for one, two, backwards in pairs:
            members = list(zip(one.members, two.members[::-1] if backwards else two.members, strict=True))
            used = _by_use(one, two, look, in_order) if in_order else []
            for first, second in used or members:
                pairing.count += 1
                if not used and one.sizes.count(first.size) > 1 and one.above != two.above:
                    pairing.by_number.add(pairing.count)
                deep = (depths[0] + len(one.above) + 1, depths[1] + len(two.above) + 1)
                for side, node in enumerate((first, second)):
                    for group in node.groups:
                        pairing.at[side][group.path], pairing.depth[side][group.path] = pairing.count, deep[side]
                _lay(pairing, first, second, deep, look, in_order)
        done = {id(one) for pair in pairs for one in pair[:2]}
        # what has no counterpart is looked into: its branches may have one
        rest = [[series for series in side if id(series) not in done] for side in sides]
        sides = [[], []]
        for inner, others in zip(sides, rest, strict=True):
            for series in others:
                for number, node in enumerate(series.members):
                    inner += node.series((*series.above, str(number)))


def _by_use(one: _Series, two: _Series, look: Look, in_order: InOrder) -> list[tuple[_Node, _Node]]:
    """The branches in the order in which one of their layers is used, if they are of one size and all have such a layer."""
    looks = [{look(group) for group in node.groups} for node in (*one.members, *two.members)]
    common = set.intersection(*looks)
    if len(set(one.sizes)) > 1 or not common:
        return []
    chosen = next(look(group) for group in one.members[0].groups if look(group) in common)
    nodes = [
        {next(group for group in node.groups if look(group) == chosen): node for node in side.members}
        for side in (one, two)
    ]
    return [(nodes[0][a], nodes[1][b]) for a, b in in_order(list(nodes[0]), list(nodes[1]))]


def _paired(left: Sequence[_Series], right: Sequence[_Series], look: Look) -> list[tuple[_Series, _Series, bool]]:
    """(left, right, numbered the other way round) for series that are each other's only counterpart, by size, then by name."""
    fits = []
    for one, two in itertools.product(left, right):
        ways = [backwards for backwards in (False, True) if _alike(one, two, backwards, look)]
        fits += [(one, two, backwards) for backwards in ways[:1]]
    named = [fit for fit in fits if _name(fit[0]) == _name(fit[1])]
    matched: list[tuple[_Series, _Series, bool]] = []
    for candidates in (fits, named, fits):
        rest = [fit for fit in candidates if not any(fit[0] is one or fit[1] is two for one, two, _ in matched)]
        for side in (0, 1):
            counts = Counter(id(fit[side]) for fit in rest)
            rest = [fit for fit in rest if counts[id(fit[side])] == 1]
        matched += rest
    return matched


def _name(series: _Series) -> frozenset[str]:
    return wording(series.above).without(WEAK).words


def _alike(left: _Series, right: _Series, backwards: bool, look: Look) -> bool:
    """Could the branches be each other's in this order? Those of one layer each must look alike, not only be as large."""
    if len(left.members) != len(right.members):
        return False
    for one, two in zip(left.members, right.members[::-1] if backwards else right.members, strict=True):
        single = len(one.groups) == len(two.groups) == 1
        if not _near(one.size, two.size) or (single and look(one.groups[0]) != look(two.groups[0])):
            return False
    return True


def _near(one: tuple[int, int], two: tuple[int, int]) -> bool:
    """Equal but for a little that one side keeps elsewhere, as T5 the biases of positions in its first block."""
    return all(abs(a - b) <= NEAR * max(a, b) for a, b in zip(one, two, strict=True))


def count(spec: Spec) -> int:
    """Number of elements."""
    return math.prod(spec.shape)
