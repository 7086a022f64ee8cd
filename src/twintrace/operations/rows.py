"""Rows of the tables of operations: a signature as its framework has it, and the operation that it is here.

    gelu(input, approximate='none')                                    binds arguments, fills in defaults
    ops.softmax(input, axis=-1) = softmax(input=input, dim=axis)       the same, and says it in our words
    ReduceSum(x, axis=(), *, keep_dims) = sum(input=x, dim=axis, keepdim=keep_dims)

Left of `=` is a Python signature. Names after the `*` are found among the keywords of the call, the settings of its module
or primitive, its parameters and its buffers; a name without default that is found nowhere makes the row say nothing: an
attribute that was not recorded cannot be guessed. Right of it stands the operation, each of its arguments an expression over
the names on the left and the functions of `conventions.py` and `contexts.py`. An argument that both sides call by the same name
need not be written.
`[:1]` at the end: only the first result is the operation's, further ones are of the framework's own making. `conv<n>d(…)` is a row
each for one, two and three axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

_MISSING: Any = object()
WITHOUT_EFFECT = frozenset((
    "out", "generator", "device", "layout", "pin_memory", "requires_grad", "memory_format", "non_blocking", "copy", "inplace",
    "dtype", "name", "sparse_grad", "implicit", "_stacklevel", "seed", "as_tuple", "driver", "output_size", "fused", "foreach",
))  # fmt: skip
"""Keywords that change where a result lies or which type it has, and not what it is; its type is read off the result."""


class NotTold(Exception):
    """The meaning of a call cannot be told from what was recorded; the message says why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a signature. `kind` is its annotation: `axis`, `axes`, `new_axis`."""

    name: str
    default: Any = _MISSING
    kind: str = ""

    @property
    def required(self) -> bool:
        """Is there no default?"""
        return self.default is _MISSING


@dataclass(frozen=True, slots=True)
class Signature:
    """Positional parameters, the one that takes all further positions, and those that are given by name alone."""

    name: str
    positional: tuple[Parameter, ...]
    rest: str | None = None
    named: tuple[Parameter, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All that have names."""
        return (*self.positional, *self.named)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """Value of every parameter, defaults filled in; `more` is asked for what was not passed. Raises NotTold if one has none, or
        if a keyword was passed that the row does not know.
        """
        bound: dict[str, Any] = dict(zip((parameter.name for parameter in self.positional), args, strict=False))
        if len(args) > len(self.positional):
            if self.rest is None:
                raise NotTold(f"{self.name} takes {len(self.positional)} positions, {len(args)} were recorded")
            bound[self.rest] = tuple(args[len(self.positional) :])
        elif self.rest is not None:
            bound[self.rest] = ()
        strange = kwargs.keys() - {parameter.name for parameter in self.parameters} - WITHOUT_EFFECT - {self.rest}
        if strange:
            raise NotTold(f"{self.name}: no row knows {sorted(map(str, strange))}")
        for parameter in self.parameters:
            if parameter.name in kwargs:
                bound[parameter.name] = kwargs[parameter.name]
            elif parameter.name not in bound:
                value = more.get(parameter.name, parameter.default)
                if value is _MISSING:
                    raise NotTold(f"{self.name}: no value of {parameter.name} was recorded")
                bound[parameter.name] = value
        if self.rest is not None and self.rest in kwargs and not bound[self.rest]:
            bound[self.rest] = kwargs[self.rest]
        return bound

    def name_of(self, slot: str) -> str | None:
        """Name of the parameter that an argument's slot (`1`, `kw.running_mean`) belongs to."""
        head, _, rest = slot.partition(".")
        if head == "kw":
            return rest.partition(".")[0]
        if head.isdigit():
            return self.positional[int(head)].name if int(head) < len(self.positional) else self.rest
        return None


@dataclass(frozen=True, slots=True)
class Row:
    """A signature and the operation that it is."""

    signature: Signature
    operation: str = ""
    arguments: Mapping[str, CodeType] = field(default_factory=dict)
    outputs: int | None = None
    """Only so many of the call's results are the operation's; the others are the framework's own."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the signature that are arguments of the operation under another name: `gamma` is `weight`."""


def signature_of(text: str) -> Signature:
    """Parse `name(a, b=1, *rest, c: axis = 2)`. Dots are allowed in the name."""
    name, _, parameters = text.partition("(")
    tree = ast.parse(f"def _({parameters}: ...").body[0]
    assert isinstance(tree, ast.FunctionDef)
    spec = tree.args
    optional: list[ast.expr | None] = [*spec.defaults]
    defaults = [None] * (len(spec.args) - len(optional)) + optional
    return Signature(
        name.strip(),
        tuple(_parameter(arg, default) for arg, default in zip(spec.args, defaults, strict=True)),
        spec.vararg.arg if spec.vararg else None,
        tuple(_parameter(arg, default) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)),
    )


def _parameter(arg: ast.arg, default: ast.expr | None) -> Parameter:
    kind = arg.annotation.id if isinstance(arg.annotation, ast.Name) else ""
    return Parameter(arg.arg, _MISSING if default is None else ast.literal_eval(default), kind)


def row_of(text: str) -> Row:
    """Parse one row; without a right side, the operation has the last part of the name."""
    left, equals, right = text.partition(") = ")
    signature = signature_of(f"{left})" if equals else left)
    if not right.strip():
        return Row(signature, signature.name.rpartition(".")[2])
    call = ast.parse(right.strip(), mode="eval").body
    outputs = None
    if isinstance(call, ast.Subscript):
        upper = call.slice.upper if isinstance(call.slice, ast.Slice) else None
        assert isinstance(upper, ast.Constant), text
        call, outputs = call.value, int(str(upper.value))
    if isinstance(call, ast.Name):
        return Row(signature, call.id, outputs=outputs)
    assert isinstance(call, ast.Call)
    arguments = {
        keyword.arg: compile(ast.Expression(keyword.value), f"<{signature.name}>", "eval")
        for keyword in call.keywords
        if keyword.arg is not None
    }
    assert isinstance(call.func, ast.Name), text
    renamed = {
        name: keyword.arg
        for keyword in call.keywords
        for name in _handed_on(keyword.value)
        if keyword.arg is not None and name != keyword.arg
    }
    return Row(signature, call.func.id, arguments, outputs, renamed)


_HANDING_ON = frozenset(("unless", "channels_first", "given"))
"""Functions of `conventions.py` and `contexts.py` that return one of their arguments as it is, or raise."""


def _handed_on(expression: ast.expr) -> Iterator[str]:
    """Names whose values an expression is, unchanged."""
    if isinstance(expression, ast.Name):
        yield expression.id
    elif isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
        if expression.func.id in _HANDING_ON:
            for value in expression.args if expression.func.id == "given" else expression.args[:1]:
                yield from _handed_on(value)
    elif isinstance(expression, ast.BoolOp):  # `gamma or weight`
        for value in expression.values:
            yield from _handed_on(value)


def rows_in(text: str) -> Iterator[Row]:
    """Rows of a table: one each line, indented lines go on with the one above, `#` begins a comment. `<n>` makes three rows of
    one, for one, two and three axes.
    """
    for line in joined(text):
        yield from (row_of(line.replace("<n>", count)) for count in ("123" if "<n>" in line else "1"))


def joined(text: str) -> Iterator[str]:
    """Logical lines of a table."""
    held = ""
    for line in text.splitlines():
        bare = line.partition(" # ")[0].rstrip() if not line.lstrip().startswith("#") else ""
        if not bare:
            continue
        if bare[0] == " " and held:
            held = f"{held} {bare.strip()}"
            continue
        if held:
            yield held
        held = bare.strip()
    if held:
        yield held
