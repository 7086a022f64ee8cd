"""Coverage of a trace: which of its calls have a meaning that can be computed.

    coverage(calls, "torch", spec).share      0.98 of the calls that compute

Calls that only move values, ask a question or draw random numbers are not counted; neither are containers and other modules whose
parts are recorded themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..model.records import Call, Role
from ..model.sites import Kind
from .catalog import OPERATIONS
from .meanings import SpecOf
from .steps import STEPS
from .telling import meaning_of
from .traits import is_question, traits_of


@dataclass(frozen=True, slots=True)
class Coverage:
    """Number of calls that compute, and of those that are told; backward: those through which gradients were recorded."""

    computing: int
    told: int
    backward: int
    backward_told: int
    untold: Counter[str] = field(default_factory=Counter)
    """Names of the calls that compute and have no meaning, with their number."""

    @property
    def share(self) -> float:
        """Share of the computing calls that are told; 1 where nothing computes."""
        return self.told / self.computing if self.computing else 1.0

    @property
    def backward_share(self) -> float:
        """The same of those that have gradients."""
        return self.backward_told / self.backward if self.backward else 1.0


def coverage(calls: Iterable[Call], framework: str, spec: SpecOf) -> Coverage:
    """Coverage of recorded calls."""
    counts = Counter[str]()
    untold = Counter[str]()
    calls = list(calls)
    parents = {call.parent for call in calls}
    for call in calls:
        if (
            call.raised is not None
            or call.site.kind is Kind.SAVE
            or (call.site.kind is Kind.MODULE and call.id in parents)
        ):
            continue
        meaning = meaning_of(call, framework, spec)
        if meaning is None:
            if is_question(call):
                continue
            untold[call.site.type or call.site.name] += 1
        else:
            traits = traits_of(meaning)
            if traits.moves or traits.random or traits.uninitialised:
                continue
            counts["told"] += is_computable(meaning.operation)
        counts["computing"] += 1
        if any(gradient.role is Role.OUTPUT for gradient in call.gradients):
            counts["backward"] += 1
            counts["backward_told"] += meaning is not None and is_computable(meaning.operation)
    return Coverage(counts["computing"], counts["told"], counts["backward"], counts["backward_told"], untold)


def is_computable(operation: str) -> bool:
    """Has it a kernel, or is it a function of PyTorch's that is called as it stands?"""
    return operation in OPERATIONS or operation in STEPS or operation.startswith("torch.")
