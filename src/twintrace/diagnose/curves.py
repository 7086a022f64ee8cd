"""Curves of one run from its statistics: loss, norms of gradients and weights, the largest result, dead units.

    loss         value that the backward pass begins at
    gradients    norm of the gradients of all parameters together
    weights      norm of all weights together
    results      largest magnitude among the results of modules (of all calls, where no module was recorded)
    dead         share of zeros in the results of relu and its like

Norms of several tensors are put together as one: the root of the sum of their squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..model.curves import Curve, Curves, Layer
from ..model.records import Call, Role
from ..model.sites import Kind, Phase
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves
from ..store.trace import Trace
from .flow import Flow
from .growth import norm_of

_RECTIFIERS = frozenset(("relu", "relu6", "threshold", "hardtanh", "ReLU", "ReLU6"))
_MEANINGS = {
    "loss": "value that the backward pass begins at",
    "gradients": "norm of the gradients of all parameters",
    "weights": "norm of all weights",
    "results": "largest magnitude among the results of modules",
    "dead": "share of zeros in the results of relu",
}


def curves_of(trace: Trace, steps: Sequence[int], rank: int) -> Curves:
    """Curves over these steps of one rank, and the layers of the last."""
    rows: list[tuple[int, dict[str, float | None]]] = []
    layers: tuple[Layer, ...] = ()
    for step in steps:
        flow = Flow(trace.journal(step, rank), trace.framework)
        rows.append((step, _numbers(flow)))
        if step == steps[-1]:
            layers = tuple(_layers(flow))
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
    results = [flow.tensor(number) for call in modules or forward for number in flow.made(call)]
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
        "results": max((size for tensor in results if (size := _size(tensor)) is not None), default=None),
        "dead": zeros / elements if elements else None,
    }


def _loss(flow: Flow) -> float | None:
    """The single value whose gradient comes first: the backward pass begins there."""
    starts = [
        (item.order, call, item.slot)
        for call in flow.calls
        for item in call.gradients
        if item.role is Role.OUTPUT and _count(flow.tensor(item.tensor)) == 1
    ]
    for _, call, slot in sorted(starts, key=lambda start: start[0])[:1]:
        for name, leaf in leaves(call.output):
            if isinstance(leaf, TensorRef) and name == slot:
                known = flow.tensor(leaf.id).statistics
                return None if known is None or known.min is None else float(known.min)
    return None


def _layers(flow: Flow) -> list[Layer]:
    modules = sorted((call for call in flow.calls if call.site.kind is Kind.MODULE), key=lambda call: call.id)
    seen: dict[str, Layer] = {}
    for call in modules:
        inner = any(child.site.kind is Kind.MODULE for child in flow.children[call.id])
        if call.site.phase is Phase.FORWARD and (call.parameters or not inner):
            seen.setdefault(call.site.name, _layer(flow, call))
    return list(seen.values())


def _layer(flow: Flow, call: Call) -> Layer:
    numbers = [leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)][:1]
    result = flow.tensor(numbers[0]) if numbers else None
    gradients = [flow.tensor(item.tensor) for item in flow.gradients(call, Role.OUTPUT)][:1]
    known = None if result is None or result.is_rough else result.statistics
    zeros = None if known is None or result is None or not _count(result) else known.zero / _count(result)
    return Layer(
        call.site.name or "(model)", call.site.type, _rms(result), _rms(gradients[0]) if gradients else None, zeros
    )


def _count(tensor: Tensor) -> int:
    return math.prod(tensor.spec.shape)


def _rms(tensor: Tensor | None) -> float | None:
    known = None if tensor is None else tensor.statistics
    if tensor is None or known is None or known.norm is None or not _count(tensor):
        return None
    return known.norm / math.sqrt(_count(tensor))


def _size(tensor: Tensor) -> float | None:
    known = tensor.statistics
    ends = [] if known is None else [abs(float(end)) for end in (known.min, known.max) if end is not None]
    return max(ends, default=None)
