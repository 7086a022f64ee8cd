"""Addresses of calls, stable between two runs of the same program.

    forward/module:encoder.0.norm1#0          the first call of that module in its step
    forward/api:torch.nn.functional.linear#5  the sixth call of that function in its step
    recompute/api:torch.relu#0                the same inside a checkpointed block's second forward
    update/api:torch.Tensor.add_#3            inside optimizer.step()
    backward/op:aten.mm.default#12            a kernel of the backward pass

Calls are counted per step, phase, kind and name, so a recomputed block or an optimizer that works differently does not
shift the numbers of the forward calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from .words import Word


class Kind(Word):
    """Kind of a call."""

    MODULE = "module"
    API = "api"
    OP = "op"
    SAVE = "save"


class Phase(Word):
    """When it was called. `recompute` is a forward inside a backward; `update` is the optimizer's step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Site:
    """The address of one call within its step and rank.

    `name` is the function's full name, the module's path (the class is in `type`), or the name given to `save`.
    `path` is the module around it: where in the network the call was made.
    """

    kind: Kind
    name: str
    call: int
    phase: Phase = Phase.FORWARD
    path: str = ""
    type: str = ""

    def __str__(self) -> str:
        return f"{self.phase}/{self.kind}:{self.name}#{self.call}"
