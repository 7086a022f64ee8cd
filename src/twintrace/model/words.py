"""Words: enums whose members are their own values everywhere, in text and as keys; and numbers as people write them."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable


class Word(str, enum.Enum):
    """Members print, format and hash as plain text, and as fast."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # the same, but for the name of its argument
    __hash__ = str.__hash__


def times(number: float) -> str:
    """A factor as people write it: 0.054, 3.2, 86, 12,000, 1.2 million, 3 billion, 10^14."""
    if number == float("inf"):
        return "infinitely many"
    if number >= 1e12:
        return f"10^{math.log10(number):.0f}"
    if number >= 1e6:
        unit, name = (1e9, "billion") if number >= 1e9 else (1e6, "million")
        return f"{float(f'{number / unit:.2g}'):.3g} {name}"
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 100 else f"{number:.2g}"


def counted(number: int, noun: str) -> str:
    """`1 pair`, `3 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def dotted(*parts: str) -> str:
    """`encoder.0.weight`: the way to something, of those parts that are not empty."""
    return ".".join(filter(None, parts))


def some(names: Iterable[object], most: int = 4) -> str:
    """`a, b, c, d and 3 more`."""
    listed = [str(name) for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def spans(numbers: Iterable[int]) -> str:
    """`0-36, 40`: numbers of steps or ranks; the first six spans of many."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(one) if one == two else f"{one}-{two}" for one, two in ranges]
    return ", ".join(shown[:6]) + (" …" if len(shown) > 6 else "")


def bytes_text(nbytes: int) -> str:
    """`1.5 GB`, `300 bytes`; a KB is 1000 of them."""
    for unit, limit in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if nbytes >= limit:
            return f"{nbytes / limit:.1f} {unit}"
    return f"{nbytes} bytes"


def error_text(error: BaseException) -> str:
    """`ValueError: …`, whatever the error's own text does."""
    try:
        return f"{type(error).__name__}: {error}"[:400]
    except Exception:  # noqa: BLE001 - an error without a text is still an error
        return type(error).__name__
