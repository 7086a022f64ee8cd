"""From a first look at two runs (or at one) to what a second run is to record: `zoom` writes it, `record(zoom=…)` takes it.

zoom("runs/a", "runs/b", path="zoom.json")     the place where they part: its step, and the calls around it
zoom("report.json", path="zoom.json")          the same from a report
zoom("runs/a", path="zoom.json")               the place where the first NaN arises
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from ..model.errors import ReportError, UsageError
from ..model.nonfinite import Source
from ..model.pairs import Part
from ..model.records import Call
from ..model.results import CallResult, Comparison, blamed
from ..model.sites import Kind
from ..model.verdicts import Outcome
from ..model.zoom import Zoom, ZoomSide, zoom_of
from ..store.registry import open_trace
from ..store.trace import Trace

AROUND = 8
"""Calls before and behind the place. A layer of a transformer makes about that many, so its neighbours are in the picture."""

ZoomSource = Comparison | Trace | str | os.PathLike[str]


def zoom(
    left: ZoomSource, right: Trace | str | os.PathLike[str] | None = None, *, path: str | os.PathLike[str] | None = None
) -> Zoom | None:
    """Say what to record in a second run, so that the place that a first run showed can be seen in full.

        tt.zoom("runs/a", "runs/b", path="zoom.json")
        with tt.record("runs/a2", net, zoom="zoom.json"):
            ...

    Args:
        left: a comparison, a report that `compare --json` wrote, or a trace.
        right: the other trace. Without it, a trace is looked at for the first value that is not finite.
        path: file to write; give it to `tt.record(…, zoom=path)` in the second run.

    Returns:
        The steps, ranks, level, calls and modules to record; None if there is nothing to look at: the runs agree, or all is finite.

    Raises:
        ReportError: a file that is no report, or `path` cannot be written.
        TraceNotFoundError: there is no such trace.
    """
    if isinstance(left, Comparison):
        place = _of_comparison(left)
    elif right is not None:
        place = _of_traces(open_trace(left, tolerant=True), open_trace(right, tolerant=True))
    elif not isinstance(left, Trace) and Path(left).is_file():
        from .reporting import read_report

        place = _of_comparison(read_report(left))
    else:
        place = _of_trace(open_trace(left, tolerant=True))
    if place is not None and path is not None:
        try:
            Path(path).write_text(json.dumps(place.document(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ReportError(
                f"{path}: the zoom could not be written ({error.strerror}). Choose another path."
            ) from None
    return place


def read_zoom(path: str | os.PathLike[str]) -> Zoom:
    """The zoom in a file that `zoom` wrote."""
    try:
        return zoom_of(json.loads(Path(path).read_text(encoding="utf-8")), os.fspath(path))
    except OSError as error:
        raise UsageError(f"zoom: {path} cannot be read ({error.strerror}). Write it with `twintrace zoom`.") from None
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"zoom: {path} is no JSON ({error}). Write it with `twintrace zoom`.") from None


def _of_traces(left: Trace, right: Trace) -> Zoom | None:
    """Of two long runs of one program only the first step that differs is compared; all are, if that shows nothing."""
    from ..diagnose.repetition import first_difference
    from .comparing import compare

    if left.framework == right.framework:
        first, _ = first_difference(left, right)
        if first is None:
            return None
        both = (first.step, first.rank) in left.places and (first.step, first.rank) in right.places
        place = _of_comparison(compare(left, right, steps=(first.step,), pictures=False)) if both else None
        if place is not None:
            return place
    return _of_comparison(compare(left, right, pictures=False))


def _of_comparison(comparison: Comparison) -> Zoom | None:
    first = comparison.divergence
    if first is not None:
        place, blame = first.result, blamed(first.result, first.mistake)
        steps = [place.step - 1, place.step] if first.inherited else [place.step]
    else:
        unclear = [item for item in comparison.judged if item.verdict.outcome is not Outcome.SAME]
        if comparison.code == 0 or not unclear:
            return None
        place = unclear[0]
        blame, steps = blamed(place, None), [place.step]
    known = [step for step in steps if step in comparison.left.steps or step in comparison.right.steps]
    sides = []
    for number, recording in enumerate((comparison.left, comparison.right)):
        level, near = str(recording.settings.get("level", "mix")), _around(comparison, place, number)
        sides.append(_side(recording.framework, level, blame[number], near, place))
    names = f"{comparison.left.path} | {comparison.right.path}"
    verb = "part" if first is not None else "cannot be told apart"
    return Zoom(
        tuple(known), (place.rank,), tuple(sides), f"{names} {verb} in step {place.step} at {_named(place, blame)}"
    )


def _around(comparison: Comparison, place: CallResult, number: int) -> list[Call]:
    """Calls of one side near a result, in the order in which they began."""
    here = comparison.at(place.step, place.rank)
    alone = (comparison.only_left, comparison.only_right)[number]
    calls = {call.id: call for item in here for call in (item.match.left, item.match.right)[number]}
    calls |= {item.call.id: item.call for step, rank, item in alone if (step, rank) == (place.step, place.rank)}
    return [calls[identity] for identity in sorted(calls)]


def _named(place: CallResult, blame: tuple[Sequence[Call], Sequence[Call]]) -> str:
    names = [str(calls[0].site) if calls else "–" for calls in blame]
    if names == ["–", "–"]:
        return "the gradients of parameters"
    return " | ".join(names) if names[0] != names[1] else names[0]


def _side(
    framework: str, level: str, blame: Sequence[Call], near: Sequence[Call], place: CallResult | None
) -> ZoomSide:
    """The part of one run: the calls around those that are to blame, and the inside of modules that were recorded from outside."""
    chosen, deeper = {call.id for call in blame}, "mix" if level == "module" else level
    if not chosen and place is not None:
        pairs = [item.pair for item in place.tensors if item.pair.part is Part.PARAMETER_GRADIENT]
        owners = {pair.left_slot.rpartition(".")[0] for pair in pairs}
        if owners:
            return ZoomSide(framework, deeper, (), tuple(sorted(owners)))
        chosen = {call.id for call in (*place.match.left, *place.match.right)}
    positions = [index for index, call in enumerate(near) if call.id in chosen]
    if not positions:
        return ZoomSide(framework, deeper, (), ("",))
    window = near[max(positions[0] - AROUND, 0) : positions[-1] + AROUND + 1]
    by_id = {call.id: call for call in near}
    wanted = {call.id: call for call in window}
    for call in window:  # the modules around, so that a reader knows where in the network it is
        while call.parent is not None and call.parent in by_id and call.parent not in wanted:
            call = wanted[call.parent] = by_id[call.parent]
    inside = _modules(level, [call for call in near if call.id in chosen], near)
    addresses = tuple(str(wanted[identity].site) for identity in sorted(wanted))
    return ZoomSide(framework, deeper, addresses, inside)


def _modules(level: str, blame: Collection[Call], near: Sequence[Call]) -> tuple[str, ...]:
    """Modules to look into: those that are to blame, and those around them, whose own code was seen from outside only."""
    if level != "module":
        return ()
    by_id = {call.id: call for call in near}
    around = [by_id[call.parent] for call in blame if call.parent in by_id]
    return tuple(sorted({call.site.name for call in (*blame, *around) if call.site.kind is Kind.MODULE}))


def _of_trace(trace: Trace) -> Zoom | None:
    """Around the first value that is not finite."""
    from .diagnosing import first_nonfinite

    report = first_nonfinite(trace)
    origin = report.origin
    if origin is None:
        return None
    settings = trace.manifest.get("settings")
    level = str(settings.get("level", "mix")) if isinstance(settings, dict) else "mix"
    near = sorted(trace.journal(origin.step, origin.rank).calls(), key=lambda call: call.id)
    blame = () if origin.call is None else (origin.call,)
    side = _side(trace.framework, level, blame, near, None)
    if origin.source is Source.UNRECORDED and origin.call is not None and origin.call.site.kind is Kind.MODULE:
        side = ZoomSide(side.framework, "mix", side.calls, (origin.call.site.name,))
    because = f"{trace.path}: {origin.source} in step {origin.step}, {origin.when}: {origin.why}"
    return Zoom((origin.step,), (origin.rank,), (side,), because)
