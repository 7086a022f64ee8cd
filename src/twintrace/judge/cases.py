"""A match that is judged by bounds: its measured tensors, and what becomes of their differences.

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

UNKNOWN = Traits(cancels=True, approximates=True, steps=16)
"""Traits of a module of the user's in which nothing was recorded: it may be a norm or an attention, whatever it is called."""
PASSED = (Part.INPUT, Part.PARAMETER, Part.BUFFER)
_PASSES = 4


@dataclass(slots=True)
class Case:
    """A match and what is known of its tensors, and what `bounds.py` finds out. `inside` counts the calls within the left one."""

    match: Match
    evidence: Sequence[Evidence]
    inside: int = 0
    kind: Traits = field(init=False)
    """Traits of the call itself."""
    inner: Traits = field(init=False)
    """With those of the calls inside."""
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict, init=False)
    """Settings that differ between the two calls."""
    values: list[TensorResult] = field(default_factory=list, init=False)
    gradients: list[TensorResult] = field(default_factory=list, init=False)
    introduced: list[bool] = field(default_factory=lambda: [False, False], init=False)
    """True if a difference arose here, forward and backward."""
    absorbed: list[bool] = field(default_factory=lambda: [False, False], init=False)
    """True if differences have no effect, forward and backward."""
    apart: float = field(default=0.0, init=False)
    """Difference of the inputs."""
    shown: bool = field(default=False, init=False)
    """True if values differ, and by that the gradients that are made of them here."""

    def __post_init__(self) -> None:
        left = self.match.left
        self.kind = self.inner = _traits(left[0], self.inside) if left else Traits(contracts=True, cancels=True)

    @property
    def updates(self) -> bool:
        """True of an optimizer's step."""
        return bool(self.match.left) and self.match.left[0].site.phase is Phase.UPDATE

    @property
    def calls(self) -> int:
        """Number of the calls that errors add up in."""
        return max(1, self.inside, len(self.match.left), len(self.match.right))

    @property
    def ended(self) -> int:
        """Place of its end among all calls: after what it is made of."""
        return max((call.order for call in self.match.left), default=0)

    @property
    def last_gradient(self) -> int:
        """Place of its last gradient: the backward pass is through with a module after what it is made of, too."""
        return max((gradient.order for call in self.match.left for gradient in call.gradients), default=0)

    @property
    def is_module(self) -> bool:
        """True if the left call is that of a module."""
        return bool(self.match.left) and self.match.left[0].site.kind is Kind.MODULE

    def of_outputs(self) -> Iterator[Evidence]:
        """The gradients of what the call put out."""
        return (item for item in self.evidence if item.pair.part is Part.OUTPUT_GRADIENT)

    def takes(self, returned: Collection[tuple[int, int]]) -> bool:
        """True if the call takes gradients as its inputs, to clip them."""
        return any(item.pair.part is Part.INPUT and key_of(item) in returned for item in self.evidence)


def _traits(call: Call, inside: int) -> Traits:
    if call.site.kind is not Kind.MODULE:
        return traits_named(call.site.name)
    return traits_named(call.site.type) if inside or is_class(call.site.type) else UNKNOWN


def look_inside(cases: Sequence[Case]) -> None:
    """Adds to each module's traits those of the calls in it, for gradients; they have ended before it."""
    around = {call.id: case for case in cases for call in case.match.left}
    for case in cases:
        for parent in {call.parent for call in case.match.left}:
            if parent in around:
                around[parent].inner |= case.inner


def key_of(evidence: Evidence) -> tuple[int, int]:
    """The numbers of the two tensors in their journals."""
    return evidence.pair.left, evidence.pair.right


def any_differs(results: Sequence[TensorResult]) -> bool:
    """True if one of several pairs of tensors is different."""
    return any(item.verdict.outcome is Outcome.DIFFERENT for item in results)


def is_introduced(case: Case, results: Sequence[TensorResult], differing: set[int]) -> bool:
    """True if a difference arose here: nothing that came in differs, nothing inside, but something that went out."""
    calls = case.match.left
    if calls and all(call.site.kind is Kind.SAVE for call in calls):
        return False  # what is saved arose before
    settled = differing.isdisjoint(call.id for call in calls)
    if not settled or any_differs(results):
        differing.update(call.parent for call in calls if call.parent is not None)
    came = [item for item in results if item.pair.part.incoming]
    went = [item for item in results if not item.pair.part.incoming]
    return settled and any_differs(went) and not any_differs(came)


def find_absorbed(cases: Sequence[Case], *, backward: bool) -> None:
    """Marks what differs without effect: a mask of -10000 or -9998 before a softmax, a gradient that a relu sets to zero.

    From the end, because effects add up that way: a difference has none if whatever is made of it agrees, or has none either.
    """
    effective: dict[int, bool] = {}  # left tensors that are taken: does what is made of them differ?
    for _ in range(_PASSES):  # a region of calls may end after calls that take what it made first
        before = dict(effective)
        effective.clear()
        for case in reversed(cases):
            results = case.gradients if backward else case.values
            if not results and not case.match.only_left:
                continue
            went = [item for item in results if not item.pair.part.incoming]
            bad = [item for item in went if item.verdict.outcome is Outcome.DIFFERENT]
            effect = any(effective.get(item.pair.left, before.get(item.pair.left, True)) for item in bad)
            effect = effect or (not backward and (case.shown or _averages(case, went)))
            # Other weights always matter: the next input may show it.
            weights = [item for item in results if item.pair.part in (Part.PARAMETER, Part.BUFFER)]
            known = bool(went) and all(item.verdict.outcome is not Outcome.UNKNOWN for item in went)
            came = [item for item in results if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
            left_over = _left_over(went)
            fades = all(_fades(item, left_over) for item in came)
            case.absorbed[backward] = (
                known and fades and not effect and any_differs(results) and not any_differs(weights)
            )
            for item in results:
                if item.pair.part in (Part.INPUT, Part.OUTPUT_GRADIENT):
                    lasting = effect or not known or not _fades(item, left_over)
                    effective[item.pair.left] = effective.get(item.pair.left, False) or lasting
            for stray in case.match.only_left:
                if stray.part in (Part.INPUT, Part.OUTPUT_GRADIENT):  # what becomes of it here is not known
                    effective[stray.tensor] = True
        if effective == before:
            break


def _averages(case: Case, went: Sequence[TensorResult]) -> bool:
    """A mean or a loss in which a difference is lost: without gradients that is no proof that it has no effect."""
    if case.gradients or not (case.kind.cancels or case.kind.exponential):
        return False
    bad = [item for item in case.values if item.pair.part.incoming and item.verdict.outcome is Outcome.DIFFERENT]
    most = max((elements(item.left) for item in went), default=0)
    return any(elements(item.left) > most for item in bad)


def _left_over(went: Sequence[TensorResult]) -> float:
    """Difference in those results that agree."""
    return max((item.verdict.error or 0.0 for item in went if item.verdict.outcome.good), default=0.0)


def _fades(came: TensorResult, left_over: float) -> bool:
    """True if little is left of a difference in those results that agree: a small one that is handed on has an effect."""
    return left_over <= 0.1 * (came.verdict.error or 0.0)
