"""The names of a dump's tensors and files.

    NN_Conv2d_0_forward_input.0            the first call of a Conv2d since api_dump_init, its first argument
    Functional_clip_0_forward_output       torch.nn.functional.clip of torch, mindspore.ops.clip of MindSpore
    Tensor_split_2_forward_output.1        the second of several results
    NN_ReLU_1_backward_input               the gradient of that ReLU's result: what goes into its backward
    LAYER_conv_forward_input               a mark that the real tool sets when a torch module ends; it is no tensor

A name has room for two numbers after the part: what is nested deeper, or in a dict, is numbered in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...model.dtypes import LONG_NAMES, MINDSPORE_NAMES, short_name
from ...model.sites import Kind
from ...model.values import Nest, Value
from ..lines import LineName, family_of, line_name

# framework -> what its files are called: {torch}_api_dump_info.csv
STEMS = {"torch": "torch", "mindspore": "mindspore", "msadapter": "mindtorch"}
SHOWN = {"torch": "pytorch", "mindspore": "mindspore", "msadapter": "mindtorch"}
"""Name of a framework in tables."""

_FAMILIES = ("Functional", "Tensor", "VF", "NPU", "Torch")
_NAME = re.compile(
    r"(?P<family>NN|" + "|".join(_FAMILIES) + r")_(?P<operation>\w+)_(?P<call>\d{1,9})"
    r"_(?P<direction>forward|backward)_(?P<part>input|output)(?:\.(?P<slot>\d{1,6}(?:\.\d{1,6}){0,15}))?"
)
MARK = "LAYER_"


def parse(text: str) -> LineName | None:
    """The parts of a row's name, or None if it is none."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    backward, output = match["direction"] == "backward", match["part"] == "output"
    return LineName(match["family"], match["operation"], int(match["call"]), backward, output, match["slot"] or "")


def operation_name(framework: str, kind: str, name: str, type: str) -> str:
    """`NN_Conv2d`, `Torch_clip`: a call as a trace names it, by the names of a dump."""
    if kind == Kind.MODULE:
        return f"NN_{_word(type)}"
    if framework == "mindspore":
        family = "Tensor" if name.startswith("mindspore.Tensor.") else "Functional"
        return f"{family}_{_word(name.rpartition('.')[2])}"
    family, rest = family_of(name, _FAMILIES)
    return f"{family or 'Torch'}_{_word(rest.removeprefix('functional.') if family else rest)}"


def stack_key(framework: str, label: str) -> str:
    """Key of a call's stack: by PyTorch's name, or the row's with MindSpore."""
    name = parse(line_name(label, "input", ""))
    if framework == "mindspore" or name is None or name.family in ("VF", "NPU"):
        return f"{label}_forward_stack_info"
    return f"{'torch.nn.' if name.kind is Kind.MODULE else ''}{name.site_name()}({name.call}) forward"


def label_of_stack(key: str) -> str | None:
    """The call that a stack is filed for, or None."""
    if key.endswith("_forward_stack_info"):
        return key.removesuffix("_forward_stack_info")
    match = re.fullmatch(r"(?P<name>[\w.]+)\((?P<call>\d+)\) forward", key)
    if match is None:
        return None
    name = match["name"]
    if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional."):
        return f"NN_{name.removeprefix('torch.nn.')}_{match['call']}"
    return f"{operation_name('torch', Kind.API, name, '')}_{match['call']}"


class Labels:
    """Gives each call its name: the operation, and how many of it there were before."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, operation: str) -> str:
        """`NN_Conv2d_0`, then `NN_Conv2d_1`."""
        number = self._counts.get(operation, 0)
        self._counts[operation] = number + 1
        return f"{operation}_{number}"


class Leaf(NamedTuple):
    """A value within a call's arguments or result: the end of its row's name, its slot in a trace, itself."""

    suffix: str
    slot: str
    value: Value


def argument_leaves(args: Sequence[Value], kwargs: Mapping[str, Value]) -> Iterator[Leaf]:
    """Arguments by position; those by keyword are numbered on."""
    for number, value in enumerate(args):
        yield from _spread(value, str(number), str(number))
    for number, (name, value) in enumerate(kwargs.items(), len(args)):
        yield from _spread(value, f"kw.{name}", str(number))


def result_leaves(output: Value) -> Iterator[Leaf]:
    """The result, or each of several."""
    if isinstance(output, Nest):
        for number, (key, value) in enumerate(output.items):
            yield from _spread(value, key, str(number))
    else:
        yield Leaf("", "", output)


def _spread(value: Value, slot: str, suffix: str) -> Iterator[Leaf]:
    leaves = list(_numbered(value, slot))
    deep = any(len(path) > 1 for path, _, _ in leaves)
    for running, (path, inner, leaf) in enumerate(leaves):
        number = running if deep else path[0] if path else None
        yield Leaf(suffix if number is None else f"{suffix}.{number}", inner, leaf)


def _numbered(value: Value, slot: str) -> Iterator[tuple[tuple[int, ...], str, Value]]:
    if not isinstance(value, Nest):
        yield (), slot, value
        return
    for number, (key, item) in enumerate(value.items):
        for path, inner, leaf in _numbered(item, f"{slot}.{key}"):
            yield (number, *path), inner, leaf


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name) or "unknown"


# --- element types ----------------------------------------------------------------------------------------------------

SCALARS = {"<class 'bool'>": "b8", "<class 'int'>": "i64", "<class 'float'>": "f64"}


def long_dtype(framework: str, dtype: str) -> str:
    """`torch.float32`, or `Float32` as MindSpore writes it."""
    return MINDSPORE_NAMES.get(dtype, dtype) if framework == "mindspore" else f"torch.{LONG_NAMES[dtype]}"


def short_dtype(text: str) -> str | None:
    """`f32` for `torch.float32` and `Float32`; None for what is not known."""
    return SCALARS.get(text) or short_name(text)
