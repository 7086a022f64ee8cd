"""Say of each call without a partner why it has none, and whether that matters."""

from __future__ import annotations

from ..model.pairs import Alone
from ..model.sites import Kind
from .equivalents import MAKING, MOVING, SHAPING
from .units import is_container, operation
from .webs import Web


def alone(web: Web, which: int) -> tuple[Alone, ...]:
    """The calls of one side that have no partner, in order."""
    strand = web.strands[which]
    found = []
    kinds = {call.site.kind for call in web.strands[1 - which].calls}
    for index, call in enumerate(strand.calls):
        if index in web.left_out[which]:
            found.append(Alone(call, "the mapping says to ignore it", True))
        elif index in web.wrappers[which]:
            found.append(Alone(call, "it only wraps calls that are compared themselves", True))
        elif web.is_free(which, index):
            because, skipped = _reason(web, which, index, kinds)
            found.append(Alone(call, because, skipped))
    return tuple(found)


def _reason(web: Web, which: int, index: int, kinds: set[Kind]) -> tuple[str, bool]:
    strand = web.strands[which]
    call = strand.calls[index]
    what = operation(call)
    if not len(web.strands[1 - which]):
        return "the other side has no calls at all", False
    if call.site.kind not in kinds:
        return f"the other side has no record of {call.site.kind} calls", True
    if not strand.outputs(index) and call.site.kind is not Kind.MODULE:
        return "it puts out no tensor that was recorded", True
    around = _compared_whole(web, which, index)
    if around is not None:
        return f"inside {strand.calls[around].site.name or 'the model'}, which is compared as a whole", True
    if call.site.kind is Kind.MODULE and not kinds & {Kind.API, Kind.OP} and _inside_compared(web, which, index):
        return "the other side may do this by functions, of which it has no record", True
    if call.site.kind is Kind.MODULE and strand.children[index]:
        if all(
            not web.is_free(which, child) or _reason(web, which, child, kinds)[1] for child in strand.children[index]
        ):
            return "only this side puts these calls into a module of their own; they are compared themselves", True
        return "no module of the other side takes and gives the same tensors", False
    if web.hands_on(which, index):
        if what in SHAPING:
            return f"a {what} that only this side has: it computes nothing", True
        return f"a {what} that only this side has: its results hold just what went in", True
    if what in MOVING and _takers_compared(web, which, index):
        return f"a {what} that only this side has: it moves values, and all who take them are compared", True
    if what in MAKING and _takers_compared(web, which, index):
        return f"a {what} that only this side has a record of, and all who take it are compared", True
    return "no call of the other side does the same with the same tensors", False


def _compared_whole(web: Web, which: int, index: int) -> int | None:
    """The nearest module around it that has a partner, if it is one operation or nothing inside it has a partner."""
    strand = web.strands[which]
    up = strand.parent[index]
    while up >= 0:
        if not web.is_free(which, up):
            whole = not is_container(strand, up) or not _holds_bonds(web, which, up)
            return up if whole else None
        up = strand.parent[up]
    return None


def _holds_bonds(web: Web, which: int, index: int) -> bool:
    waiting = list(web.strands[which].children[index])
    while waiting:
        child = waiting.pop()
        if not web.is_free(which, child):
            return True
        waiting.extend(web.strands[which].children[child])
    return False


def _inside_compared(web: Web, which: int, index: int) -> bool:
    up = web.strands[which].parent[index]
    while up >= 0 and web.is_free(which, up):
        up = web.strands[which].parent[up]
    return up >= 0


def _takers_compared(web: Web, which: int, index: int) -> bool:
    users = web.flow(which).users
    takers = [user for slot in web.strands[which].outputs(index) for user in users.get(slot.tensor, ())]
    return bool(takers) and all(
        not web.is_free(which, user) or web.hands_on(which, user) or _compared_whole(web, which, user) is not None
        for user in takers
    )
