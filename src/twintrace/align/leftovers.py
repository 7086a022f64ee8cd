"""Say of each call without a partner why it has none, and whether that matters.

    left     x ─▶ eq ─▶ all                        nobody takes it: a question to Python                    bearing none
    left     y ─▶ sigmoid ─▶ mul                   a value computed twice: `mul` has a partner, and what
                                                   goes into it is compared                                 bearing compared
    left     arange ─▶ where ─▶ add ─▶ softmax     a mask built another way: the sum is compared, and the
                                                   mask that goes into it is not                            bearing through
    left     y ─▶ tanh ─▶ (the end of the record)  a result that only one side has                          bearing open

From each such call the flow of data is followed through others without a partner, to where something is compared or ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ..model.pairs import Alone, Bearing, Part, TensorPair
from ..model.records import Role
from ..model.sites import Kind, Phase
from ..operations.families import MAKING, MOVING, SHAPING
from .pairing import Pairing
from .tensors import Mapped
from .trees import CallTree
from .units import is_container, operation
from .values import alike


def alone(pairing: Pairing, which: int, mapped: Sequence[Mapped]) -> tuple[Alone, ...]:
    """The calls of one side that have no partner, in order. `mapped`: the tensors of all links."""
    tree = pairing.trees[which]
    lone = [index for index in range(len(tree)) if pairing.link(which, index) is None]
    if not lone:
        return ()
    found = []
    kinds = {call.site.kind for call in pairing.trees[1 - which].calls}
    bearings = Bearings(pairing, which, mapped)
    for index in lone:
        call = tree.calls[index]
        bearing, takers = bearings.of(index)
        if index in pairing.left_out[which]:
            because, skipped = "the mapping says to ignore it", True
        elif index in pairing.wrappers[which]:
            because, skipped = "it only wraps calls that are compared themselves", True
        else:
            because, skipped = _reason(pairing, which, index, kinds)
            if not skipped and len(pairing.trees[1 - which]) and not bearings.counts(index):
                because, skipped = f"a {operation(call)} that only this side has: {_SAID[bearing]}", True
        found.append(Alone(call, because, skipped, bearing, takers))
    return tuple(found)


_SAID = {
    Bearing.NONE: "nothing that was recorded depends on it",
    Bearing.COMPARED: "all that comes of it is compared",
    Bearing.THROUGH: "the results of what takes it agree",
}
_QUESTIONS = frozenset(("all", "any", "eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite", "item"))


class Bearings:
    """Bearing of a side's calls without a partner on its results."""

    def __init__(self, pairing: Pairing, which: int, mapped: Sequence[Mapped]) -> None:
        self._pairing, self._which, self._tree = pairing, which, pairing.trees[which]
        side = attrgetter("right" if which else "left")
        pairs = [pair for item in mapped for pair in item.pairs]
        self._paired: dict[int, list[TensorPair]] = {}
        for pair in pairs:
            self._paired.setdefault(side(pair), []).append(pair)
        self._ends = _ends(self._tree)
        self._marked = {
            slot.tensor: index
            for index, call in enumerate(self._tree.calls)
            if any(gradient.role is Role.OUTPUT for gradient in call.gradients)
            for slot in self._tree.outputs(index)
        }
        self._changing: set[int] = set()  # calls of which something comes that is compared, and differs
        self._known: dict[int, tuple[Bearing, tuple[int, ...]]] = {}
        self._arounds: dict[int, int | None] = {}

    def _around(self, user: int) -> int | None:
        """The call itself or a module around it that is compared as a whole; looked for once, in networks that are unrolled too."""
        if user not in self._arounds:
            free = self._pairing.is_free(self._which, user)
            self._arounds[user] = _compared_whole(self._pairing, self._which, user) if free else user
        return self._arounds[user]

    def of(self, index: int) -> tuple[Bearing, tuple[int, ...]]:
        """The bearing of a call, and the calls with a partner that come first behind it."""
        if index not in self._known:
            self._known[index] = self._followed(index)
        return self._known[index]

    def counts(self, index: int) -> bool:
        """Does a result differ, or go uncompared, that depends on it?"""
        bearing, takers = self.of(index)
        if bearing in (Bearing.NONE, Bearing.OPEN):
            return bearing is Bearing.OPEN
        return index in self._changing or any(
            self._differs(slot.tensor) for taker in takers for slot in self._tree.outputs(self._tree.position[taker])
        )

    def _differs(self, tensor: int) -> bool:
        """Is it compared, and known to hold something else than its partner?"""
        trees = self._pairing.trees
        return any(
            alike(trees[0].tensor(pair.left), trees[1].tensor(pair.right)) < 0 for pair in self._paired.get(tensor, ())
        )

    def _followed(self, index: int) -> tuple[Bearing, tuple[int, ...]]:
        tree, pairing, which = self._tree, self._pairing, self._which
        waiting = [slot.tensor for slot in tree.outputs(index)]
        seen, takers = set(waiting), dict[int, None]()
        through = opened = compared = False
        while waiting:
            tensor = waiting.pop()
            users = [
                user for user in pairing.flow(which).users.get(tensor, ()) if user > index and not tree.children[user]
            ]
            if tensor in self._paired:
                compared = True
                if self._differs(tensor):
                    self._changing.add(index)
                takers |= dict.fromkeys(user for user in users if not pairing.is_free(which, user))
                continue
            opened = opened or (tensor in self._ends and not users)
            if not users and tensor not in self._ends and tensor in self._marked:
                around = self._bonded_around(self._marked[tensor])  # something took it that was not recorded
                if around is not None:
                    takers[around] = None
                    through = True
            for user in users:
                around = self._around(user)
                if around is not None and self._is_compared(around):
                    takers[around] = None
                    through = True
                    continue
                fresh = {slot.tensor for slot in tree.outputs(user)} - seen
                seen |= fresh
                waiting.extend(fresh)
        found = tuple(tree.calls[taker].id for taker in sorted(takers))
        if opened:
            return Bearing.OPEN, found
        return Bearing.THROUGH if through else Bearing.COMPARED if compared or found else Bearing.NONE, found

    def _bonded_around(self, index: int) -> int | None:
        """The nearest module around a call that is compared."""
        up = self._tree.parent[index]
        while up >= 0 and (self._pairing.is_free(self._which, up) or not self._is_compared(up)):
            up = self._tree.parent[up]
        return up if up >= 0 else None

    def _is_compared(self, index: int) -> bool:
        """Is anything that it puts out compared? A region is compared by what leaves it."""
        link = self._pairing.link(self._which, index)
        members = (index,) if link is None else link.side(self._which)
        return any(slot.tensor in self._paired for member in members for slot in self._tree.outputs(member))


def _ends(tree: CallTree) -> set[int]:
    """The results of a run: what its outermost modules put out, losses, what an optimizer wrote, and numbers that are computed
    outside all modules. A value that is computed inside one and put out by none is a dead end; so is the answer to a question.
    """
    found = set()
    modules = any(call.site.kind is Kind.MODULE for call in tree.calls)
    for index, call in enumerate(tree.calls):
        outer = tree.parent[index] < 0
        given = {slot.slot: tree.tensor(slot.tensor) for slot in tree.inputs(index)}
        for slot in tree.outputs(index):
            if slot.part is Part.AFTER:  # a parameter or buffer, and not a value on its way
                before = given.get(slot.slot)
                result = call.site.phase is Phase.UPDATE or (before is not None and before.producer is None)
            else:
                asked = operation(call) in _QUESTIONS or tree.tensor(slot.tensor).spec.dtype == "b8"
                result = outer and (call.site.kind is Kind.MODULE or not (modules and asked))
            if result:
                found.add(slot.tensor)
    return found


def _reason(pairing: Pairing, which: int, index: int, kinds: set[Kind]) -> tuple[str, bool]:
    tree = pairing.trees[which]
    call = tree.calls[index]
    what = operation(call)
    if not len(pairing.trees[1 - which]):
        return "the other side has no calls at all", False
    if call.site.kind not in kinds:
        return f"the other side has no record of {call.site.kind} calls", True
    if not tree.outputs(index) and call.site.kind is not Kind.MODULE:
        return "it puts out no tensor that was recorded", True
    around = _compared_whole(pairing, which, index)
    if around is not None:
        return f"inside {tree.calls[around].site.name or 'the model'}, which is compared as a whole", True
    if call.site.kind is Kind.MODULE and not kinds & {Kind.API, Kind.OP} and _inside_compared(pairing, which, index):
        return "the other side may do this by functions, of which it has no record", True
    if call.site.kind is Kind.MODULE and tree.children[index]:
        if all(
            not pairing.is_free(which, child) or _reason(pairing, which, child, kinds)[1]
            for child in tree.children[index]
        ):
            return "only this side puts these calls into a module of their own; they are compared themselves", True
        return "no module of the other side takes and gives the same tensors", False
    if pairing.hands_on(which, index):
        if what in SHAPING:
            return f"a {what} that only this side has: it computes nothing", True
        return f"a {what} that only this side has: its results hold just what went in", True
    if what in MOVING and _takers_compared(pairing, which, index):
        return f"a {what} that only this side has: it moves values, and all who take them are compared", True
    if what in MAKING and _takers_compared(pairing, which, index):
        return f"a {what} that only this side has a record of, and all who take it are compared", True
    return "no call of the other side does the same with the same tensors", False


def _compared_whole(pairing: Pairing, which: int, index: int) -> int | None:
    """The nearest module around it that has a partner, if it is one operation or nothing inside it has a partner."""
    tree = pairing.trees[which]
    up = tree.parent[index]
    while up >= 0:
        if not pairing.is_free(which, up):
            whole = not is_container(tree, up) or not _holds_bonds(pairing, which, up)
            return up if whole else None
        up = tree.parent[up]
    return None


def _holds_bonds(pairing: Pairing, which: int, index: int) -> bool:
    waiting = list(pairing.trees[which].children[index])
    while waiting:
        child = waiting.pop()
        if not pairing.is_free(which, child):
            return True
        waiting.extend(pairing.trees[which].children[child])
    return False


def _inside_compared(pairing: Pairing, which: int, index: int) -> bool:
    up = pairing.trees[which].parent[index]
    while up >= 0 and pairing.is_free(which, up):
        up = pairing.trees[which].parent[up]
    return up >= 0


def _takers_compared(pairing: Pairing, which: int, index: int) -> bool:
    users = pairing.flow(which).users
    takers = [user for slot in pairing.trees[which].outputs(index) for user in users.get(slot.tensor, ())]
    return bool(takers) and all(
        not pairing.is_free(which, user)
        or pairing.hands_on(which, user)
        or _compared_whole(pairing, which, user) is not None
        for user in takers
    )
