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

from ...model.sites import Kind
from ..lines import LineName, family_of

_FAMILIES = ("Functional", "Tensor", "Aten", "VF", "Distributed", "Torch")  # of the functions that are recorded
_LINE = re.compile(
    r"(?:(?P<serial>\d+)_)?(?P<family>Module|Function|NPU|" + "|".join(_FAMILIES) + r")_(?P<operation>.+)"
    r"_(?P<direction>forward|backward)_(?P<part>input|output)(?:\.(?P<slot>.+))?",
    re.DOTALL,
)
MAX_DEPTH = 64  # of an argument
_NUMBERED = re.compile(r"(?P<operation>.+)_(?P<call>\d{1,15})", re.DOTALL)


def parse(text: str, *, numbered: bool = False) -> LineName | None:
    """The parts of a line's name, or None if it is none. `numbered`: the operation's name ends with the number of its call."""
    match = _LINE.fullmatch(text)
    if match is None or (match["slot"] or "").count(".") > MAX_DEPTH:
        return None
    operation, call = match["operation"], None
    if numbered and (counted := _NUMBERED.fullmatch(operation)):
        operation, call = counted["operation"], int(counted["call"])
    backward, output = match["direction"] == "backward", match["part"] == "output"
    return LineName(match["family"], operation, call, backward, output, match["slot"] or "")


def operation_name(kind: str, name: str, type: str) -> str:
    """`Functional_linear` for a call as a trace names it."""
    if kind == Kind.MODULE:
        return f"Module_{type or 'Module'}"
    family, rest = family_of(name, _FAMILIES)
    return f"{family or 'Function'}_{rest}"
