"""Origin of the first value that is not finite, as text and as JSON.

runs/a: the first value that is not finite arises at torch.Tensor.log in head, step 7, forward

  where   train.py:31 in loss: return p.log().mean()
  what    what comes in is finite: the output 0, f32[8, 10], has 12 -inf of 80
  why     log of zero: 12 of 80 elements of the input are 0
  inputs  input f32[8, 10] 0 … 0.98, 12 zeros
  then    it reaches 3 calls, the gradients of 4 parameters
  next    add a small epsilon, or clamp what comes in
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from ..model.nonfinite import NonfiniteReport, Origin, ValueRange
from .text import legible, single_place

_INPUTS = 4
"""Operands that are printed; an optimizer's step has hundreds."""


def nonfinite_text(report: NonfiniteReport) -> str:
    """The report as text: one sentence if nothing was found, otherwise the place, the cause and what led there."""
    found = report.origin
    if found is None:
        lines = [f"{report.path}: {_nothing(report)}"]
    else:
        rank = f", rank {found.rank}" if found.rank else ""
        where = "outside what was recorded" if found.call is None else f"at {single_place(found.call)}"
        lines = [
            f"{report.path}: the first value that is not finite arises {where}, step {found.step}{rank}, {found.when}",
            "",
            *(f"  {label:<8}{text}" for label, text in _facts(found)),
        ]
    if report.harmless:
        lines += ["", "  Not finite, and without effect:", *(f"    {text}" for text in report.harmless)]
    return "\n".join(legible(line) for line in lines)


def _nothing(report: NonfiniteReport) -> str:
    if report.untold:
        return f"could not be told: {'; '.join(report.untold)}."
    steps = f"{report.steps:,} step{'s' * (report.steps != 1)}"
    if report.harmless:
        return f"nothing that is not finite has an effect, in {steps}."
    return f"every recorded value is finite, in {steps}."


def _facts(found: Origin) -> Iterator[tuple[str, str]]:
    if found.call is not None:
        yield "where", str(found.call.stack[0]) if found.call.stack else "(no source line was recorded)"
    yield "what", found.what
    yield "why", found.why
    for place, item in enumerate(found.given[:_INPUTS]):
        yield "inputs" if not place else "", _range(item)
    if len(found.given) > _INPUTS:
        yield "", f"and {len(found.given) - _INPUTS:,} more"
    for place, text in enumerate(found.led):
        yield "led" if not place else "", text
    if found.reached:
        yield "then", found.reached
    if found.advice:
        yield "next", found.advice


def _range(item: ValueRange) -> str:
    known = item.statistics
    if known is None:
        return f"{item.name} {item.spec}: no statistics"
    ends = "nothing finite" if known.min is None else f"{known.min:.6g} … {known.max:.6g}"
    counts = (
        (known.zero, "zeros" if known.zero != 1 else "zero"),
        (known.nan, "NaN"),
        (known.posinf, "+inf"),
        (known.neginf, "-inf"),
    )
    told = "".join(f", {count:,} {name}" for count, name in counts if count)
    norm = "" if known.norm is None else f", norm {known.norm:.4g}"
    return f"{item.name} {item.spec} {ends}{norm}{told}"


def nonfinite_json(report: NonfiniteReport) -> str:
    """The report for machines."""
    found = report.origin
    document: dict[str, object] = {
        "path": report.path,
        "code": report.code,
        "steps": report.steps,
        "harmless": list(report.harmless),
        "untold": list(report.untold),
        "origin": None,
    }
    if found is not None:
        call = found.call
        document["origin"] = {
            "step": found.step,
            "rank": found.rank,
            "when": str(found.when),
            "source": str(found.source),
            "site": None if call is None else str(call.site),
            "path": None if call is None else call.site.path,
            "stack": [] if call is None else [dataclasses.asdict(frame) for frame in call.stack],
            "what": found.what,
            "why": found.why,
            "advice": found.advice,
            "given": [_range_json(item) for item in found.given],
            "made": [_range_json(item) for item in found.made],
            "led": list(found.led),
            "reached": found.reached,
        }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _range_json(item: ValueRange) -> dict[str, object]:
    known = item.statistics
    numbers = None if known is None else {
        name: getattr(known, name) for name in ("min", "max", "mean", "norm", "nan", "posinf", "neginf", "zero")
    }  # fmt: skip
    return {"name": item.name, "spec": str(item.spec), "statistics": numbers}
