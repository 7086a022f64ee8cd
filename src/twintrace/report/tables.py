"""A comparison as flat tables: one row for each pair of tensors, one for each call that is alone.

    step  rank  outcome    left_site                     part    left_slot  left        max_abs  cosine  …
    0     0     rounding   forward/module:encoder.0#0    output             f32[4, 16]  2.4e-07  1.0
    0     0     different  forward/module:encoder.1#0    output             f32[4, 16]  0.0021   0.9979

`COLUMNS` is the one list of columns: CSV and XLSX print their cells, JSON has the same names and reads them back. A column knows
the way to its value: `of="tensor"` starts at the TensorResult, `of="call"` at the CallResult. `table(comparison)` has names and
cells together, for CSV and for data frames.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from ..model.measurements import StatisticsDifference
from ..model.records import Call
from ..model.results import CallResult, Comparison, Divergence, TensorResult
from ..model.tensors import Statistics
from ..model.verdicts import Outcome
from .text import described, remarks

Cell: TypeAlias = "str | int | float | bool | None"


class Table(NamedTuple):
    """Any table: the names of its columns, and its rows, which can be gone through once."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its meaning in a few words, the way to its value."""

    name: str
    text: str
    way: str
    of: str = "tensor"
    sheet: bool = True
    """False for values that a cell cannot hold: only JSON has them."""

    @property
    def holder(self) -> str:
        """The way to the holder of the value; empty if the result itself is."""
        return self.way.rpartition(".")[0]

    @property
    def field(self) -> str:
        """The last step of the way."""
        return self.way.rpartition(".")[2]


def _source(calls: tuple[Call, ...]) -> str:
    """`model.py:21 in forward: x = self.norm(x)`."""
    return str(calls[0].stack[0]) if calls and calls[0].stack else ""


def _sites(calls: tuple[Call, ...]) -> str:
    return " + ".join(str(call.site) for call in calls)


_MADE: dict[str, Callable[[CallResult], object]] = {
    "introduced": lambda call: None,  # of the values or of the gradients: see `rows`
    "mistake": lambda call: "; ".join(item.what for item in call.mistakes),
    "cause": lambda call: "; ".join(item.why for item in call.mistakes if item.why),
    "settings": lambda call: "; ".join(f"{key}: {left} | {right}" for key, (left, right) in call.settings.items()),
}
_OF_CALLS: dict[str, Callable[[tuple[Call, ...]], object]] = {
    "site": _sites,
    "path": lambda calls: calls[0].site.path if calls else "",
    "type": lambda calls: calls[0].site.type if calls else "",
    "source": _source,
}
"""Of the calls of one side."""


_TERMS = {
    "left": "introduced: rounding of the left call, 1 is what a right kernel may have",
    "meaning": "introduced: distance of what the two calls compute on the same inputs, relative",
    "inherited": "distance that comes from different inputs, relative",
    "right": "introduced: rounding of the right call, 1 is what a right kernel may have",
}

_MEASURED = {
    "count": "elements of each side",
    "finite": "elements that are finite on both sides",
    "equal": "elements with equal values",
    "max_abs": "largest absolute error",
    "mean_abs": "mean absolute error",
    "max_rel": "largest relative error",
    "mean_rel": "mean relative error",
    "rmse": "root of the mean square error",
    "mape": "mean relative error in percent",
    "cosine": "cosine of the two as vectors",
    "euclidean": "Euclidean distance",
    "within_1_1000": "share of elements within 1/1000",
    "within_5_1000": "share of elements within 5/1000",
    "close": "share of elements within atol + rtol·|left|",
    "rtol": "relative tolerance of close",
    "atol": "absolute tolerance of close",
    "max_ulp": "largest error in units in the last place",
    "nan_left": "NaN on the left",
    "nan_right": "NaN on the right",
    "nan_both": "NaN on both sides",
    "inf_left": "infinities on the left",
    "inf_right": "infinities on the right",
    "inf_both": "the same infinity on both sides",
    "sign_flips": "elements with opposite signs",
    "max_left": "largest magnitude on the left",
    "max_right": "largest magnitude on the right",
    "rms_left": "root mean square on the left",
    "rms_right": "root mean square on the right",
    "filled": "elements of a fill value, such as -1e9",
    "rms_rest": "root mean square of the others",
}


def _fields(kind: type[Statistics | StatisticsDifference]) -> list[str]:
    # Order sums mean nothing to people: what they tell is in the verdict.
    return [field.name for field in dataclasses.fields(kind) if field.name != "order"]


COLUMNS: tuple[Column, ...] = (
    Column("step", "step", "step", "call"),
    Column("rank", "rank", "rank", "call"),
    Column("outcome", "same, rounding, unknown or different", "verdict.outcome"),
    Column("because", "why, in one sentence", "verdict.because"),
    *(Column(f"{side}_site", f"the call on the {side}", f"{side}.site", "side") for side in ("left", "right")),
    Column("part", "which tensor of the call", "pair.part"),
    Column("left_slot", "which input, output or parameter on the left", "pair.left_slot"),
    Column("right_slot", "the same on the right", "pair.right_slot"),
    Column("pass", "of a gradient: which backward pass", "pair.count"),
    Column("left", "element type and shape on the left", "left.spec"),
    Column("right", "element type and shape on the right", "right.spec"),
    Column("layout", "how the right one was laid on the left one", "pair.layout"),
    Column("introduced", "does the difference arise in this call?", "introduced", "made"),
    Column("error", "what was measured", "verdict.error"),
    Column("bound", "what is allowed, in the same unit", "verdict.bound"),
    *(Column(f"term_{name}", text, f"terms.{name}") for name, text in _TERMS.items()),
    Column("score", "0 the same, up to 0.5 within the bound, towards 1 beyond it", "verdict.score"),
    *(Column(name, text, f"measurement.{name}") for name, text in _MEASURED.items()),
    Column("worst_index", "where the largest error is", "measurement.worst.index"),
    Column("worst_left", "the value there on the left", "measurement.worst.left"),
    Column("worst_right", "the value there on the right", "measurement.worst.right"),
    Column("histogram", "errors by powers of ten", "measurement.histogram", sheet=False),
    Column("heat", "the largest error in each cell of a grid", "measurement.heat", sheet=False),
    *(
        Column(f"diff_{name}", f"right minus left of the {name.replace('_rel', ', relative')}", f"statistics.{name}")
        for name in _fields(StatisticsDifference)
    ),
    *(
        Column(f"{side}_{name}", f"{name} of the {side} one", f"{side}.statistics.{name}")
        for side in ("left", "right")
        for name in _fields(Statistics)
    ),
    *(
        Column(f"{side}_{name}", text.format(side), f"{side}.{way}")
        for side in ("left", "right")
        for name, way, text in (
            ("tensor", "id", "its number in the {} trace"),
            ("device", "device", "where it was on the {}"),
            ("requires_grad", "requires_grad", "does it require a gradient on the {}?"),
            ("fingerprint", "fingerprint", "128 bits of the bytes on the {}"),
            ("missing", "missing", "why there is no value on the {}"),
        )
    ),
    *(
        Column(f"{side}_{name}", f"{text} on the {side}", f"{side}.{name}", "side")
        for name, text in (
            ("path", "the module around the call"), ("type", "the module's class"), ("source", "the line of the user's code"),
        )
        for side in ("left", "right")
    ),
    Column("mistake", "mistakes that were made in this call", "mistake", "made"),
    Column("cause", "their causes, with the proof", "cause", "made"),
    Column("settings", "what was set differently, left | right", "settings", "made"),
    Column("paired", "why the two calls belong together", "match.because", "call"),
    Column("slots", "why the two tensors belong together, if their slots are not the same", "pair.because"),
    Column("confidence", "how sure that is, from 0 to 1", "match.confidence", "call"),
)  # fmt: skip

SHEET = tuple(column for column in COLUMNS if column.sheet)

MAIN = (
    "step", "rank", "outcome", "because", "left_site", "right_site", "part", "left_slot", "right_slot", "pass", "left", "right",
    "introduced", "error", "bound", "max_abs", "max_rel", "cosine", "nan_left", "nan_right", "inf_left", "inf_right", "left_source",
    "right_source", "settings",
)  # fmt: skip
"""Columns that answer where two runs part, by how much and why; the others are for statistics over many pairs."""

ALONE = ("side", "step", "rank", "site", "path", "type", "skipped", "because", "source")
"""Columns of the table of calls and tensors without a partner."""


def table(comparison: Comparison, columns: str = "all") -> Table:
    """All pairs of tensors. Of two folders there is a row for every file, also for one that is alone.

    `columns`: "all", or the "main" ones, a quarter of the bytes.
    """
    wanted = SHEET if columns == "all" else tuple(column for column in SHEET if column.name in MAIN)
    names = [column.name for column in wanted]
    lines = chain(rows(comparison, wanted), _lone_files(comparison, names) if comparison.saved else ())
    if columns == "all":
        return Table(names, lines)
    pick = operator.itemgetter(*[names.index(name) for name in MAIN])
    return Table(MAIN, map(pick, lines))


def _lone_files(comparison: Comparison, names: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for side, lone in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in lone:
            known: dict[str, Cell] = {"step": step, "rank": rank, "outcome": str(Outcome.UNKNOWN)}
            known |= {"because": f"only on the {side}: {item.because}", f"{side}_site": str(item.call.site)}
            yield tuple(known.get(name) for name in names)


def rows(comparison: Comparison, columns: Sequence[Column] = SHEET) -> Iterator[tuple[Cell, ...]]:
    """The cells of some columns, a tuple for each pair of tensors, in the order of the results."""
    plain = [(place, column.holder, column.field) for place, column in enumerate(columns) if column.of == "tensor"]
    shared = [(place, column) for place, column in enumerate(columns) if column.of != "tensor"]
    introduced = [column.name for column in columns].index("introduced")
    for result in comparison.results:
        row: list[Cell] = [None] * len(columns)
        for place, column in shared:
            row[place] = cell(_of_call(column, result))
        for tensor in result.tensors:
            held = holders(tensor)
            for place, holder, field in plain:
                row[place] = cell(getattr(held[holder], field, None))
            row[introduced] = result.introduced_backward if tensor.pair.part.backward else result.introduced_forward
            yield tuple(row)


def holders(tensor: TensorResult) -> dict[str, object]:
    """Holders of the values of a row, by the way to each; None where it is not there."""
    measured = tensor.measurement
    return {
        "pair": tensor.pair,
        "verdict": tensor.verdict,
        "left": tensor.left,
        "right": tensor.right,
        "measurement": measured,
        "measurement.worst": measured and measured.worst,
        "statistics": tensor.statistics,
        "terms": tensor.terms,
        "left.statistics": tensor.left.statistics,
        "right.statistics": tensor.right.statistics,
    }


def _of_call(column: Column, result: CallResult) -> object:
    if column.of == "made":
        return _MADE[column.way](result)
    if column.of == "side":
        return _OF_CALLS[column.field](getattr(result.match, column.holder))
    return getattr(result.match if column.holder else result, column.field)


def cell(value: object) -> Cell:
    """A value as a cell can hold it: numbers as they are, `2, 3` for an index, `f32[4, 16]` for a spec."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def alone(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    """The cells of `ALONE`: calls without a partner, then tensors of matched calls that only one side has."""
    for side, lone in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in lone:
            own, source = item.call.site, _source((item.call,))
            yield side, step, rank, str(own), own.path, own.type, item.skipped, item.because, source
    for result in comparison.results:
        for side, strays, calls in (
            ("left", result.match.only_left, result.match.left),
            ("right", result.match.only_right, result.match.right),
        ):
            for stray in strays:
                site = f"{_sites(calls)}: {stray.part} {stray.slot}".rstrip()
                path, kind = (_OF_CALLS[name](calls) for name in ("path", "type"))
                yield side, result.step, result.rank, site, str(path), str(kind), False, stray.because, _source(calls)


def summary(comparison: Comparison) -> Iterator[tuple[str, Cell]]:
    """Summary for the reader, as name and value."""
    yield "agree", comparison.agree
    yield "exit code", comparison.code
    yield "policy", comparison.policy
    yield "recomputed in float64", comparison.recomputed
    for side, recording in (("left", comparison.left), ("right", comparison.right)):
        yield f"{side}", recording.path
        yield f"{side} framework", recording.framework
        yield f"{side} calls", recording.calls
        yield f"{side} steps", ", ".join(map(str, recording.steps))
        yield f"{side} ranks", ", ".join(map(str, recording.ranks))
    for outcome in Outcome:
        yield f"pairs of calls: {outcome}", comparison.count(outcome)
    yield "only on the left", len(comparison.only_left)
    yield "only on the right", len(comparison.only_right)
    yield "gradients on one side only", comparison.strays
    for name, parting in (("forward", comparison.forward), ("backward", comparison.backward)):
        yield from _first(f"first difference, {name}", parting)
    for text in comparison.untold:
        yield "could not be told", text
    for step, rank in comparison.left_out:
        yield "not compared, on one side only", f"step {step}, rank {rank}"
    for place, mistake in comparison.mistakes:
        yield "mistake", described(place, mistake)
    for text in comparison.lone:
        yield "mistake", text
    for remark in remarks(comparison):
        yield "remark", remark


def _first(name: str, parting: Divergence | None) -> Iterator[tuple[str, Cell]]:
    if parting is None:
        yield name, "none"
        return
    match = parting.result.match
    yield name, f"step {parting.result.step}, rank {parting.result.rank}"
    yield f"{name}: left", _sites(match.left)
    yield f"{name}: left source", _source(match.left)
    yield f"{name}: right", _sites(match.right)
    yield f"{name}: right source", _source(match.right)
    yield f"{name}: because", parting.because
    yield f"{name}: inherited", parting.inherited
    for key, (left, right) in parting.result.settings.items():
        yield f"{name}: set differently", f"{key}: {left} | {right}"
