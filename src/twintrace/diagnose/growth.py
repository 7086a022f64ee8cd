"""Growth that led to an overflow: values that grew over the calls before, gradients and values that grew over the steps before.

values grow on the way: 3.1 (linear), 940 (matmul), 6.4e+04 (mul)
the norm of all gradients grows over the steps: 1.4 (step 30), 22 (31), 610 (32), 4.1e+04 (33)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..model.records import Call
from ..model.sites import Phase
from ..model.tensors import Tensor
from ..store.trace import Journal, Trace
from .flow import Flow

STEPS = 6
"""Steps before that are looked at: enough to see a trend, and few enough to read."""
_CALLS = 5
"""Calls before that are told."""
_GROWTH = 8.0
"""Factor from the first to the last that is told: a norm that wanders doubles and halves, and does not double three times."""


def growth_over_calls(flow: Flow, call: Call) -> str:
    """The largest operand's own history, call by call; empty where it did not grow."""
    sizes: list[tuple[float, str]] = []
    seen: set[int] = set()
    here: Call | None = call
    while here is not None and here.id not in seen and len(sizes) < _CALLS:
        seen.add(here.id)
        operands = [
            (size, number) for number in flow.taken(here) if (size := flow.range_of(number, "").size) is not None
        ]
        if not operands:
            break
        size, number = max(operands)
        here = flow.maker.get(number)
        name = "what came in" if here is None else here.site.name.rpartition(".")[2] or "the model"
        sizes.append((size, name))
    sizes.reverse()
    if len(sizes) < 2 or sizes[-1][0] < _GROWTH * max(sizes[0][0], 1e-30):
        return ""
    return f"values grow on the way: {', '.join(f'{size:.3g} ({name})' for size, name in sizes)}"


def growth_over_steps(trace: Trace, step: int, rank: int, call: Call | None) -> list[str]:
    """Sentences about norms that grew over the steps before this one."""
    places = [place for place in trace.places if place[1] == rank and place[0] <= step]
    before = [trace.journal(*place) for place in sorted(places)[-STEPS - 1 :]]
    if len(before) < 3:
        return []
    gradients: list[tuple[int, float | None]] = []
    weights: list[tuple[int, float | None]] = []
    inputs: list[tuple[int, float | None]] = []
    for journal in before:
        held = {number for other in journal.calls() for number in other.parameters.values()}
        sides = [gradient.tensor for gradient in journal.parameter_gradients()], held
        for series, numbers in zip((gradients, weights), sides, strict=True):
            series.append((journal.header.step, norm_of([journal.tensor(number) for number in numbers])))
        if call is not None:
            inputs.append((journal.header.step, _input_size(journal, trace.framework, call)))
    told = _told("the norm of all gradients", gradients), _told("the norm of all weights", weights)
    return [text for text in (*told, _told("the largest value that comes into this call", inputs)) if text]


def _told(what: str, series: Sequence[tuple[int, float | None]]) -> str:
    known = [(step, value) for step, value in series if value is not None and math.isfinite(value) and value > 0]
    if len(known) < 3 or known[-1][1] < _GROWTH * known[0][1]:
        return ""
    first, *rest = known
    told = [f"{first[1]:.3g} (step {first[0]})", *(f"{value:.3g} ({step})" for step, value in rest)]
    return f"{what} grows over the steps: {', '.join(told)}"


def norm_of(tensors: Sequence[Tensor]) -> float | None:
    """Norm of all together; None where one of them is not finite, as its own norm leaves those elements out."""
    known = [tensor.statistics for tensor in tensors if tensor.statistics is not None]
    if not known or any(item.nonfinite or item.norm is None for item in known):
        return None
    return math.hypot(*(item.norm for item in known if item.norm is not None))


def _input_size(journal: Journal, framework: str, call: Call) -> float | None:
    if call.site.phase is Phase.BACKWARD:
        return None
    flow = Flow(journal, framework)
    same = next((other for other in flow.calls if other.site == call.site), None)
    sizes = [] if same is None else [flow.range_of(number, "").size for number in flow.taken(same)]
    return max((size for size in sizes if size is not None), default=None)
