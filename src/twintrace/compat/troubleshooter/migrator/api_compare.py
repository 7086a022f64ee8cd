"""`ts.migrator.api_dump_compare`: two dumps side by side, in three tables and three csv files.

    | ORIGIN NET (mindspore) | TARGET NET (pytorch) |          which API is which
    |      NN_Conv2d_0       |     NN_Conv2d_0      |
    |       NN_Dense_0       |     NN_Linear_0      |

and a row for each pair of tensors, forward in order and backward in reverse. Which API is which is the project's own alignment:
values, operations, shapes and the flow of data. APIs without a partner stand in a table of their own, with the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .... import api
from ....model.errors import ReportError, TraceError, TraceNotFoundError, UsageError
from ....model.pairs import Part
from ....model.records import Call
from ....model.results import Comparison, TensorResult
from ....store.trace import Trace
from ...arguments import flags, made_folder, one_of
from ...lines import line_name
from ..names import SHOWN, operation_name
from ..tables import (
    STATISTICS_FIELD,
    VALUE_FIELDS,
    Scores,
    attention,
    boxed,
    in_their_words,
    say,
    statistics_cell,
    value_cells,
    write_csv,
)
from .weights import compare_ms_ckpt

StrPath = str | os.PathLike[str]
_METHODS = ("recursion", "global", "simple")
_FORWARD = (Part.INPUT, Part.OUTPUT)
_Place = tuple[int, int]


class _Row(NamedTuple):
    """One line of a dump, as far as tables name it."""

    name: str
    tensor: int
    part: Part


_Lines = tuple[list[tuple[Any, ...]], list[tuple[int, _Row]]]
"""(the rows of pairs, the lines without a partner, each with its side)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """APIs that belong together, or one that is alone."""

    origin: tuple[Call, ...]
    target: tuple[Call, ...]
    tensors: tuple[TensorResult, ...] = ()
    because: str = ""


def api_dump_compare(
    origin_path: StrPath,
    target_path: StrPath,
    output_path: StrPath | None = None,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    ignore_unmatched: bool = False,
    ignore_backward: bool = False,
    convinced_match_method: str = "recursion",
) -> Comparison:
    """Print which API is which and how far apart their tensors are; write the same as csv into the folder `output_path`.

    Returns the comparison, in which the target is the left side: errors are relative to it, as with numpy.allclose.

    rtol, atol               every element within atol + rtol·|target|        equal_nan   NaN equals NaN
    ignore_unmatched         only what has a partner                          ignore_backward   no table of gradients
    convinced_match_method   recursion | global | simple: accepted, and without effect, since matching is this project's own
    """
    for name, number in (("rtol", rtol), ("atol", atol)):
        plain = isinstance(number, int | float) and not isinstance(number, bool)
        if not plain or not math.isfinite(number) or number < 0:
            raise UsageError(f"{name}: expected a number, 0 or more, got {number!r}.")
    one_of("convinced_match_method", convinced_match_method, _METHODS)
    flags(equal_nan=equal_nan, ignore_unmatched=ignore_unmatched, ignore_backward=ignore_backward)
    folder = None if output_path is None else made_folder("output_path", output_path, mode=0o700, trouble=ReportError)
    origin, target = _opened(origin_path, "origin_path"), _opened(target_path, "target_path")
    places = sorted(set(origin.places) & set(target.places))
    if not places:
        raise TraceError(
            f"there is no rank that both dumps have: {origin.path} (origin_path) has {_ranks(origin)}, {target.path} (target_path) "
            f"has {_ranks(target)}."
        )
    with api.progress_bar() as tell:
        comparison = api.compare(
            target, origin, rtol=float(rtol), atol=float(atol), equal_nan=equal_nan, pictures=False, progress=tell
        )
    _compare_weights(Path(origin.path), Path(target.path), float(rtol), float(atol), equal_nan)
    for step, rank in comparison.left_out:
        attention(f"Not compared, because only one of the two has it: step {step} of rank {rank}.")
    sheet = _Sheet(comparison, (origin, target), equal_nan, ignore_unmatched)
    for place in places:
        for stem, title, heads, rows in sheet.tables(place, backward=not ignore_backward):
            suffix, note = _suffix(place, places)
            say(boxed(title + note, heads, rows, ruled=stem == "mapping"))
            if folder is not None:
                write_csv(folder / f"ts_api_{stem}{suffix}.csv", heads, rows)
    for line in _told(comparison):
        say(line)
    return comparison


class _Sheet:
    """A comparison of two dumps, as tables."""

    def __init__(
        self, comparison: Comparison, traces: tuple[Trace, Trace], equal_nan: bool, ignore_unmatched: bool
    ) -> None:
        self._comparison, self._traces = comparison, traces
        self._equal_nan, self._ignore_unmatched = equal_nan, ignore_unmatched
        self._names = tuple(
            f"{side} NET ({SHOWN.get(trace.framework, trace.framework)})"
            for side, trace in zip(("ORIGIN", "TARGET"), traces, strict=True)
        )
        self._values = all(trace.manifest["settings"]["keep"] == "tensor" for trace in traces)

    def tables(self, place: _Place, *, backward: bool) -> Iterator[tuple[str, str, list[str], list[tuple[Any, ...]]]]:
        """(what it is called, title, heads, rows) of each table that has rows."""
        entries = self._entries(place)
        mapping = [tuple("\n".join(map(_label, side)) for side in (entry.origin, entry.target)) for entry in entries]
        yield "mapping", "The APIs mapping results of the two frameworks", list(self._names), mapping
        alone = [
            (_label((entry.origin or entry.target)[0]), self._names[0 if entry.origin else 1], entry.because)
            for entry in entries
            if not (entry.origin and entry.target)
        ]
        if alone and not self._ignore_unmatched:
            yield "unmatched", "The APIs without a partner", ["API", "net", "reason"], alone
        heads = [*self._names, "shape of orig", "shape of target"]
        heads += VALUE_FIELDS if self._values else (STATISTICS_FIELD,)
        if not self._values:
            attention("npy files not found, use csv files to compare.")
        forward_lines = [(entry, self._paired(entry, False)) for entry in entries]
        backward_lines = [(entry, self._paired(entry, True)) for entry in reversed(entries)] if backward else []
        tensors = [] if self._ignore_unmatched else list(self._unmatched([*forward_lines, *backward_lines]))
        if tensors:
            title = "The tensors without a partner, of APIs that have one"
            yield "unmatched_tensors", title, ["tensor", "net", "reason"], tensors
        forward = [row for _, lines in forward_lines for row in self._rows(lines, place)]
        yield "forward_compare", "The forward comparison results", heads, forward
        gradients = [row for _, lines in backward_lines for row in self._rows(lines, place)]
        if gradients:
            yield "backward_compare", "The backward comparison results", heads, gradients

    def _entries(self, place: _Place) -> list[_Entry]:
        """Everything of one step and rank, in the order of the origin; what only the target has stands after what it follows."""
        entries: list[tuple[tuple[int, ...], _Entry]] = []
        after: dict[int, int] = {}  # order in the target -> in the origin
        for result in self._comparison.results:
            if (result.step, result.rank) == place and result.match.left:
                origin, target = result.match.right, result.match.left
                where = min(call.order for call in origin)
                after.update((call.order, where) for call in target)
                entries.append(((where, 0, 0), _Entry(origin, target, result.tensors)))
        for step, rank, item in self._comparison.only_right:
            if (step, rank) == place:
                entries.append(((item.call.order, 0, 0), _Entry((item.call,), (), (), item.because)))
        for step, rank, item in self._comparison.only_left:
            if (step, rank) == place:
                before = max((order for order in after if order < item.call.order), default=None)
                where = -1 if before is None else after[before]
                entries.append(((where, 1, item.call.order), _Entry((), (item.call,), (), item.because)))
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def _rows(self, lines: _Lines, place: _Place) -> Iterator[tuple[Any, ...]]:
        """Pairs of tensors in the order of the origin's rows, then what has no partner."""
        rows, left_over = lines
        yield from rows
        if not self._ignore_unmatched:
            yield from (self._lonely(which, line, place) for which, line in left_over)

    def _paired(self, entry: _Entry, backward: bool) -> _Lines:
        """(the rows of pairs, the lines without a partner, each with its side)."""
        sides = (list(_lines(entry.origin, backward)), list(_lines(entry.target, backward)))
        taken: tuple[set[str], set[str]] = (set(), set())
        rows: list[tuple[int, tuple[Any, ...]]] = []
        for item in entry.tensors:
            if item.pair.part.backward is not backward or item.pair.part not in (*_FORWARD, Part.OUTPUT_GRADIENT):
                continue
            origin = _line(sides[0], item.pair.part, item.pair.right, item.pair.right_slot)
            target = _line(sides[1], item.pair.part, item.pair.left, item.pair.left_slot)
            if origin is None or target is None or origin.name in taken[0] or target.name in taken[1]:
                continue
            taken[0].add(origin.name)
            taken[1].add(target.name)
            cells = value_cells(item, equal_nan=self._equal_nan) if self._values else (statistics_cell(item),)
            shapes = self._shape(item.right.spec.shape), self._shape(item.left.spec.shape)
            rows.append((sides[0].index(origin), (f"{origin.name}.npy", f"{target.name}.npy", *shapes, *cells)))
        left_over = [(which, line) for which in (0, 1) for line in sides[which] if line.name not in taken[which]]
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])], left_over

    def _unmatched(self, together: Sequence[tuple[_Entry, _Lines]]) -> Iterator[tuple[str, str, str]]:
        """The tensors without a partner of APIs that have one, and why."""
        for entry, (_, left_over) in together:
            if entry.origin and entry.target:
                for which, line in left_over:
                    yield f"{line.name}.npy", self._names[which], _reason(entry, which, line)

    def _shape(self, shape: tuple[int, ...]) -> object:
        """As the real tool prints it: (1, 5) of an array, and where there are no arrays [1, 5], as the rows have it."""
        return shape if self._values else [*shape]

    def _lonely(self, which: int, line: _Row, place: _Place) -> tuple[Any, ...]:
        tensor = self._traces[which].journal(*place).tensor(line.tensor)
        shape = self._shape(tensor.spec.shape)
        cells = Scores(tensor.missing or False).cells if self._values else ("nan, nan, nan",)
        pair = (f"{line.name}.npy", None, shape, None) if which == 0 else (None, f"{line.name}.npy", None, shape)
        return (*pair, *cells)


def _reason(entry: _Entry, which: int, line: _Row) -> str:
    """Reason that a tensor has no partner although its API has one."""
    own, others = (entry.origin, entry.target) if which == 0 else (entry.target, entry.origin)
    beside = " + ".join(map(_label, others))
    if len(own) > 1 or len(others) > 1:
        apis = " + ".join(map(_label, own))
        return f"{apis} and {beside} are compared as a whole: what lies between their calls has nothing beside it"
    if line.part is Part.OUTPUT_GRADIENT:
        return f"no gradient of {beside} belongs to it"
    return f"nothing that {beside} {'takes' if line.part is Part.INPUT else 'puts out'} belongs to it"


def _label(call: Call) -> str:
    """`NN_Conv2d_0`."""
    framework = "mindspore" if call.site.name.startswith("mindspore.") else "torch"
    return f"{operation_name(framework, call.site.kind, call.site.name, call.site.type)}_{call.site.call}"


def _lines(calls: Sequence[Call], backward: bool) -> Iterator[_Row]:
    """The lines of a dump that these calls are made of, in one direction."""
    for call in reversed(calls) if backward else calls:
        for part, slot, _, tensor in call.tensors():
            if part.backward is backward:
                end = "output" if part is Part.OUTPUT else "input"  # the gradient of a result goes into a backward pass
                yield _Row(line_name(_label(call), end, slot, backward=backward), tensor, part)


def _line(lines: Sequence[_Row], part: Part, tensor: int, slot: str) -> _Row | None:
    """The line of a tensor; where it stands twice, the one of its slot."""
    fitting = [line for line in lines if (line.part, line.tensor) == (part, tensor)]
    exact = [line for line in fitting if line.name.endswith(f"put.{slot}" if slot else "put")]
    return next(iter(exact or fitting), None)


# --- arguments, files -------------------------------------------------------------------------------------------------


def _opened(path: Any, name: str) -> Trace:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{name}: expected the folder that was given to api_dump_init, got {path!r}.")
    place = Path(path)
    if not place.exists():
        raise TraceNotFoundError(f"{name}: {place} does not exist. Give the folder that was given to api_dump_init.")
    try:
        trace = api.open(place, tolerant=True)
    except TraceNotFoundError:
        raise TraceNotFoundError(
            f"{name}: {place} is no dump: expected a folder with rank0/torch_api_dump_info.csv in it, or mindspore_…. "
            f"Give the folder that was given to api_dump_init."
        ) from None
    if trace.layout != "troubleshooter":
        raise UsageError(
            f"{name}: {os.fspath(path)} is a trace in the layout {trace.layout}, whose tensors have no names of this tool. "
            f"Use tt.compare for it, or `twintrace export --to troubleshooter`."
        )
    return trace


def _ranks(trace: Trace) -> str:
    return f"rank {', '.join(map(str, trace.ranks))}"


def _suffix(place: _Place, places: Sequence[_Place]) -> tuple[str, str]:
    """Label that tells one of several steps and ranks from the others: in a file's name, and in a title."""
    step, rank = place
    several = len({one for one, _ in places}) > 1, len({one for _, one in places}) > 1
    file = (f"_{step}" if several[0] else "") + (f"_rank{rank}" if several[1] else "")
    words = [f"step {step}"] * several[0] + [f"rank {rank}"] * several[1]
    return file, f" ({', '.join(words)})" if words else ""


def _compare_weights(origin: Path, target: Path, rtol: float, atol: float, equal_nan: bool) -> None:
    """Weights that `compare_statedict=True` has left beside both dumps."""
    files = [
        next((file for name in ("pt_net.pth", "ad_net.pth") if (file := folder / "rank0" / name).is_file()), None)
        for folder in (origin, target)
    ]
    if files[0] is not None and files[1] is not None:
        compare_ms_ckpt(files[0], files[1], rtol=rtol, atol=atol, equal_nan=equal_nan)


def _told(comparison: Comparison) -> Iterator[str]:
    """Remarks that the tables do not have: where the two part first, and what could not be read."""
    first = comparison.divergence
    if first is not None and first.result.match.left:
        origin, target = (" + ".join(map(_label, side)) for side in (first.result.match.right, first.result.match.left))
        direction = "backward" if first.backward else "forward"
        yield f"The first difference ({direction}): {origin} beside {target}: {in_their_words(first.because)}."
    yield from map(in_their_words, comparison.remarks)
