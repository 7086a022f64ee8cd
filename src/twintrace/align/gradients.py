"""Pair the gradients of parameters: they go where their parameters go.

norm.weight     norm.gamma        the parameters of two modules that belong together
head.weight     fc.weight         gradients that belong together as arguments' gradients of two calls
scale           scale             the same name, where nothing else is known
q               query             the parameters themselves are the same
w1              w2                equal values, and no other gradient is like them, or only such as are equal themselves
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..model.pairs import Layout, Match, Part, Stray, TensorPair
from ..model.records import Gradient
from ..model.sites import Kind
from ..model.tensors import Tensor
from ..operations.operands import parameter_of
from .layouts import fits, layout_between
from .pairing import Link, Pairing
from .tensors import Mapped, Mapper
from .trees import IN, OUT, CallTree
from .units import operation
from .values import alike, numel


class Gradients(NamedTuple):
    """The alignment's part about gradients."""

    pairs: tuple[TensorPair, ...]
    only_left: tuple[Stray, ...]
    only_right: tuple[Stray, ...]


def without_incomparable(pairing: Pairing, link: Link, mapped: Mapped) -> Mapped:
    """The tensors of a link without results that no kernel wrote, and without gradients that differ because the tensor goes to
    other calls on the two sides.

    What a concatenation is given back depends on who takes its result; an argument that a region takes in three places
    has three gradients there and one beside it.
    """
    if _is_batch_norm(pairing, link):
        unwritten = {pair for pair in mapped.pairs if pair.part is Part.OUTPUT and _is_unwritten(pairing, pair)}
        mapped = _without(mapped, unwritten, _UNWRITTEN)
    doubtful = [
        pair
        for pair in mapped.pairs
        if pair.part.backward and alike(pairing.trees[0].tensor(pair.left), pairing.trees[1].tensor(pair.right)) < 0
    ]
    if not doubtful:
        return mapped
    if any(_is_computed_twice(pairing, which, link) for which in (0, 1)):
        return _without(mapped, set(doubtful), _IN_PARTS)
    if link.named:
        return mapped
    given = {pair.left_slot: pair for pair in mapped.pairs if pair.part in OUT}
    taken = {pair.left_slot: pair for pair in mapped.pairs if pair.part in IN}
    same_takers = {slot: pairing.takers(0, pair.left) == pairing.takers(1, pair.right) for slot, pair in given.items()}
    dropped = set()
    for pair in doubtful:
        if pair.part is Part.OUTPUT_GRADIENT:
            good = same_takers.get(pair.left_slot, True)
        else:
            argument = taken.get(pair.left_slot)
            good = all(same_takers.values()) and (
                argument is None
                or _uses(pairing, 0, link, argument.left) == _uses(pairing, 1, link, argument.right) == 1
            )
        if not good:
            dropped.add(pair)
    return _without(mapped, dropped, _OTHER_TAKERS)


def _without(mapped: Mapped, dropped: set[TensorPair], because: str) -> Mapped:
    gone = [pair for pair in mapped.pairs if pair in dropped]
    return Mapped(
        tuple(pair for pair in mapped.pairs if pair not in dropped),
        (*mapped.only_left, *(Stray(pair.part, pair.left_slot, pair.left, because) for pair in gone)),
        (*mapped.only_right, *(Stray(pair.part, pair.right_slot, pair.right, because) for pair in gone)),
    )


def _is_batch_norm(pairing: Pairing, link: Link) -> bool:
    return len(link.left) == len(link.right) == 1 and all(
        pairing.trees[which].calls[link.side(which)[0]].site.name == "mindspore.ops.BatchNorm" for which in (0, 1)
    )


def _is_unwritten(pairing: Pairing, pair: TensorPair) -> bool:
    """MindSpore's kernel for a CPU leaves two results of a batch norm as the memory was: another run has other numbers there."""
    tensors = (pair.left, pair.right)
    return pair.left_slot == pair.right_slot in ("1", "2") and not any(
        pairing.takers(which, tensor) for which, tensor in enumerate(tensors)
    )


def _is_computed_twice(pairing: Pairing, which: int, link: Link) -> bool:
    """Does a call without a partner put out just what this one does? Then each has a part of the gradient."""
    tree = pairing.trees[which]
    if len(link.side(which)) != 1 or not pairing.has_free(which):
        return False
    own = link.side(which)[0]
    into = [slot.tensor for slot in tree.inputs(own)]
    return any(
        user != own
        and pairing.is_free(which, user)
        and operation(tree.calls[user]) == operation(tree.calls[own])
        and [slot.tensor for slot in tree.inputs(user)] == into
        and pairing.gives(which, user) == pairing.gives(which, own)
        for user in (pairing.flow(which).users.get(into[0], ())[:_NEAR] if into else ())
    )


_NEAR = 64  # users of one tensor that are looked at
_IN_PARTS = "one side computes the value twice, and each time has a part of the gradient"
_UNWRITTEN = "the kernel need not write it, and nobody takes it"
_OTHER_TAKERS = "the tensor goes to other calls on the other side, and its gradient comes from them"


def _uses(pairing: Pairing, which: int, link: Link, tensor: int) -> int:
    tree = pairing.trees[which]
    return sum(slot.tensor == tensor for index in link.side(which) for slot in tree.inputs(index))


class _Turn(NamedTuple):
    """The gradient of a parameter, and which backward pass it is of."""

    gradient: Gradient
    turn: int


_WHY = "the other side has no gradient of such a parameter"


def pair_gradients(
    left: CallTree,
    right: CallTree,
    sides: tuple[Iterable[Gradient], Iterable[Gradient]],
    matches: Sequence[Match],
    mapper: Mapper,
) -> Gradients:
    """The gradients of parameters that belong together, and those that only one side has."""
    ours, theirs = (list(_turns(side)) for side in sides)
    names = _partners(matches)
    by_name = {(item.gradient.slot, item.turn): item for item in theirs}
    by_tensor = {item.gradient.tensor: item for item in theirs}
    taken = {names[slot][0] for slot in names}
    found: dict[int, tuple[_Turn, Layout | None, str]] = {}
    free = set(map(id, theirs))

    def take(number: int, other: _Turn | None, layout: Layout | None, because: str) -> None:
        if other is None or id(other) not in free:
            return
        # One side may have in one what the other has in several: a gradient of other size is none of the same parameter.
        if numel(left.tensor(ours[number].gradient.tensor)) == numel(right.tensor(other.gradient.tensor)):
            free.discard(id(other))
            found[number] = other, layout, because

    by_meaning = {(_meaning(item.gradient.slot), item.turn): item for item in theirs}

    def take_siblings() -> None:
        owners = {
            ours[number].gradient.slot.rpartition(".")[0]: other.gradient.slot.rpartition(".")[0]
            for number, (other, _, _) in found.items()
        }
        for number, (gradient, turn) in enumerate(ours):
            owner = gradient.slot.rpartition(".")[0]
            if number not in found and gradient.slot not in names and owner in owners:
                wanted = owners[owner], _meaning(gradient.slot)[1]
                take(number, by_meaning.get((wanted, turn)), None, "other parameters of their owners belong together")

    for number, (gradient, turn) in enumerate(ours):
        if gradient.slot in names:
            name, lies_there = names[gradient.slot]
            because = "" if name == gradient.slot else "their parameters belong together"
            take(number, by_name.get((name, turn)), lies_there, because)
    by_bits = {right.tensor(item.gradient.tensor).fingerprint: item for item in theirs}
    bits = _paired_bits(left, right, matches)
    for number, (gradient, _) in enumerate(ours):
        if number not in found and gradient.slot not in names:
            partner = mapper.partner(0, gradient.tensor)
            other = by_tensor.get(partner) if partner is not None else None
            mark = bits.get(left.tensor(gradient.tensor).fingerprint)
            take(number, other or (by_bits.get(mark) if mark else None), None, "the gradients of one argument")
    take_siblings()
    for number, (gradient, turn) in enumerate(ours):
        if number not in found and gradient.slot not in names and gradient.slot not in taken:
            take(number, by_name.get((gradient.slot, turn)), None, "")
    named = _parameters(left), _parameters(right)

    def parameter(which: int, item: _Turn) -> tuple[int, Tensor] | None:
        tensor = named[which].get(item.gradient.slot)
        return None if tensor is None else (item.turn, tensor)

    def values(which: int, item: _Turn) -> tuple[int, Tensor] | None:
        return 0, (left, right)[which].tensor(item.gradient.tensor)

    for read, because in ((parameter, "the same values of their parameters"), (values, "the same values")):
        rest = [(n, t) for n, t in enumerate(ours) if n not in found], [t for t in theirs if id(t) in free]
        for number, other in _alike(*rest, read):
            take(number, other, None, because)
    take_siblings()
    rest = [(n, t) for n, t in enumerate(ours) if n not in found], [t for t in theirs if id(t) in free]
    for number, other in _interchangeable(left, right, *rest):
        take(number, other, None, "the same values, as others have")
    pairs = []
    for number, (partner_turn, layout, because) in sorted(found.items()):
        one, two = ours[number].gradient, partner_turn.gradient
        tensors = left.tensor(one.tensor), right.tensor(two.tensor)
        fitting = layout if layout is not None and fits(*tensors, layout) else layout_between(*tensors)
        lies = fitting or Layout()
        turn = ours[number].turn
        pairs.append(
            TensorPair(Part.PARAMETER_GRADIENT, one.slot, two.slot, one.tensor, two.tensor, lies, because, turn)
        )
    return Gradients(
        tuple(pairs),
        tuple(_stray(item.gradient) for number, item in enumerate(ours) if number not in found),
        tuple(_stray(item.gradient) for item in theirs if id(item) in free),
    )


def _meaning(slot: str) -> tuple[str, str]:
    owner, _, name = slot.rpartition(".")
    return owner, parameter_of(name)


def _paired_bits(left: CallTree, right: CallTree, matches: Sequence[Match]) -> dict[str | None, str | None]:
    """Fingerprints of gradients of arguments that belong together: the gradient of a parameter may be a copy of one."""
    found: dict[str | None, str | None] = {}
    for match in matches:
        for pair in match.tensors:
            if pair.part is Part.INPUT_GRADIENT:
                found.setdefault(left.tensor(pair.left).fingerprint, right.tensor(pair.right).fingerprint)
    found.pop(None, None)
    return found


def _stray(gradient: Gradient) -> Stray:
    return Stray(Part.PARAMETER_GRADIENT, gradient.slot, gradient.tensor, _WHY)


def _turns(gradients: Iterable[Gradient]) -> Iterator[_Turn]:
    counts: dict[str, int] = {}
    for item in gradients:
        counts[item.slot] = counts.get(item.slot, -1) + 1
        yield _Turn(item, counts[item.slot])


def _partners(matches: Sequence[Match]) -> dict[str, tuple[str, Layout]]:
    """Full names of parameters on one side; what they are called on the other, and how they lie there."""
    names: dict[str, tuple[str, Layout]] = {}
    for match in matches:
        if len(match.left) != 1 or len(match.right) != 1:
            continue
        one, two = match.left[0].site, match.right[0].site
        if one.kind is two.kind is Kind.MODULE:
            for pair in match.tensors:
                if pair.part is Part.PARAMETER:
                    partner = _full(two.name, pair.right_slot), pair.layout
                    names.setdefault(_full(one.name, pair.left_slot), partner)
    return names


def _full(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _parameters(tree: CallTree) -> dict[str, Tensor]:
    """Values of parameters by their full names, as the first module that holds one had it."""
    found: dict[str, Tensor] = {}
    for call in tree.calls:
        for name, number in call.parameters.items() if call.site.kind is Kind.MODULE else ():
            full = _full(call.site.name, name)
            if full not in found:
                found[full] = tree.tensor(number)
    return found


def _alike(
    ours: Sequence[tuple[int, _Turn]], theirs: Sequence[_Turn], read: Callable[[int, _Turn], tuple[int, Tensor] | None]
) -> Iterator[tuple[int, _Turn]]:
    """Gradients that have the same values, where just one of each side has them.

    `read` gives the values that stand for a gradient of the left (0) or the right (1), and a number that must be equal.
    """
    sizes: dict[tuple[int, int], list[tuple[_Turn, Tensor]]] = {}
    for item in theirs:
        values = read(1, item)
        if values is not None:
            sizes.setdefault((values[0], numel(values[1])), []).append((item, values[1]))
    chosen: dict[int, list[int]] = {}
    for number, item in ours:
        values = read(0, item)
        if values is None:
            continue
        same_size = sizes.get((values[0], numel(values[1])), ())
        fitting = [other for other, theirs_values in same_size if alike(values[1], theirs_values) > 0]
        if len(fitting) == 1:
            chosen.setdefault(id(fitting[0]), []).append(number)
    by_id = {id(item): item for item in theirs}
    for other, numbers in chosen.items():
        if len(numbers) == 1:
            yield numbers[0], by_id[other]


def _interchangeable(
    left: CallTree, right: CallTree, ours: Sequence[tuple[int, _Turn]], theirs: Sequence[_Turn]
) -> Iterator[tuple[int, _Turn]]:
    """Gradients that are alike, in the order in which they come: those of one side are equal, as those of the two biases of a
    recurrent layer are, so that any order is right.
    """
    sizes: dict[tuple[int, int], list[tuple[_Turn, Tensor]]] = {}
    for item in theirs:
        tensor = right.tensor(item.gradient.tensor)
        sizes.setdefault((item.turn, numel(tensor)), []).append((item, tensor))
    groups: dict[tuple[int, ...], list[tuple[int, Tensor]]] = {}
    by_id = {id(item): (item, right.tensor(item.gradient.tensor)) for item in theirs}
    for number, item in ours:
        tensor = left.tensor(item.gradient.tensor)
        same_size = sizes.get((item.turn, numel(tensor)), ())
        groups.setdefault(tuple(id(other) for other, values in same_size if alike(tensor, values) > 0), []).append(
            (number, tensor)
        )
    for fitting, group in groups.items():
        others = [by_id[other] for other in fitting]
        prints = {tensor.fingerprint for _, tensor in group}, {tensor.fingerprint for _, tensor in others}
        if len(group) == len(others) > 1 and any(len(side) == 1 and None not in side for side in prints):
            yield from zip((number for number, _ in group), (other for other, _ in others), strict=True)
