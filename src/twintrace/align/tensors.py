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
from ..operations.families import COMMUTATIVE, SHAPING
from .arrangements import Arranger
from .evidence import BY_SHAPE, Evidence, is_repeated, is_unknown, kind
from .layouts import AS_IT_IS, fits, layout_between
from .roles import is_loose, meanings, roles, stray
from .trees import IN, OUT, CallTree, Slot
from .values import alike, in_other_places, numel

_HELD = frozenset((Part.PARAMETER, Part.BUFFER))
_FOLLOWS = {Part.OUTPUT_GRADIENT: OUT, Part.INPUT_GRADIENT: IN}
_ASKED = "the mapping says so"
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
        self._left, self._right, self._same_origin, self._arranger = left, right, same_origin, arranger
        self._evidence = Evidence(left, right, reshaped, root, arranger)
        self.partner = self._evidence.partner
        self.expected: tuple[dict[int, int], dict[int, int]] = {}, {}
        """Partners of tensors that `expect` was told of."""

    def expect(self, left: int, right: int) -> None:
        """Two tensors belong together, which the match that pairs them does not show."""
        self._evidence.remember(left, right)
        self.expected[0].setdefault(left, right)
        self.expected[1].setdefault(right, left)

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
            self._evidence.remember(pair.left, pair.right)
        if len(chosen) == len(left) == len(right):
            return Mapped(tuple(pairs), (), ())
        taken = {id(item.left) for item in chosen}, {id(item.right) for item in chosen}
        return Mapped(
            tuple(pairs),
            tuple(stray(slot, right, operation, functions[0]) for slot in left if id(slot) not in taken[0]),
            tuple(stray(slot, left, operation, functions[1]) for slot in right if id(slot) not in taken[1]),
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
        return self._evidence.is_known(left.tensor, right.tensor)

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
        weights = left.part in _HELD or _is_weight(one) or (left.part in OUT and self._are_weights(operation, pairs))
        moved = not (weights and same_call) and in_other_places(one, two) and alike(one, two) == 1
        if (same and not carried and not moved) or numel(one) != numel(two) or numel(one) < 2:
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

    def _are_weights(self, operation: str, pairs: Sequence[TensorPair]) -> bool:
        """True if a call of this family moves weights, and nothing else."""
        taken = [self._left.tensor(pair.left) for pair in pairs if pair.part in IN]
        return operation in SHAPING and bool(taken) and all(map(_is_weight, taken))

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
        means = meanings(left, operation, functions[0]), meanings(right, operation, functions[1])
        if len(left) == len(right) == 1:
            score, because = self._evidence.score(left[0], right[0], means[0] == means[1], operation, named, True)
            said = forced.get(left[0].slot) == right[0].slot
            return [_Chosen(left[0], right[0], _ASKED if said else because)] if said or score > 0 else []
        ranked: list[tuple[float, int, int, int, str]] = []
        for i, j in self._candidates(left, right):
            score, because = self._evidence.score(
                left[i], right[j], means[0][i] == means[1][j], operation, named, i == j
            )
            if forced.get(left[i].slot) == right[j].slot:
                score, because = 100.0, _ASKED
            if score > 0:
                ranked.append((-score, i + j, i, j, because))
        ranked.sort()
        free_left, free_right = set(range(len(left))), set(range(len(right)))
        chosen: dict[int, tuple[int, str]] = {}
        for _, _, i, j, because in ranked:
            if i in free_left and j in free_right:
                if because == BY_SHAPE and not self._only_choice(left, right, i, j, free_left, free_right):
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
        means = roles(left, operation, functions[0]), roles(right, operation, functions[1])
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
        if is_unknown(tensors[0]) or is_unknown(tensors[1]) or kind(tensors[0]) != kind(tensors[1]):
            return False
        if numel(tensors[0]) == numel(tensors[1]) or 1 in (numel(tensors[0]), numel(tensors[1])):
            return False  # refused for what it holds, or because nothing tells how one lies on the other; a number is no tensor
        if is_repeated(*tensors):
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
        if left.part not in IN or shapes[0] != shapes[1] or kind(tensors[0]) != kind(tensors[1]):
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
                if one.turn == two.turn and (is_loose(one.slot) or is_loose(two.slot)):
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


def _is_weight(tensor: Tensor) -> bool:
    return tensor.producer is None and tensor.requires_grad


def _laid_pair(chosen: _Chosen, layout: Layout) -> TensorPair:
    left, right, because, _ = chosen
    part = right.part if right.part in _HELD else left.part
    because = because or ("" if layout == AS_IT_IS else str(layout))
    return TensorPair(part, left.slot, right.slot, left.tensor, right.tensor, layout, because, left.turn)


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
