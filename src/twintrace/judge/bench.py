"""One pair of calls after the other, in the order of the data flow.

    bench = Bench(policy)
    bench.judge(step, rank, match, evidence)        -> CallResult

What comes into a call has been judged where it came from; so each call is judged by what it adds:

    in  3e-07 apart (good)   ─▶  layer_norm  ─▶   out 5e-06 apart, rounding explains 1.4e-06        different, introduced here
    in  5e-06 apart (bad)    ─▶  linear      ─▶   out 6e-06 apart                                   different, inherited

What is known of a tensor pair is remembered by its numbers in the two journals: a value is judged once, by the innermost
call that made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.pairs import Match, Part
from ..model.results import CallResult, TensorResult, badness
from ..model.tensors import Tensor
from ..model.verdicts import Outcome, Verdict
from .operations import Traits, traits
from .policies import Evidence, Policy, certain, relative_error
from .rounding import Allowance, allowance, size
from .settings import different_settings

_PASSED = (Part.INPUT, Part.PARAMETER, Part.BUFFER)


class Bench:
    """Judges the pairs of one step of one rank. `noise` is the relative error between two runs of one side, by the left
    tensor's number: what a repeated run shows by itself is allowed as well.
    """

    def __init__(self, policy: Policy, *, noise: Mapping[int, float] | None = None) -> None:
        self._policy = policy
        self._noise = noise or {}
        self._known: dict[tuple[int, int], tuple[Verdict, float]] = {}
        self._backward = 0.0
        self._largest_gradient = 0.0

    def judge(
        self, step: int, rank: int, match: Match, evidence: Sequence[Evidence], *, inside: int = 0, settled: bool = True
    ) -> CallResult:
        """`inside` counts the calls that were made within this one; `settled` is False if one of them differs."""
        forward = [item for item in evidence if not item.pair.part.backward]
        backward = [item for item in evidence if item.pair.part.backward]
        kind = traits(match.left[0]) if match.left else Traits(contracts=True, cancels=True)
        calls = max(1, inside, len(match.left), len(match.right))
        results = [self._incoming(item) for item in forward if item.pair.part in _PASSED]
        apart = max((self._error(item.pair.left, item.pair.right) for item in results), default=0.0)
        sources = [item.left for item in results]
        results += [
            self._outgoing(item, sources, kind, apart, calls, bool(apart))
            for item in forward
            if item.pair.part not in _PASSED
        ]
        came, went = _split(results)
        forward_verdict = _worst(results)
        introduced = settled and _bad(went) and not _bad(came)
        gradients = self._gradients(backward, results, kind, apart, calls)
        came, went = _split(gradients)
        clean = not _bad(results) and settled
        return CallResult(
            step,
            rank,
            match,
            tuple(results + gradients),
            forward_verdict,
            _worst(gradients),
            introduced,
            clean and _bad(went) and not _bad(came),
            different_settings(match.left, match.right),
        )

    def judge_gradient(self, step: int, rank: int, evidence: Evidence, *, scale: float) -> CallResult:
        """The gradient of a parameter, which belongs to no call. `scale` is the size of the largest such gradient: one that
        is nothing beside it (a bias before a batch norm) is rounding noise on both sides.
        """
        self._largest_gradient = max(self._largest_gradient, scale)
        verdict = certain(evidence)
        if verdict is None:
            left, right = evidence.left, evidence.right
            allowed = self._allowed(evidence, [left], Traits(contracts=True), self._backward, 4)
            own = max(size(left), size(right))
            gain = max(1.0, 1e-3 * self._largest_gradient / own) if own else 1.0
            allowed = Allowance(allowed.bound * gain, allowed.because)
            verdict = self._policy.verdict(evidence, allowed, bool(self._backward))
        result = _result(evidence, verdict)
        return CallResult(
            step, rank, Match((), (), evidence.pair.because or "the same parameter"), (result,), None, verdict
        )

    # --- one tensor -----------------------------------------------------------------------------------------------------

    def _incoming(self, evidence: Evidence) -> TensorResult:
        """Judged where it was made, if that was seen; else it comes from outside, where nothing explains a difference but the
        rounding of its own dtype.
        """
        key = (evidence.pair.left, evidence.pair.right)
        if key not in self._known:
            self._judge(evidence, [], Traits(), 0.0, 1, False)
        return _result(evidence, self._known[key][0])

    def _outgoing(
        self, evidence: Evidence, sources: Sequence[Tensor], kind: Traits, incoming: float, calls: int, tie: bool
    ) -> TensorResult:
        key = (evidence.pair.left, evidence.pair.right)
        if key not in self._known:
            self._judge(evidence, sources, kind, incoming, calls, tie and kind.decides)
        return _result(evidence, self._known[key][0])

    def _judge(
        self, evidence: Evidence, sources: Sequence[Tensor], kind: Traits, incoming: float, calls: int, tie: bool
    ) -> None:
        verdict = certain(evidence)
        if verdict is None:
            allowed = self._allowed(evidence, sources, kind, incoming, calls)
            verdict = self._policy.verdict(evidence, allowed, tie)
            error = relative_error(evidence) or 0.0
            # What is too far apart is passed on as what it should have been: what follows from it is different as well.
            passed = error if verdict.outcome.good else min(error, allowed.bound)
        else:
            passed = 0.0
        self._known[evidence.pair.left, evidence.pair.right] = verdict, passed

    def _allowed(
        self, evidence: Evidence, sources: Sequence[Tensor], kind: Traits, incoming: float, calls: int
    ) -> Allowance:
        allowed = allowance(evidence.left, evidence.right, sources, kind, incoming=incoming, calls=calls)
        noise = self._noise.get(evidence.pair.left, 0.0)
        if 4 * noise > allowed.bound:
            return Allowance(4 * noise, f"a repeated run is {noise:.1e} apart")
        return allowed

    def _error(self, left: int, right: int) -> float:
        found = self._known.get((left, right))
        return found[1] if found else 0.0

    # --- gradients ------------------------------------------------------------------------------------------------------

    def _gradients(
        self, evidence: Sequence[Evidence], values: Sequence[TensorResult], kind: Traits, forward: float, calls: int
    ) -> list[TensorResult]:
        """Incoming: the gradients of the outputs. What goes out is made of them and of the values of the forward pass."""
        outputs = [item for item in evidence if item.pair.part is Part.OUTPUT_GRADIENT]
        others = [item for item in evidence if item.pair.part is not Part.OUTPUT_GRADIENT]
        tie = bool(forward or self._backward)
        # A gradient of an output is the sum of what its consumers sent back; they were judged before.
        results = [
            self._outgoing(item, [], Traits(cancels=True, decides=True), self._backward, 4, tie) for item in outputs
        ]
        apart = max([forward, *(self._error(item.pair.left, item.pair.right) for item in results)])
        sources = [item.left for item in outputs] + [item.left for item in values if item.pair.part.incoming]
        wide = Traits(kind.contracts, True, kind.exponential, kind.decides, 4 * kind.steps)
        for item in others:
            results.append(
                self._outgoing(item, sources, wide, max(apart, self._backward if not outputs else 0.0), calls, tie)
            )
        for result in results:
            if result.verdict.outcome.good:
                self._backward = max(self._backward, self._error(result.pair.left, result.pair.right))
        return results


def _result(evidence: Evidence, verdict: Verdict) -> TensorResult:
    return TensorResult(
        evidence.pair, evidence.left, evidence.right, verdict, evidence.measurement, evidence.statistics
    )


def _split(results: Sequence[TensorResult]) -> tuple[list[TensorResult], list[TensorResult]]:
    came = [item for item in results if item.pair.part.incoming]
    return came, [item for item in results if not item.pair.part.incoming]


def _bad(results: Sequence[TensorResult]) -> bool:
    return any(item.verdict.outcome is Outcome.DIFFERENT for item in results)


def _worst(results: Sequence[TensorResult]) -> Verdict | None:
    return max((item.verdict for item in results), key=badness, default=None)
