"""Short cuts through many steps: equal and repeated steps are recognised by structure and fingerprints.

outlines = outlines_of(journals)          None where a journal was not closed, is damaged, or is another tool's
outlines.equal                            the same calls, and the same bits in every value
outlines.key                              structure of both sides: a pairing that was found for it holds for every step that has it
first_bit(journals, outlines, …)          the first value that differs, and where it comes from
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..model.records import Call, Role
from ..model.sites import Phase
from ..model.steps import FirstBit
from ..model.values import tensor_slots
from ..store.folding import Outline
from ..store.trace import Journal

JUDGED_AFTER = 3
"""Steps that are judged after the one in which the runs part: a forward mistake of one step shows backward in it, and in the
update at the latest in the next. Later ones differ because these do.
"""


@dataclass(frozen=True)
class Outlines:
    """Structure and numbers of one step of both sides."""

    left: Outline
    right: Outline
    heads: str
    """Settings of both journals that decide how a step is judged."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.left.pattern.identity, self.right.pattern.identity, self.heads

    @property
    def skeleton(self) -> tuple[str, str, str]:
        """Structure of both sides but for the numbers that a schedule changes: enough for steps that are equal."""
        return self.left.pattern.skeleton, self.right.pattern.skeleton, self.heads

    @property
    def same_program(self) -> bool:
        return self.left.pattern.program == self.right.pattern.program

    @cached_property
    def apart(self) -> np.ndarray[Any, Any]:
        """Which values differ, by place. Those without a fingerprint differ if a number does."""
        one, two = self.left.numbers, self.right.numbers
        apart: np.ndarray[Any, Any] = np.any(one.fingerprints != two.fingerprints, axis=1)
        if not self.left.pattern.all_fingerprints:
            bare = ~np.any(one.fingerprints, axis=1)
            others = np.any(one.means != two.means, axis=0) | np.any(one.ends != two.ends, axis=0)
            apart |= bare & (others | np.any(one.counts != two.counts, axis=0))
        return apart

    @property
    def equal(self) -> bool:
        """Are the two steps equal bit by bit, and free of NaN, of which something is to be said?"""
        numbers = not self.left.pattern.says_values and not self.left.numbers.counts[0].any()
        return numbers and self.same_program and not self.apart.any()


def outlines_of(journals: tuple[Journal, Journal]) -> Outlines | None:
    """Outlines of a step; None where one side has none."""
    outlines: list[Outline] = []
    for journal in journals:
        outline: Callable[[], Outline | None] | None = getattr(journal, "outline", None)
        said = None if outline is None else outline()
        if said is None:
            return None
        outlines.append(said)
    heads = [journal.header for journal in journals]
    settings = [(head.framework, dict(head.settings), dict(head.precision)) for head in heads]
    return Outlines(outlines[0], outlines[1], repr(settings))


def first_bit(journal: Journal, outlines: Outlines, before: bool, draws: Callable[[Call], bool]) -> FirstBit | None:
    """The first value of a step that differs.

    Args:
        journal: the left side.
        outlines: both sides; None comes back where they make different calls.
        before: True if the step before is equal bit by bit.
        draws: tells whether a call draws random numbers.
    """
    if not outlines.same_program or not outlines.apart.any():
        return None
    places = outlines.left.pattern.tensors
    apart = {tensor for tensor, place in places.items() if outlines.apart[place]}
    head = journal.header
    for call, origin, slot, tensor in _values(journal, before, draws):
        if tensor in apart:
            name = f"{call.site}: {slot}" if call is not None else slot
            return FirstBit(head.step, head.rank, origin, name, tensor)
    return None


def _values(
    journal: Journal, before: bool, draws: Callable[[Call], bool]
) -> Iterator[tuple[Call | None, str, str, int]]:
    """All values of a journal in the order in which they were first seen: call, origin, place in the call, tensor.

    A value has several places: it is told at the call that makes it, else as a weight of a module, else where it comes in.
    """
    places: dict[int, tuple[int, Call | None, str, str]] = {}

    def add(tensor: int, rank: int, call: Call | None, origin: str, slot: str) -> None:
        if tensor not in places or rank < places[tensor][0]:
            places[tensor] = rank, call, origin, slot.strip()

    calls = sorted(journal.calls(), key=lambda call: call.id)
    # Where the optimizer's step is recorded, what it made was seen in the step before.
    held = "optimizer" if before and not any(call.site.phase is Phase.UPDATE for call in calls) else "weights"
    for call in calls:
        update = call.site.phase is Phase.UPDATE
        made = "random" if draws(call) else "optimizer" if update else "call"
        taken = dict(tensor_slots(call.args, call.kwargs))
        for slot, tensor in (*call.returned.items(), *call.after.items()):
            if tensor not in taken.values():
                add(tensor, 0, call, made, f"output {slot}")
        for kind, group in (("parameter", call.parameters), ("buffer", call.buffers)):
            for name, tensor in group.items():
                add(tensor, 1, call, held, f"{kind} {name}")
        for slot, tensor in taken.items():
            seen = journal.tensor(tensor)
            rank, origin = (2, held) if seen.requires_grad and not update else (4, "optimizer" if update else "data")
            add(tensor, rank, call, origin if seen.producer is None else "call", f"input {slot}")
        for gradient in call.gradients:
            origin = "gradient" if gradient.role is Role.OUTPUT else "call"
            add(gradient.tensor, 3, call, origin, f"gradient of {gradient.role} {gradient.slot}")
    for gradient in journal.parameter_gradients():
        add(gradient.tensor, 3, None, "call", f"gradient of {gradient.slot}")
    for tensor in sorted(places):
        _, call_or_none, origin, slot = places[tensor]
        yield call_or_none, origin, slot, tensor


ORIGINS = {
    "data": "the data that the network was given came first",
    "weights": "the weights came first: no recorded call made them so",
    "optimizer": "the optimizer came first: what it made of equal gradients, its state or its settings",
    "random": "the random state came first: a call drew other random numbers",
    "call": "a call made it of equal values: its random numbers or its arithmetic came first",
    "gradient": "a gradient came first, from outside of what was recorded",
}


def sentence(first: FirstBit) -> str:
    """The first bit, told."""
    rank = f" of rank {first.rank}" if first.rank else ""
    return f"The first bit that differs is in step {first.step}{rank}, {first.where}: {ORIGINS[first.origin]}."
