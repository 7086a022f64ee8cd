"""The name of a record, taken apart: what it is of, which call, and which direction.

    Functional.conv2d.0.forward             Functional.conv2d       call 0    forward
    Primitive.matmul.MatMul.3.backward      Primitive.matmul.MatMul call 3    backward
    Module.fc1.Linear.forward.0             Module, fc1, Linear     call 0    forward
    Cell.fc1.Dense.parameters_grad.0        Cell, fc1, Dense        call 0    parameters_grad     (older: without number)

The number stands before the direction for an API, and behind it for a module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["RecordName", "parse_record"]

MODULES = ("Module", "Cell")
_MODULE = re.compile(r"(Module|Cell)\.(.+)\.(forward|backward)\.(\d+)")
_GRADIENTS = re.compile(r"(Module|Cell)\.(.+)\.(parameters_grad)(?:\.(\d+))?")
_API = re.compile(r"([^.]+)\.(.+)\.(\d+)\.(forward|backward)")


@dataclass(frozen=True, slots=True)
class RecordName:
    """`owner` is `fc1.Linear` of a module, `conv2d` of an API; `call` is None where the name has no number."""

    prefix: str
    owner: str
    direction: str
    call: int | None

    @property
    def is_module(self) -> bool:
        return self.prefix in MODULES

    @property
    def path(self) -> str:
        """Of a module: where it stands in the model."""
        return self.owner.rpartition(".")[0]

    @property
    def class_name(self) -> str:
        """Of a module its class; of an API its last part."""
        return self.owner.rpartition(".")[2]

    @property
    def api(self) -> str:
        """`Functional.conv2d`: what mapping files call it."""
        return f"{self.prefix}.{self.owner}"

    def __str__(self) -> str:
        if not self.is_module:
            return f"{self.api}.{self.call}.{self.direction}"
        return f"{self.api}.{self.direction}" + ("" if self.call is None else f".{self.call}")


def parse_record(name: str) -> RecordName | None:
    """The parts of a record's name; None if it has none of these forms."""
    for pattern in (_MODULE, _GRADIENTS):
        match = pattern.fullmatch(name)
        if match:
            return RecordName(match[1], match[2], match[3], None if match[4] is None else int(match[4]))
    match = _API.fullmatch(name)
    return RecordName(match[1], match[2], match[4], int(match[3])) if match else None
