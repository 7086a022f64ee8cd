"""A single trace for the browser: its calls, their tensors' statistics, and where the first value is that is not finite.

    trace_sheet(recording, journals) -> Sheet
    trace_table(journals)            its tensors as one flat table

        step  rank  call                         part    slot  tensor     min    max   mean  norm  nan  …  source
        0     0     forward/module:encoder.0#0   output        f32[4, 16] -2.1   3.4   0.01  8.2   0       model.py:21

    outcomes_of(journal)             whether the results of each call are finite, for a ribbon

A row is a call, or a gradient that reached a parameter. The place of a comparison's verdicts is taken by facts about the values:
they are finite, or not, or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ..model.curves import Curve
from ..model.pairs import Part, Side
from ..model.records import Call, Gradient
from ..model.results import Recording
from ..model.sites import Phase
from ..model.tensors import Tensor
from .comparison_sheet import KINDS, NONE, PHASES, recording_facts, side_columns
from .curves import curve_columns
from .graphs import Fact, trace_graph
from .headline import headline_of_trace
from .naming import single_place
from .sheets import PAGE, CallTable, Sheet, Words, number, place, shorten, spec_text, tensor
from .tables import Cell, Table

FINITE, UNKNOWN, BROKEN = 0, 2, 3
OUTCOMES = ("finite", "", "unknown", "not finite")
"""In the places of a comparison's outcomes."""
_NUMBERS = ("min", "max", "mean", "norm", "nan", "posinf", "neginf", "zero")
COLUMNS = (
    "step", "rank", "call", "kind", "path", "type", "part", "slot", "pass", "tensor", *_NUMBERS, "fingerprint", "device", "missing",
    "source",
)  # fmt: skip
SCORES = {FINITE: 0, UNKNOWN: 500, BROKEN: 1000, NONE: 0}

_TAKEN = (Part.INPUT, Part.PARAMETER, Part.BUFFER)
Value = tuple[Part, str, int, Tensor]
"""Which tensor of its call, its slot, of which backward pass, and its facts."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One step of one rank."""

    step: int
    rank: int
    side: Side


@dataclass(frozen=True, slots=True)
class _Row:
    step: int
    rank: int
    side: Side
    call: Call | None
    gradient: Gradient | None


def trace_sheet(
    recording: Recording, journals: Iterable[Journal], remarks: Sequence[str] = (), curves: Sequence[Curve] = ()
) -> Sheet:
    """The trace, ready for the browser; with its curves, where it has more than one step."""
    rows = [row for journal in journals for row in _rows(journal)]
    words = Words()
    names = (
        "step", "rank", "kind", "phase", "forward", "forward_score", "backward", "backward_score", "flags", "spec",
        "min", "max", "mean", "norm", "left", "left_call", "left_type", "left_path", "left_source", "position",
    )  # fmt: skip
    columns: dict[str, list[Any]] = {name: [] for name in names}
    broken: list[tuple[tuple[bool, int, int, int, int], str]] = []
    for at, row in enumerate(rows):
        values = list(_given(row))  # not what it takes: each tensor is read from the trace, and twice as many would be
        for nan, seen, what in _not_finite(values):
            # NaN before infinity: masks are full of infinities, and mean it. Values are numbered as they are seen, and of the
            # calls that give the same value, the innermost made it: it comes last.
            broken.append(((not nan, row.step, row.rank, seen, -at), what))
        for name, item in zip(names, (*_columns(row, values, words), 1 if at else 0), strict=True):
            columns[name].append(item)
    first = min(broken, default=None)
    start = -first[0][-1] if first else -1
    index = {
        "kind": "trace",
        "sides": [recording_facts(recording)],
        "policy": "",
        "outcomes": OUTCOMES,
        "kinds": KINDS,
        "phases": PHASES,
        "page": PAGE,
        "values": True,
        "rows": columns,
        "alone": [],
        "partings": [[start, False, False]] if first else [],
        "curves": curve_columns([(curve,) for curve in curves]),
        "words": words.items,
    }
    parts = [f"{len(rows):,} rows", _many(recording.steps, "step"), _many(recording.ranks, "rank")]
    sentence = f"Recorded with {recording.framework or 'an unknown framework'}: {', '.join(parts)}."
    parting = None
    if first is not None:
        row = rows[start]
        name = single_place(row.call) if row.call else f"the gradient of {row.gradient.slot if row.gradient else ''}"
        parting = (shorten(name), row.call.stack if row.call else (), first[1], start)
    return Sheet(
        recording.path,
        headline_of_trace(shorten(recording.path), sentence, parting, remarks),
        index,
        lambda: _calls(rows),
        -(-len(rows) // PAGE),
        lambda page: [_tensors(row) for row in rows[page * PAGE : (page + 1) * PAGE]],
        lambda page: [],
        (lambda: _graph(rows)) if any(row.call for row in rows) else None,
    )


def trace_table(journals: Iterable[Journal]) -> Table:
    """A row for each tensor of each call, in the order of the page, and for each gradient of a parameter."""

    def rows() -> Iterator[tuple[Cell, ...]]:
        for row in (row for journal in journals for row in _rows(journal)):
            call, site = row.call, row.call.site if row.call else None
            source = place(call.stack[0]) if call is not None and call.stack else ""
            address: tuple[Cell, ...] = ("", "parameter", "", "")
            if site is not None:
                address = (str(site), str(site.kind), site.path, site.type)
            for part, slot, count, item in chain(_taken(row), _given(row)):
                numbers = (getattr(item.statistics, name, None) for name in _NUMBERS)
                facts = (item.fingerprint, item.device, item.missing, source)
                yield (row.step, row.rank, *address, str(part), slot, count, str(item.spec), *numbers, *facts)

    return Table(COLUMNS, rows())


def outcomes_of(journal: Journal) -> Iterator[tuple[int, int]]:
    """Of each row, whether its results and its gradients are finite: FINITE, UNKNOWN, BROKEN or NONE."""
    for row in _rows(journal):
        values = list(_given(row))
        yield (
            _outcome(item for part, _, _, item in values if not part.backward),
            _outcome(item for part, _, _, item in values if part.backward),
        )


def _many(numbers: Sequence[int], noun: str) -> str:
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} {noun}s"


def _rows(journal: Journal) -> Iterator[_Row]:
    # By number: a module comes before what it calls, although its line comes after.
    for call in sorted(journal.side.calls, key=lambda call: call.id):
        yield _Row(journal.step, journal.rank, journal.side, call, None)
    for gradient in journal.side.parameter_gradients:
        yield _Row(journal.step, journal.rank, journal.side, None, gradient)


def _taken(row: _Row) -> Iterator[Value]:
    """Tensors that a call takes."""
    for part, slot, count, identity in row.call.tensors() if row.call else ():
        if part in _TAKEN:
            yield part, slot, count, row.side.tensor(identity)


def _given(row: _Row) -> Iterator[Value]:
    """Tensors that a call gives, and its gradients."""
    if row.gradient is not None:
        yield Part.PARAMETER_GRADIENT, row.gradient.slot, row.gradient.count, row.side.tensor(row.gradient.tensor)
    for part, slot, count, identity in row.call.tensors() if row.call else ():
        if part not in _TAKEN:
            yield part, slot, count, row.side.tensor(identity)


def _outcome(values: Iterable[Tensor]) -> int:
    """Of the tensors that a call gives: one that is not finite counts before one that is unknown."""
    known = [item.statistics for item in values]
    if not known:
        return NONE
    if any(item and item.nonfinite for item in known):
        return BROKEN
    return FINITE if all(known) else UNKNOWN


def _not_finite(values: Sequence[Value]) -> Iterator[tuple[bool, int, str]]:
    """Tensors with such elements that a call gives: is it NaN, the value's number, `NaN in the output, f32[8, 16]: 3 of them`."""
    for part, slot, _, item in values:
        known = item.statistics
        if known is None or part.incoming:
            continue
        for name, many in (("NaN", known.nan), ("Inf", known.posinf + known.neginf)):
            if many:
                text = f"{name} in the {part} {slot}".rstrip() + f", {item.spec}: {many:,} of them"
                yield name == "NaN", item.id, shorten(text)
                break


def _columns(row: _Row, values: Sequence[Value], words: Words) -> tuple[Any, ...]:
    given = [item for part, _, _, item in values if part in (Part.OUTPUT, Part.AFTER)]
    gradients = [item for part, _, _, item in values if part.backward]
    forward, backward = _outcome(given), _outcome(gradients)
    shown = next(iter([*given, *gradients]), None)
    known = shown.statistics if shown else None
    numbers = [number(item, 5) for item in (known.min, known.max, known.mean, known.norm)] if known else [None] * 4
    call, address = row.call, (len(KINDS) - 1, PHASES.index(Phase.BACKWARD))
    if call is not None:
        forward = BROKEN if call.raised else forward
        address = (KINDS.index(call.site.kind), PHASES.index(call.site.phase))
    name = side_columns((call,) if call else (), row.gradient.slot if row.gradient else "", words)
    outcomes = (forward, SCORES[forward], backward, SCORES[backward])
    spec = spec_text(shown.spec) if shown else ""
    return (row.step, row.rank, *address, *outcomes, 0, words(spec), *numbers, *name)


def _calls(rows: Sequence[_Row]) -> Mapping[str, Any]:
    table = CallTable()
    calls = [
        [[*table.add(row.call, lambda identity, row=row: spec_text(row.side.tensor(identity).spec))]]  # type: ignore[misc]
        if row.call
        else []
        for row in rows
    ]
    return {**table.columns(), "rows": {"left": calls}}


def _graph(rows: Sequence[_Row]) -> Mapping[str, Any]:
    def facts(at: int, _: Call) -> Iterator[tuple[int, Fact]]:
        for part, _slot, _count, item in _given(rows[at]):
            if not part.backward:
                yield item.id, Fact(_outcome([item]), spec_text(item.spec), item.producer)

    return trace_graph(
        ((row.step, row.rank, row.call, row.gradient.slot if row.gradient else "") for row in rows), facts
    )


def _tensors(row: _Row) -> dict[str, Any]:
    tensors = []
    for part, slot, count, item in (*_taken(row), *_given(row)):
        outcome = _outcome([item])
        names = [part, shorten(slot), shorten(slot), "as it is", "", count]
        known = tensor(item, identify=item.payload is not None)
        tensors.append([names, known, None, [outcome, "", None, None, SCORES[outcome]], 0, None, None])
    return {"forward": None, "backward": None, "tensors": tensors, "only": [[], []]}
