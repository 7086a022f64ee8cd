"""Take the tensors out of a call's arguments: nested Python in, JSON text out.

    (x, {"mask": m}, 1e-5)  ->  '{"$tuple":[{"$t":3},{"$dict":["dict",[["mask",{"$t":4}]]]},1e-05]}'
                                found: [("0", x), ("1.mask", m)]

Every tensor is passed to `observe`, which answers with its number. A value that is neither a tensor nor plain Python is kept as a
token: type and text, cut to a sane length. Nothing here raises because of what a user passes to a function.

Text, not objects: this runs for every argument of every call, and building JSON from objects costs twice as much.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..frameworks import registry
from ..frameworks.protocol import Framework
from ..store.lines import encode, text_float, text_nest, text_token

MAX_DEPTH = 24
MAX_ITEMS = 20_000
MAX_TEXT = 400

_PLAIN = frozenset({type(None), bool, int, float, str, tuple, list, dict})

# Kept as a name, and nothing is lost by it: Python's small things, arrays, of which the framework makes tensors, and the
# frameworks' own handles (groups, generators, storages).
_NAMED = frozenset({range, bytes, bytearray, memoryview, type, type({}.keys()), type({}.values()), type({}.items())})
_NAMED_BY = frozenset({"numpy", "collections", "pathlib", "types", "datetime", "re"}) | registry.packages()

Found = list[tuple[str, Any]]


class Unobserved(Exception):
    """A tensor among the values could not be observed; the cause says why. Not the value's fault, so it is passed on."""


class Flattener:
    """Turns values into JSON and reports the tensors among them."""

    def __init__(self, framework: Framework, observe: Callable[[Any], int], gaps: dict[str, str] | None = None) -> None:
        """`gaps` gets to know, by topic, of values that are kept by their type alone, or in part."""
        self._framework = framework
        self._gaps = {} if gaps is None else gaps
        self._observe = observe
        self._tensors: set[type] = set()  # classes that are known to be
        self._left = MAX_ITEMS

    def flatten(self, value: Any, slot: str, tensors: Found, depth: int = 0) -> str:
        """JSON for `value`; tensors are appended to `tensors` with their slots."""
        try:
            is_tensor = type(value) in self._tensors or (type(value) not in _PLAIN and self._is_tensor(value))
        except TypeError:  # a class that cannot be hashed
            is_tensor = False
        if is_tensor:
            tensors.append((slot, value))
            try:
                return f'{{"$t":{self._observe(value)}}}'
            except Exception as error:
                raise Unobserved from error
        try:
            if depth == 0:
                self._left = MAX_ITEMS
            return self._plain(value, slot, tensors, depth)
        except Unobserved:
            raise
        except Exception as error:  # noqa: BLE001 - a value may do anything when it is looked at; it is said, and that is all
            return self._gap(f"could not be looked at: {type(error).__name__}")

    def _is_tensor(self, value: Any) -> bool:
        try:
            known = self._framework.is_tensor(value)
            if known and value.__class__ is type(value):  # not a proxy, of which another may stand for something else
                self._tensors.add(type(value))
        except Exception:  # noqa: BLE001 - what cannot even be asked is none; what it is instead is said later
            return False
        return known

    def _plain(self, value: Any, slot: str, tensors: Found, depth: int) -> str:
        if value is None:
            return "null"
        kind = type(value)
        if kind is int:
            return str(value) if -(1 << 1000) < value < 1 << 1000 else self._gap("an integer of over 1000 bits")
        if kind is float:
            return repr(value) if math.isfinite(value) else text_float(value)
        if kind is bool:
            return "true" if value else "false"
        if kind is str:
            return encode(value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…")
        if kind is tuple or kind is list:
            return self._items(kind.__name__, None, value, slot, tensors, depth)
        if kind is dict:
            return self._items("dict", [str(key) for key in value], value.values(), slot, tensors, depth)
        return self._other(value, slot, tensors, depth)

    def _items(
        self, kind: str, keys: list[str] | None, items: Collection[Any], slot: str, tensors: Found, depth: int
    ) -> str:
        self._left -= len(items)
        if depth >= MAX_DEPTH or self._left < 0:
            return self._gap(f"{kind} of {len(items)} items, not recorded: too deep or too many")
        names = keys if keys is not None else range(len(items))
        prefix = f"{slot}." if slot else ""
        texts = [
            self.flatten(item, f"{prefix}{name}", tensors, depth + 1) for name, item in zip(names, items, strict=True)
        ]
        return text_nest(kind, keys, texts)

    def _other(self, value: Any, slot: str, tensors: Found, depth: int) -> str:
        """Text of a value that is not of the common types. First match wins; the last resort always matches."""
        if isinstance(value, complex):
            return f'{{"$complex":[{text_float(value.real)},{text_float(value.imag)}]}}'
        if isinstance(value, enum.Enum):
            return text_token("enum", f"{type(value).__name__}.{value.name}")
        token = self._framework.token(value)
        if token is not None:
            return text_token(*token)
        if isinstance(value, int):
            return self.flatten(int(value), slot, tensors, depth)
        if isinstance(value, str):
            return self.flatten(str(value), slot, tensors, depth)
        if isinstance(value, float):
            return text_float(float(value))
        if isinstance(value, slice):
            return text_token("slice", self._slice_text(value))
        if value is Ellipsis:
            return text_token("ellipsis", "...")
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._items(type(value).__name__, [str(name) for name in value._fields], value, slot, tensors, depth)
        if isinstance(value, Mapping):
            return self._items(
                type(value).__name__, [str(key) for key in value], list(value.values()), slot, tensors, depth
            )
        if isinstance(value, list | tuple):
            return self._items("list" if isinstance(value, list) else "tuple", None, list(value), slot, tensors, depth)
        if isinstance(value, set | frozenset):
            return self._items("set", None, sorted(value, key=str), slot, tensors, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
            return self._items(
                type(value).__name__, fields, [getattr(value, name) for name in fields], slot, tensors, depth
            )
        return self._opaque(value)

    @staticmethod
    def _slice_text(value: slice) -> str:
        parts = [value.start, value.stop] + ([] if value.step is None else [value.step])
        return ":".join("" if part is None else str(part)[:40] for part in parts)

    def _opaque(self, value: Any) -> str:
        kind = type(value)
        if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            item = value.item()
            if isinstance(item, bool | int | str):
                return encode(item)
            if isinstance(item, float):
                return text_float(item)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if callable(value):
            return text_token("callable", str(getattr(value, "__qualname__", name))[:MAX_TEXT])
        if kind in _NAMED or kind.__module__.partition(".")[0] in _NAMED_BY:
            return text_token("opaque", name[:MAX_TEXT])
        return self._gap(name[:MAX_TEXT])

    def _gap(self, what: str) -> str:
        self._gaps.setdefault(
            "opaque", f"a value is kept as a name only ({what}): it is neither a tensor nor plain Python"
        )
        return text_token("opaque", what)
