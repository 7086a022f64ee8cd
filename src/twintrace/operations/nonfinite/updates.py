"""Causes of an optimizer's step that makes finite weights, gradients and state not finite."""

from __future__ import annotations

from collections.abc import Collection

from ...model.nonfinite import Source
from ...model.records import Call
from ...model.sites import Kind, Phase
from ...model.values import leaves
from ..meanings import Meaning
from ..optimizers import is_fused
from .terms import Cause, vanishes


def cause_of_update(call: Call, meaning: Meaning | None, dtypes: Collection[str]) -> Cause | None:
    """Cause of an optimizer's step that is not finite, of tensors of `dtypes`; None for other calls and kernels inside a step."""
    if call.site.phase is not Phase.UPDATE or (call.site.kind is Kind.OP and not is_fused(call)):
        return None
    eps = _epsilon(call, meaning)
    narrow = [dtype for dtype in sorted(dtypes) if isinstance(eps, float) and vanishes(eps, dtype)]
    if narrow and isinstance(eps, float):
        rounded = "eps is 0" if eps == 0 else f"eps={eps:g} is 0 in {narrow[0]}"
        why = f"division by zero in the optimizer: {rounded}, and a second moment is 0"
        return Cause(Source.DIVISION, why, "give eps a value that the type can hold (1e-4 in f16), or keep f32 weights")
    why = "weights, gradients and state are finite, and the step makes them not so"
    return Cause(Source.UPDATE, why, "look at the learning rate and eps")


def _epsilon(call: Call, meaning: Meaning | None) -> object:
    values: dict[str, object] = {} if meaning is None else dict(meaning.arguments)
    for value in (*call.args, *call.kwargs.items()):
        for name, leaf in leaves(value) if not isinstance(value, tuple) else leaves(value[1], value[0]):
            if name.rpartition(".")[2] == "eps" and isinstance(leaf, float):
                values.setdefault("eps", leaf)
    if call.config is not None:
        values |= {name: value for name, value in call.config.values.items() if name == "eps"}
    return values.get("eps")
