"""Values as dump.json has them, as text.

    TensorRef(3)           {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": …, "requires_grad": true}
    2.5                    {"type": "float", "value": 2.5}
    (1, None)              [{"type": "int", "value": 1}, null]
    Token(…)               slices, dtypes and devices have a form of their own; what only has a text is null, as in msprobe

Statistics of a trace are over finite elements, with counts of the others. Here NaN and infinities are part of them again, as
PyTorch's own max, mean and norm would have it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from ...model.dtypes import LONG_NAMES, MINDSPORE_NAMES
from ...model.errors import TraceWriteError
from ...model.values import Nest, TensorRef, Value, leaves
from ...store.arrays import STORAGE, as_float
from ...store.lines import Wire, number_of
from ..documents import quote
from ..translating import over_all_elements
from .config import Settings
from .names import item_name
from .values import Content, Values

Array = np.ndarray[Any, Any]
Place = Callable[[Any, str], str]
"""Given what stands in a tensor's place (its number) and the path to it, the text of its element."""


def dtype_name(short: str, framework: str) -> str:
    """`torch.float32`, `Float32` or `mindspore.float32` for f32, as the framework's dumps say it."""
    if framework == "mindspore":
        return MINDSPORE_NAMES.get(short, short)
    module = "mindspore" if framework == "mindtorch" else "torch"
    return f"{module}.{LONG_NAMES[short]}" if short in LONG_NAMES else short


def tensor_text(line: Mapping[str, Wire], framework: str) -> str:
    """A tensor's element without its closing brace: file and checksum may follow."""
    kind = "torch.Tensor" if framework == "pytorch" else "mindspore.Tensor"
    largest, least, mean, norm = _statistics(line, whole=framework == "pytorch")
    text = (
        f'{{"type": "{kind}", "dtype": "{dtype_name(line["dtype"], framework)}", "shape": {line["shape"]}, '
        f'"Max": {largest}, "Min": {least}, "Mean": {mean}, "Norm": {norm}'
    )
    if framework == "pytorch":
        text += f', "requires_grad": {"true" if line.get("grad") else "false"}'
    return text


@dataclass(frozen=True, slots=True)
class Gap:
    """A place for the gradient of a tensor: the slot of that tensor."""

    slot: str


def is_plain(nest: Nest) -> bool:
    """True for a list, tuple or set, whose items are numbered; items of others have names."""
    return nest.kind in ("list", "tuple", "set")


def value_text(value: Any, place: Place, path: str, framework: str) -> str:
    """The element of a value, or of a gap in one; tensors are put in their place by `place`."""
    if value is None:
        return "null"
    if isinstance(value, TensorRef):
        return place(value.id, path)
    if isinstance(value, Gap):
        return place(value.slot, path)
    if isinstance(value, bool):
        return f'{{"type": "bool", "value": {"true" if value else "false"}}}'
    if isinstance(value, int):
        return f'{{"type": "int", "value": {value}}}'
    if isinstance(value, float):
        return f'{{"type": "float", "value": {_text(value)}}}'
    if isinstance(value, str):
        return f'{{"type": "str", "value": {quote(value)}}}'
    if isinstance(value, complex):
        return f'{{"type": "complex", "value": "{value}"}}'
    if isinstance(value, Nest):
        prefix, plain = f"{path}." if path else "", is_plain(value)
        texts = [
            ("" if plain else f"{quote(key)}: ") + value_text(item, place, f"{prefix}{key}", framework)
            for key, item in dict(value.items).items()
        ]
        return f"[{', '.join(texts)}]" if plain else f"{{{', '.join(texts)}}}"
    return _token_text(value.kind, value.text, framework)


def with_gaps(value: Value, slot: str) -> Any:
    """The same value with gaps in the places of tensors, into which gradients are put, and nothing in place of other leaves."""
    if isinstance(value, TensorRef):
        return Gap(slot)
    if not isinstance(value, Nest) or not value.items:
        return Nest("list", ()) if value == Nest("list", ()) else None
    items = tuple((key, with_gaps(item, f"{slot}.{key}" if slot else key)) for key, item in value.items)
    return Nest("list" if is_plain(value) else "dict", items)


def gaps_in(value: Any) -> list[Any]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Gap)]


@dataclass(slots=True)
class Growing:
    """A record to which gradients are added: tensors and, once they are made, elements by slot."""

    name: str
    wires: tuple[Any, ...] = ()
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    elements: dict[tuple[str, str], str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tensor: its element as far as it is the same wherever it occurs, and its values."""

    text: str
    wants_gradient: bool
    content: Content | None = None


class Elements:
    """The tensors of a step, and the texts of values in which they occur. Values go to files, where they are kept."""

    def __init__(self, framework: str, settings: Settings, values: Values | None) -> None:
        self._framework, self._settings, self._values = framework, settings, values
        self._seen: dict[int, _Seen] = {}
        self._checks: dict[tuple[int, bool], str] = {}
        self.failure: TraceWriteError | None = None
        """Why values could not be written: records go on without, and the recorder is told with the next."""

    def add(self, line: Mapping[str, Wire], data: Array | None) -> None:
        """Take a tensor; `data` are its bytes, unless they were seen before."""
        text = tensor_text(line, self._framework)
        content: Content | None = None
        if line.get("at") is not None and (line["at"][1] or not self._values):
            place = line["at"][0]
            if self._values is not None:
                content = place, line["dtype"], tuple(line["shape"])
                try:
                    if not self._values.knows(content):
                        self._values.write(content, data)
                except TraceWriteError as error:
                    self.failure, content = error, None
            if self._settings.summary_mode == "md5":
                text += f', "md5": "{self._check(place, line["dtype"], data)}"'
        elif known := (line.get("facts") or {}).get("md5"):  # out of a dump of msprobe's
            text += f', "md5": {quote(str(known))}'
        self._seen[line["id"]] = _Seen(text, bool(line.get("grad")), content)

    def _check(self, place: int, dtype: str, data: Array | None) -> str:
        """The CRC-32 of the bytes. Of MindSpore's bf16 msprobe takes that of the float32 that they become in numpy."""
        widened = dtype == "bf16" and self._framework != "pytorch"
        known = self._checks.get((place, widened))
        if known is None and data is not None:
            values = as_float(data.view(STORAGE[dtype]), dtype) if widened else data
            known = self._checks[place, widened] = f"{crc32(values.view(np.uint8).data):08x}"
        return known or self._checks.get((place, not widened), "")

    def wants_gradient(self, identity: int) -> bool:
        """True for a tensor that asks for a gradient."""
        return identity in self._seen and self._seen[identity].wants_gradient

    def of(self, identity: int, record: str, state: str, path: str) -> str:
        """The element of a tensor in a record."""
        seen, wanted = self._seen.get(identity), self._settings.tensor_list
        if seen is None:
            return "null"
        if seen.content is None or self._values is None or (wanted and not any(name in record for name in wanted)):
            return seen.text + "}"
        name = self._values.name(seen.content, item_name(record, state, path))
        return f'{seen.text}, "data_name": {quote(name)}}}'

    def value_of(self, value: Value, record: str, state: str = "") -> str:
        """A value in a record."""
        return value_text(value, lambda tensor, path: self.of(tensor, record, state, path), "", self._framework)

    def list_of(self, values: Sequence[Value], record: str, state: str) -> str:
        """The arguments or results of a record."""
        return self.value_of(Nest("list", tuple((str(i), value) for i, value in enumerate(values))), record, state)

    def object_of(self, values: Mapping[str, Value], record: str, state: str) -> str:
        """Arguments by name, or parameters."""
        return self.value_of(Nest("dict", tuple(values.items())), record, state)

    def grown(self, gaps: Sequence[Any], record: Growing, state: str, tensors: Mapping[str, int]) -> str:
        """A list with gradients in its gaps; an element is made once."""
        return f"[{', '.join(self.grown_items(gaps, record, state, tensors, numbered=True))}]"

    def grown_items(
        self, gaps: Sequence[Any], record: Growing, state: str, tensors: Mapping[str, int], *, numbered: bool = False
    ) -> list[str]:
        def place(slot: str, path: str) -> str:
            if slot not in tensors:
                return "null"
            if (state, slot) not in record.elements:
                record.elements[state, slot] = self.of(tensors[slot], record.name, state, path)
            return record.elements[state, slot]

        return [value_text(gap, place, str(i) if numbered else "", self._framework) for i, gap in enumerate(gaps)]


def _token_text(kind: str, text: str, framework: str) -> str:
    module = "torch" if framework == "pytorch" else "mindspore"
    match kind:
        case "slice":
            parts: list[Any] = [_bound(part) for part in text.split(":")]
            return f'{{"type": "slice", "value": {json.dumps((parts + [None] * 3)[:3])}}}'
        case "ellipsis":
            return '{"type": "ellipsis", "value": "..."}'
        case "dtype":
            name = text if framework == "mindspore" or text.startswith(f"{module}.") else f"{module}.{text}"
            return f'{{"type": "{module}.dtype", "value": {quote(name)}}}'
        case "device" | "layout" | "memory_format":
            return f'{{"type": "{module}.{kind}", "value": {quote(text)}}}'
        case "enum":
            return f'{{"type": "enum", "value": {quote(text)}}}'
    return "null"


def _bound(text: str) -> int | str | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return text


def _statistics(line: Mapping[str, Wire], *, whole: bool) -> tuple[str, str, str, str]:
    """Max, Min, Mean and Norm as JSON. `whole`: integers stay integers (MindSpore's statistics are floats)."""
    found = line.get("stats")
    if found is None:
        return "null", "null", "null", "null"
    if line["dtype"] == "b8":
        every, some = ("null" if n is None else "true" if n else "false" for n in found[:2])
        return some, every, "null", "null"
    lowest, highest, average, length = map(number_of, found[:4])
    largest, least, mean, norm = over_all_elements(lowest, highest, average, length, *found[4:7])
    if not whole:
        largest, least = (None if n is None else float(n) for n in (largest, least))
    return _text(largest), _text(least), _text(mean), _text(norm)


def _text(number: float | int | None) -> str:
    if number is None:
        return "null"
    return repr(number) if isinstance(number, int) or math.isfinite(number) else json.dumps(number)
