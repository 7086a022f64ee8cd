"""`ts.widget.loss_compare`: the losses of two training logs, as curves and numbers.

    ts.widget.loss_compare(
        {"path": "torch.log", "loss_tag": "loss:", "label": "PyTorch"},       epoch 0 step 1 loss: 2.3026 lr: 0.01
        {"path": "ms.log", "loss_tag": "loss is", "label": "MindSpore"},      step 1, loss is 2.3027
    )

    loss_compare/loss_compare.svg   both curves                  loss_compare/statistic.csv     largest, smallest, mean; errors
    loss_compare/error.svg          left minus right             loss_compare/torch.log.csv     the losses, and ms.log.csv

A loss that is NaN stays in its place, so what follows it does not shift; curves have a gap there.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from ....model.errors import ReportError, UsageError
from ..tables import say

_NUMBER = re.compile(r"[+-]?(?:nan|inf(?:inity)?|\d+(?:\.\d*)?(?:e[+-]?\d+)?)", re.IGNORECASE)
_WIDTH, _HEIGHT, _MARGIN = 960, 540, 60
_COLOURS = ("#1f77b4", "#ff7f0e")


def loss_compare(left_file: Mapping[str, Any], right_file: Mapping[str, Any], title: str = "Loss Compare") -> None:
    """Write both curves, their difference and their numbers into the folder `loss_compare`."""
    logs = [_log(name, given) for name, given in (("left_file", left_file), ("right_file", right_file))]
    folder = Path.cwd() / "loss_compare"
    errors = [one - two for one, two in zip(logs[0].losses, logs[1].losses, strict=False)]
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _draw(folder / "loss_compare.svg", title, "loss", {log.label: log.losses for log in logs})
        _draw(folder / "error.svg", title, "error", {"error": errors})
        _write(folder / "statistic.csv", [dict(_statistics(logs[0].losses, logs[1].losses, errors))])
        for log in logs:
            _write(folder / f"{log.path.name}.csv", [{"": n, "loss": loss} for n, loss in enumerate(log.losses)])
    except OSError as error:
        raise ReportError(f"{folder}: the comparison cannot be written ({error.strerror}).") from None
    say(f"Loss Comparison has completed, results saved in {folder}!")


@dataclass(frozen=True, slots=True)
class _Log:
    """The losses of one log, in their order."""

    path: Path
    label: str
    losses: tuple[float, ...]


def _log(name: str, given: Mapping[str, Any]) -> _Log:
    if not isinstance(given, Mapping) or not all(given.get(key) for key in ("path", "loss_tag")):
        raise UsageError(f'{name}: expected {{"path": …, "loss_tag": …, "label": …}}, got {given!r}.')
    path, tag = Path(os.fspath(given["path"])), str(given["loss_tag"])
    try:
        log = _Log(path, str(given.get("label") or path.name), tuple(_losses(path, tag)))
    except OSError as error:
        raise UsageError(f"{name}: {path} cannot be read ({error.strerror}).") from None
    if not log.losses:
        raise UsageError(
            f"{name}: no line of {path} has a number after {tag!r}. Give the text before the loss as loss_tag."
        )
    return log


def _losses(path: Path, tag: str) -> Iterator[float]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            _, tagged, rest = line.partition(tag)
            number = _NUMBER.search((rest.split() or [""])[0]) if tagged else None
            if number:
                yield float(number[0])


def _statistics(left: Sequence[float], right: Sequence[float], errors: Sequence[float]) -> Iterator[tuple[str, float]]:
    for name, losses in (("LEFT", left), ("RIGHT", right)):
        finite = [loss for loss in losses if math.isfinite(loss)] or [math.nan]
        yield f"{name}_MAX", max(finite)
        yield f"{name}_MIN", min(finite)
        yield f"{name}_MEAN", math.fsum(finite) / len(finite)
    pairs = [(abs(error), abs(loss)) for error, loss in zip(errors, left, strict=False) if math.isfinite(error)]
    yield "MAX_ABS_ERROR", max((error for error, _ in pairs), default=math.nan)
    yield "MAX_REL_ERROR", max((error / loss for error, loss in pairs if loss), default=math.nan)


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    path.chmod(0o600)


def _draw(path: Path, title: str, what: str, curves: Mapping[str, Sequence[float]]) -> None:
    """Curves over their numbers, as one picture that every browser shows."""
    finite = [value for curve in curves.values() for value in curve if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    last = max([*map(len, curves.values()), 2]) - 1

    def place(number: int, value: float) -> str:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * number / last
        y = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * ((value - low) / (high - low) if high > low else 0.5)
        return f"{x:.1f},{y:.1f}"

    root = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_WIDTH} {_HEIGHT}")
    root.set("font-family", "sans-serif")
    frame = {"x": _MARGIN, "y": _MARGIN, "width": _WIDTH - 2 * _MARGIN, "height": _HEIGHT - 2 * _MARGIN}
    SubElement(root, "rect", {name: str(number) for name, number in frame.items()}, fill="white", stroke="#888")
    texts = [(_WIDTH / 2, 30, title), (_WIDTH / 2, _HEIGHT - 15, f"iter 0 … {last}"), (30, _HEIGHT / 2, what)]
    texts += [(30, _MARGIN, f"{high:.4g}"), (30, _HEIGHT - _MARGIN, f"{low:.4g}")]
    for x, y, text in texts:
        SubElement(root, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": "middle"}).text = text
    for number, (label, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        steps = ["M" if k == 0 or not math.isfinite(curve[k - 1]) else "L" for k in range(len(curve))]
        way = " ".join(
            step + place(k, value)
            for k, (step, value) in enumerate(zip(steps, curve, strict=True))
            if math.isfinite(value)
        )
        SubElement(root, "path", d=way, fill="none", stroke=colour)
        legend = {"x": str(_WIDTH - _MARGIN - 10), "y": str(_MARGIN + 20 * (number + 1)), "text-anchor": "end"}
        SubElement(root, "text", legend, fill=colour).text = label
    path.write_bytes(tostring(root))
    path.chmod(0o600)
