"""Questions to one run: where the first value that is not finite comes from."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from ..collect.watching import Judgement
from ..model.curves import ComparedCurves, Curve, Curves
from ..model.errors import TraceError, TraceNotFoundError
from ..model.nonfinite import NonfiniteReport, Pass
from ..model.results import Comparison
from ..model.sites import Phase
from ..store.registry import open_trace
from ..store.trace import Trace


def first_nonfinite(
    trace: Trace | str | os.PathLike[str],
    *,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> NonfiniteReport:
    """Find the first call that made NaN or an infinity out of finite values, forward or backward, and say why.

        report = tt.first_nonfinite("runs/a")
        if report:
            print(report.origin.call.site, report.origin.why)

    Statistics are enough: `keep="statistics"`, and dumps of other tools. Infinities that are made on purpose (a mask of -inf) and
    swallowed (by a softmax) are listed, not accused.

    Args:
        trace: a trace, or its path.
        steps: only these; the others are not looked at.
        ranks: likewise.

    Returns:
        A report: `report.origin` is the place and its cause, or None; `report.code` is 0 (nothing), 1 (found) or 3 (could not be
        told).

    Raises:
        TraceNotFoundError: there is no such trace, or it has none of these steps or ranks.
    """
    from ..diagnose import search

    opened = open_trace(trace, tolerant=True)
    places = [
        (step, rank)
        for step, rank in opened.places
        if (steps is None or step in steps) and (ranks is None or rank in ranks)
    ]
    if not places and (steps is not None or ranks is not None):
        raise TraceNotFoundError(
            f"{opened.path} has none of the steps and ranks that were asked for: it has the steps "
            f"{', '.join(map(str, opened.steps)) or 'none'} of the ranks {', '.join(map(str, opened.ranks)) or 'none'}."
        )
    return search.first_nonfinite(opened, places)


def curves_of(
    trace: Trace | str | os.PathLike[str], *, steps: Collection[int] | None = None, rank: int | None = None
) -> Curves:
    """Curves of a run over its steps (loss, norms, largest result, dead units) and over the depth of the network.

    Raises TraceNotFoundError if the trace has none of these steps, or not this rank.
    """
    from ..diagnose import curves

    opened = open_trace(trace, tolerant=True)
    chosen = rank if rank is not None else min(opened.ranks, default=0)
    wanted = sorted(step for step, r in opened.places if r == chosen and (steps is None or step in steps))
    if not wanted:
        raise TraceNotFoundError(f"{opened.path} has none of these steps of rank {chosen}.")
    return curves.curves_of(opened, wanted, chosen)


def compared_curves(comparison: Comparison, *, rank: int | None = None) -> ComparedCurves:
    """Curves of both runs of a comparison over the steps that both have, and how far the two are apart over steps and depth.

    Raises TraceNotFoundError if a trace is not where it was.
    """
    from ..diagnose.comparing import compared

    traces = [open_trace(side.path, tolerant=True) for side in (comparison.left, comparison.right)]
    common = [rank for rank in traces[0].ranks if rank in traces[1].ranks]
    chosen = rank if rank is not None else min(common, default=0)
    judged = {result.step for result in comparison.results} or {*comparison.left.steps}
    steps = [step for step in traces[0].steps if all((step, chosen) in trace.places for trace in traces)]
    wanted = [step for step in steps if step in judged or not comparison.results]
    sides = [curves_of(trace, steps=wanted or steps, rank=chosen) for trace in traces]
    return compared(comparison, sides[0], sides[1])


CURVED = 400
"""Steps of which a page has curves; of more they take longer than the page, and `--curves` draws them in the terminal."""


def paired_curves(left: Trace, right: Trace) -> list[tuple[Curve, ...]]:
    """Numbers of two runs over the steps that both have, of the first rank that both have: each as (left, right).

    None of a single step, nor of more than `CURVED`.
    """
    rank = min({*left.ranks} & {*right.ranks}, default=0)
    steps = [step for step in left.steps if all((step, rank) in trace.places for trace in (left, right))]
    if not 1 < len(steps) <= CURVED:
        return []
    ours, theirs = (curves_of(trace, steps=steps, rank=rank).curves for trace in (left, right))
    named = {curve.name: curve for curve in theirs}
    return [(curve, named[curve.name]) for curve in ours if curve.name in named]


def page_curves(comparison: Comparison) -> list[tuple[Curve, ...]]:
    """Curves for the page of a comparison; none where a trace is not where it was."""
    if min(len(comparison.left.steps), len(comparison.right.steps)) < 2:
        return []
    try:
        traces = [open_trace(side.path, tolerant=True) for side in (comparison.left, comparison.right)]
    except (TraceError, ValueError):  # ValueError: a name that no file can have
        return []
    return paired_curves(*traces)


def judge_steps(path: Path, steps: Sequence[int], rank: int) -> Judgement:
    """Judge for a recorder that watches: the verdict on some steps of its own trace, while it is being written."""
    from ..diagnose import search

    trace = open_trace(path, tolerant=True)
    origin = search.first_nonfinite(trace, [(step, rank) for step in steps if (step, rank) in trace.places]).origin
    if origin is None:
        return Judgement()
    calls = trace.journal(origin.step, rank).calls()
    updated = any(call.site.phase is Phase.UPDATE for call in calls)
    where = "" if origin.call is None else f" at {search.named(origin.call)}"
    line = origin.call.stack[0] if origin.call is not None and origin.call.stack else None
    place = f" ({line.place})" if line else ""
    # Gradients alone, and no update yet: a loss scaler may skip the step. Weights that break later settle it.
    waits = origin.when is Pass.BACKWARD and not updated and not origin.reached.endswith(f"of step {steps[-1]}")
    return Judgement(f"step {origin.step}, {origin.when}{where}{place}: {origin.why}", waits)
