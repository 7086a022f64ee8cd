"""Meanings of what is no call of a framework: tensors of several ranks joined to one, and one cut into theirs.

twintrace.joined([x0, x1], steps=((2, "sum", 0, ()),))            x0 + x1
twintrace.joined([x0, x1], steps=((2, "cat", 0, ()),))            x0 above x1
twintrace.cut(x, pieces=(((0, ((0, 8),)),), ((0, ((8, 8),)),)))    rows 0 to 7, rows 8 to 15

`layouts/parts.py` writes them; `kernels.py` computes them.
"""

from __future__ import annotations

from ..model.records import Call
from .meanings import Meaning, SpecOf
from .reading import Recorded

PUT_TOGETHER = frozenset(("twintrace.cut", "twintrace.joined"))


def read_put_together(call: Call, spec: SpecOf) -> Meaning:
    """Meaning of a call that `layouts` has written."""
    recorded = Recorded(call, spec, call.site.name)
    operation = call.site.name.rpartition(".")[2]
    given = {"input" if operation == "cut" else "tensors": recorded.args[0]}
    return recorded.meaning(operation, {**given, **recorded.kwargs})
