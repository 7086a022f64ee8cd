"""A match on its way to a verdict: what is known of it, what it takes, and what becomes of its differences.

    introduced      nothing that came in differs, nothing inside, but something that went out
    absorbed        it differs, and whatever is made of it agrees

Verdicts on single tensors are given by `bounds.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.pairs import Match, Part
from ..model.records import Call
from ..model.results import TensorResult
from ..model.sites import Kind, Phase
from ..model.verdicts import Outcome
from ..operations import Traits, is_class, traits_named
from .policies import Evidence
from .rounding import elements
from .settings import Readers, different_settings

UNKNOWN = Traits(cancels=True, approximates=True, steps=16)
"""Traits of a module of the user's in which nothing was recorded: it may be a norm or an attention, whatever it is called."""
PASSED = (Part.INPUT, Part.PARAMETER, Part.BUFFER)
_PASSES = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A match and what is known of its tensors. `inside` counts the calls that were made within the left one."""

    match: Match
    evidence: Sequence[Evidence]
    inside: int = 0


@dataclass(slots=True)
class Trial:
    """A case on its way to a result."""

    case: Case
    kind: Traits
    inner: Traits
    """With what is known of the calls inside."""
    calls: int
    updates: bool = False
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Settings that differ between the two calls."""
    values: list[TensorResult] = field(default_factory=list)
    gradients: list[TensorResult] = field(default_factory=list)
    introduced: list[bool] = field(default_factory=lambda: [False, False])
    apart: float = 0.0
    """Difference of the inputs."""
    absorbed: list[bool] = field(default_factory=lambda: [False, False])
    shown: bool = False
    """Values differ, and by that the gradients that are made of them here."""


def trial_of(case: Case, readers: Readers | None = None) -> Trial:
    """Facts of a case that are known before its tensors are judged."""
    match = case.match
    kind = _traits(match.left[0], case.inside) if match.left else Traits(contracts=True, cancels=True)
    updates = bool(match.left) and match.left[0].site.phase is Phase.UPDATE
    settings = different_settings(match.left, match.right, readers)
    return Trial(case, kind, kind, max(1, case.inside, len(match.left), len(match.right)), updates, settings)


def _traits(call: Call, inside: int) -> Traits:
    if call.site.kind is not Kind.MODULE:
        return traits_named(call.site.name)
    return traits_named(call.site.type) if inside or is_class(call.site.type) else UNKNOWN


def look_inside(trials: Sequence[Trial]) -> None:
    """Adds to each module's trial what the calls in it do to gradients; they have ended before it."""
    around = {call.id: trial for trial in trials for call in trial.case.match.left}
    for trial in trials:
        for parent in {call.parent for call in trial.case.match.left}:
            if parent in around:
                around[parent].inner |= trial.inner


def key_of(evidence: Evidence) -> tuple[int, int]:
    """The numbers of the two tensors in their journals."""
    return evidence.pair.left, evidence.pair.right


def is_module(calls: Sequence[Call]) -> bool:
    """Are these the call of a module?"""
    return bool(calls) and calls[0].site.kind is Kind.MODULE


def of_outputs(case: Case) -> Iterator[Evidence]:
    """The gradients of what a call put out."""
    return (item for item in case.evidence if item.pair.part is Part.OUTPUT_GRADIENT)


def takes(case: Case, returned: Collection[tuple[int, int]]) -> bool:
    """Does a call take gradients as its inputs, to clip them?"""
    return any(item.pair.part is Part.INPUT and key_of(item) in returned for item in case.evidence)


def ended(case: Case) -> int:
    """A call ends after what it is made of."""
    return max((call.order for call in case.match.left), default=0)


def last_gradient(trial: Trial) -> int:
    """The backward pass is through with a module after what it is made of, too."""
    return max((gradient.order for call in trial.case.match.left for gradient in call.gradients), default=0)


def any_differs(results: Sequence[TensorResult]) -> bool:
    return any(item.verdict.outcome is Outcome.DIFFERENT for item in results)


def is_introduced(trial: Trial, results: Sequence[TensorResult], differing: set[int]) -> bool:
    """Did a difference arise here: nothing that came in, nothing inside, but something that went out?"""
    calls = trial.case.match.left
    if calls and all(call.site.kind is Kind.SAVE for call in calls):
        return False  # what is saved arose before
    settled = differing.isdisjoint(call.id for call in calls)
    if not settled or any_differs(results):
        differing.update(call.parent for call in calls if call.parent is not None)
    came = [item for item in results if item.pair.part.incoming]
    went = [item for item in results if not item.pair.part.incoming]
    return settled and any_differs(went) and not any_differs(came)


def find_absorbed(trials: Sequence[Trial], *, backward: bool) -> None:
    """Mark what differs without effect: a mask of -10000 or -9998 before a softmax, a gradient that a relu sets to zero.

    From the end, because effects add up that way: a difference has none if whatever is made of it agrees, or has none either.
    """
    effective: dict[int, bool] = {}  # left tensors that are taken: does what is made of them differ?
    for _ in range(_PASSES):  # a region of calls may end after calls that take what it made first
        before = dict(effective)
        effective.clear()
        for trial in reversed(trials):
            results = trial.gradients if backward else trial.values
            if not results and not trial.case.match.only_left:
                continue
            went = [item for item in results if not item.pair.part.incoming]
            bad = [item for item in went if item.verdict.outcome is Outcome.DIFFERENT]
            effect = any(effective.get(item.pair.left, before.get(item.pair.left, True)) for item in bad)
            effect = effect or (not backward and (trial.shown or _averages(trial, went)))
            # Other weights always matter: the next input may show it.
            weights = [item for item in results if item.pair.part in (Part.PARAMETER, Part.BUFFER)]
            known = bool(went) and all(item.verdict.outcome is not Outcome.UNKNOWN for item in went)
            came = [item for item in results if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
            left_over = _left_over(went)
            fades = all(_fades(item, left_over) for item in came)
            trial.absorbed[backward] = (
                known and fades and not effect and any_differs(results) and not any_differs(weights)
            )
            for item in results:
                if item.pair.part in (Part.INPUT, Part.OUTPUT_GRADIENT):
                    lasting = effect or not known or not _fades(item, left_over)
                    effective[item.pair.left] = effective.get(item.pair.left, False) or lasting
            for stray in trial.case.match.only_left:
                if stray.part in (Part.INPUT, Part.OUTPUT_GRADIENT):  # what becomes of it here is not known
                    effective[stray.tensor] = True
        if effective == before:
            break


def _averages(trial: Trial, went: Sequence[TensorResult]) -> bool:
    """A mean or a loss in which a difference is lost: without gradients that is no proof that it has no effect."""
    if trial.gradients or not (trial.kind.cancels or trial.kind.exponential):
        return False
    bad = [item for item in trial.values if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
    most = max((elements(item.left) for item in went), default=0)
    return any(elements(item.left) > most for item in bad)


def _left_over(went: Sequence[TensorResult]) -> float:
    """Difference in those results that agree."""
    return max((item.verdict.error or 0.0 for item in went if item.verdict.outcome.good), default=0.0)


def _fades(came: TensorResult, left_over: float) -> bool:
    """Is little left of a difference in those results that agree? A small one that is handed on undiminished has an effect."""
    return left_over <= 0.1 * (came.verdict.error or 0.0)
