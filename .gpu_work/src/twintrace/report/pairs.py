"""All pairs of a comparison as a table, for the terminal: what `twintrace compare --table` prints after the verdict.

step  verdict    error    bound    left                                  right
0     same                         emb (Linear)                          embed (Dense)
0     rounding   3.1e-07  1.2e-06  torch.softmax in block.0              mindspore.ops.Softmax in blocks.0
0     different  4.9e-06  4.6e-07  norm (LayerNorm)                      ln (LayerNorm)                        ← introduced here
–     only left                    torch.Tensor.contiguous in block.0    (moves values only)
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape as _escape
from rich.table import Table

from ..model.pairs import Alone
from ..model.results import CallResult, Comparison
from ..model.verdicts import Outcome, Verdict
from .text import legible, places_of, single_place

_COLOURS = {Outcome.SAME: "green", Outcome.ROUNDING: "green", Outcome.UNKNOWN: "yellow", Outcome.DIFFERENT: "red"}


def print_pairs(comparison: Comparison, console: Console) -> None:
    """Every pair, in the order of the left side; then what is alone, with the reason."""
    table = Table(box=None, pad_edge=False)
    for column in ("step", "rank", "verdict", "error", "bound", "left", "right", ""):
        table.add_column(column, overflow="fold")
    for result in comparison.results:
        table.add_row(*_row(result))
    for side, alone in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in alone:
            table.add_row(str(step), str(rank), *_alone(side, item))
    console.print(table, highlight=False)


def _row(result: CallResult) -> Iterator[str]:
    verdict = result.verdict
    yield from (str(result.step), str(result.rank))
    yield f"[{_COLOURS[verdict.outcome]}]{verdict.outcome}[/]"
    yield from _numbers(verdict)
    left, right = places_of(result)
    yield from (_plain(left), _plain(right))
    parts = [
        word for own, word in ((result.introduced_forward, "forward"), (result.introduced_backward, "backward")) if own
    ]
    if parts:
        yield f"← introduced here ({' and '.join(parts)})"
    else:  # where there is no number, the reason
        wordy = verdict.error is None and not verdict.outcome.good
        yield f"[dim]{_plain(verdict.because)}[/]" if wordy else ""


def _numbers(verdict: Verdict) -> Iterator[str]:
    for value in (verdict.error, verdict.bound):
        yield "" if not value else f"{value:.1e}"


def _alone(side: str, item: Alone) -> Iterator[str]:
    yield f"[dim]{'skipped' if item.skipped else 'only'} {side}[/]"
    yield from ("", "")
    place = _plain(single_place(item.call))
    yield from (place, "") if side == "left" else ("", place)
    yield f"[dim]{_plain(item.because)}[/]"


def _plain(text: str) -> str:
    return _escape(legible(text))
