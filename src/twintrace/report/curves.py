"""A run's curves in a terminal.

runs/a, steps 0 to 399
  loss       ▇▆▅▄▃▃▂▂▁▁  2.31 → 0.42   (0.41 … 2.31)
  gradients  ▁▁▂▁▁▁▁▇▇█  1.2 → 3.4e+03 (0.9 … 3.4e+03)  norm of the gradients of all parameters
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..model.curves import ComparedCurves, Curve, Curves, Layer
from .naming import legible
from .sheets import number

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48
_LAYERS = 60


def curves_text(curves: Curves | ComparedCurves) -> str:
    """Curves over the steps, then the layers of the last step; of two runs both, and how far they are apart."""
    if isinstance(curves, ComparedCurves):
        return _compared_text(curves)
    steps = [step for curve in curves.curves[:1] for step, _ in curve.points]
    if not curves.curves:
        return f"{curves.path}: no statistics to draw"
    lines = [f"{curves.path}, steps {steps[0]} to {steps[-1]}" + (f", rank {curves.rank}" if curves.rank else "")]
    lines += [_line(curve) for curve in curves.curves]
    if curves.layers:
        lines += ["", f"  step {curves.step}, root mean squares" + " " * 28 + "result   gradient   zeros     update"]
        lines += [_row(layer) for layer in curves.layers[:_LAYERS]]
        if len(curves.layers) > _LAYERS:
            lines.append(f"  and {len(curves.layers) - _LAYERS} more: --json has all")
    return "\n".join(legible(line) for line in lines)


def _row(layer: Layer) -> str:
    zeros = "–" if layer.zeros is None else f"{100 * layer.zeros:.0f} %"
    numbers = f"{_number(layer.result):>8} {_number(layer.gradient):>10} {zeros:>7} {_number(layer.update):>10}"
    return f"  {layer.name[:38]:<38} {layer.type[:18]:<18} {numbers}"


def _compared_text(curves: ComparedCurves) -> str:
    """Both runs over the same steps, and how far they are apart over steps and depth."""
    lines = ["curves of both, left above right"]
    named = {curve.name: curve for curve in curves.right.curves}
    for curve in curves.left.curves:
        if curve.name in named:
            lines += [_line(curve), _line(replace(named[curve.name], name="", meaning=""))]
    lines += ["", *(_line(curve) for curve in curves.apart)]
    if curves.layers:
        lines += ["", f"  step {curves.step}, over the depth" + " " * 25 + "relative   of what is allowed"]
        lines.append(f"  {sparkline([allowed for _, _, allowed in curves.layers])}")
        rows = curves.layers[:_LAYERS]
        lines += [f"  {name[:44]:<44} {apart:>10.2g} {_number(allowed):>12}" for name, apart, allowed in rows]
        if len(curves.layers) > _LAYERS:
            lines.append(f"  and {len(curves.layers) - _LAYERS} more: --json has all")
    return "\n".join(legible(line) for line in lines)


def curve_columns(curves: Sequence[tuple[Curve, ...]]) -> list[dict[str, Any]]:
    """Curves for the page: of each its name, its meaning, and the points of one run, or of left and right."""
    return [
        {
            "name": group[0].name,
            "meaning": group[0].meaning,
            "sides": [[[step, number(value, 6)] for step, value in curve.points] for curve in group],
        }
        for group in curves
    ]


def curves_json(curves: Curves | ComparedCurves) -> str:
    """The curves for machines."""
    return json.dumps(dataclasses.asdict(curves), indent=2, ensure_ascii=False)


def _span(curve: Curve) -> str:
    known = curve.known
    gaps = len(curve.points) - len(known)
    missing = f"; {gaps} steps without" if gaps else ""
    if not known:
        return "–"
    return f"{_number(known[0])} → {_number(known[-1])} ({_number(min(known))} … {_number(max(known))}{missing})"


def _line(curve: Curve) -> str:
    drawn = sparkline([value for _, value in curve.points])
    return f"  {curve.name:<10} {drawn:<{_WIDTH}} {_span(curve)}  {curve.meaning}".rstrip()


def sparkline(values: Sequence[float | None], width: int = _WIDTH) -> str:
    """One character for each value, or for the largest of several; logarithmic where values span more than two powers of ten.

    `·` stands where nothing is known.
    """
    size = max(math.ceil(len(values) / width), 1)
    groups = [[v for v in values[start : start + size] if v is not None] for start in range(0, len(values), size)]
    heights = [max(group) if group else None for group in groups]
    known = [height for height in heights if height is not None]
    if not known:
        return "·" * len(heights)
    smallest = min(known)
    wide = smallest > 0 and max(known) > 100 * smallest
    scaled = [None if height is None else math.log(height) if wide else height for height in heights]
    told = [item for item in scaled if item is not None]
    low, span = min(told), max(told) - min(told)
    return "".join(
        "·" if item is None else _BARS[min(int((item - low) / span * len(_BARS)), len(_BARS) - 1) if span else 0]
        for item in scaled
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
