"""Values as dump.json has them, as JSON's own dicts, lists and numbers.

    TensorRef(3)           {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": …, "requires_grad": true}
    2.5                    {"type": "float", "value": 2.5}
    (1, None)              [{"type": "int", "value": 1}, null]
    Token(…)               slices, dtypes and devices have a form of their own; what only has a text is null, as in msprobe

Statistics of a trace are over finite elements, with counts of the others. Here NaN and infinities are part of them again, as
PyTorch's own max, mean and norm would have it.
"""

from __future__ import annotations

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
from ..translating import Number, over_all_elements
from .config import Settings
from .names import item_name
from .values import Content, Values

Array = np.ndarray[Any, Any]
Place = Callable[[Any, str], Any]
"""Given what stands in a tensor's place (its number) and the path to it, its element."""


def dtype_name(short: str, framework: str) -> str:
    """`torch.float32`, `Float32` or `mindspore.float32` for f32, as the framework's dumps say it."""
    if framework == "mindspore":
        return MINDSPORE_NAMES.get(short, short)
    module = "mindspore" if framework == "mindtorch" else "torch"
    return f"{module}.{LONG_NAMES[short]}" if short in LONG_NAMES else short


def tensor_element(line: Mapping[str, Wire], framework: str) -> dict[str, Any]:
    """A tensor's element; checksum and file may follow."""
    kind = "torch.Tensor" if framework == "pytorch" else "mindspore.Tensor"
    facts = {"type": kind, "dtype": dtype_name(line["dtype"], framework), "shape": line["shape"]}
    numbers = _statistics(line, whole=framework == "pytorch")
    grad = {"requires_grad": bool(line.get("grad"))} if framework == "pytorch" else {}
    return facts | dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)) | grad


@dataclass(frozen=True, slots=True)
class Gap:
    """A place for the gradient of a tensor: the slot of that tensor."""

    slot: str


def is_plain(nest: Nest) -> bool:
    """True for a list, tuple or set, whose items are numbered; items of others have names."""
    return nest.kind in ("list", "tuple", "set")


def element_of(value: Any, place: Place, path: str, framework: str) -> Any:
    """The element of a value, or of a gap in one; tensors are put in their place by `place`."""
    if isinstance(value, TensorRef):
        return place(value.id, path)
    if isinstance(value, Gap):
        return place(value.slot, path)
    if isinstance(value, bool | int | float | str):
        return {"type": type(value).__name__, "value": value}
    if isinstance(value, complex):
        return {"type": "complex", "value": str(value)}
    if isinstance(value, Nest):
        prefix = f"{path}." if path else ""
        items = {key: element_of(item, place, f"{prefix}{key}", framework) for key, item in value.items}
        return list(items.values()) if is_plain(value) else items
    return None if value is None else _token(value.kind, value.text, framework)


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
    elements: dict[tuple[str, str], Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tensor: its element as far as it is the same wherever it occurs, and its values."""

    element: dict[str, Any]
    wants_gradient: bool
    content: Content | None = None


class Elements:
    """The tensors of a step, and the elements of values in which they occur. Values go to files, where they are kept."""

    def __init__(self, framework: str, settings: Settings, values: Values | None) -> None:
        self._framework, self._settings, self._values = framework, settings, values
        self._seen: dict[int, _Seen] = {}
        self._checks: dict[tuple[int, bool], str] = {}
        self.failure: TraceWriteError | None = None
        """Why values could not be written: records go on without, and the recorder is told with the next."""

    def add(self, line: Mapping[str, Wire], data: Array | None) -> None:
        """Take a tensor; `data` are its bytes, unless they were seen before."""
        element = tensor_element(line, self._framework)
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
                element["md5"] = self._check(place, line["dtype"], data)
        elif known := (line.get("facts") or {}).get("md5"):  # out of a dump of msprobe's
            element["md5"] = str(known)
        self._seen[line["id"]] = _Seen(element, bool(line.get("grad")), content)

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

    def of(self, identity: int, record: str, state: str, path: str) -> dict[str, Any] | None:
        """The element of a tensor in a record."""
        seen, wanted = self._seen.get(identity), self._settings.tensor_list
        if seen is None:
            return None
        if seen.content is None or self._values is None or (wanted and not any(name in record for name in wanted)):
            return seen.element
        return {**seen.element, "data_name": self._values.name(seen.content, item_name(record, state, path))}

    def value_of(self, value: Value, record: str, state: str = "") -> Any:
        """A value in a record."""
        return element_of(value, lambda tensor, path: self.of(tensor, record, state, path), "", self._framework)

    def list_of(self, values: Sequence[Value], record: str, state: str) -> Any:
        """The arguments or results of a record."""
        return self.value_of(Nest("list", tuple((str(i), value) for i, value in enumerate(values))), record, state)

    def object_of(self, values: Mapping[str, Value], record: str, state: str) -> Any:
        """Arguments by name, or parameters."""
        return self.value_of(Nest("dict", tuple(values.items())), record, state)

    def grown(
        self, gaps: Sequence[Any], record: Growing, state: str, tensors: Mapping[str, int], *, numbered: bool = True
    ) -> list[Any]:
        """Values with gradients in their gaps; an element is made once. `numbered`: the place in the list is part of names."""

        def place(slot: str, path: str) -> Any:
            if slot in tensors and (state, slot) not in record.elements:
                record.elements[state, slot] = self.of(tensors[slot], record.name, state, path)
            return record.elements.get((state, slot)) if slot in tensors else None

        return [element_of(gap, place, str(i) if numbered else "", self._framework) for i, gap in enumerate(gaps)]


def _token(kind: str, text: str, framework: str) -> dict[str, Any] | None:
    module = "torch" if framework == "pytorch" else "mindspore"
    match kind:
        case "slice":
            parts: list[Any] = [_bound(part) for part in text.split(":")]
            return {"type": "slice", "value": (parts + [None] * 3)[:3]}
        case "ellipsis":
            return {"type": "ellipsis", "value": "..."}
        case "dtype":
            name = text if framework == "mindspore" or text.startswith(f"{module}.") else f"{module}.{text}"
            return {"type": f"{module}.dtype", "value": name}
        case "device" | "layout" | "memory_format":
            return {"type": f"{module}.{kind}", "value": text}
        case "enum":
            return {"type": "enum", "value": text}
    return None


def _bound(text: str) -> int | str | None:
    try:
        return int(text) if text else None
    except ValueError:
        return text


def _statistics(line: Mapping[str, Wire], *, whole: bool) -> tuple[Number | bool, ...]:
    """Max, Min, Mean and Norm. `whole`: integers stay integers (MindSpore's statistics are floats)."""
    told = line.get("stats")
    if told is None:
        return None, None, None, None
    if line["dtype"] == "b8":
        every, some = (None if n is None else bool(n) for n in told[:2])
        return some, every, None, None
    lowest, highest, average, length = map(number_of, told[:4])
    largest, least, mean, norm = over_all_elements(lowest, highest, average, length, *told[4:7])
    if not whole:
        largest, least = (None if n is None else float(n) for n in (largest, least))
    return largest, least, mean, norm
