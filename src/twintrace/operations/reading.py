"""From a recorded call to its meaning: values become arguments, rows are looked up, results get their keys.

Token("dtype", "Float32")          "f32"
Token("slice", ":-1")              slice(None, -1)
Nest("list", …)                    a tuple; of a dict, its values
TensorRef(3)                       Operand(3)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..model.dtypes import short_name
from ..model.records import Call
from ..model.values import Nest, TensorRef, Token, Value, leaves
from .catalog import OPERATIONS
from .contexts import Context
from .conventions import axes, axis
from .meanings import Meaning, Operand, SpecOf
from .rows import WITHOUT_EFFECT, NotTold, Row, Signature


def argument_of(value: Value) -> Any:
    """A recorded value as an argument of a meaning. Raises NotTold for what has no Python equal."""
    if isinstance(value, TensorRef):
        return Operand(value.id)
    if isinstance(value, Nest):
        return tuple(argument_of(item) for _, item in value.items)
    if isinstance(value, Token):
        return _token(value)
    return value


def _token(token: Token) -> Any:
    if token.kind == "dtype":
        name = token.text.rpartition(".")[2].lower()
        return short_name(name) or name.replace("hifloat8", "hif8")
    if token.kind == "slice":
        return slice(*(_bound(part) for part in token.text.split(":")))
    if token.kind == "ellipsis":
        return "..."
    if token.kind in ("device", "layout", "memory_format", "generator", "enum"):
        return token.text
    raise NotTold(f"an argument was kept as a name only: {token.text}")


def _bound(text: str) -> int | None:
    text = text.removeprefix("tensor(").removesuffix(")")  # a tensor that was asked for its number
    try:
        return int(text) if text else None
    except ValueError:
        raise NotTold(f"a slice to {text}") from None


def numbers_in(value: Value) -> list[int]:
    """Numbers of the tensors in a recorded value, in order."""
    return [leaf.id for _, leaf in leaves(value) if isinstance(leaf, TensorRef)]


def _has_tensor(value: Any) -> bool:
    return isinstance(value, Operand) or (isinstance(value, tuple) and any(map(_has_tensor, value)))


class Recorded:
    """One recorded call on its way to a meaning."""

    def __init__(self, call: Call, spec: SpecOf, name: str, *, inplace: bool = False) -> None:
        self.call, self.name, self.inplace = call, name, inplace
        self.args = [argument_of(value) for value in call.args]
        self.kwargs = {name: argument_of(value) for name, value in call.kwargs.items()}
        if "self" in self.kwargs:
            self.kwargs.setdefault("input", self.kwargs.pop("self"))
        self.outputs = numbers_in(call.output) or list(call.after.values())[:1]
        self.context = Context(spec, self.outputs)

    def more(self) -> Mapping[str, Any]:
        """Settings of the module or primitive, its parameters and buffers, by name."""
        found: dict[str, Any] = {}
        if self.call.config is not None:
            for name, value in self.call.config.values.items():
                try:
                    found[name] = argument_of(value)
                except NotTold:
                    continue
        found.update({name: Operand(number) for name, number in self.call.parameters.items()})
        found.update({name: Operand(number) for name, number in self.call.buffers.items()})
        return found

    def bound(self, signature: Signature, more: Mapping[str, Any]) -> dict[str, Any]:
        """Value of every parameter. In a dump of tensors alone one that is no tensor may have had any value, not its default."""
        found = signature.bind(self.args, self.kwargs, more)
        if self.call.tensors_only:
            for parameter in signature.parameters:
                if parameter.name not in WITHOUT_EFFECT and not _has_tensor(found[parameter.name]):
                    raise NotTold(f"{signature.name}: {parameter.name} is not known, the dump has tensors only")
        return found

    def read(self, row: Row) -> Meaning:
        """Meaning by a row of a table."""
        bound = self.bound(row.signature, self.more())
        arguments = dict(bound)
        if row.arguments:
            names = {**self.context.names(), **bound}
            arguments |= {name: eval(code, {"__builtins__": {}}, names) for name, code in row.arguments.items()}
        return self.meaning(row.operation, arguments, row.signature, row.outputs)

    def meaning(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        signature: Signature | None = None,
        outputs: int | None = None,
    ) -> Meaning:
        """Meaning with the arguments that the catalog has for this operation, axes counted from the front."""
        known = OPERATIONS.get(operation)
        arguments = dict(self._of_catalog(known, arguments)) if known is not None else dict(arguments)
        return Meaning(operation, arguments, self._results(signature, outputs), self.name)

    def _of_catalog(self, signature: Signature, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        rank = self._rank(arguments)
        for parameter in signature.parameters:
            if parameter.name in arguments:
                value = arguments[parameter.name]
            elif parameter.required:
                raise NotTold(f"{signature.name}: {parameter.name} is not known")
            else:
                value = parameter.default
            if parameter.kind:
                if rank is None:
                    raise NotTold("no tensor to count axes of")
                value = (
                    axes(value, rank)
                    if parameter.kind == "axes"
                    else axis(value, rank + (parameter.kind == "new_axis"))
                )
            yield parameter.name, value

    def _rank(self, arguments: Mapping[str, Any]) -> int | None:
        for value in arguments.values():
            items = value if isinstance(value, tuple) else (value,)
            for item in items:
                if isinstance(item, Operand):
                    return self.context.rank(item)
        return None

    def _results(self, signature: Signature | None, outputs: int | None) -> dict[int, int | str]:
        results: dict[int, int | str] = {}
        for place, number in enumerate(numbers_in(self.call.output)[:outputs]):
            results.setdefault(number, place)
        returned = bool(results)
        for slot, number in self.call.after.items():
            name = signature.name_of(slot) if signature is not None else None
            if self.inplace and slot in ("0", "kw.input", "kw.self"):
                # An operator that returns has made another tensor, as MindSpore's `x += y` may, and left this one alone.
                if not returned or not self.call.site.name.endswith("__"):
                    results.setdefault(number, 0)
            elif slot.startswith("kw.out"):
                results.setdefault(number, int(slot.rpartition(".")[2]) if slot[-1].isdigit() else 0)
            elif name is not None:
                results.setdefault(number, name)
        return results
