"""Coverage of a trace: which of its calls have a meaning that can be computed, and what the table knows.

    coverage(calls, "torch", spec).share      0.98 of the calls that compute
    listing()                                 every operation, and its names in each framework

Calls that only move values, ask a question or draw random numbers are not counted; neither are containers and other modules whose
parts are recorded themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..model.records import Call, Role
from ..model.sites import Kind
from . import mindspore_names, module_names, torch_names
from .catalog import OPERATIONS
from .meanings import SpecOf
from .steps import STEPS
from .telling import meaning_of
from .traits import is_question, traits_of


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many calls compute, and how many of these are told; backward: those through which gradients were recorded."""

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


def listing() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """`(operation, names in PyTorch, names in MindSpore)` of every operation that can be computed."""
    left: dict[str, set[str]] = {}
    right: dict[str, set[str]] = {}
    for table, found, prefix in (
        (torch_names.ROWS, left, ""),
        (module_names.TORCH, left, "nn."),
        (mindspore_names.ROWS, right, ""),
        (module_names.MINDSPORE, right, "nn."),
    ):
        for name, row in table.items():
            found.setdefault(row.operation, set()).add(prefix + name)
    for alias, name in torch_names.ALIASES.items():
        left.setdefault(name, set()).add(alias)
    for alias, name in mindspore_names.ALIASES.items():
        right.setdefault(name, set()).add(alias)
    for operation in sorted({*OPERATIONS, *STEPS}):
        own = {operation} if operation in OPERATIONS else set()
        same = {operation} & mindspore_names.SAME
        yield (
            operation,
            tuple(sorted(left.get(operation, set()) | own)),
            tuple(sorted(right.get(operation, set()) | same)),
        )
