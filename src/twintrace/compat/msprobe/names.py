"""The names of msprobe's records, items and files: made and taken apart here, and nowhere else.

    Functional.conv2d.3.forward                              torch.nn.functional.conv2d, its fourth call in the step
    Tensor.__add__.0.backward                                the gradients of the first x + y
    Primitive.MatMul.0.forward                               mindspore.ops.MatMul
    Module.blocks.0.fc.Linear.forward.1                      the second call of module blocks.0.fc; a Cell in MindSpore
    Module.blocks.0.fc.Linear.parameters_grad                the gradients of its parameters (26.2 puts `.0` behind)
    loss.0.debug, loss_grad.0.debug                          what was given to `save`, and its gradient

    Functional.conv2d.3.forward.input.1                      an item: the second argument of that call
    Functional.conv2d.3.forward.input.1.npy                  the file with its values

Some functions are one in a trace and two in msprobe: an operator and its method, `mint.relu` and `ops.relu`. The line of source
that made the call tells which was meant: `x.add(y)` is `Tensor.add`, `ops.relu(x)` is `Functional.relu`. Where it does not tell, it
is the operator (of those that write in place the method), and mint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...model.sites import Kind

FRAMEWORKS: Mapping[str, str] = MappingProxyType(
    {"torch": "pytorch", "mindspore": "mindspore", "msadapter": "mindtorch"}
)
"""A trace's name for a framework -> what `framework` says in dump.json. A framework that msprobe never had keeps its own."""

_OF = MappingProxyType({theirs: ours for ours, theirs in FRAMEWORKS.items()})

# Beginnings of functions' names in a trace, and the prefix of their records: the longer beginnings first.
_TORCH = (
    ("torch.nn.functional.", "Functional"),
    ("torch.Tensor.", "Tensor"),
    ("torch.distributed.", "Distributed"),
    ("torch._VF.", "VF"),
    ("torch_npu.", "NPU"),
    ("torch.ops.npu.", "NPU"),
    ("torch.ops.aten.", "Aten"),
    ("torch.functional.", "Torch"),
    ("mindspore.jit.", "Jit"),  # beside MSAdapter
    ("torch.", "Torch"),
)
_MINDSPORE = (
    ("mindspore.mint.nn.functional.", "MintFunctional"),
    ("mindspore.mint.distributed.", "MintDistributed"),
    ("mindspore.mint.", "Mint"),
    ("mindspore.communication.comm_func.", "Distributed"),
    ("mindspore.Tensor.", "Tensor"),
    ("mindspore.jit.", "Jit"),
    ("mindspore.ops.", "Functional"),
)
# Method -> the operator whose name the record has.
_OPERATORS = {
    "add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "floor_divide": "__floordiv__",
    "remainder": "__mod__", "pow": "__pow__", "matmul": "__matmul__", "bitwise_and": "__and__", "bitwise_or": "__or__",
    "bitwise_xor": "__xor__", "eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__",
}  # fmt: skip
_INPLACE = {"add_": ("__iadd__", "+="), "sub_": ("__isub__", "-="), "mul_": ("__imul__", "*=")}
_METHODS = {operator: method for method, operator in _OPERATORS.items()} | {
    operator: method for method, (operator, _) in _INPLACE.items()
}
# Operators that torch's traces have under these names, too.
_OPERATORS_IN_TORCH = frozenset(("__eq__", "__floordiv__", "__pow__", "__and__", "__or__", "__xor__"))
MODULES = ("Module", "Cell")
_MODULE = re.compile(
    r"(?P<prefix>Module|Cell)\.(?P<path>.+)\.(?P<type>[^.]+)\.(?P<direction>forward|backward)\.(?P<call>\d{1,15})",
    re.DOTALL,
)
_GRADIENTS = re.compile(
    r"(?P<prefix>Module|Cell)\.(?P<path>.+)\.(?P<type>[^.]+)\.parameters_grad(?:\.(?P<call>\d{1,15}))?", re.DOTALL
)
_API = re.compile(r"(?P<prefix>[^.]+)\.(?P<api>.+)\.(?P<call>\d{1,15})\.(?P<direction>forward|backward)", re.DOTALL)
_SAVED = re.compile(r"(?P<api>.+)\.(?P<call>\d{1,15})\.debug", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RecordName:
    """A record's name, taken apart.

    prefix   `Functional`, `Module` …; empty for what was given to `save`
    name     the function's name after the prefix, the module's path, or the name given to `save`
    type     a module's class
    what     forward | backward | parameters_grad | debug
    """

    prefix: str
    name: str
    type: str
    call: int
    what: str

    @property
    def kind(self) -> Kind:
        if self.what == "debug":
            return Kind.SAVE
        return Kind.MODULE if self.prefix in MODULES else Kind.API

    @property
    def stem(self) -> str:
        """`Functional.conv2d`, `Module.fc.Linear`: all before call and direction; what mapping files call it."""
        return ".".join(filter(None, (self.prefix, self.name, self.type)))

    def __str__(self) -> str:
        if self.what == "debug":
            return saved_name(self.name, self.call)
        if self.what == "parameters_grad":
            return gradients_name(self.stem)
        return record_name(self.stem, self.call, backward=self.what == "backward")

    def site_name(self, framework: str) -> str:
        """Name in a trace. `framework` is what dump.json says."""
        return self.name if self.kind is not Kind.API else _function(self.prefix, self.name, framework)


def parse(text: str) -> RecordName | None:
    """A record's name taken apart; None for what is none. Modules are looked for first: a path may hold anything."""
    if match := _MODULE.fullmatch(text):
        return RecordName(match["prefix"], match["path"], match["type"], int(match["call"]), match["direction"])
    if match := _GRADIENTS.fullmatch(text):
        return RecordName(match["prefix"], match["path"], match["type"], int(match["call"] or 0), "parameters_grad")
    if match := _API.fullmatch(text):
        return RecordName(match["prefix"], match["api"], "", int(match["call"]), match["direction"])
    if match := _SAVED.fullmatch(text):
        return RecordName("", match["api"], "", int(match["call"]), "debug")
    return None


def stem(kind: str, name: str, type: str, framework: str, code: str = "") -> str:
    """The part of a record's name before call and direction: `Functional.conv2d`, `Module.blocks.0.fc.Linear`.

    `framework` is the trace's own name for it; `code` the line of source that made the call.
    """
    if kind == Kind.MODULE:
        prefix = "Cell" if framework == "mindspore" else "Module"
        return ".".join(filter(None, (prefix, name, type or prefix)))
    for begin, prefix in _MINDSPORE if framework == "mindspore" else _TORCH:
        if name.startswith(begin):
            last = name.rpartition(".")[2]  # `torch.linalg.norm` is `Torch.norm`
            if prefix == "Tensor":
                operator, sign = _INPLACE.get(last, (_OPERATORS.get(last, last), ""))
                return f"Tensor.{last if f'.{last}(' in code or sign not in code else operator}"
            if prefix.startswith("Mint") and f"ops.{last}(" in code:
                return f"Functional.{last}"
            if prefix == "Functional" and framework == "mindspore" and last[:1].isupper():
                return f"Primitive.{last}"
            return f"{prefix}.{name.removeprefix(begin) if prefix == 'Aten' else last}"
    return name if "." in name else f"Custom.{name}"


def stems(kind: str, name: str, type: str, framework: str) -> tuple[str, ...]:
    """All that a call of this name may be called, whatever line it is made in."""
    last = name.rpartition(".")[2]
    candidates = (stem(kind, name, type, framework, code) for code in ("", f"x.{last}()", f"ops.{last}()", "+= -= *="))
    return tuple(dict.fromkeys(candidates)) if kind != Kind.MODULE else (next(candidates),)


class Numbers:
    """Numbers calls as msprobe does: by record, from 0 in each step, recomputed calls after the others.

    A trace counts by function and phase, and counts what it does not record: what is missing there is missing here.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}
        self._next: dict[str, int] = {}
        self._taken: dict[str, set[int]] = {}

    def of(self, kind: str, stem: str, phase: str, name: str, counted: int) -> int:
        """The number of a call, given that of the trace."""
        if kind == Kind.MODULE:  # one that calls itself returns after the inner call: its number was given before
            taken = self._taken.setdefault(stem, set())
            number = counted if counted not in taken else max(taken) + 1
            taken.add(number)
            return number
        missing = max(0, counted - self._seen.get((phase, name), 0))
        self._seen[phase, name] = counted + 1
        number = self._next.get(stem, 0) + missing
        self._next[stem] = number + 1
        return number


def record_name(stem: str, call: int, *, backward: bool = False) -> str:
    """`Functional.conv2d.3.forward`; of a module `Module.fc.Linear.forward.3`."""
    direction = "backward" if backward else "forward"
    if stem.startswith(("Module.", "Cell.")):
        return f"{stem}.{direction}.{call}"
    return f"{stem}.{call}.{direction}"


def backward_of(record: str) -> str:
    """The record of the gradients of what is in another: `Module.fc.Linear.backward.0` for `Module.fc.Linear.forward.0`."""
    name = parse(record)
    return str(replace(name, what="backward")) if name is not None and name.what == "forward" else record


def gradients_name(stem: str) -> str:
    """The record of the gradients of a module's parameters."""
    return f"{stem}.parameters_grad"


def saved_name(name: str, call: int, *, gradient: bool = False) -> str:
    """The record of a value given to `save`, or of its gradient."""
    return f"{name}{'_grad' if gradient else ''}.{call}.debug"


def item_name(record: str, state: str, slot: str) -> str:
    """`Functional.conv2d.3.forward.input.1`. Parameters' gradients and saved values have no state."""
    return ".".join(part for part in (record, state, slot) if part)


def _function(prefix: str, name: str, framework: str) -> str:
    ours = _OF.get(framework, framework)
    if ours == "mindspore":
        begins = {theirs: begin for begin, theirs in reversed(_MINDSPORE)} | {"Primitive": "mindspore.ops."}
        last = name.rpartition(".")[2] if prefix == "Primitive" else name  # 26.2: `Primitive.matmul.MatMul`
    else:
        begins = {theirs: begin for begin, theirs in reversed(_TORCH)} | {"Torch": "torch."}
        last = name
    if prefix not in begins:
        return f"{prefix}.{name}".removeprefix("Custom.")
    is_method = prefix == "Tensor" and (ours == "mindspore" or last not in _OPERATORS_IN_TORCH)
    return begins[prefix] + (_METHODS.get(last, last) if is_method else last)
