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

from ..model.curves import Curve, Curves, Layer
from .text import legible

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48
_LAYERS = 60


def curves_text(found: Curves) -> str:
    """Curves over the steps, then the layers of the last step."""
    steps = [step for curve in found.curves[:1] for step, _ in curve.points]
    if not found.curves:
        return f"{found.path}: no statistics to draw"
    lines = [f"{found.path}, steps {steps[0]} to {steps[-1]}" + (f", rank {found.rank}" if found.rank else "")]
    lines += [_line(curve) for curve in found.curves]
    if found.layers:
        lines += ["", f"  step {found.step}, root mean squares" + " " * 28 + "result   gradient   zeros"]
        lines += [_row(layer) for layer in found.layers[:_LAYERS]]
        if len(found.layers) > _LAYERS:
            lines.append(f"  and {len(found.layers) - _LAYERS} more: --json has all")
    return "\n".join(legible(line) for line in lines)


def _row(layer: Layer) -> str:
    numbers = f"{_number(layer.result):>8} {_number(layer.gradient):>10} {_share(layer.zeros):>7}"
    return f"  {layer.name[:38]:<38} {layer.type[:18]:<18} {numbers}"


def curves_json(found: Curves) -> str:
    """The curves for machines."""
    return json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False)


def _line(curve: Curve) -> str:
    known = curve.known
    gaps = len(curve.points) - len(known)
    missing = f"; {gaps} steps without" if gaps else ""
    span = f"{_number(known[0])} → {_number(known[-1])} ({_number(min(known))} … {_number(max(known))}{missing})"
    return f"  {curve.name:<10} {sparkline([value for _, value in curve.points]):<{_WIDTH}} {span}  {curve.meaning}"


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


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
