"""A comparison on the terminal: the verdict in colours, and all pairs as a table, as `twintrace compare --table` prints them.

step  forward    error    bound    backward   error    bound    left                      right
0     same                         same                         emb (Linear)              embed (Dense)
0     rounding   3.1e-07  1.2e-06  different  2.0e-03  1.3e-06  torch.softmax in block.0  mindspore.ops.Softmax in blocks.0
0     different  4.9e-06  4.6e-07  different  2.1e-03  1.1e-06  norm (LayerNorm)          ln (LayerNorm) ← introduced here (forward)
0     update: different  1.1e-05  4.9e-07                       torch.optim.Adam.step     mindspore.nn.Adam
0     only left                                                 torch.Tensor.contiguous in block.0           (moves values only)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..model.pairs import Alone
from ..model.results import CallResult, Comparison
from ..model.verdicts import Outcome, Verdict
from .naming import places_of, single_place, updates
from .text import verdict
from .tree import plain

_COLOURS = {Outcome.SAME: "green", Outcome.ROUNDING: "green", Outcome.UNKNOWN: "yellow", Outcome.DIFFERENT: "red"}
_LABEL = re.compile(r"  [a-z]+(?= )")


def print_verdict(comparison: Comparison, console: Console, *, everything: bool = False) -> None:
    """The verdict, wrapped to the terminal and in colours; in a pipe neither. `everything`: all mistakes after it."""
    width = console.width if console.is_terminal else None
    first, *rest = verdict(comparison, width=width, everything=everything).split("\n")
    colour = {0: "green", 1: "red"}.get(comparison.code, "yellow")
    console.print(Text(first, f"bold {colour}"), soft_wrap=True)
    for line in rest:
        text = Text(line)
        label = _LABEL.match(line) if line[:10].rstrip() != line[:10] else None
        if label is not None:
            text.stylize("cyan", 0, label.end())
        console.print(text, soft_wrap=True)


def print_pairs(comparison: Comparison, console: Console) -> None:
    """Every pair, in the order of the left side; then calls without a partner, with the reason."""
    ranks = len({item.rank for item in comparison.judged} | {item.rank for item in comparison.equal_steps}) > 1
    table = Table(box=None, pad_edge=False)
    numbers = ("step", "rank") if ranks else ("step",)
    for column in (*numbers, "forward", "error", "bound", "backward", "error", "bound", "left", "right", ""):
        table.add_column(column, overflow="fold")
    for result in comparison.results:
        table.add_row(*_place(result.step, result.rank, ranks), *_row(result))
    for side, alone in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in alone:
            table.add_row(*_place(step, rank, ranks), *_alone(side, item))
    console.print(table, highlight=False)


def _place(step: int, rank: int, ranks: bool) -> tuple[str, ...]:
    return (str(step), str(rank)) if ranks else (str(step),)


def _row(result: CallResult) -> Iterator[str]:
    forward = "update" if updates(result) else "forward"
    yield from _verdict(result.forward, "update: " if forward == "update" else "")
    yield from _verdict(result.backward)
    left, right = places_of(result)
    yield from (plain(left), plain(right))
    arises = ((result.introduced_forward, forward), (result.introduced_backward, "backward"))
    parts = [word for own, word in arises if own]
    if parts:
        yield f"← introduced here ({' and '.join(parts)})"
    else:  # where there is no number, the reason
        wordy = result.verdict.error is None and not result.verdict.outcome.good
        yield f"[dim]{plain(result.verdict.because)}[/]" if wordy else ""


def _verdict(verdict: Verdict | None, label: str = "") -> Iterator[str]:
    """Outcome, error and bound."""
    if verdict is None:
        yield from ("", "", "")
        return
    yield f"{label}[{_COLOURS[verdict.outcome]}]{verdict.outcome}[/]"
    yield from ("" if not value else f"{value:.1e}" for value in (verdict.error, verdict.bound))


def _alone(side: str, item: Alone) -> Iterator[str]:
    yield f"[dim]{'skipped' if item.skipped else 'only'} {side}[/]"
    yield from [""] * 5
    place = plain(single_place(item.call))
    yield from (place, "") if side == "left" else ("", place)
    yield f"[dim]{plain(item.because)}[/]"
