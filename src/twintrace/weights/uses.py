"""The order in which a run used its layers, out of a trace: it settles which of two equal layers is which.

    Uses(open_trace(left), open_trace(right)).in_order([norm1, norm2], [ln_a, ln_b])     norm1 with ln_a, norm2 with ln_b

Only an order that the data force counts: each layer's result must go into the next one. Query and key are computed side by side,
in an order that somebody chose; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.sites import Phase
from ..model.values import tensor_slots
from ..store.trace import Trace
from .places import Group


class Uses:
    """Order of the layers of two nets, as their runs show it."""

    def __init__(self, left: Trace, right: Trace) -> None:
        self._sides = (_Flow(left), _Flow(right))

    def in_order(self, left: Sequence[Group], right: Sequence[Group]) -> list[tuple[Group, Group]]:
        """The layers of both sides in the order in which the data pass through them; nothing where that is no order."""
        if len(left) != len(right):
            return []
        orders = [flow.order(groups) for flow, groups in zip(self._sides, (left, right), strict=True)]
        return list(zip(*orders, strict=True)) if all(orders) else []


class _Flow:
    def __init__(self, trace: Trace) -> None:
        journal = next(iter(trace.journals()), None)
        self._calls = [call for call in journal.calls() if call.site.phase is Phase.FORWARD] if journal else []
        """In the order in which they ended: inner calls come before outer ones."""
        self._names: dict[int, set[str]] = {}
        for call in self._calls:
            for own, number in call.parameters.items():
                self._names.setdefault(number, set()).add(f"{call.site.name}.{own}")

    def order(self, groups: Sequence[Group]) -> list[Group]:
        """The layers, each one's result going into the next; empty if that is not so."""
        numbers = {item.name: number for number, group in enumerate(groups) for item in group.items.values()}
        marks = {
            tensor: sum({1 << numbers[name] for name in names if name in numbers})
            for tensor, names in self._names.items()
        }
        passed: dict[int, int] = {}  # tensor -> the layers that it went through, a bit for each
        inside: dict[int, int] = {}  # call -> the layers that were used in it
        before: dict[int, int] = {}  # layer -> the layers that what it is applied to went through
        for call in self._calls:
            tensors = [number for _, number in tensor_slots(call.args, call.kwargs)]
            arrived = 0
            for tensor in tensors:
                arrived |= passed.get(tensor, 0)
            met = arrived | inside.pop(call.id, 0)
            for tensor in (*tensors, *call.parameters.values()):
                mark = marks.get(tensor, 0)
                if mark:
                    before[mark] = (before.get(mark, 0) | arrived) & ~mark
                met |= mark
            if call.parent is not None:
                inside[call.parent] = inside.get(call.parent, 0) | met
            for tensor in (*call.returned.values(), *call.after.values()):
                passed[tensor] = passed.get(tensor, 0) | met
        counts = {number: before[1 << number].bit_count() for number in range(len(groups)) if 1 << number in before}
        ranked = sorted(counts, key=lambda number: counts[number])
        return [groups[number] for number in ranked] if sorted(counts.values()) == list(range(len(groups))) else []
