"""Values as JSON, and back. Tags begin with `$`, so that plain JSON stands for plain Python (store/FORMAT.md):

1.5  "same"  null  true        themselves            {"$t": 12}              tensor 12
[1, 2]                         a list                {"$tuple": [1, 2]}      a tuple
{"$float": "nan"}              a non-finite float    {"$token": ["slice", "1:2"]}   a Token
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from .values import Nest, TensorRef, Token, Value

Wire: TypeAlias = Any
"""JSON as Python has it."""

MAX_DEPTH = 64  # of a value
MAX_NUMBER = (1 << 62) - 1


def wire_of(value: Value) -> Wire:
    """A value as JSON-able Python."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, complex):
        return {"$complex": [wire_of(value.real), wire_of(value.imag)]}
    if isinstance(value, TensorRef):
        return {"$t": value.id}
    if isinstance(value, Token):
        return {"$token": [value.kind, value.text]}
    if not isinstance(value, Nest):
        return value
    if value.kind in ("list", "tuple", "set"):
        items = [wire_of(item) for _, item in value.items]
        return items if value.kind == "list" else {f"${value.kind}": items}
    tag = "$dict" if value.kind == "dict" else "$object"
    return {tag: [value.kind, [[key, wire_of(item)] for key, item in value.items]]}


def value_of(wire: Wire, depth: int = 0) -> Value:
    """A value from JSON that nobody vouches for; ValueError with one clause where it is none of the known forms."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if wire is None or isinstance(wire, bool | int | float | str):
        return wire
    if isinstance(wire, list):
        return Nest("list", tuple((str(i), value_of(item, depth + 1)) for i, item in enumerate(wire)))
    if not isinstance(wire, dict) or len(wire) != 1:
        raise ValueError(f"expected a value or an object with one $tag, got {str(wire)[:80]}")
    ((tag, content),) = wire.items()
    if tag == "$t" and is_number(content):
        return TensorRef(content)
    if tag in ("$tuple", "$set") and isinstance(content, list):
        return Nest(tag[1:], tuple((str(i), value_of(item, depth + 1)) for i, item in enumerate(content)))
    if tag in ("$dict", "$object") and _is_pair(content, str, list):
        return Nest(content[0], tuple(_named(item, depth) for item in content[1]))
    if tag == "$token" and _is_pair(content, str, str):
        return Token(content[0], content[1])
    if tag == "$float":
        return float_of(content)
    if tag == "$complex" and isinstance(content, list) and len(content) == 2:
        real, imag = (value_of(part, depth + 1) for part in content)
        if isinstance(real, int | float) and isinstance(imag, int | float):
            return complex(real, imag)
    raise ValueError(f"unknown form {str(wire)[:80]}")


def is_number(wire: Wire) -> bool:
    """True of a count or an address: an integer from 0 to 2**62 - 1."""
    return isinstance(wire, int) and not isinstance(wire, bool) and 0 <= wire <= MAX_NUMBER


def float_of(content: Wire) -> float:
    """The number behind `$float`."""
    if content in ("nan", "inf", "-inf"):
        return float(content)
    raise ValueError(f"expected nan, inf or -inf, got {str(content)[:40]}")


def _is_pair(content: Wire, first: type, second: type) -> bool:
    pair = isinstance(content, list) and len(content) == 2
    return pair and isinstance(content[0], first) and isinstance(content[1], second)


def _named(item: Wire, depth: int) -> tuple[str, Value]:
    if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
        raise ValueError(f"expected [name, value], got {str(item)[:80]}")
    return item[0], value_of(item[1], depth + 1)
