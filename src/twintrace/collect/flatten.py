"""Take the tensors out of a call's arguments: nested Python in, JSON out.

    (x, {"mask": m}, 1e-5)  ->  [{"$t": 3}, {"$dict": ["dict", [["mask", {"$t": 4}]]]}, 1e-05]
                                found: [("0", x), ("1.mask", m)]

Every tensor is passed to `observe`, which answers with its number. What is neither a tensor nor plain Python is kept as a
token: type and text, cut to a sane length. Nothing here raises because of what a user passes to a function.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any

from ..frameworks.protocol import Framework
from ..store.lines import Wire, wire_float, wire_nest, wire_tensor, wire_token

MAX_DEPTH = 24
MAX_ITEMS = 20_000
MAX_TEXT = 400
_PLAIN = frozenset((type(None), bool, int, str))


class Flattener:
    """Turns values into JSON and reports the tensors among them."""

    def __init__(self, framework: Framework, observe: Callable[[Any], int]) -> None:
        self._framework = framework
        self._is_tensor = framework.is_tensor
        self._observe = observe

    def flatten(self, value: Any, slot: str, found: list[tuple[str, Any]], depth: int = 0) -> Wire:
        """JSON for `value`; tensors are appended to `found` with their slots."""
        kind = type(value)
        if kind in _PLAIN:
            return value if kind is not str or len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
        if self._is_tensor(value):
            found.append((slot, value))
            return wire_tensor(self._observe(value))
        if kind is float:
            return value if math.isfinite(value) else wire_float(value)
        if kind is tuple or kind is list:
            return self._items(kind.__name__, None, value, slot, found, depth)
        if kind is dict:
            return self._items("dict", [str(key) for key in value], value.values(), slot, found, depth)
        return self._other(value, slot, found, depth)

    def _items(
        self, kind: str, keys: list[str] | None, items: Any, slot: str, found: list[tuple[str, Any]], depth: int
    ) -> Wire:
        if depth >= MAX_DEPTH or len(items) > MAX_ITEMS:
            return wire_token("opaque", f"{kind} of {len(items)} items, not recorded: too deep or too many")
        names = keys if keys is not None else range(len(items))
        prefix = f"{slot}." if slot else ""
        wires = [
            self.flatten(item, f"{prefix}{name}", found, depth + 1) for name, item in zip(names, items, strict=True)
        ]
        return wire_nest(kind, keys, wires)

    def _other(self, value: Any, slot: str, found: list[tuple[str, Any]], depth: int) -> Wire:
        """What is left after the common types. First match wins; the last resort always matches."""
        if isinstance(value, complex):
            return {"$complex": [wire_float(value.real), wire_float(value.imag)]}
        if isinstance(value, enum.Enum):
            return wire_token("enum", f"{type(value).__name__}.{value.name}")
        token = self._framework.token(value)
        if token is not None:
            return wire_token(*token)
        if isinstance(value, bool | int | str):
            return self.flatten(int(value) if isinstance(value, int) else str(value), slot, found, depth)
        if isinstance(value, float):
            return wire_float(float(value))
        if isinstance(value, slice):
            return wire_token("slice", self._slice_text(value))
        if value is Ellipsis:
            return wire_token("ellipsis", "...")
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._items(type(value).__name__, [str(name) for name in value._fields], value, slot, found, depth)
        if isinstance(value, Mapping):
            return self._items(
                type(value).__name__, [str(key) for key in value], list(value.values()), slot, found, depth
            )
        if isinstance(value, list | tuple):
            return self._items("list" if isinstance(value, list) else "tuple", None, list(value), slot, found, depth)
        if isinstance(value, set | frozenset):
            return self._items("set", None, sorted(value, key=str), slot, found, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
            return self._items(
                type(value).__name__, fields, [getattr(value, name) for name in fields], slot, found, depth
            )
        return self._opaque(value)

    @staticmethod
    def _slice_text(value: slice) -> str:
        parts = [value.start, value.stop] + ([] if value.step is None else [value.step])
        return ":".join("" if part is None else str(part)[:40] for part in parts)

    @staticmethod
    def _opaque(value: Any) -> Wire:
        kind = type(value)
        if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            item = value.item()
            if isinstance(item, bool | int | str):
                return item
            if isinstance(item, float):
                return wire_float(item)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if callable(value):
            return wire_token("callable", str(getattr(value, "__qualname__", name))[:MAX_TEXT])
        return wire_token("opaque", name[:MAX_TEXT])
