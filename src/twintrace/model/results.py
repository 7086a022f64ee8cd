"""What a comparison, a listing and a check-up find.

TensorResult   two tensors: what was measured, and the verdict
CallResult     two calls that belong together: their tensors, the worst verdict, what was set differently
Divergence     the first place where two runs part
Comparison     all of it; `agree` is the answer
Listing        a trace as a tree of lines, for people
Finding        one line of `twintrace doctor`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .measurements import Measurement, StatisticsDifference
from .pairs import Alone, Match, Part, TensorPair
from .sites import Kind, Phase
from .tensors import Tensor
from .verdicts import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class TensorResult:
    """Two tensors side by side. `statistics` is there where both sides have some, `measurement` where values were read."""

    pair: TensorPair
    left: Tensor
    right: Tensor
    verdict: Verdict
    measurement: Measurement | None = None
    statistics: StatisticsDifference | None = None


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
    """What was set differently: module configuration, scalar and keyword arguments."""
    absorbed_forward: bool = False
    """Values differ here, but nothing that is made of them does: they have no effect."""
    absorbed_backward: bool = False
    """The same of gradients."""

    def holds(self, item: TensorResult) -> bool:
        """Is a tensor of it held by the network? A function takes its weight as an argument: one that no call made, and that is
        trained. What a module takes may have been made between the modules.
        """
        if item.pair.part is Part.INPUT:
            function = not any(call.site.kind is Kind.MODULE for call in self.match.left)
            return function and all(side.requires_grad and side.producer is None for side in (item.left, item.right))
        return item.pair.part in (Part.PARAMETER, Part.BUFFER)

    @property
    def harmless(self) -> bool:
        """Nothing differs, but what has no effect."""
        sides = ((self.forward, self.absorbed_forward), (self.backward, self.absorbed_backward))
        return all(item is None or item.outcome is not Outcome.DIFFERENT or absorbed for item, absorbed in sides)

    @property
    def verdict(self) -> Verdict:
        """The worse of the two."""
        found = [item for item in (self.forward, self.backward) if item is not None]
        return max(found, key=badness, default=Verdict(Outcome.UNKNOWN, "no tensor on both sides"))


_BADNESS = {outcome: place for place, outcome in enumerate(Outcome)}


def badness(verdict: Verdict) -> tuple[int, float]:
    """Sorts verdicts from the same to the most different."""
    return _BADNESS[verdict.outcome], verdict.score


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs first part, forward or backward: what comes in agrees, what goes out does not.

    `inherited` is True when no such place was found, and this is merely the first that differs: the cause lies before it,
    outside what was recorded.
    """

    result: CallResult
    backward: bool
    tensors: tuple[TensorResult, ...]
    """Those that differ, the one that tells most first."""
    inherited: bool
    because: str
    after: int = 0
    """How many pairs of calls before it, in the order of the data flow, agree."""
    advice: str = ""
    """What to do about it, where the records tell."""

    @property
    def place(self) -> int:
        """Within a step: the forward pass, the backward pass, the optimizer's update."""
        calls = self.result.match.left
        return 1 if self.backward else 2 if calls and calls[0].site.phase is Phase.UPDATE else 0


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two traces side by side. `results` are in the order of the left side's calls, by step and rank.

    The gradients of parameters, which belong to no call, are results with a match of no calls.
    """

    left: Recording
    right: Recording
    results: tuple[CallResult, ...]
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

    @property
    def divergence(self) -> Divergence | None:
        """The first: forward before backward, an earlier step before a later one."""
        found = [item for item in (self.forward, self.backward) if item is not None]
        return min(found, key=lambda item: (item.result.step, item.place), default=None)

    def count(self, *outcomes: Outcome) -> int:
        """How many pairs of calls have one of these outcomes."""
        return sum(1 for result in self.results if result.verdict.outcome in outcomes)

    @property
    def saved(self) -> bool:
        """Are both sides folders of saved arrays, with no call behind them?"""
        return self.left.layout == self.right.layout == "npy"

    @property
    def comparable(self) -> bool:
        """Was there anything to compare: a pair of which something is known?"""
        return any(result.verdict.outcome is not Outcome.UNKNOWN for result in self.results)

    @property
    def agree(self) -> bool:
        """Something was compared, no pair differs with effect, none is damaged, and nothing that means something is alone: call,
        gradient, step.
        """
        alone = any(not item.skipped for _, _, item in (*self.only_left, *self.only_right))
        compared = any(result.verdict.outcome.good for result in self.results)
        parted = any(not result.harmless for result in self.results)
        return compared and not (alone or self.left_out or self.strays or parted or self._damaged)

    @property
    def _damaged(self) -> bool:
        """Was something recorded that cannot be read any more? (What could not be recorded at all is no damage.)"""
        unknown = (x for result in self.results for x in result.tensors if x.verdict.outcome is Outcome.UNKNOWN)
        return any(side.is_lost or side.payload is not None for item in unknown for side in (item.left, item.right))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a listing."""

    step: int
    rank: int
    depth: int
    site: str
    kind: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: int
    where: str
    remark: str = ""
    ranges: tuple[str, ...] = ()
    """Of each output: smallest and largest value, and the norm; empty where they are not known."""
    marks: tuple[str, ...] = ()
    """What a reader must see: NaN and infinities in outputs and gradients, values at the end of their type's range."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A trace for people."""

    path: str
    layout: str
    framework: str
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    settings: Mapping[str, object]
    calls: int
    tensors: int
    rows: tuple[Row, ...]
    hidden: int = 0
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `doctor` looked at."""

    subject: str
    good: bool
    text: str
    remedy: str = ""
