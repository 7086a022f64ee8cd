"""The corpora as a whole: every class by its number.

outcomes(4, 20, folder)            twenty pairs of class 4, in three types and both directions
table({4: Score.of(…)})            a line for each class
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from . import checkpoints, left_alone, regions, training  # noqa: F401 - they enter their makers
from .cases import CLASSES, draw
from .running import DTYPES
from .scoring import Outcome, Score, outcomes_of

PAIRS = 20
"""Of each class, in full."""


def way_of(name: str) -> str:
    """`8-kernels-lstm` of the pair `8-kernels-lstm-17`; of checkpoints their own name."""
    return re.sub(r"-\d+$|, exchanged$", "", name)


def outcomes(
    number: int, count: int = PAIRS, dtypes: Sequence[str] = tuple(DTYPES), *, without: Container[str] = ()
) -> Iterator[Outcome]:
    """A class: its first `count` pairs but for those of some ways, in these types, there and back."""
    if number == 13:
        for name in checkpoints.NAMES[:count]:
            for dtype in dtypes if f"13-{name}" not in without else ():
                yield from checkpoints.outcomes_of(name, dtype)
        return
    for pair in draw(number, count):
        if way_of(pair.name) in without:
            continue
        with tempfile.TemporaryDirectory(prefix="twintrace-pairing-") as folder:
            yield from outcomes_of(pair, Path(folder), dtypes)


def table(scores: Mapping[int, Score]) -> str:
    """A line for each class, in Markdown."""
    lines = [
        "| class | pairs | comparisons | tensors paired | wrong pairs | exit code right | false agreements | false alarms "
        "| cannot tell | place | cause |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for number, score in scores.items():
        share = f"{score.paired} of {score.tensors} ({score.share:.2%})"
        cells = [f"{number} {CLASSES[number]}", score.pairs, score.compared, share, score.wrong, score.codes]
        cells += [score.false_agreements, score.false_alarms, score.undecided]
        cells += [f"{score.placed} of {score.mistakes}", f"{score.said} of {score.mistakes}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
