"""Tables as TroubleShooter prints them.

+-----------------+
|    The title    |
+--------+--------+
| first  | second |
+--------+--------+
|  True  |  1.0   |
+--------+--------+
"""

from __future__ import annotations

import csv
import io
import math
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from ...model.errors import ReportError
from ...store.appending import replaced


def boxed(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, ruled: bool = False) -> str:
    """The table as text. A cell may have several lines; `ruled`: a line after each row."""
    cells = [[str(cell).split("\n") for cell in row] for row in rows]
    widths = [max([len(heads[at]), *(len(text) for row in cells for text in row[at])]) for at in range(len(heads))]
    room = sum(widths) + 3 * len(widths) - 1
    if len(title) + 2 > room:  # the last column takes what the title needs
        widths[-1] += len(title) + 2 - room
        room = len(title) + 2
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    head = ["+" + "-" * room + "+", "|" + _centred(title, room) + "|"] if title else []
    body: list[str] = []
    for row in cells:
        body += [_joined(part, widths) for part in zip_longest(*row, fillvalue="")]
        body += [line] if ruled else []
    if ruled and body:
        body.pop()
    names = _joined(heads, widths)
    return "\n".join([*head, line, names, line, *body, line])


def _joined(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(f" {_centred(text, width)} " for text, width in zip(texts, widths, strict=True)) + "|"


def _centred(text: str, width: int) -> str:
    excess = width - len(text)
    before = excess // 2 + (excess % 2 if len(text) % 2 == 0 else 0)
    return " " * before + text + " " * (excess - before)


def truncated(number: float | None, places: int) -> str:
    """A number cut off, not rounded, after some places; nan where there is none."""
    if number is None or not math.isfinite(number):
        return "nan" if number is None or math.isnan(number) else str(number)
    factor = 10.0**places
    return f"{int(number * factor) / factor:.{places}f}"


def percent(share: float | None) -> str:
    """A share as a percentage with two places, cut off."""
    return "0.00%" if share is None or not math.isfinite(share) else f"{int(share * 10000) / 10000:.2%}"


def say(text: str) -> None:
    """Print, as the real tool does."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_csv(path: str | os.PathLike[str], heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The table as the real tool writes it: every cell in quotes. Whole, or as it was before."""
    text = io.StringIO()
    writer = csv.writer(text, dialect="unix")
    writer.writerow(heads)
    writer.writerows(rows)
    try:
        with replaced(Path(path), 0o600) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise ReportError(
            f"{os.fspath(path)}: the table cannot be written ({error.strerror}). Choose another path."
        ) from None


def caution(text: str) -> None:
    """Tell the user what may be wrong, where it does not mix with tables."""
    sys.stderr.write(f"[*User Warning*] {text}\n")
    sys.stderr.flush()


def attention(text: str) -> None:
    """Tell the user what goes on, where it does not mix with tables."""
    sys.stderr.write(f"[*User Attention*] {text}\n")
    sys.stderr.flush()
