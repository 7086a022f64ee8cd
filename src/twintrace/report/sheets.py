"""Data of the page in the browser: numbers and words in columns, packed.

    Sheet           a comparison or a trace, in portions:
      index         the columns of all rows, for table, ribbon and trees; read at once
      calls         stacks, configurations, arguments, each different one once; read when the first row is opened
      page(n)       the tensors of `PAGE` rows, the most telling rows in the first pages; read when one of them is opened
      heats(n)      the heat maps of those tensors
      graph         modules and data flow; read when the graph is opened
    Words           a table of texts: columns hold numbers of texts, since most texts come back thousands of times
    number(x, 4)    a float with so many digits; NaN and infinities as words, since JSON has none

A portion is JSON in gzip. Pages in the order of interest: a file of limited size leaves out the end.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import Element

from ..model.measurements import Heat, Picture
from ..model.records import Call, Frame
from ..model.tensors import Spec, Statistics, Tensor
from ..model.values import Nest, TensorRef, Token, Value

PAGE = 128
"""Rows of a page: one click unpacks this many, and repetition among so many packs well."""
LONGEST = 4000
"""Characters of a text that a trace may put on the page: a source line or an argument can be of any length."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page for the browser. `index` and `calls` are complete; `page` makes the tensors of some rows when asked."""

    title: str
    headline: Sequence[Element]
    """The headline, ready made: it is there before any script has run."""
    index: Mapping[str, Any]
    calls: Callable[[], Mapping[str, Any]]
    pages: int
    page: Callable[[int], Sequence[Any]]
    heats: Callable[[int], Sequence[Any]]
    """The pictures that belong to a page: large, and so apart."""
    graph: Callable[[], Mapping[str, Any]] | None = None
    """Modules and data flow; None where no call was recorded."""


def pack(content: object) -> bytes:
    """JSON in gzip; the same content gives the same bytes."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


class Words:
    """Gives each text, or other thing that can be looked up, a number; `items` has them in that order."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, item: Hashable, make: Callable[[], Any] | None = None) -> int:
        """The number of `item`. A new one is put into `items` as `make()`, where that is given."""
        number = self._numbers.get(item)
        if number is None:
            number = self._numbers[item] = len(self.items)
            self.items.append(make() if make else shorten(item) if isinstance(item, str) else item)
        return number


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"


def number(value: float | int | None, digits: int = 4) -> float | int | str | None:
    """`value` with `digits` digits, for people to read; not a number and the infinities as words."""
    if value is None or value == 0:
        return None if value is None else 0
    if not math.isfinite(value):
        return str(float(value))
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)  # beyond that, a browser's numbers are not exact
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e9 else short


def statistics(known: Statistics | None) -> list[float | int | str | None] | None:
    if known is None:
        return None
    numbers = [number(item, 6) for item in (known.min, known.max, known.mean, known.norm)]
    return [*numbers, known.nan, known.posinf + known.neginf, known.zero]


SHADES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def heat(grid: Heat) -> list[Any]:
    """Rows, columns, the largest value, and one letter for each cell: its share of the largest; `?` if it is not finite."""
    most = max((value for value in grid.values if math.isfinite(value)), default=0.0)
    top = len(SHADES) - 1
    # Rounded up: a cell with an error, however small beside the largest, is not shown as one without.
    cells = [
        "?" if not math.isfinite(value) else SHADES[math.ceil(value / most * top)] if value > 0 else SHADES[0]
        for value in grid.values
    ]
    return [grid.rows, grid.columns, number(most), "".join(cells)]


def picture(spec: Spec, values: Picture) -> dict[str, Any]:
    """The values of one tensor, as the page shows them when it is asked to."""
    heat = values.heat
    return {
        "spec": spec_text(spec),
        "first": [number(value, 9) for value in values.first],
        "more": values.count > len(values.first),
        "counts": values.counts,
        "edges": [number(value, 6) for value in values.edges],
        "heat": heat and [heat.rows, heat.columns, [number(value, 4) for value in heat.values]],
    }


def tensor(item: Tensor, *, identify: bool = False) -> list[Any]:
    """Facts about one tensor: spec, device, statistics, why it is missing, more facts, its number if wanted."""
    facts = {shorten(str(key)): shorten(str(value)) for key, value in item.facts.items()}
    if item.requires_grad:
        facts["requires_grad"] = "True"
    missing = shorten(item.missing) if item.missing else None
    number = item.id if identify else None
    return [spec_text(item.spec), item.device, statistics(item.statistics), missing, facts, number]


class CallTable:
    """Stacks, configurations and arguments of many calls, each different one once."""

    def __init__(self) -> None:
        self.texts, self.stacks, self.configs, self.arguments = Words(), Words(), Words(), Words()

    def add(self, call: Call, spec: Callable[[int], str]) -> tuple[int, int, int]:
        """The numbers of a call's stack, configuration and arguments."""
        texts, known = self.texts, call.config
        stack = self.stacks(
            call.stack, lambda: [[texts(f.file), f.line, texts(f.function), texts(f.code)] for f in call.stack]
        )
        key = known and (known.type, tuple((name, repr(value)) for name, value in known.values.items()))
        config = self.configs(
            key, lambda: known and [shorten(known.type), {shorten(k): show(v) for k, v in known.values.items()}]
        )
        slots = [(str(at), value) for at, value in enumerate(call.args)] + list(call.kwargs.items())
        pairs = tuple((slot, show(value, spec)) for slot, value in slots)
        if call.raised:
            pairs += (("raised", shorten(call.raised)),)
        pairs += tuple(("missing", shorten(text)) for text in call.missing)
        return stack, config, self.arguments(pairs)

    def columns(self) -> dict[str, Any]:
        return {name: getattr(self, name).items for name in ("texts", "stacks", "configs", "arguments")}


PLAIN = ("list", "tuple", "set", "dict")


def show(value: Value, spec: Callable[[int], str] = lambda _: "tensor") -> str:
    """A value as it would be written: `(1, 1)`, `{a: 1}`, `f32[2, 3]` for a tensor."""
    return shorten(_show(value, spec, 0))


def _show(value: Value, spec: Callable[[int], str], depth: int) -> str:
    if isinstance(value, TensorRef):
        return spec(value.id)
    if isinstance(value, Token):
        return value.text
    if not isinstance(value, Nest):
        return repr(value)
    if depth > 8:
        return "…"
    named = value.kind not in ("list", "tuple", "set")
    items = [(f"{key}: " if named else "") + _show(item, spec, depth + 1) for key, item in value.items[:64]]
    items += ["…"] * (len(value.items) > 64)
    inner = ", ".join(items) + ("," if value.kind == "tuple" and len(items) == 1 else "")
    start, end = {"list": ("[", "]"), "tuple": ("(", ")")}.get(value.kind, ("{", "}"))
    return f"{'' if value.kind in PLAIN else value.kind}{start}{inner}{end}"


@lru_cache(maxsize=4096)
def spec_text(spec: Spec) -> str:
    """`f32[8, 16]`."""
    return shorten(str(spec))


@lru_cache(maxsize=4096)
def place(frame: Frame) -> str:
    """`model.py:21`."""
    return shorten(frame.place)


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """An element of the page. Texts go in as texts: nothing that a trace says is ever taken for markup."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + child
        else:
            last.tail = (last.tail or "") + child
    return made
