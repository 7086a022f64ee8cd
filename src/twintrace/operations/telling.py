"""Meaning of any recorded call: by its kind, its name and its framework."""

from __future__ import annotations

from ..model.records import Call
from ..model.sites import Kind, Phase
from .meanings import Meaning, SpecOf
from .mindspore_reading import read_call as read_mindspore_call
from .module_reading import read_module
from .optimizers import is_fused, is_step, read_fused, read_step
from .reading import Recorded
from .rows import NotTold
from .torch_reading import read_call as read_torch_call

_PUT_TOGETHER = frozenset(("twintrace.cut", "twintrace.joined"))
"""Calls of no framework, which `layouts/parts.py` writes: tensors of several ranks joined to one, and one cut into theirs.

twintrace.joined([x0, x1], steps=((2, "sum", 0, ()),))            x0 + x1
twintrace.joined([x0, x1], steps=((2, "cat", 0, ()),))            x0 above x1
twintrace.cut(x, pieces=(((0, ((0, 8),)),), ((0, ((8, 8),)),)))    rows 0 to 7, rows 8 to 15
"""
_UNREADABLE = (NotTold, TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""Exceptions of reading where a call was made in a way that its row does not know; no meaning is told then."""


def meaning_of(call: Call, framework: str, spec: SpecOf) -> Meaning | None:
    """Meaning of a recorded call, or None where it cannot be told.

    Args:
        call: the call, as recorded.
        framework: `torch`, `msadapter` (PyTorch's names) or `mindspore`.
        spec: shape and element type of a tensor by its number; padding and axes depend on them.
    """
    if call.raised is not None or call.site.kind is Kind.SAVE:
        return None
    try:
        return _read(call, framework, spec)
    except _UNREADABLE:
        return None


def _read(call: Call, framework: str, spec: SpecOf) -> Meaning | None:
    if call.site.kind is Kind.MODULE:
        return read_module(call, framework, spec)
    if call.site.phase is Phase.UPDATE and is_step(call):
        return read_step(call)
    if is_fused(call):
        return read_fused(call)
    if call.site.name in _PUT_TOGETHER:
        return _read_put_together(call, spec)
    if framework == "mindspore" or call.site.name.startswith("mindspore."):
        return read_mindspore_call(call, spec)
    return read_torch_call(call, spec)


def _read_put_together(call: Call, spec: SpecOf) -> Meaning:
    recorded = Recorded(call, spec, call.site.name)
    operation = call.site.name.rpartition(".")[2]
    given = {"input" if operation == "cut" else "tensors": recorded.args[0]}
    return recorded.meaning(operation, {**given, **recorded.kwargs})
