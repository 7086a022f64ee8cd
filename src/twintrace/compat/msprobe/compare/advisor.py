"""The result of a comparison in short: the first row that fails, and what to look at.

    Line: 14
    Suspect Nodes: Functional.conv2d.1.forward.output.0
    Expert Advice: …
    First call that fails on inputs that do not: Functional.conv2d.1.forward (line 14)

The line is the row's number in the sheet. The first row that fails is often what an earlier call handed on; the last line
names the first call of which that cannot be said.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .rows import Row
from .verdicts import FAILURES, RED, YELLOW

# Implementations that may add up in another order every time.
_UNORDERED = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")
_NONE = "Nothing fails: all rows of the result reach the accuracy."
_OPEN = "No row fails of those that could be judged; the others are counted below."
_ARGUMENT = "The two calls were not asked for the same. Make their arguments equal before you look further."
_FORWARD_INPUT = (
    "The value was off before this call used it. Look where it comes from: the call that made it, data or weights that differ, "
    "an in-place call that wrote over it, memory that was written to by mistake."
)
_FORWARD_OUTPUT = (
    "The values that this call computes are wrong. Look at its implementation, its arguments, and the element types that "
    "it works in."
)
_BACKWARD_INPUT = (
    "A gradient was off before it came here. See whether what the forward pass kept for it is off, too: rows "
    "above this one."
)
_BACKWARD_OUTPUT = "The gradient that this call computes is off. Look at the implementation of its backward pass."
_BATCH_NORM = (
    "Batch statistics differ from run to run. Evaluate with training=False or affine=False, or make the run deterministic: "
    "seed_all(mode=True)."
)
_DETERMINISM = (
    "This call may add up in another order each time. Make both runs deterministic, seed_all(mode=True), before you look "
    "further."
)


@dataclass
class Advisor:
    """Sees all rows, a record at a time, and remembers little of them; then it is the summary of the table."""

    line: int = 1
    """The line of the last row in the sheet."""
    first: tuple[int, str] | None = None
    """The first row that fails: its line, and its name."""
    suggestion: str = _NONE
    """Advice on that row."""
    arises: tuple[int, str] | None = None
    """The first record that fails although nothing that went in does."""
    unread: int = 0
    """Rows that should have been compared and were not."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Number of rows with each verdict."""
    doubts: Counter[str] = field(default_factory=Counter)
    """Rows that do not fail and cannot be said to pass: why, and how many."""
    path: Path = Path()
    """The table."""
    advice: Path | None = None
    """The file with the advice, where it was asked for."""

    @property
    def rows(self) -> int:
        return self.line - 1

    def see(self, rows: Sequence[Row]) -> None:
        """Take the rows of one record, in the order of the sheet."""
        failing: list[tuple[int, Row]] = []
        for row in rows:
            self.line += 1
            self.verdicts[row.verdict] += 1
            self.unread += bool(row.unread)
            doubt = _doubt(row)
            if doubt:
                self.doubts[doubt] += 1
            elif row.verdict in FAILURES or row.colour == RED:
                failing.append((self.line, row))
        if failing and self.first is None:
            line, row = failing[0]
            self.first, self.suggestion = (line, row.name), _advice_on(row)
        handed_on = any(not row.output and not _is_argument(row) for _, row in failing)
        if failing and self.arises is None and not handed_on and len(rows) > len(failing):
            line, row = failing[0]
            self.arises = line, (row.pair.npu or row.pair.bench).record  # type: ignore[union-attr]

    def text(self, npu: str | os.PathLike[str], bench: str | os.PathLike[str]) -> str:
        """Text of the file."""
        line, name = self.first or ("NA", "NA")
        suggestion = self.suggestion if self.first or not self.doubts else _OPEN
        lines = [f"Line: {line}", f"Suspect Nodes: {name}", f"Expert Advice: {suggestion}"]
        if self.arises is not None:
            lines.append(f"First call that fails on inputs that do not: {self.arises[1]} (line {self.arises[0]})")
        for doubt, count in self.doubts.items():
            lines.append(f"Not known to pass: {count} of {self.rows} rows {doubt}.")
        command = shlex.join(["twintrace", "compare", os.fspath(bench), os.fspath(npu)])
        lines.append(f"Where the two runs part, and why: {command}")
        return "\n".join(lines) + "\n"


def _doubt(row: Row) -> str:
    """Reason that a row neither fails nor passes; "" if it does one of the two."""
    if row.unread:
        return "could not be read; each says why"
    if not row.matched:
        return "have nothing on the other side"
    if row.verdict in FAILURES:
        return ""
    if row.colour == RED and row.npu.numbers == row.bench.numbers:
        return "are red, and have the same extremes on both sides"
    if row.colour == YELLOW:
        return "are yellow; each says why"
    if row.verdict == "None" and isinstance(row.numbers[2], float) and row.numbers[2]:
        return "have one element, which differs and for which there is no rule"
    return ""


def _is_argument(row: Row) -> bool:
    """True for something that the call was given, that is no tensor, and that differs: no earlier call has made it."""
    items = (row.pair.npu, row.pair.bench)
    return bool(row.differs) and not row.output and all(item is not None and not item.is_tensor for item in items)


def _advice_on(row: Row) -> str:
    if _is_argument(row):
        return f"{row.differs} {_ARGUMENT}"
    said = row.differs or (row.remark if row.verdict == "Unmatched" else "")
    if not said and row.verdict not in FAILURES and row.messages:
        said = row.messages[-1]
    return f"{said} {advice(row.name, row.output)}".lstrip()


def advice(name: str, output: bool) -> str:
    """Advice for when this item is the first that fails."""
    if "batch_norm" in name and ".forward" in name and not output:
        return _BATCH_NORM
    if output and any(part in name for part in _UNORDERED):
        return _DETERMINISM
    if ".backward" in name or ".parameters_grad" in name:
        return _BACKWARD_OUTPUT if output else _BACKWARD_INPUT
    return _FORWARD_OUTPUT if output else _FORWARD_INPUT
