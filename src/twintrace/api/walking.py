"""The way through the steps of two traces: judged, passed over where they are equal, followed after the parting.

walk = Walk(request)
walk.visit((step, rank), progress)          in order; walk.parts has the results
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..judge import CarriedBounds
from ..judge.recomputed import Standing
from ..model.pairs import Alignment, Side
from ..model.records import Call, Damage, Header
from ..model.results import CallResult, Mistake, Recording
from ..model.steps import EqualStep, FirstBit, FollowedStep
from ..model.verdicts import Outcome
from ..model.words import Progress
from ..operations.sides import Side as Graph
from ..store.trace import Journal
from .places import PlaceResult, Request, compare_place, side_of, silent
from .stepping import JUDGED_AFTER, Outlines, first_bit, outlines_of


@dataclass(slots=True)
class _Carried:
    """State that the steps of one rank leave to the next."""

    before: CarriedBounds | None = None
    standing: Mapping[tuple[str, str], Standing] = field(default_factory=dict)
    passed: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    """By structure: the last step that was passed over since one was judged."""
    was_equal: bool = False
    """True if the step before is equal bit by bit."""


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Pairs of a step, and whether they hold for every step of its structure."""

    alignment: Alignment
    sure: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """Facts about the journals of one step of one rank that are told of the traces as a whole."""

    calls: tuple[int, int]
    damage: tuple[tuple[Damage, ...], tuple[Damage, ...]]
    complete: tuple[bool, bool]


class Walk:
    """Goes through the steps of two traces in their order, and judges them as far as they have to be judged."""

    def __init__(self, request: Request) -> None:
        self._request, self._traces = request, request.traces
        self.parts: dict[tuple[int, int], PlaceResult] = {}
        self.equal: list[EqualStep] = []
        self.followed: list[FollowedStep] = []
        self.first_bit: FirstBit | None = None
        self.seen: dict[tuple[int, int], _Seen] = {}
        self._heads: list[tuple[Header, Header]] = []
        self._carried: dict[int, _Carried] = {}
        self._pairings: dict[tuple[str, str, str], _Pairing] = {}
        self._quiet: dict[tuple[str, str, str], EqualStep] = {}
        """By structure: a step in which all is the same, and nothing is to be said."""
        self._parted_in: int | None = None
        self._follows = self._differs = False

    def visit(self, place: tuple[int, int], progress: Progress) -> None:
        """Judge one step of one rank, or pass it over."""
        journals = (self._traces[0].journal(*place), self._traces[1].journal(*place))
        if not self._heads:
            self._heads.append((journals[0].header, journals[1].header))
        carried = self._carried.setdefault(place[1], _Carried())
        outlines = outlines_of(journals) if self._request.shortcuts else None
        if not self._pass_over(place, outlines, carried) and not self._follow(place, outlines):
            self._note_first_bit(journals, outlines, carried)
            # What the steps passed over leave behind is asked of the last of each structure: they only leave the latest.
            passed, carried.passed = carried.passed, {}
            for earlier in passed.values():
                self._judge(earlier, None, carried, silent)
            part = self._judge(place, outlines, carried, progress)
            self._count_what_reached(part.reached, place)
            self.parts[place] = replace(part, left_behind=CarriedBounds(), standing={}, reached=frozenset())
            self._differs = self._differs or not all(map(_is_same, part.results))
            self._note_parting(place)
            if outlines is not None and outlines.equal and _is_quiet(part):
                self._quiet[outlines.skeleton] = EqualStep(
                    *place,
                    len(part.results),
                    sum(1 for item in part.results if item.tensors),
                    sum(1 for item in part.results if item.match.left),
                    sum(1 for item in part.results if item.backward is not None),
                )
        carried.was_equal = outlines is not None and outlines.equal
        self.seen[place] = _Seen(
            (len(journals[0]), len(journals[1])),
            (journals[0].damage, journals[1].damage),
            (journals[0].complete, journals[1].complete),
        )
        if outlines is not None:  # other tools' dumps may take long to be read again
            for trace in self._traces:
                trace.forget()

    def _count_what_reached(self, reached: frozenset[Mistake], place: tuple[int, int]) -> None:
        """Mistakes of earlier steps count if a result of this one shows them: in a state that a network carries along."""
        for other, part in self.parts.items():
            if other[1] != place[1] or not reached:
                continue
            results = [_with_effect(result, reached) for result in part.results]
            if any(new is not old for new, old in zip(results, part.results, strict=True)):
                self.parts[other] = replace(part, results=results, parted=True)

    def recording(self, which: int) -> Recording:
        """One side, as far as it was gone through."""
        trace, head = self._traces[which], self._heads[0][which] if self._heads else None
        calls = sum(seen.calls[which] for seen in self.seen.values())
        told = (head.environment, head.settings) if head else ({}, {})
        return Recording(trace.path, trace.framework, trace.layout, trace.steps, trace.ranks, calls, *told)

    def _pass_over(self, place: tuple[int, int], outlines: Outlines | None, carried: _Carried) -> bool:
        known = None if outlines is None else self._quiet.get(outlines.skeleton)
        if outlines is None or known is None or not outlines.equal:
            return False
        self.equal.append(replace(known, step=place[0], rank=place[1]))
        carried.passed.pop(outlines.skeleton, None)  # the last place is the latest
        carried.passed[outlines.skeleton] = place
        return True

    def _follow(self, place: tuple[int, int], outlines: Outlines | None) -> bool:
        """Count the differences of a step long after the parting."""
        if self._parted_in is None or outlines is None:
            return False
        if not self._follows:
            judged = {step for step, _ in self.parts if step > self._parted_in}
            self._follows = place[0] not in judged and len(judged) >= JUDGED_AFTER
        if self._follows:
            same = outlines.same_program
            counts = (len(outlines.apart), int(outlines.apart.sum())) if same else (0, 0)
            self.followed.append(FollowedStep(*place, *counts))
        return self._follows

    def _judge(
        self, place: tuple[int, int], outlines: Outlines | None, carried: _Carried, progress: Progress
    ) -> PlaceResult:
        request = replace(self._request, pair=functools.partial(self._paired, outlines))
        standing = carried.standing if request.recompute else None
        part = compare_place(request, place, progress, carried.before, standing)
        carried.before, carried.standing = part.left_behind, _worth_knowing(part.standing)
        return part

    def _paired(self, outlines: Outlines | None, left: Side, right: Side) -> Alignment:
        if outlines is None:
            return self._request.pair(left, right)
        known = self._pairings.get(outlines.key)
        if known is not None and known.sure:
            return known.alignment
        alignment = self._request.pair(left, right)
        # Two runs of one program are paired by their names. Two programs are paired by their values too, which may be alike by
        # chance (biases of zeros in the first step): a pairing holds for others once two steps have given it.
        again = known is not None and known.alignment == alignment
        while known is None and len(self._pairings) >= _PAIRINGS:
            del self._pairings[next(iter(self._pairings))]
        self._pairings[outlines.key] = _Pairing(alignment, again or outlines.same_program)
        return alignment

    def _note_first_bit(self, journals: tuple[Journal, Journal], outlines: Outlines | None, carried: _Carried) -> None:
        if self._differs or outlines is None:
            return
        from ..operations.traits import traits_of

        side = side_of(journals[0])
        graph = Graph(side.framework, side.calls, side.tensor, str(journals[0].header.settings.get("level", "mix")))

        def draws(call: Call) -> bool:
            meaning = graph.meaning(call)
            return meaning is not None and traits_of(meaning).random

        self.first_bit = first_bit(journals[0], outlines, carried.was_equal, draws)

    def _note_parting(self, place: tuple[int, int]) -> None:
        """From the step on in which the first difference is found that no later one can come before: one that is large, or that is
        in the first bit of two runs of one program.
        """
        if self._parted_in is not None or not self._request.shortcuts:
            return
        part = self.parts[place]
        if self._request.recompute:
            guilty = [mistake for result in part.results for mistake in result.mistakes]
            first = self.first_bit is not None and (self.first_bit.step, self.first_bit.rank) == place
            parted = part.parted and any(item.effective and (first or not item.marginal) for item in guilty)
        else:
            parted = any(not result.harmless for result in part.results)
        if parted:
            self._parted_in = place[0]


_PAIRINGS = 8
"""Structures of steps whose pairings are held."""


_STANDING = 200_000
"""Values whose standing is carried from step to step, 0.3 KB each."""


def _with_effect(result: CallResult, reached: frozenset[Mistake]) -> CallResult:
    """The result, with those of its mistakes as effective that were among those that reached something."""
    telling = [(mistake, replace(mistake, effective=True)) for mistake in result.mistakes]
    counted = tuple(known if known in reached else mistake for mistake, known in telling)
    return result if counted == result.mistakes else replace(result, mistakes=counted)


def _worth_knowing(standing: Mapping[tuple[str, str], Standing]) -> Mapping[tuple[str, str], Standing]:
    """Without the oldest values that are the same on both sides: a value that differs is not among them."""
    if len(standing) <= _STANDING:
        return standing
    kept = {bits: status for bits, status in standing.items() if bits[0] != bits[1]}
    return dict(list(kept.items())[-_STANDING:])


def _is_same(result: CallResult) -> bool:
    """True if nothing differs; also of a call without tensors, of which nothing is to be told."""
    return not result.tensors or result.verdict.outcome is Outcome.SAME


def _is_quiet(part: PlaceResult) -> bool:
    """Is all the same in a step, so that nothing is to be said of it?"""
    alone = part.only_left or part.only_right or part.strays
    told = part.parted or part.untold or part.lone or part.notes
    return not alone and not told and all(_is_same(item) and not item.mistakes for item in part.results)
