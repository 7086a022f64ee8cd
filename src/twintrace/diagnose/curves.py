"""Curves of one run from its statistics: loss, norms of gradients and weights, the largest result, dead units.

    loss         value that the backward pass begins at
    gradients    norm of the gradients of all parameters together
    weights      norm of all weights together
    results      largest magnitude among the results of modules (of all calls, where no module was recorded)
    dead         share of zeros in the results of relu and its like
    saturated    1 less the mean slope of tanh and sigmoid over their largest: 1 is flat, and sends nothing back
    updates      norm of the last update of all weights, over their norm; where values were kept

Norms of several tensors are put together as one: the root of the sum of their squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.curves import Curve, Curves, Layer
from ..model.records import Call, Role
from ..model.sites import Kind, Phase
from ..model.tensors import Tensor
from ..store.arrays import as_float
from ..store.trace import Journal, Trace
from .flow import Flow
from .growth import norm_of

_RECTIFIERS = frozenset(("relu", "relu6", "threshold", "hardtanh", "ReLU", "ReLU6"))
_MEANINGS = {
    "loss": "value that the backward pass begins at",
    "gradients": "norm of the gradients of all parameters",
    "weights": "norm of all weights",
    "results": "largest magnitude among the results of modules",
    "dead": "share of zeros in the results of relu",
    "saturated": "of tanh and sigmoid: 0 is steep, 1 is flat",
    "updates": "norm of the last update of all weights, over that of the weights",
}
_SLOPES: Mapping[str, tuple[float, float]] = {"tanh": (1.0, 0.0), "sigmoid": (0.0, 4.0)}
"""Mean slope from the mean and the mean square of the results y, over the largest slope: tanh has 1 - y², sigmoid 4·(y - y²).

As (constant, factor of the mean); the factor of the mean square is -1 and -4.
"""


def curves_of(trace: Trace, steps: Sequence[int], rank: int) -> Curves:
    """Curves over these steps of one rank, and the layers of the last."""
    rows: list[tuple[int, dict[str, float | None]]] = []
    layers: tuple[Layer, ...] = ()
    weights: dict[str, NDArray[Any]] = {}
    for place, step in enumerate(steps):
        journal = trace.journal(step, rank)
        flow = Flow(journal, trace.framework)
        before, weights = weights, _kept_weights(journal, flow)
        follows = place > 0 and steps[place - 1] == step - 1
        updates = _updates(before, weights) if follows else {}
        rows.append((step, _numbers(flow) | {"updates": _together(updates)}))
        if step == steps[-1]:
            layers = tuple(_layers(flow, updates))
        trace.forget()
    curves = [
        Curve(name, meaning, tuple((step, numbers.get(name)) for step, numbers in rows))
        for name, meaning in _MEANINGS.items()
    ]
    told = tuple(curve for curve in curves if curve.known)
    return Curves(trace.path, rank, told, layers, steps[-1] if steps else 0)


def _numbers(flow: Flow) -> dict[str, float | None]:
    forward = [call for call in flow.calls if call.site.phase is Phase.FORWARD and call.site.kind is not Kind.SAVE]
    # Functions put fill values into masks, at the end of their type's range; modules do not hand those on.
    modules = [call for call in forward if call.site.kind is Kind.MODULE]
    sizes = (flow.range_of(number, "").size for call in modules or forward for number in flow.made(call))
    weights = {number for call in flow.calls for number in call.parameters.values()}
    rectified = [
        tensor
        for call in forward
        if flow.operation(call) in _RECTIFIERS
        for tensor in map(flow.tensor, flow.made(call))
        if tensor.statistics is not None and not tensor.is_rough
    ]
    elements = sum(_count(tensor) for tensor in rectified)
    zeros = sum(tensor.statistics.zero for tensor in rectified if tensor.statistics is not None)
    return {
        "loss": _loss(flow),
        "gradients": norm_of([flow.tensor(item.tensor) for item in flow.parameter_gradients]),
        "weights": norm_of([flow.tensor(number) for number in weights]),
        "results": max((size for size in sizes if size is not None), default=None),
        "dead": zeros / elements if elements else None,
        "saturated": _saturated(flow, forward),
    }


def _saturated(flow: Flow, calls: Sequence[Call]) -> float | None:
    """1 less the mean relative slope of all tanh and sigmoid, from the means and norms of their results."""
    total, elements = 0.0, 0
    for call in calls:
        slope = _SLOPES.get(flow.operation(call).lower())
        for tensor in map(flow.tensor, flow.made(call)) if slope else ():
            known, count = tensor.statistics, _count(tensor)
            if slope and known and known.mean is not None and known.norm is not None and not tensor.is_rough:
                constant, factor = slope
                square = known.norm**2 / count if count else 0.0
                total += count * (constant + factor * known.mean - (factor or 1.0) * square)
                elements += count
    return min(max(1 - total / elements, 0.0), 1.0) if elements else None


def _kept_weights(journal: Journal, flow: Flow) -> dict[str, NDArray[Any]]:
    """Weights by module and name, where their values were kept."""
    weights: dict[str, NDArray[Any]] = {}
    for call in flow.calls:
        for name, number in call.parameters.items():
            tensor, full = flow.tensor(number), f"{call.site.name}.{name}".lstrip(".")
            if tensor.payload is not None and full not in weights:
                weights[full] = as_float(journal.array(tensor), tensor.spec.dtype)
    return weights


def _updates(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> dict[str, tuple[float, float]]:
    """Of each weight: norm of its change, and of itself before."""
    return {
        name: (float(np.linalg.norm(after[name] - array)), float(np.linalg.norm(array)))
        for name, array in before.items()
        if name in after and after[name].shape == array.shape
    }


def _together(updates: Mapping[str, tuple[float, float]]) -> float | None:
    """One ratio of several changes, if there are any."""
    sizes = math.hypot(*(size for _, size in updates.values()))
    ratio = math.hypot(*(change for change, _ in updates.values())) / sizes if sizes else math.nan
    return ratio if math.isfinite(ratio) else None


def _loss(flow: Flow) -> float | None:
    """The single value whose gradient comes first: the backward pass begins there."""
    starts = [
        (item.order, call, item.slot)
        for call in flow.calls
        for item in call.gradients
        if item.role is Role.OUTPUT and _count(flow.tensor(item.tensor)) == 1
    ]
    for _, call, slot in sorted(starts, key=lambda start: start[0])[:1]:
        if slot in call.returned:
            return flow.range_of(call.returned[slot], "").lo
    return None


def _layers(flow: Flow, updates: Mapping[str, tuple[float, float]]) -> list[Layer]:
    modules = sorted((call for call in flow.calls if call.site.kind is Kind.MODULE), key=lambda call: call.id)
    seen: dict[str, Layer] = {}
    for call in modules:
        inner = any(child.site.kind is Kind.MODULE for child in flow.children[call.id])
        if call.site.phase is Phase.FORWARD and (call.parameters or not inner):
            names = [f"{call.site.name}.{name}".lstrip(".") for name in call.parameters]
            own = {name: updates[name] for name in names if name in updates}
            seen.setdefault(call.site.name, _layer(flow, call, _together(own)))
    return list(seen.values())


def _layer(flow: Flow, call: Call, update: float | None) -> Layer:
    result = next(map(flow.tensor, call.returned.values()), None)
    gradients = [flow.tensor(item.tensor) for item in flow.gradients(call, Role.OUTPUT)][:1]
    known = None if result is None or result.is_rough else result.statistics
    zeros = None if known is None or result is None or not _count(result) else known.zero / _count(result)
    sizes = _rms(result), _rms(gradients[0]) if gradients else None
    return Layer(call.site.name or "(model)", call.site.type, *sizes, zeros, update)


def _count(tensor: Tensor) -> int:
    return math.prod(tensor.spec.shape)


def _rms(tensor: Tensor | None) -> float | None:
    known = None if tensor is None else tensor.statistics
    if tensor is None or known is None or known.norm is None or not _count(tensor):
        return None
    return known.norm / math.sqrt(_count(tensor))
