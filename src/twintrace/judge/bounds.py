"""One pair of calls after the other, in the order of the data flow.

    BoundsJudge(policy).judge(step, rank, cases)        -> a CallResult for each case

What comes into a call has been judged where it came from; so each call is judged by what it adds:

    in  3e-07 apart (good)   ─▶  layer_norm  ─▶   out 5e-06 apart, rounding explains 1.4e-06        different, introduced here
    in  5e-06 apart (bad)    ─▶  linear      ─▶   out 6e-06 apart                                   different, inherited

Values first, in the order in which the calls ended; then gradients, in the order in which they came; but before an optimizer's
update the gradients that it takes. Facts about a pair of tensors are remembered by their numbers in the two journals: a value
is judged once, by the innermost call that made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.pairs import Match, Part
from ..model.records import Call
from ..model.results import CallResult, TensorResult, badness
from ..model.sites import Kind
from ..model.tensors import Tensor
from ..model.verdicts import Outcome, Verdict
from ..operations import Traits
from .carried import UNCERTAIN, CarriedBounds, Weight, identities, moved, uncertainty
from .cases import (
    PASSED,
    Case,
    any_differs,
    find_absorbed,
    is_introduced,
    key_of,
    look_inside,
)
from .optimizers import (
    epsilon_of,
    epsilon_uncertainty,
    is_gradient,
    is_parameter,
    number_in,
    of_adam,
    rate_and_precision,
    share_of,
)
from .policies import Evidence, Policy, certain, relative_error
from .rounding import NOISE, Allowance, Backward, allowance, elements, of_average, size, unit
from .settings import NOT_GIVEN, Readers, another_number, different_settings

_LITTLE = 0.1
"""Beside a gradient that is larger by more than this, a small one may be what is left of large ones that cancel."""
_UNSEEN = 8.0
"""So many roundings of all elements may be there, and statistics show none of them; or half of a larger error."""
_UNKNOWN = Traits(approximates=True, steps=16)
"""Operations between two modules, where their level shows no functions."""
_INEXACT = of_average(0.999)
"""So far apart is what two optimizers make of the same gradient, in relation to the step that they take."""
_EPSILON = of_adam(1e-8, 0.999)
"""Uncertainty of a step by where two frameworks' Adams add epsilon, if their settings were not recorded."""


@dataclass(frozen=True, slots=True)
class _Making:
    """Origin of a value: its inputs, the kind of operation, and the difference of the two sides before it."""

    kind: Traits
    sources: Sequence[Tensor] = ()
    apart: float = 0.0
    calls: int = 1
    tie: float = 0.0
    """Difference in the values by which the operation decides: near a tie, rounding picks the other side."""
    tainted: bool = False
    backward: Backward | None = None
    steady: bool = False
    unseen: float = 0.0
    """Least difference, though its statistics may not show it: the few elements that are uncertain."""


class BoundsJudge:
    """Judges the pairs of one step of one rank. `noise` is the relative error between two runs of one side, by the left
    tensor's number: what a repeated run shows by itself is allowed as well. `before` is what the steps before leave behind.
    Without `equal_nan`, NaN beside NaN is a difference. `foreign`: the two sides are of two frameworks. `readers` tell what the
    calls of each side mean; without them settings are compared as they were written.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        noise: Mapping[int, float] | None = None,
        before: CarriedBounds | None = None,
        equal_nan: bool = True,
        foreign: bool = False,
        readers: Readers | None = None,
    ) -> None:
        self._policy = policy
        self._foreign = foreign
        self._readers = readers
        self._equal_nan = equal_nan
        self._noise = noise or {}
        self._before = before or CarriedBounds()
        self._after = self._before.apart
        self._known: dict[tuple[int, int], tuple[Verdict, float]] = {}
        self._forward = self._backward = 0.0  # the largest errors so far that rounding explains
        self._left_over: set[tuple[int, int]] = set()  # what only the steps before explain
        # Results of optimizers in this step, by their bits.
        self._updates: dict[tuple[Hashable, Hashable], float] = {}
        self._weights: dict[str, Evidence] = {}
        self._gradients: Sequence[Evidence] = ()
        self._came_back: Mapping[int | None, float] = {}  # the size of the gradients that came into each left call
        self._made: list[tuple[bool, Evidence]] = []  # by an optimizer? and what calls put out or wrote

    @property
    def left_behind(self) -> CarriedBounds:
        """Bound on the difference that rounding leaves in the weights for the next step. A zero differs as its gradient does."""
        apart = max(self._after, self._forward, self._backward)
        values = {
            identities(item): error
            for by_optimizer, item in self._made
            for verdict, error in [self._known[key_of(item)]]
            if verdict.outcome.good and error > (0.0 if by_optimizer else apart)
        }
        return CarriedBounds(apart, values, {**self._before.weights, **dict(self._left_weights())})

    def judge(
        self, step: int, rank: int, cases: Sequence[Case], gradients: Sequence[Evidence] = ()
    ) -> list[CallResult]:
        """The results, in the order in which the left calls ended. `gradients` are those that `judge_gradients` is asked for later:
        an optimizer takes them.
        """
        cases = sorted(cases, key=lambda case: case.ended)
        for case in cases:
            case.settings = different_settings(case.match.left, case.match.right, self._readers)
        look_inside(cases)
        self._gradients = gradients
        self._came_back = {
            call.id: max((size(item.left) for item in case.of_outputs()), default=0.0)
            for case in cases
            for call in case.match.left
        }
        returned = {key_of(item) for case in cases for item in case.evidence if item.pair.part.backward}
        # Of parameters those that no recorded call has made: the others are judged where they were.
        returned |= {key_of(item) for item in gradients if item.left.producer is None}
        differing: tuple[set[int], set[int]] = (set(), set())  # left calls with something inside that differs
        backward = waiting = sorted(cases, key=lambda case: case.last_gradient)
        judged: set[int] = set()
        for case in cases:
            if case.updates or case.takes(returned):
                ready = [item for item in waiting if id(item) in judged and item.last_gradient < case.ended]
                self._judge_backward(ready, differing[1])
                done = {id(item) for item in ready}
                waiting = [item for item in waiting if id(item) not in done]
                self._judge_parameters(gradients, cases)
            self._judge_values(case)
            case.introduced[0] = is_introduced(case, case.values, differing[0])
            judged.add(id(case))
        self._judge_backward(waiting, differing[1])
        self._judge_parameters(gradients, cases)
        find_absorbed(cases, backward=False)
        find_absorbed(backward, backward=True)
        modules: dict[tuple[int | None, ...], tuple[Call, Call]] = {
            (one.id, two.id): (one, two) for case in cases for one, two in _single(case.match)
        }
        return [
            CallResult(
                step,
                rank,
                case.match,
                tuple(case.values + case.gradients),
                _worst(case.values),
                _worst(case.gradients),
                case.introduced[0],
                case.introduced[1],
                _settings(case, modules, self._readers),
                case.absorbed[0],
                case.absorbed[1],
            )
            for case in cases
        ]

    def judge_gradients(self, step: int, rank: int, evidence: Sequence[Evidence]) -> list[CallResult]:
        """The gradients of parameters, which belong to no call. One that is nothing beside the largest of them (of a bias before a
        batch norm) is rounding noise on both sides.
        """
        self._judge_parameters(evidence, ())
        return [self._gradient(step, rank, item) for item in evidence]

    def _judge_parameters(self, gradients: Sequence[Evidence], cases: Sequence[Case]) -> None:
        largest = max((size(item.left) for item in gradients), default=0.0)
        modules = {case.match.left[0].site.name: case for case in cases if case.is_module}
        for item in gradients:
            key = key_of(item)
            if key in self._known:
                continue
            kind = Traits(contracts=True, decides=True)
            making = _Making(kind, [item.left], self._backward, 4, self._backward)
            own = max(size(item.left), size(item.right))
            gain = max(1.0, _LITTLE * largest / own) if own else 1.0
            around = modules.get(item.pair.left_slot.rpartition(".")[0])
            for each in around.of_outputs() if around is not None and own else ():
                terms = max(1.0, elements(each.left) / max(elements(item.left), 1))
                gain = max(gain, size(each.left) * math.sqrt(terms) / own)
                # The errors of a mean all point the same way: then the sum is nothing but rounding.
                aligned = size(each.left) * terms / own
                if self._allowed(item, making).bound * aligned >= NOISE:
                    gain = max(gain, aligned)
            self._known[key] = self._judged(item, making, gain)

    def _gradient(self, step: int, rank: int, evidence: Evidence) -> CallResult:
        verdict = self._known[key_of(evidence)][0]
        match = Match((), (), evidence.pair.because or "the same parameter")
        return CallResult(step, rank, match, (_result(evidence, verdict),), None, verdict)

    # --- values ---------------------------------------------------------------------------------------------------------

    def _judge_values(self, case: Case) -> None:
        evidence = [item for item in case.evidence if not item.pair.part.backward]
        # A value that no recorded call has made may have been made between them: then it differs as what was made so far.
        made_so_far = max(self._before.apart, self._forward, self._backward if case.updates else 0.0)
        unknown = self._made and case.is_module
        between = _Making(_UNKNOWN if unknown else Traits(), apart=made_so_far)
        weights = _Making(Traits(), apart=self._before.apart)
        came = [
            self._remembered_from_before(item, case, between if item.pair.part is Part.INPUT else weights)
            for item in evidence
            if item.pair.part in PASSED
        ]
        case.apart = max((self._error(item) for item in came), default=0.0)
        sources = [item.left for item in came]
        # The effect of another epsilon is not to be put down to cancellation.
        steady = another_number(case.settings)
        # A module's output is made of what was made in it.
        apart = max(case.apart, self._forward) if case.inside else case.apart
        making = _Making(case.kind, sources, apart, case.calls, apart, any_differs(came), steady=steady)
        went = [item for item in evidence if item.pair.part not in PASSED]
        self._made += [(case.updates, item) for item in went]
        if case.updates:
            case.values = came + self._updated(case, evidence, making, came)
            return
        case.values = came + [self._remembered(item, making) for item in went]
        of_this_step = (item for item in case.values if (item.pair.left, item.pair.right) not in self._left_over)
        self._forward = max([self._forward, *(self._error(item) for item in of_this_step if item.verdict.outcome.good)])

    def _remembered_from_before(self, evidence: Evidence, case: Case, making: _Making) -> TensorResult:
        """Verdict on a call's input: as it was judged where it was made, or else within the bound of the steps before."""
        apart = making.apart
        left_by_steps = max(
            self._before.of_value(evidence), self._updates.get(identities(evidence), 0.0) if self._updates else 0.0
        )
        if evidence.pair.part is Part.PARAMETER and case.match.left:
            name = ".".join(filter(None, (case.match.left[0].site.name, evidence.pair.left_slot)))
            self._weights[name] = evidence
            by_name = self._before.of_weight(name, evidence.left)
            if by_name is not None:  # what other weights may be says nothing of it
                apart, left_by_steps = 0.0, max(left_by_steps, by_name)
        if left_by_steps > apart and key_of(evidence) not in self._known:
            self._left_over.add(key_of(evidence))
        return self._remembered(evidence, replace(making, apart=max(apart, left_by_steps), unseen=left_by_steps))

    def _updated(
        self, case: Case, evidence: Sequence[Evidence], making: _Making, came: Sequence[TensorResult]
    ) -> list[TensorResult]:
        """Verdicts on an optimizer's results. Each parameter is made of its own gradient, not of the worst."""
        rate, inexact = rate_and_precision(case.match)
        epsilon = epsilon_of(case.match)
        whole = all(call.site.kind is not Kind.OP for call in case.match.left)
        taken: dict[str, list[Evidence]] = {}
        for item in evidence:
            if item.pair.part in PASSED:
                taken.setdefault(number_in(item.pair.left_slot), []).append(item)
        apart_of = self._apart_of(came)
        made: list[TensorResult] = []
        for item in evidence:
            if item.pair.part in PASSED:
                continue
            own, share, uncertain = taken.get(number_in(item.pair.left_slot), []), share_of(item, rate), 0.0
            if whole and is_parameter(item) and not making.steady:
                uncertain = max((self._uncertain(each) for each in own if not is_parameter(each)), default=0.0)
                uncertain = max(
                    uncertain, *(epsilon_uncertainty(epsilon, each) for each in own if is_gradient(each)), 0.0
                )
                share = max(share, *(moved(each.left, item.left) for each in own if is_parameter(each)), 0.0)
            elif not whole:  # one of its kernels: p + a·m/√v, √v, the larger of two
                own = [each for each in evidence if each.pair.part in PASSED]
                uncertain = max(map(self._uncertain, own), default=0.0)
                share = moved(own[0].left, item.left) if own and own[0].left.spec == item.left.spec else 1.0
            apart = apart_of(item) if whole else making.apart
            apart = max(apart, share * max(inexact, uncertain))
            result = self._remembered(item, replace(making, apart=apart, unseen=share * uncertain))
            made.append(result)
            self._updates[identities(item)] = self._error(result)
            if uncertain < UNCERTAIN and _telling(result):
                self._after = max(self._after, result.verdict.error or 0.0)
        return made

    def _uncertain(self, evidence: Evidence) -> float:
        """Relative difference of the elements of a gradient or of a running average, each beside itself; by rounding alone."""
        verdict = self._known[key_of(evidence)][0]
        return uncertainty(evidence) if verdict.outcome is Outcome.ROUNDING else 0.0

    def _left_weights(self) -> Iterator[tuple[str, Weight]]:
        """The weights that have names, with what is known of their gradients."""
        uncertain = {name: weight.uncertain for name, weight in self._before.weights.items()}
        for item in self._gradients:
            name = item.pair.left_slot
            known = max(uncertain.get(name, _INEXACT), self._uncertain(item))
            uncertain[name] = max(known, epsilon_uncertainty(_EPSILON, item)) if self._foreign else known
        for name, evidence in self._weights.items():
            verdict, error = self._known[key_of(evidence)]
            if verdict.outcome.good and name in uncertain:
                yield name, Weight(evidence.left, error, uncertain[name])

    def _apart_of(self, came: Sequence[TensorResult]) -> Callable[[Evidence], float]:
        """A function: difference of the values with the same number among an optimizer's inputs, its parameter, gradient and state;
        of all of them where none has it. By a table: optimizers take thousands.
        """
        found: dict[str, float] = {}
        for item in came:
            number = number_in(item.pair.left_slot)
            found[number] = max(found.get(number, 0.0), self._error(item))
        of_all = max(found.values(), default=0.0)
        return lambda evidence: found.get(number_in(evidence.pair.left_slot), of_all)

    # --- gradients ------------------------------------------------------------------------------------------------------

    def _judge_backward(self, cases: Sequence[Case], differing: set[int]) -> None:
        for case in cases:
            self._judge_gradients(case)
            own = is_introduced(case, case.gradients, differing)
            case.introduced[1] = own and not any_differs(case.values)
            case.shown = own and any_differs(case.values)

    def _judge_gradients(self, case: Case) -> None:
        """Incoming: the gradients of the outputs. What goes out is made of them and of the values of the forward pass."""
        evidence = [item for item in case.evidence if item.pair.part.backward]
        if not evidence:
            return
        outputs = [item for item in evidence if item.pair.part is Part.OUTPUT_GRADIENT]
        others = [item for item in evidence if item.pair.part is not Part.OUTPUT_GRADIENT]
        tie = max(case.apart, self._backward)
        # A gradient of an output is the sum of what its consumers sent back; they were judged before. What was not recorded has
        # made it of values.
        summing = _Making(Traits(decides=True), (), max(self._forward, self._backward), 4, tie)
        results = [self._summed(item, summing, case) for item in outputs]
        # Results are saved for the backward pass, too.
        apart = max(map(self._error, (*case.values, *results)), default=0.0)
        taken = [item.left for item in case.values if item.pair.part in PASSED]
        made = [item.left for item in case.values if item.pair.part not in PASSED]
        gradients = [item.left for item in outputs]
        making = _Making(
            replace(case.inner, steps=4 * case.kind.steps),
            [*gradients, *taken],
            apart if outputs else max(apart, self._backward),
            case.calls,
            tie,
            any_differs(results),
            Backward(gradients, taken, made),
            # A difference of values may or may not show in gradients; cancellation is no excuse for it.
            any_differs(case.values) or another_number(case.settings),
        )
        results += [self._remembered(item, making) for item in others]
        self._backward = self._largest(self._backward, results)
        case.gradients = results

    def _summed(self, evidence: Evidence, making: _Making, case: Case) -> TensorResult:
        """The gradient of an output. Where no recorded call has sent it back, it may be what is left of the larger ones that came
        into the module around.
        """
        key = key_of(evidence)
        if key not in self._known:
            own = max(size(evidence.left), size(evidence.right))
            around = max((self._came_back.get(call.parent, 0.0) for call in case.match.left), default=0.0)
            self._known[key] = self._judged(evidence, making, max(1.0, _LITTLE * around / own) if own else 1.0)
        return _result(evidence, self._known[key][0])

    # --- one pair of tensors --------------------------------------------------------------------------------------------

    def _remembered(self, evidence: Evidence, making: _Making) -> TensorResult:
        """Judged where it was made, if that was seen; else here, as made like this."""
        key = key_of(evidence)
        if key not in self._known:
            self._known[key] = self._judged(evidence, making)
        return _result(evidence, self._known[key][0])

    def _judged(self, evidence: Evidence, making: _Making, gain: float = 1.0) -> tuple[Verdict, float]:
        """The verdict, and the error that what is made of it may have by that."""
        verdict = certain(evidence, equal_nan=self._equal_nan, rounded=bool(making.apart))
        if verdict is not None:
            return verdict, 0.0
        allowed = self._allowed(evidence, making)
        allowed = Allowance(allowed.bound * gain, allowed.because)
        verdict = self._policy.verdict(evidence, allowed, making.tie if making.kind.decides else 0.0)
        error = relative_error(evidence) or 0.0
        if evidence.measurement is None:
            error = max(error, making.unseen)
        # A value that differs too much is passed on as it should have been: what follows from it is different as well.
        return verdict, error if verdict.outcome.good else min(error, allowed.bound)

    def _allowed(self, evidence: Evidence, making: _Making) -> Allowance:
        allowed = allowance(
            evidence.left,
            evidence.right,
            making.sources,
            making.kind,
            incoming=making.apart if evidence.measurement else _beyond_statistics(making.apart, evidence),
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
        """The largest error that rounding explains."""
        return max([known, *map(self._error, filter(_telling, results))])

    def _error(self, item: TensorResult) -> float:
        return self._known[item.pair.left, item.pair.right][1]


def _beyond_statistics(apart: float, evidence: Evidence) -> float:
    """Upper bound on the true relative error, given the error that statistics show."""
    return max(2 * apart, _UNSEEN * unit(evidence.left.spec.dtype, evidence.right.spec.dtype)) if apart else 0.0


def _single(match: Match) -> Iterator[tuple[Call, Call]]:
    """The two calls of a match that has one on each side."""
    if len(match.left) == len(match.right) == 1:
        yield match.left[0], match.right[0]


def _settings(
    case: Case, known: Mapping[tuple[int | None, ...], tuple[Call, Call]], readers: Readers | None
) -> Mapping[str, tuple[str, str]]:
    """Settings that differ between the two calls, or between their modules if the calls show none. A module's epsilon may be an
    argument on one side, and a property of the kernel on the other.
    """
    match, found = case.match, case.settings
    decisive = any(NOT_GIVEN not in sides for sides in found.values())  # not merely by name here, by position there
    if decisive or not match.left or not match.right or match.left[0].site.kind is Kind.MODULE:
        return found
    parents = (match.left[0].parent, match.right[0].parent)
    around = None if None in parents else known.get(parents)
    return (different_settings(around[:1], around[1:], readers) if around else {}) or found


def _result(evidence: Evidence, verdict: Verdict) -> TensorResult:
    return TensorResult(
        evidence.pair, evidence.left, evidence.right, verdict, evidence.measurement, evidence.statistics
    )


def _telling(item: TensorResult) -> bool:
    """True if what rounding has done here tells of others. What is nothing but noise, or may be, says nothing of them."""
    verdict = item.verdict
    return verdict.outcome.good and max(verdict.error or 0.0, verdict.bound or 0.0) < NOISE


def _worst(results: Sequence[TensorResult]) -> Verdict | None:
    return max((item.verdict for item in results), key=badness, default=None)
