"""Meaning of any recorded call: by its kind, its name and its framework."""

from __future__ import annotations

from ..model.records import Call
from ..model.sites import Kind, Phase
from .meanings import Meaning, SpecOf
from .mindspore_reading import read_call as read_mindspore_call
from .module_reading import read_module
from .optimizers import is_step, read_step
from .put_together import PUT_TOGETHER, read_put_together
from .rows import NotTold
from .torch_reading import read_call as read_torch_call

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
    if call.site.name in PUT_TOGETHER:
        return read_put_together(call, spec)
    if framework == "mindspore" or call.site.name.startswith("mindspore."):
        return read_mindspore_call(call, spec)
    return read_torch_call(call, spec)
