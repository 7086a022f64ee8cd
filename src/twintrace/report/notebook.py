"""Results in a notebook: the verdict as text, and the whole execution as a ribbon. A few KB, no script, nothing from elsewhere.

    comparison_html(comparison)         of a Comparison
    trace_html(text, journals)          of a trace: finite, unknown, not finite
    verdict_html(text, good)            without a ribbon

The ribbon is that of the page (assets/ribbon.js), drawn as SVG: forward above backward, worse cells are taller and warmer, a
diamond where a difference arises, a triangle where the runs part. More rows than COLUMNS share columns, each with its worst row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from ..model.results import Comparison
from ..model.verdicts import Outcome, Verdict
from .page import markup
from .sheets import element
from .text import verdict
from .trace_sheet import BROKEN, UNKNOWN, Journal, outcomes_of
from .trace_sheet import FINITE as FINITE_ROW

COLUMNS = 300
WIDTH, WIDEST = 900, 18
"""Columns of the ribbon, its width and that of one column, each at most: a notebook's cell is 600 to 1,000 pixels wide."""
LONGEST = 20_000
"""Characters of a verdict; a source line or a path in it can be of any length."""

SAME, ROUNDING, DIFFERENT = "#2166ac", ("#4a90c9", "#a6cfea"), ("#f0a030", "#b23c0a")
UNTOLD, NOTHING = "#a3acba", "#e6e9ee"
"""Colours of the page in its light theme (assets/page.css): of score 0, up to 0.5, and up to 1."""
HEIGHTS = {"same": 0.45, "rounding": 0.6, "unknown": 0.75, "different": 1.0, "": 0.2}
"""Of a band, as in assets/ribbon.js."""
SHADES = 6
"""Shades between two colours: few, so that cells of one shade are one path."""
BANDS = ((9, 20), (31, 20))
"""Top and height, forward and backward."""
QUIET = "color:#626d80"


@dataclass(frozen=True, slots=True)
class Cell:
    """One row in one band: the outcome (empty where there is nothing), its score from 0 to 1, whether a difference arises."""

    outcome: str = ""
    score: float = 0.0
    arises: bool = False

    @property
    def rank(self) -> tuple[int, float, bool]:
        """Sorts from nothing to the worst."""
        return ("", "same", "rounding", "unknown", "different").index(self.outcome), self.score, self.arises


def comparison_html(comparison: Comparison) -> str:
    """The verdict and the ribbon."""
    rows = [
        (_cell(result.forward, result.introduced_forward), _cell(result.backward, result.introduced_backward))
        for result in comparison.results
    ]
    partings = {id(item.result) for item in (comparison.forward, comparison.backward) if item is not None}
    marks = [at for at, result in enumerate(comparison.results) if id(result) in partings]
    return _html(verdict(comparison), comparison.code == 0, rows, marks)


def trace_html(text: str, journals: Iterable[Journal], *, good: bool) -> str:
    """A trace: its text, and whether the values of its calls are finite."""
    names = {FINITE_ROW: "same", UNKNOWN: "unknown", BROKEN: "different"}
    rows = []
    for journal in journals:
        for pair in outcomes_of(journal):
            one, two = (names.get(outcome, "") for outcome in pair)
            rows.append((Cell(one, float(one == "different")), Cell(two, float(two == "different"))))
    return _html(text, good, rows, [])


def verdict_html(text: str, *, good: bool) -> str:
    """A verdict alone."""
    return _html(text, good, [], [])


def _cell(verdict: Verdict | None, arises: bool) -> Cell:
    if verdict is None:
        return Cell()
    score = verdict.score if verdict.score == verdict.score else 1.0
    return Cell(str(verdict.outcome), score, arises and verdict.outcome is Outcome.DIFFERENT)


def _html(text: str, good: bool, rows: Sequence[tuple[Cell, Cell]], marks: Sequence[int]) -> str:
    parts = [verdict_element(text, good=good), *([_ribbon(rows, marks)] if rows else [])]
    return markup(element("div", *parts, class_="twintrace", style="max-width:1000px"))


def verdict_element(text: str, *, good: bool) -> Element:
    """The text as it is on a terminal, with a bar at its side: blue if all is well."""
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    bar = SAME if good else DIFFERENT[1]
    style = f"border-left:4px solid {bar};padding-left:10px;margin:4px 0;white-space:pre-wrap;overflow-wrap:anywhere"
    return element("pre", shown, style=style)


def _ribbon(rows: Sequence[tuple[Cell, Cell]], marks: Sequence[int]) -> Element:
    columns = min(len(rows), COLUMNS)
    share, wide = len(rows) / columns, min(WIDEST, WIDTH // columns)
    gap = int(wide > 3)
    paths: dict[str, list[str]] = {}
    diamonds: list[str] = []
    for band, (top, height) in enumerate(BANDS):
        for at in range(columns):
            cells = [row[band] for row in rows[int(at * share) : max(int(at * share) + 1, int((at + 1) * share))]]
            worst = max(cells, key=lambda cell: cell.rank)
            tall = round(height * HEIGHTS[worst.outcome])
            path = f"M{at * wide} {top + height - tall}h{wide - gap}v{tall}h{gap - wide}z"
            paths.setdefault(_colour(worst), []).append(path)
            if any(cell.arises for cell in cells):
                size = min(4, max(2, wide // 2 - 1))
                middle = f"{at * wide + (wide - gap) / 2:g} {top + height // 2 - size}"
                diamonds.append(f"M{middle}l{size} {size}l-{size} {size}l-{size}-{size}z")
    drawn = [element("path", d="".join(parts), fill=colour) for colour, parts in paths.items()]
    triangles = "".join(f"M{(int(row / share) + 0.5) * wide - 5:g} 0h10l-5 7z" for row in marks)
    drawn += [element("path", d=path, fill="currentColor") for path in ("".join(diamonds), triangles) if path]
    told = f"{len(rows):,} rows in the order of execution, forward above backward; what differs is taller"
    extent = {"viewBox": f"0 0 {columns * wide} 52", "width": str(columns * wide), "height": "52"}
    looks = {"preserveAspectRatio": "none", "style": "max-width:100%", "role": "img"}
    return element("svg", element("title", told), *drawn, **extent, **looks)


def _colour(cell: Cell) -> str:
    """The page's scale: by score, whatever the outcome, which has its height."""
    if cell.outcome in ("", "unknown"):
        return UNTOLD if cell.outcome else NOTHING
    if cell.score == 0:
        return SAME
    colours, share = (ROUNDING, 2 * cell.score) if cell.score <= 0.5 else (DIFFERENT, 2 * cell.score - 1)
    share = round(share * (SHADES - 1)) / (SHADES - 1)
    low, high = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(low, high, strict=True))
