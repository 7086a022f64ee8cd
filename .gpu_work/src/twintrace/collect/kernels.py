"""Kernels that a framework has dumped to files while a compiled graph ran: each as a call that is about to be written.

    for kernel in kernels_in(folder, observe):
        kernel.site                     forward/op:Default_l1-Dense_MatMul-op0#0 (MatMul), in module l1
        kernel.inputs()                 '[{"$t":12},{"$t":13}]'; its tensors are observed now, and not before
        kernel.output()                 '{"$t":14}'
        kernel.settings                 '{"graph":0,"iteration":3}'

The reading itself is the store's (a directory of kernel files opens as a trace); here its calls become lines of another journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.errors import TraceError
from ..model.sites import Site
from ..model.tensors import Tensor
from ..model.values import Nest, TensorRef, Token, Value
from ..store.lines import encode, text_float, text_nest, text_token
from ..store.registry import open_trace
from ..store.trace import Journal

Observe = Callable[[Tensor, Any], int]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a kernel."""

    site: Site
    inputs: Callable[[], str]
    output: Callable[[], str]
    settings: str


def kernels_in(folder: Path, observe: Observe) -> Iterator[Kernel]:
    """The kernels whose files are in a folder, in the order in which they ran; none if there are no files."""
    try:
        trace = open_trace(folder, tolerant=True)
    except TraceError:  # nothing was dumped: the graph has no kernel of its own
        return
    for step, rank in trace.places:
        journal = trace.journal(step, rank)
        for call in journal.calls():
            values = dict(call.config.values) if call.config is not None else {}
            settings = {"iteration": step, **values}
            yield Kernel(
                call.site,
                lambda call=call, journal=journal: _list(call.args, journal, observe),  # type: ignore[misc]
                lambda call=call, journal=journal: _text(call.output, journal, observe),  # type: ignore[misc]
                "{"
                + ",".join(f"{encode(name)}:{_text(value, journal, observe)}" for name, value in settings.items())
                + "}",
            )


def _list(values: tuple[Value, ...], journal: Journal, observe: Observe) -> str:
    return "[" + ",".join(_text(value, journal, observe) for value in values) + "]"


def _text(value: Value, journal: Journal, observe: Observe) -> str:
    if isinstance(value, TensorRef):
        tensor = journal.tensor(value.id)
        return f'{{"$t":{observe(tensor, None if tensor.missing else journal.array(tensor))}}}'
    if isinstance(value, Nest):
        return text_nest(value.kind, None, [_text(item, journal, observe) for _, item in value.items])
    if isinstance(value, Token):
        return text_token(value.kind, value.text)
    return text_float(value) if isinstance(value, float) else encode(value)
