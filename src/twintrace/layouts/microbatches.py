"""Micro-batches of one step: the journal of a rank as several, one for each.

    forward 0, backward 0, forward 1, backward 1, update        ->  forward 0, backward 0, update | forward 1, backward 1, update

A micro-batch begins with a call of the outermost module; calls outside of it belong to the micro-batch whose values they take, or
whose calls take theirs. What comes after all of them (the update) belongs to each. So micro-batches are ranks that have a part of
the batch each, one after the other, and are put together as ranks are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from ..model.records import Call, Gradient, is_kept
from ..model.sites import Kind, Phase
from ..operations.sides import inputs_of, outputs_of
from ..store.trace import DerivedJournal, Journal


def count_of(journal: Journal) -> int:
    """Times that the outermost module was called; 1 if there is none, or if several were called, each another number of times."""
    counts: dict[str, int] = {}
    for call in _roots(journal):
        counts[call.site.name] = counts.get(call.site.name, 0) + 1
    return min(counts.values()) if counts and len(set(counts.values())) == 1 else 1


def split(journal: Journal, count: int) -> list[Journal]:
    """The journal as one for each of so many micro-batches."""
    if count < 2:
        return [journal]
    batches = _Split(journal, count)
    return [derived(journal, *batches.of(number)) for number in range(count)]


def derived(journal: Journal, calls: Sequence[Call], gradients: Sequence[Gradient]) -> Journal:
    """The journal with other calls, and other gradients of parameters."""
    return cast(Journal, _Derived(journal, calls, gradients))


def _roots(journal: Journal) -> list[Call]:
    calls = [call for call in journal.calls() if call.parent is None and call.site.kind is Kind.MODULE]
    return sorted((call for call in calls if call.site.phase is Phase.FORWARD), key=lambda call: call.id)


class _Split:
    """Micro-batches of calls and gradients."""

    def __init__(self, journal: Journal, count: int) -> None:
        self._calls = sorted((call for call in journal.calls() if not is_kept(call)), key=lambda call: call.id)
        self._gradients = list(journal.parameter_gradients())
        self._count = count
        self._of: dict[int, int | None] = {}
        """Micro-batch of a call by its id; None for those that belong to each, or to none."""
        self._owners: dict[int, set[int]] = {}
        """Micro-batches that a tensor comes from."""
        turns: dict[str, int] = {}
        for call in _roots(journal):
            turn = turns[call.site.name] = turns.get(call.site.name, -1) + 1
            self._assign(call, turn % count)
        for call in self._calls:  # what is inside has a higher number
            if call.id not in self._of and call.parent in self._of:
                self._assign(call, self._of[call.parent])
        self._by_flow()

    def _assign(self, call: Call, number: int | None) -> None:
        self._of[call.id] = number
        if number is not None:
            made = [*outputs_of(call).values(), *(gradient.tensor for gradient in call.gradients)]
            for tensor in set(made) - set(call.parameters.values()):
                self._owners.setdefault(tensor, set()).add(number)

    def _by_flow(self) -> None:
        """Calls outside of the modules: by what they take, else by who takes what they make."""
        waiting = []
        for call in sorted(self._calls, key=lambda call: call.order):
            if call.id in self._of:
                continue
            sources = [self._owners[number] for number in inputs_of(call).values() if number in self._owners]
            taken = set.union(*sources) if sources else set()
            if call.site.phase is Phase.UPDATE or len(taken) > 1:
                self._assign(call, None)
            elif taken:
                self._assign(call, min(taken))
            else:
                waiting.append(call)
        for call in reversed(waiting):
            made = set(outputs_of(call).values())
            takers = {
                self._of.get(other.id)
                for other in self._calls
                if made.intersection(inputs_of(other).values()) and other.id in self._of
            } - {None}
            self._assign(call, takers.pop() if len(takers) == 1 else None)

    def of(self, number: int) -> tuple[list[Call], list[Gradient]]:
        """Calls and gradients of parameters of one micro-batch."""
        last = max((gradient.order for call in self._calls for gradient in call.gradients), default=-1)
        calls = [
            call
            for call in self._calls
            if self._of[call.id] == number or (self._of[call.id] is None and call.order > last)
        ]
        gradients = []
        for gradient in self._gradients:
            owners = self._owners.get(gradient.tensor, {gradient.count})
            if number in owners:
                gradients.append(
                    Gradient(gradient.role, gradient.slot, gradient.tensor, gradient.of, 0, gradient.order)
                )
        return calls, gradients


class _Derived(DerivedJournal):
    """A journal with calls and gradients of its own."""

    def __init__(self, journal: Journal, calls: Sequence[Call], gradients: Sequence[Gradient]) -> None:
        super().__init__(journal)
        self._calls, self._gradients = calls, gradients

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self) -> Iterator[Call]:
        return iter(self._calls)

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(self._gradients)
