"""Two sides in, an Alignment out.

    align(left, right)                     finds what belongs together by itself
    align(left, right, mapping=mapping)    what the mapping says counts first

The work is done in one order of the two sides, whichever is called left, and turned round at the end where that is the other
one: so `align(a, b)` is the mirror of `align(b, a)`. For the same reason no sentence in here says "left" or "right".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from ..model.garbage import collecting_later
from ..model.pairs import Alignment, Match, Side, TensorPair
from ..model.sites import Kind, Phase
from ..operations.families import MOVING, SHAPING
from .arrangements import Arranger
from .completions import completed
from .containers import Containers
from .flow import Flowing
from .gradients import pair_gradients, without_incomparable
from .inferred import Inference
from .layouts import mirrored as mirrored_layout
from .leftovers import alone
from .mappings import Mapping
from .named import by_name, same_program
from .pairing import Link, Pairing
from .regions import Regions
from .reordered import in_order_of_flow
from .tensors import Mapped, Mapper
from .trees import CallTree
from .units import is_container, operation, units
from .updates import bind_updates

ASKED = "the mapping says so"


def align(left: Side, right: Side, *, mapping: Mapping | None = None) -> Alignment:
    """Pairs of two journals, and what is left over, each with its reason."""
    with collecting_later():
        trees = CallTree(left), CallTree(right)
        if mapping is None and _is_first(trees[1], trees[0]):
            return _mirrored(_align(right, left, trees[1], trees[0], Mapping()), *trees)
        return _align(left, right, *trees, mapping or Mapping())


def _align(left: Side, right: Side, one: CallTree, two: CallTree, mapping: Mapping) -> Alignment:
    pairing = Pairing(one, two, completed)
    mapper = Mapper(
        one, two, pairing.reshaped, pairing.same_origin, pairing.root, Arranger(pairing, (left.values, right.values))
    )
    _follow_mapping(pairing, mapping)
    if same_program(one, two):
        for i, j, sure in in_order_of_flow(one, two, by_name(one, two), pairing.elsewhere):
            if pairing.is_free(0, i) and pairing.is_free(1, j):
                sites = one.calls[i].site, two.calls[j].site
                because = "same address" if sites[0] == sites[1] else "same name in the same place"
                if sites[0].path != sites[1].path:
                    because = "the same function of the same tensors"
                pairing.pair(i, j, because, 1.0 if sure else 0.9, named=True)
    flowing = Flowing(pairing, mapper, (set(units(one, one.roots)), set(units(two, two.roots))), mapping)
    flowing.follow()
    if _some_free(pairing, 0) and _some_free(pairing, 1):
        _infer(pairing, mapper, flowing)
    pairing.part([link for link in pairing.links if _has_nothing_to_compare(pairing, link, flowing)])
    matches = [
        Match(
            tuple(one.calls[i] for i in link.left),
            tuple(two.calls[j] for j in link.right),
            link.because,
            link.confidence,
            *without_incomparable(pairing, link, flowing.mapped[id(link)]),
        )
        for link in pairing.links
    ]
    matches.sort(key=lambda match: one.position[match.left[0].id])
    gradients = pair_gradients(one, two, (left.parameter_gradients, right.parameter_gradients), matches, mapper)
    mapped = [*(flowing.mapped[id(link)] for link in pairing.links), Mapped(gradients[0], (), ())]
    return Alignment(tuple(matches), alone(pairing, 0, mapped), alone(pairing, 1, mapped), *gradients)


def _infer(pairing: Pairing, mapper: Mapper, flowing: Flowing) -> None:
    inference = Inference(pairing)
    flowing.shared_weights = inference.shared_weights
    one, two = pairing.trees
    for link in [link for link in pairing.links if link.because == ASKED]:
        if len(link.left) == len(link.right) == 1:
            inference.lay_out(units(one, one.children[link.left[0]]), units(two, two.children[link.right[0]]))
    # First the units as they are. Those without a partner may hold calls with one: an `Embedding` of the user's own is
    # opened before regions are looked for, a framework's own layer after.
    for opened, regions in ((_nothing, False), (_holds_modules, False), (_holds_calls, True)):
        ours, theirs = _opened_units(pairing, 0, opened), _opened_units(pairing, 1, opened)
        flowing.units = set(ours), set(theirs)
        inference.lay_out(ours, theirs)
        flowing.follow()
        for _ in range(2 if regions else 0):
            found = Regions(pairing, mapper, flowing.units)
            found.bind_holders(flowing.following())
            bind_updates(pairing, mapper, flowing.units)
            found.bind()
            flowing.follow()
    for link in list(pairing.links):  # what is inside units that belong together
        if len(link.left) == len(link.right) == 1:
            inside = one.children[link.left[0]], two.children[link.right[0]]
            if inside[0] and inside[1] and link.left[0] in flowing.units[0] and link.right[0] in flowing.units[1]:
                inference.lay_out(*inside)
    flowing.follow()
    Regions(pairing, mapper, (_inner(pairing, 0), _inner(pairing, 1))).bind()
    flowing.follow()
    flowing.units = set(_opened_units(pairing, 0, _holds_calls)), set(_opened_units(pairing, 1, _holds_calls))
    flowing.follow_again()
    Regions(pairing, mapper, flowing.units).bind_ends()
    flowing.follow_again()
    Containers(pairing, mapper).pair()
    _pair_updates(pairing)
    flowing.follow()


def _has_nothing_to_compare(pairing: Pairing, link: Link, flowing: Flowing) -> bool:
    """Do they move values about, each in a way of its own, so that none lies on one of the other: a split beside an unbind?"""
    if link.because == ASKED or any(not pair.part.backward for pair in flowing.mapped[id(link)].pairs):
        return False
    return all(
        operation(pairing.trees[which].calls[index]) in MOVING | SHAPING
        for which in (0, 1)
        for index in link.side(which)
    )


def _pair_updates(pairing: Pairing) -> None:
    """Optimizers, one after the other: as soon as they have a state, no two frameworks take and give the same tensors."""
    free = [
        [
            index
            for index in tree.roots
            if tree.calls[index].site.phase is Phase.UPDATE and pairing.is_free(which, index)
        ]
        for which, tree in enumerate(pairing.trees)
    ]
    if len(free[0]) == len(free[1]):
        for one, two in zip(*free, strict=True):
            if len(free[0]) == 1 or not pairing.elsewhere(one, two):
                pairing.pair(one, two, "the updates of both sides, in their order", 0.7)


def _opened_units(pairing: Pairing, which: int, opened: Callable[[CallTree, int], bool]) -> list[int]:
    tree = pairing.trees[which]
    return units(tree, tree.roots, lambda index: pairing.is_free(which, index) and opened(tree, index))


def _nothing(tree: CallTree, index: int) -> bool:
    return False


def _holds_modules(tree: CallTree, index: int) -> bool:
    return any(tree.calls[child].site.kind is Kind.MODULE for child in tree.children[index])


def _holds_calls(tree: CallTree, index: int) -> bool:
    return bool(tree.children[index])


def _inner(pairing: Pairing, which: int) -> set[int]:
    """Free calls inside operations that have a partner of their own."""
    tree = pairing.trees[which]
    inside: list[bool] = []
    found = set()
    for index, up in enumerate(tree.parent):
        whole = up >= 0 and pairing.partner(which, up) is not None and not is_container(tree, up)
        inside.append(whole or (up >= 0 and inside[up]))
        if inside[index] and pairing.is_free(which, index) and not tree.children[index]:
            found.add(index)
    return found


def _some_free(pairing: Pairing, which: int) -> bool:
    return any(pairing.is_free(which, index) for index in range(len(pairing.trees[which])))


def _is_first(one: CallTree, two: CallTree) -> bool:
    """Is the work to be done in this order, whichever is called left?"""
    sizes = (len(one), one.framework), (len(two), two.framework)
    return sizes[0] < sizes[1] if sizes[0] != sizes[1] else _digest(one) < _digest(two)


def _digest(tree: CallTree) -> bytes:
    """Something that two different sides differ in."""
    digest = hashlib.blake2b(digest_size=8)
    for index, call in enumerate(tree.calls):
        digest.update(f"{call.site}\n{call.site.path}\n".encode("utf-8", "surrogatepass"))
        if index < 1000:
            for slot in tree.slots(index):
                digest.update(str(tree.tensor(slot.tensor).fingerprint).encode())
    return digest.digest()


def _mirrored(alignment: Alignment, left: CallTree, right: CallTree) -> Alignment:
    """The same, seen from the other side; the two trees as they are to be called."""

    def turned(pair: TensorPair) -> TensorPair:
        layout = pair.layout
        if layout.axes is not None:
            layout = mirrored_layout(layout, right.tensor(pair.left), left.tensor(pair.right))
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


# --- what a mapping says --------------------------------------------------------------------------------------------


def _follow_mapping(pairing: Pairing, mapping: Mapping) -> None:
    """Leave out what is to be ignored, and bind the regions, calls and modules that belong together. Names that do not occur in
    these two records have no effect: one file serves all steps and ranks of a trace.
    """
    for which, tree in enumerate(pairing.trees):
        for index, call in enumerate(tree.calls):
            if tree.parent[index] in pairing.left_out[which] or mapping.ignores(which, call):
                pairing.left_out[which].add(index)
    if not (mapping.regions or mapping.calls or mapping.modules):
        return
    addresses = [{str(call.site): index for index, call in enumerate(tree.calls)} for tree in pairing.trees]
    groups = [(region.left, region.right) for region in mapping.regions]
    groups += [((left,), (right,)) for left, right in mapping.calls.items()]
    for left, right in groups:
        ours, theirs = (_positions(addresses[which], names) for which, names in ((0, left), (1, right)))
        if len(ours) == len(left) and len(theirs) == len(right):
            _bind(pairing, ours, theirs)
    paths = [_by_path(tree) for tree in pairing.trees]
    for one, two in mapping.modules.items():
        for phase in Phase:
            for i, j in zip(paths[0].get((phase, one), ()), paths[1].get((phase, two), ()), strict=False):
                _bind(pairing, (i,), (j,))


def _bind(pairing: Pairing, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if all(pairing.is_free(0, index) for index in left) and all(pairing.is_free(1, index) for index in right):
        pairing.bind(Link(tuple(sorted(left)), tuple(sorted(right)), ASKED, 1.0), as_it_is=True)


def _positions(addresses: dict[str, int], names: Iterable[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(addresses[name] for name in names if name in addresses))


def _by_path(tree: CallTree) -> dict[tuple[Phase, str], list[int]]:
    found: dict[tuple[Phase, str], list[int]] = {}
    for index, call in enumerate(tree.calls):
        if call.site.kind is Kind.MODULE:
            found.setdefault((call.site.phase, call.site.name), []).append(index)
    return found
