"""Which tensor of one call belongs to which of its partner.

    Linear                          Dense
    input 0      f32[2, 144]        input 0       f32[2, 144]       same slot
    weight       f32[5, 144]        weight        f32[144, 5]       axes 1, 0
    bias         f32[5]             –                               a stray, with its reason

What goes in (arguments, parameters, buffers), what comes out, and gradients are mapped apart from each other; a gradient
follows the tensor that it is the gradient of. Evidence, strongest first: equal values, tensors that are known to belong
together, names that mean the same, shapes, position. Some tools' dumps have gradients without saying whose they are (`node.0`):
those are paired by their values alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..model.pairs import Layout, Part, Stray, TensorPair
from ..model.tensors import Tensor
from ..operations import family_of
from ..operations.families import COMMUTATIVE
from ..operations.operands import operand_of, ranks
from .arrangements import Arranger
from .layouts import AS_IT_IS, fits, layout_between
from .trees import IN, OUT, CallTree, Slot
from .values import alike, in_other_places, numel, scale_of, tolerance

_HELD = frozenset((Part.PARAMETER, Part.BUFFER))
_FOLLOWS = {Part.OUTPUT_GRADIENT: OUT, Part.INPUT_GRADIENT: IN}
_ASKED = "the mapping says so"
_BY_SHAPE = "the only ones of this shape"
_MANY = 250_000  # candidates beyond which only equal slots and equal values are looked at


_LISTED = re.compile(r"0\.\d+")
"""A parameter in the list that an optimizer's step takes."""
_OF_PARAMETER = re.compile(r"(0\.|kw\.gradients\.|parameters\.|kw\.state\.|state\.)(\d+)(?=\.|$)")
"""A parameter, its gradient, its new value or its state in such a step, by its place in the list."""


class Mapped(NamedTuple):
    """The tensors of a match."""

    pairs: tuple[TensorPair, ...]
    only_left: tuple[Stray, ...]
    only_right: tuple[Stray, ...]


class _Chosen(NamedTuple):
    left: Slot
    right: Slot
    because: str
    follows: int | None = None
    """Of a gradient: which of the pairs before it has the tensors that it is the gradient of."""


class Mapper:
    """Maps the tensors of matched calls; remembers which tensors belong together."""

    def __init__(
        self,
        left: CallTree,
        right: CallTree,
        reshaped: Callable[[int, int], Iterable[tuple[int, ...]]],
        same_origin: Callable[[int, int], bool],
        root: Callable[[int, int], int],
        arranger: Arranger,
    ) -> None:
        self._left, self._right, self._reshaped, self._same_origin = left, right, reshaped, same_origin
        self._root, self._arranger = root, arranger
        self._partners: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.expected: tuple[dict[int, int], dict[int, int]] = {}, {}
        """Partners of tensors that `expect` was told of."""

    def partner(self, which: int, tensor: int) -> int | None:
        """The tensor of the other side that this one was paired with in an earlier match, first of all."""
        return self._partners[which].get(tensor)

    def expect(self, left: int, right: int) -> None:
        """Two tensors belong together, which the match that pairs them does not show."""
        for known in (self._partners, self.expected):
            known[0].setdefault(left, right)
            known[1].setdefault(right, left)

    def map(
        self,
        left: Sequence[Slot],
        right: Sequence[Slot],
        operation: str = "",
        *,
        named: bool = False,
        forced: Mapping[str, str] | None = None,
        functions: tuple[str, str] = ("", ""),
        computes: bool = False,
        ends: bool = False,
        same: bool = True,
    ) -> Mapped:
        """Pair two lists of slots.

        `named` says that equal slots belong together whatever their shapes; `computes` that both calls are one operation that moves
        nothing: where all goes in as it is, all comes out as it is; `ends` that what comes out is a result of the run; `same` that
        both calls are of one function or class.
        """
        moved = self._moved_parameters(left, right) if named else None
        if named and (operation in COMMUTATIVE or operation == "where"):
            moved = self._exchanged_operands(left, right, operation)
        if moved is not None:
            chosen = moved
        elif named and _same_slots(left, right):
            chosen = [_Chosen(one, two, "") for one, two in zip(left, right, strict=True)]
        else:
            chosen = []
            for group in (IN, OUT):
                ones = [slot for slot in left if slot.part in group]
                twos = [slot for slot in right if slot.part in group]
                assigned = self._assign(ones, twos, operation, functions, named, forced or {})
                chosen += assigned
                chosen += self._by_role(ones, twos, assigned, operation, functions)
            chosen += _gradients(left, right, chosen)
            chosen += self._loose_gradients(left, right, chosen, operation)
        pairs: list[TensorPair] = []
        carried = False  # a pair before does not lie as it is
        for item in chosen:
            followed = None if item.follows is None else pairs[item.follows].layout
            if named:
                pair = self._named_pair(item, operation, pairs, ends, same, carried)
            else:
                inherited = computes and item.left.part in OUT and all(self._as_it_is(pair) for pair in pairs)
                pair = self._pair(item, operation, followed, inherited)
            pairs.append(pair)
            carried = carried or pair.layout != AS_IT_IS
            if followed is None:
                self._arranger.remember(pair.left, pair.right, pair.layout)
            self._partners[0].setdefault(pair.left, pair.right)
            self._partners[1].setdefault(pair.right, pair.left)
        if len(chosen) == len(left) == len(right):
            return Mapped(tuple(pairs), (), ())
        taken = {id(item.left) for item in chosen}, {id(item.right) for item in chosen}
        return Mapped(
            tuple(pairs),
            tuple(_stray(slot, right, operation, functions[0]) for slot in left if id(slot) not in taken[0]),
            tuple(_stray(slot, left, operation, functions[1]) for slot in right if id(slot) not in taken[1]),
        )

    def _moved_parameters(self, left: Sequence[Slot], right: Sequence[Slot]) -> list[_Chosen] | None:
        """Slots of two optimizers' steps whose parameters are in another order, or not the same; None if each is in its place.

        A parameter belongs to the one that the forward pass has in its stead; its gradient and its state go with it.
        """
        ours, theirs = (
            {slot.slot.partition(".")[2]: slot.tensor for slot in side if _LISTED.fullmatch(slot.slot)}
            for side in (left, right)
        )
        if not ours or not theirs or not any(slot.slot.startswith("kw.gradients") for slot in left):
            return None
        places = {tensor: place for place, tensor in theirs.items()}
        known = {
            place: places.get(partner)
            for place, tensor in ours.items()
            if (partner := self.partner(0, tensor)) is not None
        }
        fitting = {
            place: other
            for place, other in known.items()
            if other is not None and numel(self._left.tensor(ours[place])) == numel(self._right.tensor(theirs[other]))
        }
        for place, tensor in ours.items():  # what the forward pass does not know stays where it is, if it fits
            other = theirs.get(place)
            if place in known or other is None or self.partner(1, other) is not None:
                continue
            if self._left.tensor(tensor).spec.shape == self._right.tensor(other).spec.shape:
                fitting[place] = place
        if fitting == {place: place for place in ours} and len(ours) == len(theirs):
            return None
        there = {(slot.part, slot.slot, slot.turn): slot for slot in right}
        chosen = []
        for slot in left:
            match = _OF_PARAMETER.match(slot.slot)
            name: str | None = slot.slot
            if match is not None:
                moved = fitting.get(match[2])
                name = None if moved is None else f"{match[1]}{moved}{slot.slot[match.end() :]}"
            same = there.get((slot.part, name, slot.turn)) if name is not None else None
            if same is not None:
                chosen.append(_Chosen(slot, same, "" if name == slot.slot else "the same parameter"))
        return chosen

    def _exchanged_operands(self, left: Sequence[Slot], right: Sequence[Slot], operation: str) -> list[_Chosen] | None:
        """Slots of a call of two operands that stand in the other order on the right; None if nothing says so.

        Of a sum it does not matter which comes first: one program has `x + y`, the other `y + x`. One operand is known in the
        other's place, by its values or from elsewhere, and none in its own. Of `where` it is the two that are chosen from; then one
        condition is the opposite of the other, and no partner of it.
        """
        (ours, results), (theirs, others) = (
            ([slot for slot in side if slot.part in IN], [slot for slot in side if slot.part in OUT])
            for side in (left, right)
        )
        if operation == "where":
            if not ours or not theirs or self._is_known(ours[0], theirs[0]):
                return None  # the same condition: they choose from the wrong one
            ours, theirs = ours[1:], theirs[1:]
        if not len(ours) == len(theirs) == 2 or len(results) != len(others):
            return None
        crosswise = list(zip(ours, reversed(theirs), strict=True))
        if any(map(self._is_known, ours, theirs)) or not any(self._is_known(*pair) for pair in crosswise):
            return None
        chosen = [_Chosen(one, two, "the operands in the other order") for one, two in crosswise]
        chosen += [_Chosen(one, two, "") for one, two in zip(results, others, strict=True)]
        return chosen + _gradients(left, right, chosen)

    def _is_known(self, left: Slot, right: Slot) -> bool:
        """Do two operands belong together by what they hold, or by earlier matches?"""
        tensors = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        return self._belong_together(left.tensor, right.tensor) or alike(*tensors) > 0

    def _as_it_is(self, pair: TensorPair) -> bool:
        shapes = self._left.tensor(pair.left).spec.shape, self._right.tensor(pair.right).spec.shape
        return pair.layout == AS_IT_IS and shapes[0] == shapes[1]

    def _pair(self, chosen: _Chosen, operation: str, followed: Layout | None, inherited: bool) -> TensorPair:
        left, right = chosen.left, chosen.right
        one, two = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        fitting = followed is not None and fits(one, two, followed)
        layout = followed if fitting else self._between(left, right, operation, inherited)
        return _laid_pair(chosen, layout or AS_IT_IS)

    def _named_pair(
        self,
        chosen: _Chosen,
        operation: str,
        pairs: Sequence[TensorPair],
        ends: bool,
        same_call: bool,
        carried: bool,
    ) -> TensorPair:
        """A pair in one program, where another shape is a difference unless the values lie in another order, or came in so."""
        left, right = chosen.left, chosen.right
        one, two = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        same = one.spec.shape == two.spec.shape
        weights = left.part in _HELD or (one.producer is None and one.requires_grad)
        moved = not (weights and same_call) and alike(one, two) == 1 and in_other_places(one, two)
        if numel(one) != numel(two) or numel(one) < 2 or (same and not carried and not moved):
            return _laid_pair(chosen, AS_IT_IS)  # a square weight of one function that lies otherwise is another weight
        if left.part.backward:
            group = _FOLLOWS.get(left.part)
            of = [pair.layout for pair in pairs if group and pair.part in group and pair.left_slot == left.slot]
            return _laid_pair(chosen, of[0] if of and fits(one, two, of[0]) else AS_IT_IS)
        if ends and left.part in OUT:
            return _laid_pair(chosen, AS_IT_IS)
        layout = self._arranger.confirmed(left.tensor, right.tensor, operation)
        if layout is None and carried:
            layout = self._arranger.between(left.tensor, right.tensor, operation, inherited=same)
        return _laid_pair(chosen, layout or AS_IT_IS)

    def _between(self, left: Slot, right: Slot, operation: str, inherited: bool) -> Layout | None:
        if left.part.backward:  # gradients go with their tensors; without them only shapes tell
            return layout_between(self._left.tensor(left.tensor), self._right.tensor(right.tensor), operation)
        return self._arranger.between(left.tensor, right.tensor, operation, inherited=inherited)

    # --- choosing -----------------------------------------------------------------------------------------------

    def _assign(
        self,
        left: list[Slot],
        right: list[Slot],
        operation: str,
        functions: tuple[str, str],
        named: bool,
        forced: Mapping[str, str],
    ) -> list[_Chosen]:
        """The best candidates first, each slot once."""
        if not left or not right:
            return []
        means = _meanings(left, operation, functions[0]), _meanings(right, operation, functions[1])
        if len(left) == len(right) == 1:
            score, because = self._score(left[0], right[0], means[0] == means[1], operation, named, True)
            said = forced.get(left[0].slot) == right[0].slot
            return [_Chosen(left[0], right[0], _ASKED if said else because)] if said or score > 0 else []
        ranked: list[tuple[float, int, int, int, str]] = []
        for i, j in self._candidates(left, right):
            score, because = self._score(left[i], right[j], means[0][i] == means[1][j], operation, named, i == j)
            if forced.get(left[i].slot) == right[j].slot:
                score, because = 100.0, _ASKED
            if score > 0:
                ranked.append((-score, i + j, i, j, because))
        ranked.sort()
        free_left, free_right = set(range(len(left))), set(range(len(right)))
        chosen: dict[int, tuple[int, str]] = {}
        for _, _, i, j, because in ranked:
            if i in free_left and j in free_right:
                if because == _BY_SHAPE and not self._only_choice(left, right, i, j, free_left, free_right):
                    continue
                free_left.remove(i)
                free_right.remove(j)
                chosen[i] = j, because
        return [_Chosen(left[i], right[j], because) for i, (j, because) in sorted(chosen.items())]

    def _by_role(
        self,
        left: list[Slot],
        right: list[Slot],
        chosen: Sequence[_Chosen],
        operation: str,
        functions: tuple[str, str],
    ) -> list[_Chosen]:
        """Pairs of leftovers that play the same part: of other shapes, which is a difference by itself; or the last of each side.

        A result goes by its place. An operand goes by its meaning if the tensors come from calls that belong together, or from no
        call; what was made in two ways is no pair, whatever it is for.
        """
        taken = {id(slot) for item in chosen for slot in item[:2]}
        ones, twos = ([slot for slot in side if id(slot) not in taken] for side in (left, right))
        if not ones or not twos or len(left) * len(right) > _MANY:
            return []
        means = _roles(left, operation, functions[0]), _roles(right, operation, functions[1])
        role = {id(slot): mean for side, said in zip((left, right), means, strict=True) for slot, mean in
                zip(side, said, strict=True)}  # fmt: skip
        found, free = [], list(twos)
        counts = [Counter(role[id(slot)] for slot in side) for side in (ones, twos)]
        for one in ones:
            if one.part in IN and counts[0][role[id(one)]] != counts[1][role[id(one)]] and len(ones) + len(twos) > 2:
                continue  # one weight beside the two that it holds
            fitting = [two for two in free if self._same_role(one, two, role[id(one)], role[id(two)])]
            if len(ones) == len(twos) == 1 and not fitting:
                fitting = [two for two in free if self._is_last(one, two)]
            if fitting:
                free.remove(fitting[0])
                found.append(_Chosen(one, fitting[0], "" if one.slot == fitting[0].slot else "the same place"))
        return found

    def _same_role(self, left: Slot, right: Slot, one: str, two: str) -> bool:
        if one != two:
            return False
        tensors = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        if _unknown(tensors[0]) or _unknown(tensors[1]) or _kind(tensors[0]) != _kind(tensors[1]):
            return False
        if numel(tensors[0]) == numel(tensors[1]) or 1 in (numel(tensors[0]), numel(tensors[1])):
            return False  # refused for what it holds, or because nothing tells how one lies on the other; a number is no tensor
        if _is_repeated(*tensors):
            return False
        if left.part in OUT:
            return True
        held = [
            slot.part in _HELD or tensor.producer is None for slot, tensor in zip((left, right), tensors, strict=True)
        ]
        return all(held) or self._same_origin(left.tensor, right.tensor)

    def _is_last(self, left: Slot, right: Slot) -> bool:
        """May the last operands of both sides be the same one, under another name?"""
        tensors = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        shapes = tensors[0].spec.shape, tensors[1].spec.shape
        if left.part not in IN or shapes[0] != shapes[1] or _kind(tensors[0]) != _kind(tensors[1]):
            return False
        if self.partner(0, left.tensor) is not None or self.partner(1, right.tensor) is not None:
            return False
        return all(tensor.producer is None for tensor in tensors)

    def _loose_gradients(
        self, left: Sequence[Slot], right: Sequence[Slot], chosen: Sequence[_Chosen], operation: str
    ) -> list[_Chosen]:
        """Gradients of which a dump does not say whose they are (`node.0`): those of the same values; the same zeros in order."""
        if len(chosen) in (len(left), len(right)):  # nothing is left, as nearly always
            return []
        taken = {id(slot) for item in chosen for slot in item[:2]}
        ones, twos = (
            [slot for slot in side if slot.part is Part.INPUT_GRADIENT and id(slot) not in taken]
            for side in (left, right)
        )
        ranked = []
        for i, one in enumerate(ones):
            for j, two in enumerate(twos):
                if one.turn == two.turn and (_is_loose(one.slot) or _is_loose(two.slot)):
                    tensors = self._left.tensor(one.tensor), self._right.tensor(two.tensor)
                    known = tensors[0].statistics is not None and tensors[1].statistics is not None
                    likeness = alike(*tensors)
                    if likeness >= (not known) and layout_between(*tensors, operation) is not None:
                        ranked.append((-likeness, i, j))
        found: dict[int, int] = {}
        for _, i, j in sorted(ranked):
            if i not in found and j not in found.values():
                found[i] = j
        return [_Chosen(ones[i], twos[j], "the same values") for i, j in sorted(found.items())]

    def _only_choice(
        self, left: list[Slot], right: list[Slot], i: int, j: int, free_left: set[int], free_right: set[int]
    ) -> bool:
        """Has nothing else that is left over their shape? Two zero biases of one size could be any two."""
        size = numel(self._left.tensor(left[i].tensor))
        ours = sum(1 for k in free_left if numel(self._left.tensor(left[k].tensor)) == size)
        theirs = sum(1 for k in free_right if numel(self._right.tensor(right[k].tensor)) == size)
        return ours == theirs == 1

    def _candidates(self, left: list[Slot], right: list[Slot]) -> Iterable[tuple[int, int]]:
        if len(left) * len(right) <= _MANY:
            return ((i, j) for i in range(len(left)) for j in range(len(right)))
        places: dict[object, list[int]] = {}
        for j, slot in enumerate(right):
            tensor = self._right.tensor(slot.tensor)
            for key in ((slot.part, slot.slot), tensor.fingerprint):
                if key is not None:
                    places.setdefault(key, []).append(j)
        return (
            (i, j)
            for i, slot in enumerate(left)
            for key in ((slot.part, slot.slot), self._left.tensor(slot.tensor).fingerprint)
            for j in places.get(key, ())[:64]
        )

    def _score(
        self, left: Slot, right: Slot, meant: bool, operation: str, named: bool, level: bool
    ) -> tuple[float, str]:
        """The evidence for two tensors, and the words for it. Nothing above zero: they are not a pair."""
        one, two = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        same_slot = left.slot == right.slot and left.part == right.part
        because = "" if left.slot == right.slot else "another name for the same" if meant else _BY_SHAPE
        score = (3.0 if meant else 0.0) + 0.5 * (left.part == right.part) + 0.5 * level
        if named and same_slot:
            return 20.0, ""
        if _kind(one) != _kind(two) and (_says_nothing(one) or _says_nothing(two)):
            return 0.0, ""  # a truth value inside of vmap is no partner of a number
        if _unknown(one) or _unknown(two):
            return (score if meant else 0.0), because
        if not named and one.spec.shape != two.spec.shape and numel(one) == numel(two):
            layout = layout_between(one, two, operation)
            if layout is None or (layout == Layout(None, True) and self._turned(left.tensor, right.tensor)):
                return 0.0, ""  # the same elements perhaps, and nothing tells in which order
        likeness = alike(one, two)
        known = self._belong_together(left.tensor, right.tensor)
        score += _shapes(one, two)
        if likeness > 0:
            score += 6.0 + likeness
            because = because if meant else "the same values"
        elif known:
            score += 5.0
            because = because if meant else "they belong together elsewhere too"
        elif likeness < 0:
            score -= 0.5
            if not meant or _kind(one) != _kind(two):  # a mask of true and false is not one of 0 and -1e9
                return 0.0, ""
            if not named and (self.partner(0, left.tensor) is not None or self.partner(1, right.tensor) is not None):
                return 0.0, ""  # other values, and at least one of them belongs to another
        return score, because

    def _belong_together(self, left: int, right: int) -> bool:
        """Were they paired in an earlier match, or what they are by other names: before a cast, after a reshape that is none?"""
        partner, other = self.partner(0, left), self.partner(1, right)
        if partner == right:
            return True
        if partner is not None and self._root(1, partner) == self._root(1, right):
            return True
        return other is not None and self._root(0, other) == self._root(0, left)

    def _turned(self, left: int, right: int) -> bool:
        """Does a reshape next to one of them show the other's shape with its axes in another order, and not as it is?

        Where shapes do not tell, because there are as many heads as positions, or a transpose has been before, the values do.
        """
        shapes = _long(self._left.tensor(left).spec.shape), _long(self._right.tensor(right).spec.shape)
        near = [_long(s) for s in self._reshaped(0, left)], [_long(s) for s in self._reshaped(1, right)]
        for which in (0, 1):
            other = shapes[1 - which]
            if any(sorted(shape) == sorted(other) for shape in near[which]):
                if other not in near[which]:
                    return True
                doubtful = len(set(other)) < len(other)
                break
        else:
            doubtful = self._arranger.is_permuted(left, right)
        return doubtful and self._arranger.agrees(left, right, Layout(None, True)) is False


def _laid_pair(chosen: _Chosen, layout: Layout) -> TensorPair:
    left, right, because, _ = chosen
    part = right.part if right.part in _HELD else left.part
    because = because or ("" if layout == AS_IT_IS else str(layout))
    return TensorPair(part, left.slot, right.slot, left.tensor, right.tensor, layout, because, left.turn)


def _is_loose(slot: str) -> bool:
    """Is it the place of a gradient in a list, and not the argument that it is the gradient of?"""
    return slot.rpartition(":")[2].startswith("node.")


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _stray(slot: Slot, others: Sequence[Slot], operation: str, function: str) -> Stray:
    if slot.part.backward:
        rivals = [other for other in others if other.part is slot.part]
        loose = rivals and (_is_loose(slot.slot) or any(_is_loose(other.slot) for other in rivals))
        why = f"the other side has no gradient {'with these values' if loose else 'here'}"
    elif not any((other.part in IN) == (slot.part in IN) for other in others if not other.part.backward):
        why = "the other side has no tensor there"
    else:
        why = "no tensor of the other side fits"
    role = ""
    if slot.part in IN:
        name = operand_of(operation, slot.part, slot.slot.rpartition(":")[2], -1, function)
        role = name.replace("_", " ") if name.isidentifier() else ""
    return Stray(slot.part, slot.slot, slot.tensor, why, role)


def _shapes(one: Tensor, two: Tensor) -> float:
    if one.spec.shape == two.spec.shape:
        return 2.0
    if sorted(one.spec.shape) == sorted(two.spec.shape):
        return 1.0
    if numel(one) == numel(two):
        return 0.25
    return -6.0


def _is_repeated(one: Tensor, two: Tensor) -> bool:
    """Is one of them the other, repeated: positions for each of a batch, a mask for each head? They do the same."""
    small, large = sorted((one, two), key=numel)
    if not numel(small) or numel(large) % numel(small):
        return False
    shapes = small.spec.shape, large.spec.shape
    longer = (1,) * (len(shapes[1]) - len(shapes[0])) + shapes[0]
    if len(longer) != len(shapes[1]) or any(a not in (1, b) for a, b in zip(longer, shapes[1], strict=True)):
        return False
    first, second = small.statistics, large.statistics
    if first is None or second is None:
        return True
    if None in (first.mean, second.mean, first.min, second.min, first.max, second.max):
        return first.min is second.min
    bound = tolerance(one, two) * max(scale_of(first), scale_of(second))
    return all(
        abs(float(a or 0) - float(b or 0)) <= bound
        for a, b in ((first.min, second.min), (first.max, second.max), (first.mean, second.mean))
    )


def _kind(tensor: Tensor) -> str:
    """Truth values, whole numbers, complex numbers or floating point numbers: bf16 is one of these, for all its first letter."""
    dtype = tensor.spec.dtype
    return "b" if dtype == "b8" else "i" if dtype[0] in "iu" else "c" if dtype[0] == "c" else "f"


def _says_nothing(tensor: Tensor) -> bool:
    return tensor.statistics is None and tensor.fingerprint is None


def _unknown(tensor: Tensor) -> bool:
    return tensor.missing is not None and tensor.statistics is None and tensor.fingerprint is None


def _meanings(slots: Sequence[Slot], operation: str, function: str) -> list[str]:
    if len(slots) == 1:
        part, slot, *_ = slots[0]
        if part in OUT:
            return [slot.rpartition(":")[2] or "0"]  # of a region the slot bears the name of its call: `matmul#3:0`
        return [operand_of(operation, part, slot, 0 if part is Part.INPUT and slot.isdigit() else -1, function)]
    places = ranks([slot.slot if slot.part is Part.INPUT else "" for slot in slots])
    return [
        (slot.slot or "0")  # a single result, and the first of several
        if slot.part in OUT
        else operand_of(operation, slot.part, slot.slot, place, function)
        for slot, place in zip(slots, places, strict=True)
    ]


def _roles(slots: Sequence[Slot], operation: str, function: str) -> list[str]:
    """The same, for regions as well: there a slot bears the name of its call (`Conv2D#1:0`), and means what it means to that."""
    means = _meanings(slots, operation, function)
    for number, slot in enumerate(slots):
        name, colon, place = slot.slot.rpartition(":")
        if colon:
            of = family_of(name.rpartition("#")[0])
            means[number] = (place or "0") if slot.part in OUT else operand_of(of, slot.part, place)
    return means


def _same_slots(left: Sequence[Slot], right: Sequence[Slot]) -> bool:
    return len(left) == len(right) and all(
        one.slot == two.slot and one.part is two.part and one.turn == two.turn
        for one, two in zip(left, right, strict=True)
    )


def _gradients(left: Sequence[Slot], right: Sequence[Slot], chosen: Sequence[_Chosen]) -> list[_Chosen]:
    """A gradient goes with the tensor that it is the gradient of."""
    partners: dict[tuple[frozenset[Part], str], int] = {}
    for number, item in enumerate(chosen):
        partners.setdefault((IN if item.left.part in IN else OUT, item.left.slot), number)
    there = {(slot.part, slot.slot, slot.turn): slot for slot in right if slot.part.backward}
    found = []
    for slot in left:
        follows = partners.get((_FOLLOWS[slot.part], slot.slot)) if slot.part.backward else None
        if follows is not None:
            other = there.pop((slot.part, chosen[follows].right.slot, slot.turn), None)
            if other is not None:
                because = "" if other.slot == slot.slot else "goes with its tensor"
                found.append(_Chosen(slot, other, because, follows))
    return found
