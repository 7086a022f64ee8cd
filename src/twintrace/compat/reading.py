"""Parts that the readers of several tools' dumps have in common. A dump vouches for nothing: each function checks what it is given.

parsed(b'["NN_ReLU_0", …]')             the fields; ValueError with one clause
shape_of([2, 3])                        (2, 3); ValueError for what is no shape
nested({"0": 3, "1.0": 4})              a tuple of tensor 3 and a tuple with tensor 4 inside
frame_of("File a.py, line 3, in f, \\n x")    Frame("a.py", 3, "f", "x")
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ..model.records import Frame
from ..model.values import Nest, TensorRef, Value

RANK = re.compile(r"rank(0|[1-9][0-9]{0,8})")
"""The folder of a rank."""
_FRAME = re.compile(r"File (?P<file>.*), line (?P<line>\d{1,9}), in (?P<function>.*?),\s+(?P<code>.*)", re.DOTALL)


def parsed(raw: bytes) -> Any:
    """A line of JSON."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None


def shape_of(sizes: Any) -> tuple[int, ...]:
    """A shape that a tensor may have."""
    whole = isinstance(sizes, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    if not whole or any(size < 0 for size in sizes) or len(sizes) > 64 or math.prod(sizes) > 1 << 40:
        raise ValueError(f"{str(sizes)[:60]} is no shape")
    return tuple(sizes)


def nested(slots: Mapping[str, int]) -> Nest:
    """Tensors by slot, as the nest that they were taken out of: a tuple, or a dict where a slot has a name."""
    groups: dict[str, dict[str, int]] = {}
    for slot, tensor in slots.items():
        head, _, rest = slot.partition(".")
        groups.setdefault(head, {})[rest] = tensor
    items: list[tuple[str, Value]] = [
        (head, TensorRef(inside[""]) if "" in inside else nested(inside)) for head, inside in groups.items()
    ]
    if not all(head.isdecimal() for head in groups):
        return Nest("dict", tuple(items))
    return Nest("tuple", tuple(sorted(items, key=lambda item: int(item[0]))))


def frame_of(text: str) -> Frame | None:
    """A line of a stack, None for what is none."""
    found = _FRAME.fullmatch(text)
    return Frame(found["file"], int(found["line"]), found["function"], found["code"].strip()) if found else None
