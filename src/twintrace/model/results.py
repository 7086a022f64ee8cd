"""Results of a comparison.

TensorResult   two tensors: their measurement, and the verdict
CallResult     two calls that belong together: their tensors, the worst verdict, settings that differ
Divergence     the first place where two runs part
Comparison     all of it; `agree` is the answer
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from .measurements import Measurement, StatisticsDifference
from .pairs import Alone, Match, Part, TensorPair
from .records import Call
from .sites import Kind, Phase
from .steps import EqualStep, FirstBit, FollowedStep, RankResult
from .tensors import Tensor
from .verdicts import BADNESS, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Terms:
    """Difference between two results, taken apart: left's rounding + meaning + inherited + right's rounding.

    The roundings are in units of their bounds (1 is what a right kernel may have), the others relative to the left result; None
    where it was not computed.
    """

    left: float | None = None
    meaning: float | None = None
    inherited: float | None = None
    right: float | None = None


@dataclass(frozen=True, slots=True)
class TensorResult:
    """Two tensors side by side. `statistics` is there where both sides have some, `measurement` where values were read."""

    pair: TensorPair
    left: Tensor
    right: Tensor
    verdict: Verdict
    measurement: Measurement | None = None
    statistics: StatisticsDifference | None = None
    terms: Terms | None = None
    """Of results that were recomputed."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.pair.part} {self.pair.left_slot}: {self.left.spec}, {self.verdict.outcome}>"
        )


@dataclass(frozen=True, slots=True)
class Mistake:
    """A difference that no rounding and nothing before explains, and its cause.

    kind: meaning   the two calls compute something else
          kernel    a recorded result differs from the computation of its own call
          range     infinite, NaN or lost to rounding on one side alone, though both mean the same
          leaf      data that no recorded call made
          weights   weights, buffers or state that no recorded call made: they count also where no result shows it
          random    random numbers that differ
          gradient  a part of a gradient that one side alone has
          alone     a call that one side alone makes, on which a result depends
          ranks     the ranks of one run differ among themselves, or do not sum shared gradients
          unproven  different beyond what rounding explains, judged without recomputation
    """

    kind: str
    what: str
    """One sentence: the difference."""
    why: str = ""
    """Its cause, with the proof; empty if nothing that was tried explains it."""
    advice: str = ""
    side: str = ""
    """left or right, where one side alone is to blame."""
    size: float = 0.0
    """Times its bound, or units of the run's rounding."""
    backward: bool = False
    effective: bool = True
    """True if it reaches a result of the run."""
    accepted: str = ""
    """Why it was accepted by the user; empty if it was not."""
    left: tuple[Call, ...] = field(default=(), compare=False)
    """Calls to blame, where these are not the pair that shows it: one that the left alone makes."""
    right: tuple[Call, ...] = field(default=(), compare=False)

    @property
    def marginal(self) -> bool:
        """Less than ten times the bound."""
        return 0 < self.size < 10


@dataclass(frozen=True, slots=True)
class CallResult:
    """Two calls (or regions of calls) side by side.

    `forward` and `backward` are the worst verdicts of the values and of the gradients; None where there was nothing to compare.
    `introduced` tells a difference that arose here from one that came in already.
    """

    step: int
    rank: int
    match: Match
    tensors: tuple[TensorResult, ...]
    forward: Verdict | None
    backward: Verdict | None
    introduced_forward: bool = False
    introduced_backward: bool = False
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Settings that differ: module configuration, scalar and keyword arguments."""
    absorbed_forward: bool = False
    """Values differ here, but nothing that is made of them does: they have no effect."""
    absorbed_backward: bool = False
    """The same of gradients."""
    mistakes: tuple[Mistake, ...] = ()
    """Mistakes that were made here."""
    untold: str = ""
    """Why it could not be recomputed, where that counts."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} step {self.step}, {_addresses(self)}: {self.verdict.outcome}>"

    def holds(self, item: TensorResult) -> bool:
        """Is a tensor of it held by the network? A function takes its weight as an argument: one that no call made, and that is
        trained. A module's input may have been made between the modules.
        """
        if item.pair.part is Part.INPUT:
            function = not any(call.site.kind is Kind.MODULE for call in self.match.left)
            return function and all(side.requires_grad and side.producer is None for side in (item.left, item.right))
        return item.pair.part in (Part.PARAMETER, Part.BUFFER)

    @property
    def values_differ(self) -> bool:
        """True if values differ, and not only gradients."""
        return self.forward is not None and self.forward.outcome is Outcome.DIFFERENT

    @property
    def harmless(self) -> bool:
        """Nothing differs with effect."""
        sides = ((self.forward, self.absorbed_forward), (self.backward, self.absorbed_backward))
        return all(item is None or item.outcome is not Outcome.DIFFERENT or absorbed for item, absorbed in sides)

    @property
    def verdict(self) -> Verdict:
        """The worse of the two."""
        verdicts = [item for item in (self.forward, self.backward) if item is not None]
        return max(verdicts, key=badness, default=Verdict(Outcome.UNKNOWN, "no tensor on both sides"))


def _addresses(result: CallResult) -> str:
    """`forward/module:norm#0 | forward/module:ln#0`; of a region its first call; of a parameter's gradient its name."""
    left, right = result.match.left[:1], result.match.right[:1]
    if not left and not right:
        return f"the gradient of {result.tensors[0].pair.left_slot}" if result.tensors else "no call"
    return " | ".join(str(call.site) for call in (*left, *right))


def badness(verdict: Verdict) -> tuple[int, float]:
    """Sorts verdicts from the same to the most different."""
    return BADNESS[verdict.outcome], verdict.score


def _distance(result: CallResult) -> tuple[bool, int, float]:
    """Sorts results like `badness`, those without effect among what agrees. A score that is NaN counts as the largest."""
    place, score = badness(result.verdict)
    return not result.harmless, place, score if score == score else 1.0


def blamed(result: CallResult, mistake: Mistake | None) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Calls to blame for a mistake: its own, or those of the pair that shows it."""
    if mistake is not None and (mistake.left or mistake.right):
        return mistake.left, mistake.right
    return result.match.left, result.match.right


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two runs part, forward or backward: inputs agree, results do not.

    `inherited` is True when no such place was found, and this is merely the first that differs: the cause lies before it,
    outside the record.
    """

    result: CallResult
    backward: bool
    tensors: tuple[TensorResult, ...]
    """Those that differ, the one that tells most first."""
    inherited: bool
    because: str
    after: int = 0
    """Number of pairs of calls before it, in the order of the data flow, agree."""
    advice: str = ""
    """Advice, where the records tell."""
    mistake: Mistake | None = None
    """Mistake that recomputing found."""
    share: str = ""
    """The share of the gap at the end of the run that it explains, one sentence; empty if that is not known."""

    def __repr__(self) -> str:
        why = self.mistake.why or self.mistake.what if self.mistake is not None else self.because
        when = ("forward", "backward", "update")[self.place]
        return f"<{type(self).__name__} step {self.result.step}, {when}, {_addresses(self.result)}: {why}>"

    @property
    def calls(self) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        """Calls to blame, of both sides; one side has none if the other alone makes the call."""
        return blamed(self.result, self.mistake)

    @property
    def place(self) -> int:
        """Within a step: the forward pass, the backward pass with what is called in it, the optimizer's update."""
        phases = {call.site.phase for call in self.result.match.left[:1]}
        return 1 if self.backward or Phase.RECOMPUTE in phases else 2 if Phase.UPDATE in phases else 0


@dataclass(frozen=True, slots=True)
class Recording:
    """One side of a comparison."""

    path: str
    framework: str
    layout: str = "twintrace"
    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    calls: int = 0
    environment: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the recorder: level, keep."""


class StepResults(Sequence[CallResult]):
    """Results of many steps, by step and rank. Those of steps that are equal bit by bit are made when they are asked for, and are
    not held: to go through all of them takes as long as it takes to judge all steps.
    """

    def __init__(
        self,
        judged: Sequence[CallResult],
        equal: Sequence[EqualStep],
        load: Callable[[int, int], Sequence[CallResult]],
    ) -> None:
        self.judged, self.equal, self._load = tuple(judged), tuple(equal), load

    def with_judged(self, judged: Sequence[CallResult]) -> StepResults:
        """The same with other results of the steps that were judged."""
        return StepResults(judged, self.equal, self._load)

    def at(self, step: int, rank: int) -> Sequence[CallResult]:
        """Results of one step of one rank."""
        if any((item.step, item.rank) == (step, rank) for item in self.equal):
            return self._load(step, rank)
        return [item for item in self.judged if (item.step, item.rank) == (step, rank)]

    def positions(self) -> Iterator[tuple[int, CallResult]]:
        """Results of the steps that were judged, each with its place among all."""
        pending, passed = list(reversed(self.equal)), 0
        for number, result in enumerate(self.judged):
            while pending and (pending[-1].step, pending[-1].rank) < (result.step, result.rank):
                passed += pending.pop().pairs
            yield number + passed, result

    def __len__(self) -> int:
        return len(self.judged) + sum(item.pairs for item in self.equal)

    def __iter__(self) -> Iterator[CallResult]:
        pending = list(reversed(self.equal))
        for result in self.judged:
            while pending and (pending[-1].step, pending[-1].rank) < (result.step, result.rank):
                step = pending.pop()
                yield from self._load(step.step, step.rank)
            yield result
        while pending:
            step = pending.pop()
            yield from self._load(step.step, step.rank)

    @overload
    def __getitem__(self, index: int) -> CallResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CallResult]: ...
    def __getitem__(self, index: int | slice) -> CallResult | Sequence[CallResult]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]  # its results are not hashable either


def _equal(one: object, two: object) -> bool:
    return one == two


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two traces side by side. `results` are in the order of the left side's calls, by step and rank.

    `first` is where they first part, `guilty` all places where a difference arises, `worst(10)` the pairs that differ most.
    `bool(comparison)` is True if the results of the two runs agree, and False if they part or if something that counts could
    not be told: `code` says which.

    The gradients of parameters, which belong to no call, are results with a match of no calls.
    """

    left: Recording
    right: Recording
    results: Sequence[CallResult]
    only_left: tuple[tuple[int, int, Alone], ...]
    """(step, rank, who)."""
    only_right: tuple[tuple[int, int, Alone], ...]
    forward: Divergence | None
    backward: Divergence | None
    policy: str
    left_out: tuple[tuple[int, int], ...] = ()
    """(step, rank) that only one side has."""
    remarks: tuple[str, ...] = ()
    strays: int = 0
    """Gradients that only one side has."""
    recomputed: bool = False
    """True if unequal results were computed again in float64."""
    parted: bool = False
    """True if a mistake reaches a result of the run, by recomputation."""
    untold: tuple[str, ...] = ()
    """Results of the run that differ and could not be told, one sentence each."""
    lone: tuple[str, ...] = ()
    """Results of the run that one side alone has, one sentence each."""
    followed: tuple[FollowedStep, ...] = ()
    """Steps that were not judged, because the runs had parted before them."""
    first_bit: FirstBit | None = None
    """Place of the first bit that differs; None where none does, or where the two make different calls."""
    ranks: tuple[RankResult, ...] = ()
    """Standing of every rank, where there are so many that not all were judged."""

    @property
    def judged(self) -> Sequence[CallResult]:
        """Results without those of steps that are equal bit by bit."""
        return self.results.judged if isinstance(self.results, StepResults) else self.results

    @property
    def equal_steps(self) -> tuple[EqualStep, ...]:
        """Steps that were passed over, because they are equal bit by bit."""
        return self.results.equal if isinstance(self.results, StepResults) else ()

    def positions(self) -> Iterator[tuple[int, CallResult]]:
        """Results that were judged, each with its place among all results."""
        return self.results.positions() if isinstance(self.results, StepResults) else enumerate(self.results)

    def at(self, step: int, rank: int) -> Sequence[CallResult]:
        """Results of one step of one rank."""
        if isinstance(self.results, StepResults):
            return self.results.at(step, rank)
        return [item for item in self.results if (item.step, item.rank) == (step, rank)]

    def __bool__(self) -> bool:
        return self.code == 0

    def __repr__(self) -> str:
        state = {0: "agree", 1: "part", 2: "have nothing in common"}.get(self.code, "could not be told")
        return (
            f"<{type(self).__name__} {self.left.path} | {self.right.path}: {state}, {len(self.results)} pairs of calls>"
        )

    @property
    def first(self) -> Divergence | None:
        """The first place where the two runs part; None if they do not, or if one side alone has a result."""
        return self.divergence

    @property
    def guilty(self) -> tuple[CallResult, ...]:
        """Pairs of calls in which a difference arises that reaches a result, each once, the first place where the runs part first.

        After recomputation these are the places of the mistakes that count. Without it they are the pairs whose inputs agree and
        whose results do not.
        """
        if self.recomputed:
            places = [place for place, mistake in self.mistakes if mistake.effective]
        else:
            first = self.divergence
            places = [] if first is None or first.inherited else [first.result]
            places += [
                result
                for result in self.results
                if (result.introduced_forward and not result.absorbed_forward)
                or (result.introduced_backward and not result.absorbed_backward)
            ]
        return tuple({id(result): result for result in places}.values())

    def worst(self, count: int = 10) -> tuple[CallResult, ...]:
        """The `count` pairs of calls that differ most, in units of the bound; pairs that agree come last."""
        return tuple(heapq.nlargest(count, self.results, key=_distance))

    @property
    def mistakes(self) -> tuple[tuple[CallResult, Mistake], ...]:
        """Independent mistakes and where they were made: the headline first, then those that reach a result, then the others.

        A mistake shows in every call that has the value: in the function, in the module around it, in what takes it. It is
        told once, at the first of them.
        """
        first = self.divergence
        distinct: list[tuple[CallResult, Mistake]] = []
        # By mistake: the pairs of tensors of each call that shows it. A call has one set for all of its mistakes, since an
        # optimizer's step shows thousands of them in thousands of tensors.
        seen: dict[tuple[int, int, Mistake], list[set[tuple[int, int]]]] = {}
        headline = [] if first is None or first.mistake is None else [(first.result, (first.mistake,))]
        everything = ((result, result.mistakes) for result in self.judged if result.mistakes)
        for place, mistakes in (*headline, *everything):
            pairs = {(item.pair.left, item.pair.right) for item in place.tensors}
            for mistake in mistakes:
                known = seen.setdefault((place.step, place.rank, mistake), [])
                if all(pairs.isdisjoint(others) for others in known):
                    distinct.append((place, mistake))
                known.append(pairs)
        return tuple(
            sorted(distinct, key=lambda item: (not item[1].effective, item[0].step if item != distinct[0] else -1))
        )

    @property
    def divergence(self) -> Divergence | None:
        """The first: forward before backward, an earlier step before a later one."""
        partings = [item for item in (self.forward, self.backward) if item is not None]
        if self.recomputed:
            partings = [item for item in partings if item.mistake is None or item.mistake.effective]
        return min(partings, key=lambda item: (item.result.step, item.place), default=None)

    def count(self, *outcomes: Outcome) -> int:
        """Number of pairs of calls with one of these outcomes."""
        equal = sum(item.same for item in self.equal_steps) if Outcome.SAME in outcomes else 0
        if Outcome.UNKNOWN in outcomes:  # calls without tensors
            equal += sum(item.pairs - item.same for item in self.equal_steps)
        return equal + sum(1 for result in self.judged if result.verdict.outcome in outcomes)

    @property
    def saved(self) -> bool:
        """Are both sides folders of saved arrays, with no call behind them?"""
        return self.left.layout == self.right.layout == "npy"

    @property
    def comparable(self) -> bool:
        """Was there anything to compare: a pair of which something is known?"""
        return any(result.verdict.outcome is not Outcome.UNKNOWN for result in self.judged)

    @property
    def agree(self) -> bool:
        """Something was compared, no pair differs with effect, none is damaged, and nothing that means something is alone: call,
        gradient, step.
        """
        if self.recomputed:
            return self.code == 0
        compared = any(result.verdict.outcome.good for result in self.judged)
        return compared and not (self._differ or self._damaged or self.followed or self.untold)

    @property
    def _differ(self) -> bool:
        """Without recomputation: whether a pair differs with effect, or something that means something is alone."""
        alone = any(not item.skipped for _, _, item in (*self.only_left, *self.only_right))
        parted = any(not result.harmless for result in self.judged)
        return bool(alone or self.left_out or self.strays or parted or self.parted)

    @property
    def code(self) -> int:
        """Exit code: 0 the results of the runs agree, 1 they part, 2 nothing is in common, 3 something could not be told."""
        if not self.results:
            return 2
        if not self.recomputed:
            return 0 if self.agree else 1 if self._differ else 3
        if self.parted or self.left_out:
            return 1
        return 3 if self.untold or self._damaged or self.followed else 0

    @property
    def _damaged(self) -> bool:
        """Was something recorded that cannot be read any more? (A value that could not be recorded is no damage.)"""
        tensors = (item for result in self.judged for item in result.tensors if item.measurement is None)
        unknown = (item for item in tensors if item.verdict.outcome is Outcome.UNKNOWN)
        return any(side.is_lost or side.payload is not None for item in unknown for side in (item.left, item.right))
