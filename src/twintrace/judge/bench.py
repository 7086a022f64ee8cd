"""One pair of calls after the other, in the order of the data flow.

    Bench(policy).judge(step, rank, cases)        -> a CallResult for each case

What comes into a call has been judged where it came from; so each call is judged by what it adds:

    in  3e-07 apart (good)   ─▶  layer_norm  ─▶   out 5e-06 apart, rounding explains 1.4e-06        different, introduced here
    in  5e-06 apart (bad)    ─▶  linear      ─▶   out 6e-06 apart                                   different, inherited

Values first, in the order in which the calls ended; then gradients, in the order in which they came; but before an optimizer's
update the gradients that it takes. What is known of a pair of tensors is remembered by their numbers in the two journals: a value
is judged once, by the innermost call that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.pairs import Match, Part
from ..model.records import Call
from ..model.results import CallResult, TensorResult, badness
from ..model.sites import Kind, Phase
from ..model.tensors import Tensor
from ..model.verdicts import Outcome, Verdict
from .operations import Traits, traits
from .policies import Evidence, Policy, certain, relative_error
from .rounding import Allowance, Backward, allowance, elements, of_average, size
from .settings import NOT_GIVEN, another_number, different_settings, number_set

_PASSES = 4
_NOISE = 0.5
"""A relative error from which on two values have nothing in common: the gradient of a bias before a batch norm."""
_PASSED = (Part.INPUT, Part.PARAMETER, Part.BUFFER)


@dataclass(frozen=True, slots=True)
class Case:
    """A match and what is known of its tensors. `inside` counts the calls that were made within the left one."""

    match: Match
    evidence: Sequence[Evidence]
    inside: int = 0


@dataclass(slots=True)
class _Trial:
    """A case on its way to a result."""

    case: Case
    kind: Traits
    calls: int
    updates: bool = False
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What was set differently in the two calls."""
    values: list[TensorResult] = field(default_factory=list)
    gradients: list[TensorResult] = field(default_factory=list)
    introduced: list[bool] = field(default_factory=lambda: [False, False])
    apart: float = 0.0
    """How far what came in is apart."""
    absorbed: list[bool] = field(default_factory=lambda: [False, False])
    shown: bool = False
    """Values differ, and by that the gradients that are made of them here."""


@dataclass(frozen=True, slots=True)
class _Making:
    """How something came to be: from what, by which kind of operation, and how far apart the two sides were before."""

    kind: Traits
    sources: Sequence[Tensor] = ()
    apart: float = 0.0
    calls: int = 1
    tie: float = 0.0
    """How far apart what the operation decides by is: near a tie, rounding picks the other side."""
    tainted: bool = False
    backward: Backward | None = None
    steady: bool = False


class Bench:
    """Judges the pairs of one step of one rank. `noise` is the relative error between two runs of one side, by the left
    tensor's number: what a repeated run shows by itself is allowed as well. `before` is what the steps before leave behind.
    Without `equal_nan`, NaN beside NaN is a difference.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        noise: Mapping[int, float] | None = None,
        before: float = 0.0,
        equal_nan: bool = True,
    ) -> None:
        self._policy = policy
        self._equal_nan = equal_nan
        self._noise = noise or {}
        self._before = self._after = before
        self._known: dict[tuple[int, int], tuple[Verdict, float]] = {}
        self._forward = self._backward = 0.0  # the largest errors so far that rounding explains

    @property
    def left_behind(self) -> float:
        """How far apart rounding may have left the weights for the next step. One that was zero is as far apart as its gradient."""
        return max(self._after, self._forward, self._backward)

    def judge(
        self, step: int, rank: int, cases: Sequence[Case], gradients: Sequence[Evidence] = ()
    ) -> list[CallResult]:
        """The results, in the order in which the left calls ended. `gradients` are those that `judge_gradients` is asked for later:
        an optimizer takes them.
        """
        trials = [_trial(case) for case in sorted(cases, key=_ended)]
        differing: tuple[set[int], set[int]] = (set(), set())  # left calls with something inside that differs
        backward = waiting = sorted(trials, key=_last_gradient)
        judged: set[int] = set()
        for trial in trials:
            if trial.updates:
                ready = [item for item in waiting if id(item) in judged and _last_gradient(item) < _ended(trial.case)]
                self._judge_backward(ready, differing[1])
                done = {id(item) for item in ready}
                waiting = [item for item in waiting if id(item) not in done]
                self._judge_parameters(gradients)
            self._judge_values(trial)
            trial.introduced[0] = _introduced(trial, trial.values, differing[0])
            judged.add(id(trial))
        self._judge_backward(waiting, differing[1])
        _find_absorbed(trials, backward=False)
        _find_absorbed(backward, backward=True)
        modules: dict[tuple[int | None, ...], tuple[Call, Call]] = {
            (one.id, two.id): (one, two) for trial in trials for one, two in _single(trial.case.match)
        }
        return [
            CallResult(
                step,
                rank,
                trial.case.match,
                tuple(trial.values + trial.gradients),
                _worst(trial.values),
                _worst(trial.gradients),
                trial.introduced[0],
                trial.introduced[1],
                _settings(trial, modules),
                *trial.absorbed,
            )
            for trial in trials
        ]

    def judge_gradients(self, step: int, rank: int, evidence: Sequence[Evidence]) -> list[CallResult]:
        """The gradients of parameters, which belong to no call. One that is nothing beside the largest of them (of a bias before a
        batch norm) is rounding noise on both sides.
        """
        self._judge_parameters(evidence)
        return [self._gradient(step, rank, item) for item in evidence]

    def _judge_parameters(self, gradients: Sequence[Evidence]) -> None:
        largest = max((size(item.left) for item in gradients), default=0.0)
        for item in gradients:
            key = (item.pair.left, item.pair.right)
            if key in self._known:
                continue
            kind = Traits(contracts=True, decides=True)
            making = _Making(kind, [item.left], self._backward, 4, self._backward)
            own = max(size(item.left), size(item.right))
            self._known[key] = self._judged(item, making, max(1.0, 0.1 * largest / own) if own else 1.0)

    def _gradient(self, step: int, rank: int, evidence: Evidence) -> CallResult:
        verdict = self._known[evidence.pair.left, evidence.pair.right][0]
        match = Match((), (), evidence.pair.because or "the same parameter")
        return CallResult(step, rank, match, (_result(evidence, verdict),), None, verdict)

    # --- values ---------------------------------------------------------------------------------------------------------

    def _judge_values(self, trial: _Trial) -> None:
        evidence = [item for item in trial.case.evidence if not item.pair.part.backward]
        # What no recorded call has made may have been made between them: then it is as far apart as what was made so far.
        between = _Making(Traits(), apart=max(self._before, self._forward, self._backward if trial.updates else 0.0))
        weights = _Making(Traits(), apart=self._before)
        came = [
            self._remembered(item, between if item.pair.part is Part.INPUT else weights)
            for item in evidence
            if item.pair.part in _PASSED
        ]
        trial.apart = max((self._error(item) for item in came), default=0.0)
        sources = [item.left for item in came]
        # What another epsilon does is not to be put down to cancellation.
        steady = another_number(trial.settings)
        making = _Making(trial.kind, sources, trial.apart, trial.calls, trial.apart, _bad(came), steady=steady)
        went = [item for item in evidence if item.pair.part not in _PASSED]
        if trial.updates:  # each parameter is made of its own gradient, not of the worst
            rate, inexact = _of_optimizer(trial.case.match)
            made = [
                self._remembered(item, replace(making, apart=max(self._apart_of_one(item, came), apart)))
                for item in went
                for apart in [inexact * _share(item, rate)]
            ]
            self._after = self._largest(self._after, made)
            trial.values = came + made
            return
        trial.values = came + [self._remembered(item, making) for item in went]
        self._forward = max([self._forward, *(self._error(item) for item in trial.values if item.verdict.outcome.good)])

    def _apart_of_one(self, evidence: Evidence, came: Sequence[TensorResult]) -> float:
        """How far apart that is which has the same number among what an optimizer takes: its parameter, gradient and state."""
        number = _number(evidence.pair.left_slot)
        own = [item for item in came if _number(item.pair.left_slot) == number]
        return max((self._error(item) for item in own or came), default=0.0)

    # --- gradients ------------------------------------------------------------------------------------------------------

    def _judge_backward(self, trials: Sequence[_Trial], differing: set[int]) -> None:
        for trial in trials:
            self._judge_gradients(trial)
            own = _introduced(trial, trial.gradients, differing)
            trial.introduced[1] = own and not _bad(trial.values)
            trial.shown = own and _bad(trial.values)

    def _judge_gradients(self, trial: _Trial) -> None:
        """Incoming: the gradients of the outputs. What goes out is made of them and of the values of the forward pass."""
        evidence = [item for item in trial.case.evidence if item.pair.part.backward]
        outputs = [item for item in evidence if item.pair.part is Part.OUTPUT_GRADIENT]
        others = [item for item in evidence if item.pair.part is not Part.OUTPUT_GRADIENT]
        tie = max(trial.apart, self._backward)
        # A gradient of an output is the sum of what its consumers sent back; they were judged before.
        summing = _Making(Traits(decides=True), (), self._backward, 4, tie)
        results = [self._remembered(item, summing) for item in outputs]
        apart = max(
            map(self._error, (*trial.values, *results)), default=0.0
        )  # results are saved for the backward pass, too
        taken = [item.left for item in trial.values if item.pair.part in _PASSED]
        made = [item.left for item in trial.values if item.pair.part not in _PASSED]
        gradients = [item.left for item in outputs]
        making = _Making(
            replace(trial.kind, steps=4 * trial.kind.steps),
            [*gradients, *taken],
            apart if outputs else max(apart, self._backward),
            trial.calls,
            tie,
            _bad(results),
            Backward(gradients, taken, made),
            # A difference of values may or may not show in gradients; cancellation is no excuse for it.
            _bad(trial.values) or another_number(trial.settings),
        )
        results += [self._remembered(item, making) for item in others]
        self._backward = self._largest(self._backward, results)
        trial.gradients = results

    # --- one pair of tensors --------------------------------------------------------------------------------------------

    def _remembered(self, evidence: Evidence, making: _Making) -> TensorResult:
        """Judged where it was made, if that was seen; else here, as made like this."""
        key = (evidence.pair.left, evidence.pair.right)
        if key not in self._known:
            self._known[key] = self._judged(evidence, making)
        return _result(evidence, self._known[key][0])

    def _judged(self, evidence: Evidence, making: _Making, gain: float = 1.0) -> tuple[Verdict, float]:
        """The verdict, and the error that what is made of it may have by that."""
        verdict = certain(evidence, equal_nan=self._equal_nan)
        if verdict is not None:
            return verdict, 0.0
        allowed = self._allowed(evidence, making)
        allowed = Allowance(allowed.bound * gain, allowed.because)
        verdict = self._policy.verdict(evidence, allowed, making.tie if making.kind.decides else 0.0)
        error = relative_error(evidence) or 0.0
        # What is too far apart is passed on as what it should have been: what follows from it is different as well.
        return verdict, error if verdict.outcome.good else min(error, allowed.bound)

    def _allowed(self, evidence: Evidence, making: _Making) -> Allowance:
        allowed = allowance(
            evidence.left,
            evidence.right,
            making.sources,
            making.kind,
            incoming=making.apart,
            calls=making.calls,
            tainted=making.tainted,
            backward=making.backward,
            steady=making.steady,
        )
        noise = self._noise.get(evidence.pair.left, 0.0)
        if 4 * noise > allowed.bound:
            return Allowance(4 * noise, f"a repeated run is {noise:.1e} apart")
        return allowed

    def _largest(self, known: float, results: Sequence[TensorResult]) -> float:
        """The largest error that rounding explains. What is nothing but noise says nothing of the others."""
        errors = [self._error(item) for item in results if item.verdict.outcome.good]
        return max([known, *(error for error in errors if error < _NOISE)])

    def _error(self, item: TensorResult) -> float:
        return self._known[item.pair.left, item.pair.right][1]


def _trial(case: Case) -> _Trial:
    match = case.match
    kind = traits(match.left[0]) if match.left else Traits(contracts=True, cancels=True)
    updates = bool(match.left) and match.left[0].site.phase is Phase.UPDATE
    settings = different_settings(match.left, match.right)
    return _Trial(case, kind, max(1, case.inside, len(match.left), len(match.right)), updates, settings)


def _of_optimizer(match: Match) -> tuple[float, float]:
    """The learning rate, and how far apart two optimizers are that keep their settings in other dtypes."""
    calls = (*match.left, *match.right)
    decays = [number_set(call, name) for call in calls for name in ("betas.0", "betas.1")]
    rates = [number_set(call, "lr") for call in calls]
    return max((rate for rate in rates if rate), default=0.0), max(
        (of_average(decay or 0.0) for decay in decays), default=0.0
    )


def _share(evidence: Evidence, rate: float) -> float:
    """How much of a value this step has made: all of a running average; of a parameter about the learning rate, if it is Adam's."""
    if not evidence.pair.left_slot.startswith("parameters"):
        return 1.0
    whole = size(evidence.left)
    return min(1.0, rate / whole) if whole else 1.0


def _number(slot: str) -> str:
    """`3` of `parameters.3`, `state.3.momentum_buffer` and `state.accum.3`."""
    return next((part for part in reversed(slot.split(".")) if part.isdigit()), "")


def _ended(case: Case) -> int:
    """A call ends after what it is made of."""
    return max((call.order for call in case.match.left), default=0)


def _last_gradient(trial: _Trial) -> int:
    """The backward pass is through with a module after what it is made of, too."""
    return max((gradient.order for call in trial.case.match.left for gradient in call.gradients), default=0)


def _introduced(trial: _Trial, results: Sequence[TensorResult], differing: set[int]) -> bool:
    """Did a difference arise here: nothing that came in, nothing inside, but something that went out?"""
    calls = trial.case.match.left
    if calls and all(call.site.kind is Kind.SAVE for call in calls):
        return False  # what is saved arose before
    settled = differing.isdisjoint(call.id for call in calls)
    if not settled or _bad(results):
        differing.update(call.parent for call in calls if call.parent is not None)
    came = [item for item in results if item.pair.part.incoming]
    went = [item for item in results if not item.pair.part.incoming]
    return settled and _bad(went) and not _bad(came)


def _single(match: Match) -> Iterator[tuple[Call, Call]]:
    """The two calls of a match that has one on each side."""
    if len(match.left) == len(match.right) == 1:
        yield match.left[0], match.right[0]


def _settings(
    trial: _Trial, known: Mapping[tuple[int | None, ...], tuple[Call, Call]]
) -> Mapping[str, tuple[str, str]]:
    """What was set differently in the calls themselves; where that says nothing, in the modules that made them. A module's epsilon
    may be an argument on one side, and a property of the kernel on the other.
    """
    match, found = trial.case.match, trial.settings
    decisive = any(NOT_GIVEN not in sides for sides in found.values())  # not merely by name here, by position there
    if decisive or not match.left or not match.right or match.left[0].site.kind is Kind.MODULE:
        return found
    parents = (match.left[0].parent, match.right[0].parent)
    around = None if None in parents else known.get(parents)
    return (different_settings(around[:1], around[1:]) if around else {}) or found


def _find_absorbed(trials: Sequence[_Trial], *, backward: bool) -> None:
    """Mark what differs without effect: a mask of -10000 or -9998 before a softmax, a gradient that a relu sets to zero.

    From the end, because effects add up that way: a difference has none if whatever is made of it agrees, or has none either.
    """
    effective: dict[int, bool] = {}  # left tensors that are taken: does what is made of them differ?
    for _ in range(_PASSES):  # a region of calls may end after calls that take what it made first
        before = dict(effective)
        effective.clear()
        for trial in reversed(trials):
            results = trial.gradients if backward else trial.values
            went = [item for item in results if not item.pair.part.incoming]
            bad = [item for item in went if item.verdict.outcome is Outcome.DIFFERENT]
            effect = any(effective.get(item.pair.left, before.get(item.pair.left, True)) for item in bad)
            effect = effect or (not backward and (trial.shown or _averages(trial, went)))
            # Other weights always matter: the next input may show it.
            weights = [item for item in results if item.pair.part in (Part.PARAMETER, Part.BUFFER)]
            known = bool(went) and all(item.verdict.outcome is not Outcome.UNKNOWN for item in went)
            came = [item for item in results if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
            fades = all(_fades(item, went) for item in came)
            trial.absorbed[backward] = known and fades and not effect and _bad(results) and not _bad(weights)
            for item in results:
                if item.pair.part in (Part.INPUT, Part.OUTPUT_GRADIENT):
                    lasting = effect or not known or not _fades(item, went)
                    effective[item.pair.left] = effective.get(item.pair.left, False) or lasting
            for stray in trial.case.match.only_left:
                if stray.part in (Part.INPUT, Part.OUTPUT_GRADIENT):  # what becomes of it here is not known
                    effective[stray.tensor] = True
        if effective == before:
            break


def _averages(trial: _Trial, went: Sequence[TensorResult]) -> bool:
    """A mean or a loss in which a difference is lost: without gradients that is no proof that it has no effect."""
    if trial.gradients or not (trial.kind.cancels or trial.kind.exponential):
        return False
    bad = [item for item in trial.values if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
    most = max((elements(item.left) for item in went), default=0)
    return any(elements(item.left) > most for item in bad)


def _fades(came: TensorResult, went: Sequence[TensorResult]) -> bool:
    """Is little left of a difference in those results that agree? A small one that is handed on undiminished has an effect."""
    left = max((item.verdict.error or 0.0 for item in went if item.verdict.outcome.good), default=0.0)
    return left <= 0.1 * (came.verdict.error or 0.0)


def _result(evidence: Evidence, verdict: Verdict) -> TensorResult:
    return TensorResult(
        evidence.pair, evidence.left, evidence.right, verdict, evidence.measurement, evidence.statistics
    )


def _bad(results: Sequence[TensorResult]) -> bool:
    return any(item.verdict.outcome is Outcome.DIFFERENT for item in results)


def _worst(results: Sequence[TensorResult]) -> Verdict | None:
    return max((item.verdict for item in results), key=badness, default=None)
