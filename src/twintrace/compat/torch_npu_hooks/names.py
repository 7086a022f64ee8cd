"""The names in the first column of a dump.

    Functional_linear_forward_input.0        torch.nn.functional.linear, first argument
    Tensor_sum_forward_output                torch.Tensor.sum, its one result
    Module_Linear_backward_output.0          the gradient of a Linear's result
    Functional_conv2d_3_forward_input.1      ptdbg_ascend: the fourth call of that function
    17_Torch_relu_forward_input.0            late torch_npu.hooks: every tensor has a number

No module path, and in the first generation no number of the call: every Linear of a net has the same name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...model.sites import Kind

# family -> what the functions of that family are called in a trace. `Function` is ours, for those outside torch.
_FAMILIES = {
    "Functional": "torch.nn.functional.",
    "Tensor": "torch.Tensor.",
    "Torch": "torch.",
    "Aten": "torch.ops.aten.",
    "NPU": "torch_npu.",
    "VF": "torch._VF.",
    "Distributed": "torch.distributed.",
    "Function": "",
}
_LINE = re.compile(
    r"(?:(?P<serial>\d+)_)?(?P<family>Module|Function|" + "|".join(_FAMILIES) + r")_(?P<operation>.+)"
    r"_(?P<direction>forward|backward)_(?P<part>input|output)(?:\.(?P<slot>.+))?",
    re.DOTALL,
)
MAX_DEPTH = 64  # of an argument
_NUMBERED = re.compile(r"(?P<operation>.+)_(?P<call>\d{1,15})", re.DOTALL)


class LineName(NamedTuple):
    """A line's name, taken apart. `call` is there where the tool counts calls (ptdbg_ascend)."""

    family: str
    operation: str
    call: int | None
    backward: bool
    output: bool
    slot: str

    @property
    def kind(self) -> Kind:
        return Kind.MODULE if self.family == "Module" else Kind.API

    @property
    def site_name(self) -> str:
        """Name in a trace: `torch.nn.functional.linear`; of a module only the class is known."""
        return self.operation if self.kind is Kind.MODULE else _FAMILIES[self.family] + self.operation

    def __str__(self) -> str:
        return line_name(f"{self.family}_{self.operation}", self.backward, self.output, self.slot)


def parse(text: str, *, numbered: bool = False) -> LineName | None:
    """The parts of a line's name, or None if it is none. `numbered`: the operation's name ends with the number of its call."""
    match = _LINE.fullmatch(text)
    if match is None or (match["slot"] or "").count(".") > MAX_DEPTH:
        return None
    operation, call = match["operation"], None
    if numbered and (counted := _NUMBERED.fullmatch(operation)):
        operation, call = counted["operation"], int(counted["call"])
    return LineName(
        match["family"],
        operation,
        call,
        match["direction"] == "backward",
        match["part"] == "output",
        match["slot"] or "",
    )


def operation_name(kind: str, name: str, type: str) -> str:
    """`Functional_linear` for a call as a trace names it."""
    if kind == Kind.MODULE:
        return f"Module_{type or 'Module'}"
    for family in ("Functional", "Tensor", "Aten", "VF", "Distributed", "Torch"):  # the longer beginnings first
        if name.startswith(_FAMILIES[family]):
            return f"{family}_{name.removeprefix(_FAMILIES[family])}"
    return f"Function_{name}"


def line_name(operation: str, backward: bool, output: bool, slot: str) -> str:
    """`Functional_linear_forward_input.0`."""
    direction, part = "backward" if backward else "forward", "output" if output else "input"
    return f"{operation}_{direction}_{part}{'.' if slot else ''}{slot}"
