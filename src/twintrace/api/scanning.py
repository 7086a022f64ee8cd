"""A look at all steps of one rank by structure, fingerprints and statistics: which are equal, and where the first difference is.

    scan = scan_rank(paths, ((0, 37), (1, 37)))        RankScan: one PlaceScan for each step
    scan.first                                         the first step in which something differs

It parses no record and pairs nothing, so that thousands of ranks can be looked at: by whatever engine, since a scan is made of two
paths and gives numbers. What is the same on many ranks is worked out once in a process: the structure of a step, by its content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..model.errors import TwintraceError
from ..model.tensors import UNITS
from ..store.folding import Pattern
from ..store.registry import open_trace
from ..store.trace import Trace
from .stepping import Outlines, outlines_of

_STRUCTURES = 64
"""Structures of steps that a process knows, a few megabytes each: stages of a pipeline, first steps, steps that evaluate."""
VISIBLE = 64.0
"""Units of rounding from which on the norms of two values are told apart: a sum of four thousand terms rounds so, once."""
_DTYPE = re.compile(rb',"dtype":"([a-z0-9_]+)"')
_MARK = re.compile(rb"[\x10-\x1f]")


@dataclass(frozen=True, slots=True)
class PlaceScan:
    """One step of one rank, looked at."""

    step: int
    rank: int
    key: tuple[str, str, str] | None = None
    """Structure of both sides; None where one of them has none: it was not closed, or is damaged."""
    equal: bool = False
    """True if all calls are the same and all bits are."""
    tensors: int = 0
    different: int = 0
    """Values of which a bit differs; 0 where the two make different calls."""
    first: int | None = None
    """Place of the first of them among the values, in the order in which they were recorded."""
    first_visible: int | None = None
    """Place of the first whose statistics differ by more than rounding does."""
    calls: tuple[int, int] = (0, 0)
    open: tuple[bool, bool] = (False, False)
    """True for a side that ended before the step was closed."""
    failure: str = ""
    """Why it could not be read."""


@dataclass(frozen=True, slots=True)
class RankScan:
    """All steps of one rank, looked at."""

    rank: int
    places: tuple[PlaceScan, ...]

    @property
    def first(self) -> PlaceScan | None:
        """The first step that is not equal bit by bit."""
        return next((place for place in self.places if not place.equal), None)


def scan_rank(traces: tuple[Trace, Trace] | tuple[str, str], places: Sequence[tuple[int, int]]) -> RankScan:
    """Look at steps of one rank.

    Args:
        traces: both sides, or their paths.
        places: (step, rank) of each, all of one rank.
    """
    opened = (_opened(traces[0]), _opened(traces[1]))
    scans = [_scanned(opened, place) for place in places]
    for trace in opened:
        trace.forget()
    return RankScan(places[0][1], tuple(scans))


def _opened(trace: Trace | str) -> Trace:
    return _of_path(trace) if isinstance(trace, str) else trace


@lru_cache(2)
def _of_path(path: str) -> Trace:
    """A trace, opened once in a process: of thousands of ranks the names of the files alone take seconds."""
    return open_trace(path, tolerant=True)


def _scanned(traces: tuple[Trace, Trace], place: tuple[int, int]) -> PlaceScan:
    scan = PlaceScan(*place)
    try:
        journals = (traces[0].journal(*place), traces[1].journal(*place))
        scan = replace(
            scan,
            calls=(len(journals[0]), len(journals[1])),
            open=(not journals[0].complete, not journals[1].complete),
        )
        outlines = outlines_of(journals)
    except (TwintraceError, OSError) as error:
        return replace(scan, failure=str(error))
    if outlines is None:
        return scan
    left, right = (replace(item, pattern=_known(item.pattern)) for item in (outlines.left, outlines.right))
    outlines = Outlines(left, right, outlines.heads)
    scan = replace(scan, key=outlines.key)
    if not outlines.same_program:
        return scan
    apart = outlines.apart
    places = np.flatnonzero(apart)
    if not len(places):
        return replace(scan, equal=outlines.equal, tensors=len(apart))
    visible = np.flatnonzero(apart & _visible(outlines))
    return replace(
        scan,
        tensors=len(apart),
        different=len(places),
        first=int(places[0]),
        first_visible=int(visible[0]) if len(visible) else None,
    )


_patterns: dict[str, Pattern] = {}


def _known(pattern: Pattern) -> Pattern:
    """The same structure, as it was met first in this process: what was worked out of it is not worked out again."""
    known = _patterns.pop(pattern.identity, pattern)
    while len(_patterns) >= _STRUCTURES:
        del _patterns[next(iter(_patterns))]
    _patterns[pattern.identity] = known
    return known


def _visible(outlines: Outlines) -> np.ndarray[Any, Any]:
    """Places of values whose statistics differ by more than rounding does, or another number of NaN and infinities."""
    one, two = outlines.left.numbers, outlines.right.numbers
    units = np.maximum(_units(outlines.left.pattern.identity), _units(outlines.right.pattern.identity))
    norms = one.means[1], two.means[1]
    differ: np.ndarray[Any, Any] = np.abs(norms[0] - norms[1]) > VISIBLE * units * np.maximum(*map(np.abs, norms))
    differ |= np.any(one.counts[:3] != two.counts[:3], axis=0)
    return differ


@lru_cache(_STRUCTURES)
def _units(identity: str) -> np.ndarray[Any, Any]:
    """The unit of rounding of each value's element type; 0 of integers."""
    units: list[float] = []
    for line in _patterns[identity].lines:
        marks = len(_MARK.findall(line))
        if marks:
            dtype = _DTYPE.search(line)
            units += [UNITS.get(dtype[1].decode() if dtype else "", 0.0)] * marks
    return np.array(units)
