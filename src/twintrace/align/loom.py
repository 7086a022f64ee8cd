"""Two sides in, an Alignment out.

    align(left, right)                     finds what belongs together by itself
    align(left, right, mapping=mapping)    what the mapping says counts first

The work is done in one order of the two sides, whichever is called left, and turned round at the end where that is the other
one: so `align(a, b)` is the mirror of `align(b, a)`. For the same reason no sentence in here says "left" or "right".
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Callable, Iterator

from ..model.pairs import Alignment, Match, Side, TensorPair
from ..model.sites import Kind, Phase
from ..operations.families import MOVING, SHAPING
from .arrangements import Arranger
from .asked import ASKED, follow_mapping
from .completions import completed
from .containers import Containers
from .flow import Flowing
from .gradients import pair_gradients, without_incomparable
from .inferred import Inference
from .layouts import mirrored as mirrored_layout
from .leftovers import alone
from .mappings import Mapping
from .named import by_name, same_program
from .regions import Regions
from .reordered import in_order_of_flow
from .strands import Strand
from .tensors import Mapper
from .units import is_container, operation, units
from .webs import Bond, Web


def align(left: Side, right: Side, *, mapping: Mapping | None = None) -> Alignment:
    """Pairs of two journals, and what is left over, each with its reason."""
    with _collecting_later():
        strands = Strand(left), Strand(right)
        if mapping is None and _is_first(strands[1], strands[0]):
            return _mirrored(_align(right, left, strands[1], strands[0], Mapping()), *strands)
        return _align(left, right, *strands, mapping or Mapping())


def _align(left: Side, right: Side, one: Strand, two: Strand, mapping: Mapping) -> Alignment:
    web = Web(one, two, completed)
    mapper = Mapper(one, two, web.reshaped, web.same_origin, web.root, Arranger(web, (left.values, right.values)))
    follow_mapping(web, mapping)
    if same_program(one, two):
        for i, j, sure in in_order_of_flow(one, two, by_name(one, two)):
            if web.is_free(0, i) and web.is_free(1, j):
                same = one.calls[i].site == two.calls[j].site
                because = "same address" if same else "same name in the same place"
                web.pair(i, j, because, 1.0 if sure else 0.9, named=True)
    flowing = Flowing(web, mapper, (set(units(one, one.roots)), set(units(two, two.roots))), mapping)
    flowing.follow()
    if _some_free(web, 0) and _some_free(web, 1):
        _infer(web, mapper, flowing)
    web.part([bond for bond in web.bonds if _has_nothing_to_compare(web, bond, flowing)])
    matches = [
        Match(
            tuple(one.calls[i] for i in bond.left),
            tuple(two.calls[j] for j in bond.right),
            bond.because,
            bond.confidence,
            *without_incomparable(web, bond, flowing.mapped[id(bond)]),
        )
        for bond in web.bonds
    ]
    matches.sort(key=lambda match: one.position[match.left[0].id])
    gradients = pair_gradients(one, two, (left.parameter_gradients, right.parameter_gradients), matches, mapper)
    mapped = [flowing.mapped[id(bond)] for bond in web.bonds]
    return Alignment(tuple(matches), alone(web, 0, mapped), alone(web, 1, mapped), *gradients)


def _infer(web: Web, mapper: Mapper, flowing: Flowing) -> None:
    inference = Inference(web)
    flowing.shared_weights = inference.shared_weights
    one, two = web.strands
    for bond in [bond for bond in web.bonds if bond.because == ASKED]:
        if len(bond.left) == len(bond.right) == 1:
            inference.lay_out(units(one, one.children[bond.left[0]]), units(two, two.children[bond.right[0]]))
    # First the units as they are. Those without a partner may hold calls with one: an `Embedding` of the user's own is
    # opened before regions are looked for, a framework's own layer after.
    for opened, regions in ((_nothing, False), (_holds_modules, False), (_holds_calls, True)):
        ours, theirs = _opened_units(web, 0, opened), _opened_units(web, 1, opened)
        flowing.units = set(ours), set(theirs)
        inference.lay_out(ours, theirs)
        flowing.follow()
        for _ in range(2 if regions else 0):
            found = Regions(web, mapper, flowing.units)
            found.bind_holders(flowing.following())
            found.bind_updates()
            found.bind()
            flowing.follow()
    for bond in list(web.bonds):  # what is inside units that belong together
        if len(bond.left) == len(bond.right) == 1:
            inside = one.children[bond.left[0]], two.children[bond.right[0]]
            if inside[0] and inside[1] and bond.left[0] in flowing.units[0] and bond.right[0] in flowing.units[1]:
                inference.lay_out(*inside)
    flowing.follow()
    Regions(web, mapper, (_inner(web, 0), _inner(web, 1))).bind()
    flowing.follow()
    flowing.units = set(_opened_units(web, 0, _holds_calls)), set(_opened_units(web, 1, _holds_calls))
    flowing.follow_again()
    Regions(web, mapper, flowing.units).bind_ends()
    flowing.follow_again()
    Containers(web, mapper).pair()
    _pair_updates(web)
    flowing.follow()


def _has_nothing_to_compare(web: Web, bond: Bond, flowing: Flowing) -> bool:
    """Do they move values about, each in a way of its own, so that none lies on one of the other: a split beside an unbind?"""
    if bond.because == ASKED or any(not pair.part.backward for pair in flowing.mapped[id(bond)].pairs):
        return False
    return all(
        operation(web.strands[which].calls[index]) in MOVING | SHAPING for which in (0, 1) for index in bond.side(which)
    )


def _pair_updates(web: Web) -> None:
    """Optimizers, one after the other: as soon as they have a state, no two frameworks take and give the same tensors."""
    free = [
        [
            index
            for index in strand.roots
            if strand.calls[index].site.phase is Phase.UPDATE and web.is_free(which, index)
        ]
        for which, strand in enumerate(web.strands)
    ]
    if len(free[0]) == len(free[1]):
        for one, two in zip(*free, strict=True):
            if len(free[0]) == 1 or not web.elsewhere(one, two):
                web.pair(one, two, "the updates of both sides, in their order", 0.7)


def _opened_units(web: Web, which: int, opened: Callable[[Strand, int], bool]) -> list[int]:
    strand = web.strands[which]
    return units(strand, strand.roots, lambda index: web.is_free(which, index) and opened(strand, index))


def _nothing(strand: Strand, index: int) -> bool:
    return False


def _holds_modules(strand: Strand, index: int) -> bool:
    return any(strand.calls[child].site.kind is Kind.MODULE for child in strand.children[index])


def _holds_calls(strand: Strand, index: int) -> bool:
    return bool(strand.children[index])


def _inner(web: Web, which: int) -> set[int]:
    """Free calls inside operations that have a partner of their own."""
    strand = web.strands[which]
    inside: list[bool] = []
    found = set()
    for index, up in enumerate(strand.parent):
        whole = up >= 0 and web.partner(which, up) is not None and not is_container(strand, up)
        inside.append(whole or (up >= 0 and inside[up]))
        if inside[index] and web.is_free(which, index) and not strand.children[index]:
            found.add(index)
    return found


def _some_free(web: Web, which: int) -> bool:
    return any(web.is_free(which, index) for index in range(len(web.strands[which])))


def _is_first(one: Strand, two: Strand) -> bool:
    """Is the work to be done in this order, whichever is called left?"""
    sizes = (len(one), one.framework), (len(two), two.framework)
    return sizes[0] < sizes[1] if sizes[0] != sizes[1] else _digest(one) < _digest(two)


def _digest(strand: Strand) -> bytes:
    """Something that two different sides differ in."""
    digest = hashlib.blake2b(digest_size=8)
    for index, call in enumerate(strand.calls):
        digest.update(f"{call.site}\n{call.site.path}\n".encode("utf-8", "surrogatepass"))
        if index < 1000:
            for slot in strand.slots(index):
                digest.update(str(strand.tensor(slot.tensor).fingerprint).encode())
    return digest.digest()


def _mirrored(alignment: Alignment, left: Strand, right: Strand) -> Alignment:
    """The same, seen from the other side; the two strands as they are to be called."""

    def turned(pair: TensorPair) -> TensorPair:
        layout = mirrored_layout(pair.layout, right.tensor(pair.left), left.tensor(pair.right))
        return TensorPair(
            pair.part, pair.right_slot, pair.left_slot, pair.right, pair.left, layout, pair.because, pair.count
        )

    matches = [
        Match(
            match.right,
            match.left,
            match.because,
            match.confidence,
            tuple(map(turned, match.tensors)),
            match.only_right,
            match.only_left,
        )
        for match in alignment.matches
    ]
    matches.sort(key=lambda match: match.left[0].id)
    return Alignment(
        tuple(matches),
        alignment.only_right,
        alignment.only_left,
        tuple(map(turned, alignment.parameter_gradients)),
        alignment.stray_right,
        alignment.stray_left,
    )


@contextlib.contextmanager
def _collecting_later() -> Iterator[None]:
    """A hundred thousand records are millions of small objects without cycles: looking for cycles takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
