"""Answers about one run, one script and one machine, as text and as JSON.

nonfinite_text, nonfinite_json        where the first value comes from that is not finite

    runs/a: the first value that is not finite arises at torch.Tensor.log in head, step 7, forward

      where   train.py:31 in loss: return p.log().mean()
      what    what comes in is finite: the output 0, f32[8, 10], has 12 -inf of 80
      why     log of zero: 12 of 80 elements of the input are 0
      inputs  input f32[8, 10] 0 … 0.98, 12 zeros
      then    it reaches 3 calls, the gradients of 4 parameters
      next    add a small epsilon, or clamp what comes in

repetition_text                       a script that was run twice
operations_text, operations_json      operations that are known

    gelu          forward backward                    PyTorch gelu, torch.nn.GELU | MindSpore GeLU, Gelu, GeluExt, gelu …

findings_json                         `twintrace doctor`
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence

from ..model.listings import Finding, KnownOperation
from ..model.nonfinite import NonfiniteReport, Origin, ValueRange
from ..model.repetition import Repetition
from ..model.sites import Phase
from .naming import legible, single_place

_INPUTS = 4
"""Operands that are printed; an optimizer's step has hundreds."""


def nonfinite_text(report: NonfiniteReport) -> str:
    """The report as text: one sentence if nothing was found, otherwise the place, the cause and earlier signs."""
    origin = report.origin
    if origin is None:
        lines = [f"{report.path}: {_nothing(report)}"]
    else:
        rank = f", rank {origin.rank}" if origin.rank else ""
        where = "outside what was recorded" if origin.call is None else f"at {single_place(origin.call)}"
        lines = [
            f"{report.path}: the first value that is not finite arises {where}, step {origin.step}{rank}, {origin.when}",
            "",
            *(f"  {label:<8}{text}" for label, text in _facts(origin)),
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


def _facts(origin: Origin) -> Iterator[tuple[str, str]]:
    if origin.call is not None:
        yield "where", str(origin.call.stack[0]) if origin.call.stack else "(no source line was recorded)"
    yield "what", origin.what
    yield "why", origin.why
    for place, item in enumerate(origin.given[:_INPUTS]):
        yield "inputs" if not place else "", _range(item)
    if len(origin.given) > _INPUTS:
        yield "", f"and {len(origin.given) - _INPUTS:,} more"
    for place, text in enumerate(origin.led):
        yield "led" if not place else "", text
    if origin.reached:
        yield "then", origin.reached
    if origin.advice:
        yield "next", origin.advice


def _range(item: ValueRange) -> str:
    known = item.statistics
    if known is None:
        return f"{item.name} {item.spec}: no statistics"
    ends = "nothing finite" if known.min is None else f"{known.min:.6g} … {known.max:.6g}"
    norm = "" if known.norm is None else f", norm {known.norm:.4g}"
    zeros = f", {known.zero:,} zero{'s' * (known.zero != 1)}" if known.zero else ""
    return f"{item.name} {item.spec} {ends}{norm}{zeros}" + (f", {item.counts}" if item.counts else "")


def nonfinite_json(report: NonfiniteReport) -> str:
    """The report for machines."""
    origin = report.origin
    told: dict[str, object] | None = None
    if origin is not None:
        call = origin.call
        told = {
            "step": origin.step,
            "rank": origin.rank,
            "when": origin.when,
            "source": origin.source,
            "site": None if call is None else str(call.site),
            "path": None if call is None else call.site.path,
            "stack": [] if call is None else [dataclasses.asdict(frame) for frame in call.stack],
            **{name: getattr(origin, name) for name in ("what", "why", "advice")},
            **{name: [_range_json(item) for item in getattr(origin, name)] for name in ("given", "made")},
            **{name: getattr(origin, name) for name in ("led", "reached")},
        }
    names = ("path", "code", "steps", "harmless", "untold")
    return _json({name: getattr(report, name) for name in names} | {"origin": told})


def _range_json(item: ValueRange) -> dict[str, object]:
    names = ("min", "max", "mean", "norm", "nan", "posinf", "neginf", "zero")
    numbers = None if item.statistics is None else {name: getattr(item.statistics, name) for name in names}
    return {"name": item.name, "spec": str(item.spec), "statistics": numbers}


def repetition_text(answer: Repetition) -> str:
    """One sentence if the two runs are the same; otherwise the first call that differs, and why."""
    first = answer.first
    lines = []
    if first is not None:
        update = first.call is not None and first.call.site.phase is Phase.UPDATE
        when = "backward" if first.backward else "update" if update else "forward"
        where = "" if first.call is None else f" at {single_place(first.call)}"
        rank = f", rank {first.rank}" if first.rank else ""
        lines = [
            f"{answer.script} does not repeat itself: two runs differ first{where}, step {first.step}{rank}, {when}",
            "",
        ]
        if first.call is not None and first.call.stack:
            lines.append(f"  where   {first.call.stack[0]}")
        lines += [f"  what    {first.what}", f"  cause   {first.cause}: {first.why}"]
        lines += [f"  next    {first.advice}"] if first.advice else []
        lines += ["", f"  {answer.compared:,} values were compared up to there, of {answer.calls:,} calls."]
    elif not answer.compared:
        lines = [f"{answer.script}: could not be told: no call was recorded that has values."]
    else:
        lines = [
            f"{answer.script} repeats itself: {answer.compared:,} values of {answer.calls:,} calls are the same, bit by bit."
        ]
    if answer.raised:
        lines.append(f"  The script ended with {answer.raised}")
    lines += [f"  {remark}" for remark in answer.remarks]
    return "\n".join(legible(line) for line in lines)


_WIDTH = 120
_SHOWN = 3
"""Names of a framework on one line; the rest is a matter of `details`."""
_RULES = (
    "A function of PyTorch or mindspore.mint that is not listed is called in float64 as it stands. "
    "Names that end in _ and calls with out= are the same operation, written in place. "
    "A name without a home (torch., mindspore.) is found in all homes of its framework."
)


def operations_text(known: Sequence[KnownOperation], *, details: bool = False) -> str:
    """One line for each operation, or a paragraph with all names and variants; sums and rules at the end."""
    if not known:
        return "No operation of this name is in the table."
    lines = [line for item in known for line in (_paragraph(item) if details else (_line(item),))]
    computed = sum(item.forward for item in known)
    differentiated = sum(item.backward for item in known)
    total = f"{len(known)} known, {computed} recomputed forward, {differentiated} backward."
    return "\n".join([*lines, "", total, *textwrap.wrap(_RULES, _WIDTH)])


def operations_json(known: Sequence[KnownOperation]) -> str:
    """`{"operations": [...]}`, each with the fields of `KnownOperation`."""
    return _json({"operations": [dataclasses.asdict(item) for item in known]})


def findings_json(findings: Sequence[Finding]) -> str:
    """`{"findings": [...]}`, each with the fields of `Finding`."""
    return _json({"findings": [dataclasses.asdict(item) for item in findings]})


def _json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _marks(item: KnownOperation) -> str:
    words = {name: name for name in ("forward", "backward", "draws", "moves", "asks", "writes")}
    words["draws"] = f"draws {item.draws}"
    return " ".join(word for name, word in words.items() if getattr(item, name))


def _line(item: KnownOperation) -> str:
    names = (
        f"{framework} {', '.join(own[:_SHOWN])}{' …' if len(own) > _SHOWN else ''}"
        for framework, own in (("PyTorch", item.torch), ("MindSpore", item.mindspore))
        if own
    )
    return f"{item.name:29} {_marks(item):32} {' | '.join(names)}".rstrip()


def _paragraph(item: KnownOperation) -> Iterator[str]:
    yield f"{item.name}  {_marks(item)}".rstrip()
    # MSAdapter has PyTorch's names but those of its kernels.
    names = (("PyTorch", item.torch), ("MindSpore", item.mindspore), ("MSAdapter", item.msadapter))
    facts = (*names, ("writes", item.writes), ("variants", item.variants))
    for label, values in facts:
        if values:
            text = ("; " if label == "variants" else ", ").join(values)
            yield from textwrap.wrap(
                text, _WIDTH, initial_indent=f"  {label:11}", subsequent_indent=" " * 13, break_on_hyphens=False
            )
