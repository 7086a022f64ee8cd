"""Tables as TroubleShooter prints them.

+-----------------+
|    The title    |
+--------+--------+
| first  | second |
+--------+--------+
|  True  |  1.0   |
+--------+--------+

The last four cells of a row say what was found in two tensors; numbers are cut off, not rounded, and the mean is over all elements:

    True                    100.00%   0.99999   0.00000, 0.00001      every element within atol + rtol·|target|
    False                    99.90%   0.98712   0.00021, 1.02000
    Shape is inconsistent     0.00%       nan   nan, nan
    NN_X.npy: cut off …       0.00%       nan   nan, nan              why it could not be compared
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...model.errors import ReportError
from ...model.measurements import Measurement
from ...model.results import TensorResult
from ...model.tensors import Spec
from ...model.verdicts import Outcome
from ...store.appending import replaced
from .names import SCALARS


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


# --- what is said of two tensors ------------------------------------------------------------------------------------

Cells = tuple[object, str, str, str]
INCONSISTENT = "Shape is inconsistent"


class Scores(NamedTuple):
    """Result of `cal_algorithm`; `allclose` is a text where nothing could be computed."""

    allclose: bool | str
    ratio: float | None = 0.0
    cosine: float | None = math.nan
    diffs: tuple[float | None, float | None] = (math.nan, math.nan)

    @property
    def cells(self) -> Cells:
        """As they stand in a table: numbers are cut off, not rounded."""
        return self.allclose, percent(self.ratio), truncated(self.cosine, 5), ", ".join(
            truncated(number, 5) for number in self.diffs
        )  # fmt: skip


def scores(measured: Measurement, *, equal_nan: bool, double: bool = True) -> Scores:
    """From a measurement whose `rtol` is relative to the target, as numpy.allclose has it.

    Without `double`, numbers have the precision of float32, as those of such arrays have in the real tool: a cosine of 0.99999999
    would be cut off to 0.99999.
    """
    if not measured.count:
        return Scores(True, 1.0, 1.0, (0.0, 0.0))
    kept = measured.nan_both if equal_nan else 0  # NaN elements that count as equal
    close = round((measured.close or 0.0) * measured.count) - (measured.nan_both - kept)
    ratio = close / measured.count
    if measured.nan_left + measured.nan_right > 2 * kept:
        return Scores(False, ratio)
    if measured.inf_left + measured.inf_right > 2 * measured.inf_both:
        return Scores(False, ratio, diffs=(math.inf, math.inf))
    if measured.equal == measured.count:
        return Scores(True, 1.0, 1.0, (0.0, 0.0))
    cosine = math.nan if measured.cosine is None else measured.cosine
    numbers = [cosine, measured.mean_abs or 0.0, measured.max_abs or 0.0]
    if not double:
        numbers = [float(np.float32(number)) for number in numbers]
    return Scores(ratio == 1.0, ratio, numbers[0], (numbers[1], numbers[2]))


def is_double(left: Spec, right: Spec) -> bool:
    """True if numpy computes with two such arrays in float64."""
    return not {left.dtype, right.dtype} <= {"f32", "f16", "bf16"}


VALUE_FIELDS = ("result of allclose", "ratio of allclose", "cosine similarity", "mean & max diffs")
STATISTICS_FIELD = "max, min, mean diffs"
_SIDES = {"left": "target", "right": "origin"}


def in_their_words(text: str) -> str:
    """A sentence of ours: the target is our left side, the origin our right one."""
    text = re.sub(
        r"\b(on )?the (left|right)\b", lambda match: f"{'in ' if match[1] else ''}the {_SIDES[match[2]]}", text
    )
    return re.sub(r"(^|[ ;])(left|right): ", lambda match: f"{match[1]}{_SIDES[match[2]]}: ", text)


def value_cells(item: TensorResult, *, equal_nan: bool) -> Cells:
    """(allclose, share of elements that are, cosine, mean and largest difference)."""
    measured, count = item.measurement, math.prod(item.left.spec.shape)
    if measured is not None:
        return scores(measured, equal_nan=equal_nan, double=is_double(item.left.spec, item.right.spec)).cells
    if item.left.spec.shape != item.right.spec.shape:
        return Scores(INCONSISTENT).cells
    if missing := _missing(item):
        return Scores(missing).cells
    if item.verdict.outcome is not Outcome.SAME:
        return Scores(in_their_words(item.verdict.because)).cells
    undefined = item.left.statistics.nan if item.left.statistics is not None else 0
    if not undefined:
        return Scores(True, 1.0, 1.0, (0.0, 0.0)).cells
    return Scores(equal_nan, 1.0 if equal_nan else 1 - undefined / count).cells


def _missing(item: TensorResult) -> str:
    """Reason that the origin, the target or both have no values, unless the row itself holds the number.

    What statistics say is no answer where values were asked for.
    """
    sides = [side for side in (item.right, item.left) if side.missing and side.facts.get("dtype") not in SCALARS]
    return "; ".join(dict.fromkeys(str(side.missing) for side in sides))


def statistics_cell(item: TensorResult) -> str:
    """Differences of the largest, smallest and mean value."""
    differences = item.statistics
    numbers = (None, None, None) if differences is None else (differences.max, differences.min, differences.mean)
    return ", ".join(truncated(None if number is None else abs(number), 5) for number in numbers)
