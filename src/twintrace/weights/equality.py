"""Pairs of weights by equal values: whole, in another layout, as rows of another, or made of several.

    blocks.0.attn.qkv.weight    rows 0:8 of it are query.weight, rows 8:16 key.weight, the rest value.weight
    h.0.mlp.c_fc.weight         transposed it is fc1.weight
    lm_head.weight              the values of embed_tokens.weight, which is carried over: tied

`settle` looks at open weights. `by_equality`, for certificates, asks values first, and holds against them what
names say: a weight that by its name is the query and by its values the key is not certified. Values that are the same
everywhere (the ones of a fresh norm) identify nothing; they follow the layer that they belong to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.weights import Ambiguity, Pair, Unpaired, WeightMap
from .conversion import value
from .derivation import ZEROS, derivation
from .fusion import ORDERS
from .places import count
from .states import Item, State
from .wording import concept, tokens

Array = np.ndarray[Any, Any]
NAMED = 0.95
"""Pairs that are surer than this have the same name: there equal values elsewhere are a mistake, not a better pair."""
ALONE = "names and shapes do not tell which is which"
"""Said of pairs that rest on their values alone."""
_BLOCK = 1 << 20


def settle(left: State, right: State, map: WeightMap) -> WeightMap:
    """The map, with its open weights paired where values are equal."""
    return _Search(left, right, map, {pair.right: pair for pair in map.pairs}).map()


def by_equality(left: State, right: State, map: WeightMap) -> WeightMap:
    """The map, with equal values before structure. Where they contradict each other, neither is taken."""
    search = _Search(left, right, map, {pair.right: pair for pair in map.pairs if pair.confidence > NAMED}, alike=True)
    return search.map([pair for pair in map.pairs if pair.confidence <= NAMED])


class _Search:
    def __init__(
        self, left: State, right: State, map: WeightMap, firm: Mapping[str, Pair], *, alike: bool = False
    ) -> None:
        self.left, self.right, self.given, self.firm, self.alike = left, right, map, firm, alike
        used = {name for pair in firm.values() for name in pair.left}
        spared = {item.name for item in (*map.only_left, *map.only_right) if item.harmless}
        self.open: tuple[dict[str, Item], dict[str, Item]] = (
            {n: i for n, i in left.items.items() if n not in used and n not in spared and not i.same_as},
            {n: i for n, i in right.items.items() if n not in firm and n not in spared and not i.same_as},
        )
        self.pairs: dict[str, Pair] = {}
        self.first_rows: dict[tuple[int, str], int] = {}
        self.rivals = (
            {name: number for number, item in enumerate(map.ambiguous) for name in item.left},
            {name: number for number, item in enumerate(map.ambiguous) for name in item.right},
        )
        """The set of those that names and shapes do not tell apart, of each that is in one."""

    def map(self, weak: Sequence[Pair] = ()) -> WeightMap:
        if self.open[1]:
            self._search()
        return self._told(list(self._held_against(weak)))

    # searching

    def _search(self) -> None:
        self._whole()
        for whole in (0, 1):
            self._parts(whole)
        self._followers()
        if self.alike:
            self._constants()
        self._tied()

    def _add(self, pair: Pair) -> None:
        alone = pair.right in self.rivals[1]
        self.pairs[pair.right] = replace(pair, because=f"{pair.because}; {ALONE}") if alone else pair
        for name in pair.left:
            self.open[0].pop(name, None)
        self.open[1].pop(pair.right, None)

    def _whole(self) -> None:
        """Weights with the same elements, on each side once, in whatever order of axes."""
        marks: list[dict[Any, list[Item]]] = [{}, {}]
        sizes = [{(item.spec.dtype, count(item.spec)) for item in side.values()} for side in self.open]
        for side, state in enumerate((self.left, self.right)):
            for item in self.open[side].values():
                if (item.spec.dtype, count(item.spec)) in sizes[1 - side] and count(item.spec) > 1:
                    mark = _unordered(state.read(item.name))
                    if mark is not None:
                        marks[side].setdefault((item.spec.dtype, count(item.spec), mark), []).append(item)
        for mark, ones in marks[0].items():
            others = marks[1].get(mark, [])
            if len(ones) == len(others) == 1:
                roles = {ones[0].role, others[0].role}
                if len(roles) == 1 or not roles <= _ROLES:  # one the weight of its layer, the other the bias: a mistake
                    self._add_whole(ones[0], others[0], "same values")

    def _add_whole(self, one: Item, other: Item, because: str) -> None:
        steps = _ways(self.left.read(one.name), self.right.read(other.name))
        if steps is not None:
            self._add(Pair((one.name,), other.name, steps, 1.0, because))

    def _parts(self, whole: int) -> None:
        """Weights whose rows are those of several of the other side, all of them."""
        states = (self.left, self.right)
        for one in list(self.open[whole].values()):
            for turned in (False, True) if one.name in self.open[whole] else ():
                parts = self._cover(states[whole], one, states[1 - whole], self.open[1 - whole].values(), turned)
                if parts and self._add_parts(whole, one, parts, turned):
                    break

    def _cover(
        self, state: State, one: Item, other: State, candidates: Iterable[Item], turned: bool
    ) -> list[tuple[Item, _Rows]]:
        """The weights of the other side that are the rows of this one, in the order in which they lie there."""
        shape = one.spec.shape[::-1] if turned else one.spec.shape
        if not shape or (turned and len(shape) != 2):
            return []
        wanted = [i for i in candidates if i.spec.dtype == one.spec.dtype and i.spec.shape[1:] == shape[1:]]
        wanted = [item for item in wanted if item.spec.shape and item.spec.shape[0] < shape[0]]
        if len(wanted) < 2:
            return []
        array = state.read(one.name)
        index = _row_index(np.ascontiguousarray(array.T) if turned else array)
        near = [item for item in wanted if self._first_row(other, item) in index]
        parts = [(item, _rows(index, shape[0], other.read(item.name))) for item in near]
        placed = sorted(((item, rows) for item, rows in parts if rows), key=lambda pair: pair[1].start)
        covered = [row for _, rows in placed for row in rows.all()]
        return placed if sorted(covered) == list(range(shape[0])) else []

    def _first_row(self, state: State, item: Item) -> int:
        """A hash of its first row, kept: it is asked for of every weight that the item could be a part of."""
        side = int(state is self.right)
        if (side, item.name) not in self.first_rows:
            self.first_rows[side, item.name] = hash(state.read(item.name)[0].tobytes())
        return self.first_rows[side, item.name]

    def _add_parts(self, whole: int, one: Item, parts: Sequence[tuple[Item, _Rows]], turned: bool) -> bool:
        shape = one.spec.shape[::-1] if turned else one.spec.shape
        turn = ("permute 1 0",) if turned else ()
        if whole == 0:
            for item, rows in parts:
                steps = (*turn, *rows.steps(shape))
                self._add(Pair((one.name,), item.name, steps, 1.0, f"same values as {rows} of {one.name}"))
            return True
        times = {rows.times for _, rows in parts}
        if len(times) > 1:
            return False
        step = "stack" if times == {1} else f"heads {times.pop()}"  # one after the other, or a piece of each in turn
        names = tuple(item.name for item, _ in parts)
        self._add(Pair(names, one.name, (step, *turn), 1.0, "same values in one piece"))
        return True

    def _followers(self) -> None:
        """The other weights of layers that were paired by their values, if they are equal too: their biases."""
        layers = [{(item.path, item.role): item for item in state.items.values()} for state in (self.left, self.right)]
        for pair in list(self.pairs.values()):
            sources = [self.left.items[name] for name in pair.left]
            target = self.right.items[pair.right]
            for role in [role for path, role in layers[1] if path == target.path]:
                there = layers[1][target.path, role]
                here = [layers[0].get((item.path, role)) for item in sources]
                if there.name in self.open[1] and all(item is not None for item in here):
                    self._follow(pair, [item for item in here if item is not None], there)

    def _follow(self, leader: Pair, here: Sequence[Item], there: Item) -> None:
        if len(here) == 1 and here[0].spec.shape == there.spec.shape:
            steps: tuple[str, ...] = ()
        else:
            steps = tuple(step for step in leader.steps if step.startswith(("rows", "stack", "heads")))
        pair = Pair(tuple(item.name for item in here), there.name, steps, 1.0, f"{leader.because}, with its layer")
        if _equal(pair, self.left, self.right):
            self._add(pair)

    def _constants(self) -> None:
        """Weights that are one number throughout, as many on both sides: it does not matter which is which."""
        alike: list[dict[Any, list[Item]]] = [{}, {}]
        for side, state in enumerate((self.left, self.right)):
            for item in self.open[side].values():
                values = state.read(item.name)
                if values.size and (values == values.flat[0]).all():
                    key = (item.role, item.spec.dtype, count(item.spec), values.flat[0].tobytes())
                    alike[side].setdefault(key, []).append(item)
        for key, ones in alike[0].items():
            others = alike[1].get(key, [])
            if len(ones) == len(others):
                for one, other in zip(ones, others, strict=True):
                    self._add_whole(one, other, "same values, as all that are like it")

    def _tied(self) -> None:
        """Matrices on the right that nothing else fills, and that hold the values of one that is carried over already."""
        lone = {item.name for item in self.given.only_right}
        for item in [i for i in self.open[1].values() if i.name in lone and len(i.spec.shape) > 1]:
            for source in self.left.items.values():
                if source.spec == item.spec and count(item.spec) > 1 and source.name not in self.open[0]:
                    array = self.right.read(item.name)
                    if _unordered(array) is not None and np.array_equal(array, self.left.read(source.name)):
                        self._add(Pair((source.name,), item.name, (), 1.0, f"same values as {source.name}: tied"))
                        break

    # holding against

    def _held_against(self, weak: Sequence[Pair]) -> Iterator[Ambiguity]:
        """Pairs by structure: they stand where values say nothing; where values say otherwise, neither is taken."""
        yield from self._shuffled()
        yield from self._torn()
        askew = list(self._askew())
        yield from askew
        weak = [pair for pair in weak if not any(item.right == (pair.right,) for item in askew)]
        uses: dict[str, list[Pair]] = {}
        for pair in self.pairs.values():
            for name in pair.left:
                uses.setdefault(name, []).append(pair)
        for pair in list(self.pairs.values()):
            sets = {self.rivals[0].get(name, -1) for name in pair.left} | {self.rivals[1].get(pair.right, -1)}
            if len(sets - {-1}) > 1:
                del self.pairs[pair.right]
                because = f"{pair.right} has the values of {' + '.join(pair.left)}, which is in another place"
                yield Ambiguity(pair.left, (pair.right,), because)
        for pair in weak:
            here = self.pairs.get(pair.right)
            if here is None and (_rows_of(pair) or not any(name in uses for name in pair.left)):
                self.firm = {**self.firm, pair.right: pair}
            elif here is None or here.left != pair.left or _rows_of(here) != _rows_of(pair):
                other = here or uses[next(name for name in pair.left if name in uses)][0]
                held = f"{other.right} has the values of {' + '.join(other.left)}"
                because = f"{held}, but {pair.right} is {' + '.join(pair.left)} otherwise ({pair.because})"
                yield Ambiguity(pair.left, (pair.right,), because)
                for name in {pair.right, other.right}:
                    self.pairs.pop(name, None)

    def _taken_back(self, pairs: Sequence[Pair], because: str) -> Ambiguity:
        """Pairs that are none after all."""
        for pair in pairs:
            self.pairs.pop(pair.right, None)
        lefts = tuple(dict.fromkeys(name for pair in pairs for name in pair.left))
        return Ambiguity(lefts, tuple(pair.right for pair in pairs), because, tuple(pairs))

    def _torn(self) -> Iterator[Ambiguity]:
        """Layers whose weights hold the values of different layers: the weight of one, the bias of another."""
        for side in (0, 1):
            layers: dict[str, list[Pair]] = {}
            for pair in (pair for pair in self.pairs.values() if side == 0 or len(pair.left) == 1):
                names = pair.left if side == 0 else (pair.right,)
                for path in {(self.left, self.right)[side].items[name].path for name in names}:
                    layers.setdefault(path, []).append(pair)
            for path, pairs in layers.items():
                if len({self._source(pair) for pair in pairs}) > 1 and (side or not any(map(_rows_of, pairs))):
                    yield self._taken_back(pairs, f"the weights of {path} have the values of different layers")

    def _askew(self) -> Iterator[Ambiguity]:
        """Square matrices that are transposed where no oblong one is, or none of which is where all oblong ones are."""
        oblong: set[bool] = set()
        squares: dict[str, bool] = {}
        for pair in (*self.firm.values(), *self.pairs.values()):
            items = [self.left.items[pair.left[0]], self.right.items[pair.right]]
            matrix = all(len(item.spec.shape) == 2 and item.rule.kind != "embedding" for item in items)
            if matrix and len(pair.left) == 1 and not _rows_of(pair):
                turned = any(step.startswith("permute") for step in pair.steps)
                if items[0].spec.shape[0] != items[0].spec.shape[1]:
                    oblong.add(turned)
                elif pair.right in self.pairs:
                    squares[pair.right] = turned
        for name, turned in squares.items():
            if (True not in oblong) if turned else (oblong == {True} and True not in squares.values()):
                because = "it is transposed, and others are not" if turned else "it is not transposed, and others are"
                yield self._taken_back([self.pairs[name]], f"by its values {because}")

    def _source(self, pair: Pair) -> tuple[Any, ...]:
        """The layers that a pair joins, and the part of them."""
        paths = tuple(dict.fromkeys(self.left.items[name].path for name in pair.left))
        return (*paths, self.right.items[pair.right].path, *_rows_of(pair))

    def _shuffled(self) -> Iterator[Ambiguity]:
        """Parts that lie in one weight in another order than their names have."""
        wholes: dict[str, list[Pair]] = {}
        for pair in self.pairs.values():
            if _rows_of(pair):
                wholes.setdefault(pair.left[0], []).append(pair)
        made = [(p.left, [p]) for p in self.pairs.values() if len(p.left) > 1]
        parts = [(tuple(p.right for p in pairs), pairs) for pairs in wholes.values()]
        for names, pairs in (*made, *parts):
            words = [next((word for word in map(concept, reversed(tokens(n))) if word in _ORDERED), "") for n in names]
            order = next((order for order in ORDERS if sorted(order) == sorted(words)), None)
            if order is not None and list(order) != words:
                because = f"by their values they lie in the order {' '.join(words)}, by name {' '.join(order)}"
                yield self._taken_back(pairs, because)

    # telling

    def _told(self, conflicts: Sequence[Ambiguity]) -> WeightMap:
        order = {name: number for number, name in enumerate(self.right.items)}
        pairs = sorted((*self.firm.values(), *self.pairs.values()), key=lambda pair: order[pair.right])
        used = ({name for pair in pairs for name in pair.left}, {pair.right for pair in pairs})
        ambiguous = []
        for item in (*conflicts, *self.given.ambiguous):
            sides = [
                tuple(name for name in names if name not in used[side])
                for side, names in enumerate((item.left, item.right))
            ]
            if all(sides):
                kept = tuple(p for p in item.suggestion if set(p.left) <= set(sides[0]) and p.right in sides[1])
                ambiguous.append(replace(item, left=sides[0], right=sides[1], suggestion=kept))
                used[0].update(sides[0])
                used[1].update(sides[1])
        alone = []
        for side, state in enumerate((self.left, self.right)):
            known = {item.name: item for item in (self.given.only_left, self.given.only_right)[side]}
            left_over = [item for name, item in state.items.items() if name not in used[side]]
            alone.append(tuple(self._lone(item, state, known.get(item.name), used[side]) for item in left_over))
        return replace(
            self.given, pairs=tuple(pairs), only_left=alone[0], only_right=alone[1], ambiguous=tuple(ambiguous)
        )

    def _lone(self, item: Item, state: State, known: Unpaired | None, used: set[str]) -> Unpaired:
        if known is not None and known.harmless:
            return known
        arrived = [other for other in state.items.values() if other.path == item.path and other.name in used]
        if arrived and derivation(item, state) == ZEROS:
            return Unpaired(item.name, f"{ZEROS}: it is not needed", harmless=True, neutral=0.0)
        other = self.left if state is self.right else self.right
        return known or Unpaired(item.name, f"its values are nowhere in {other.label}")


_ROLES = {"weight", "bias", "running_mean", "running_var"}
_ORDERED = {word for order in ORDERS for word in order}


def _equal(pair: Pair, left: State, right: State) -> bool:
    try:
        made = value(left, pair)
    except Exception:  # noqa: BLE001  the steps of another weight need not fit this one
        return False
    there = right.read(pair.right)
    return made.shape == there.shape and made.dtype == there.dtype and bool(np.array_equal(made, there))


def _rows_of(pair: Pair) -> tuple[str, ...]:
    return tuple(step for step in pair.steps if step.startswith("rows"))


def _unordered(array: Array) -> int | None:
    """A number that is equal for arrays with the same elements in any order; None if all are equal."""
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.itemsize <= 8 else flat.view(np.uint64)
    if not flat.size or (flat == flat[0]).all():
        return None
    total = 0
    for start in range(0, flat.size, _BLOCK):
        words = flat[start : start + _BLOCK].astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        total += int((words ^ (words >> np.uint64(31))).sum(dtype=np.uint64))
    return total % (1 << 64)


def _ways(one: Array, two: Array) -> tuple[str, ...] | None:
    """The steps from one array to another that has the same elements; None if there are none."""
    reshape = (f"reshape {' '.join(map(str, two.shape))}",)
    if np.array_equal(one.reshape(-1), two.reshape(-1)):
        return () if one.shape == two.shape else reshape
    if 2 <= one.ndim <= 5:
        for axes in itertools.permutations(range(one.ndim)):
            turned = np.transpose(one, axes)
            if turned.size == two.size and np.array_equal(turned.reshape(-1), two.reshape(-1)):
                permute = (f"permute {' '.join(map(str, axes))}",)
                return permute if turned.shape == two.shape else (*permute, *reshape)
    return None


@dataclass(frozen=True)
class _Rows:
    """`chunk` rows from `start` on, and again every `stride` rows, `times` times."""

    start: int
    chunk: int
    stride: int
    times: int

    def all(self) -> list[int]:
        return [self.start + lap * self.stride + row for lap in range(self.times) for row in range(self.chunk)]

    def steps(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Steps that take them out of a weight of this shape."""
        rows = f"rows {self.start}:{self.start + self.chunk}"
        if self.times == 1:
            return (rows,)
        rest = shape[1:]
        turn = "permute " + " ".join(map(str, (1, 0, *range(2, len(rest) + 2))))
        return (
            "reshape " + " ".join(map(str, (self.times, self.stride, *rest))), turn, rows, turn,
            "reshape " + " ".join(map(str, (self.times * self.chunk, *rest))),
        )  # fmt: skip

    def __str__(self) -> str:
        rows = f"rows {self.start}:{self.start + self.chunk}"
        return rows if self.times == 1 else f"{rows} of each {self.stride}"


def _row_index(array: Array) -> dict[int, int]:
    """The number of each row, by a hash of its values."""
    index: dict[int, int] = {}
    for number, row in enumerate(array.reshape(len(array), -1)):
        index.setdefault(hash(row.tobytes()), number)
    return index


def _rows(index: Mapping[int, int], length: int, part: Array) -> _Rows | None:
    """Rows of a part in a weight of so many rows."""
    places = [index.get(hash(row.tobytes()), -1) for row in part.reshape(len(part), -1)]
    if -1 in places:
        return None
    chunk = next((n for n in range(1, len(places)) if places[n] != places[n - 1] + 1), len(places))
    stride = places[chunk] - places[0] if chunk < len(places) else length
    if stride <= 0 or len(places) % chunk or length % stride:
        return None
    rows = _Rows(places[0], chunk, stride, len(places) // chunk)
    fits = rows.start + chunk <= stride if rows.times > 1 else True
    return rows if rows.all() == places and fits and rows.times * stride in (length, stride) else None
