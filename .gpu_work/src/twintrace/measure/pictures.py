"""One array, for people to look at.

    picture(array, decode)      Picture(first=(0.5, -1.25, …), counts=(3, 8, …), edges=(-2.0, …), heat=Heat(32, 32, …))

Two passes in blocks: memory does not grow with the array. `decode` makes numbers of a block in its storage type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.measurements import Heat, Picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 18
BINS = 48
FIRST = 64
ROWS = COLUMNS = 32
"""The finest grid; an array with fewer rows or columns has a cell for each."""


def picture(array: NDArray[Any], decode: Callable[[NDArray[Any]], NDArray[Any]]) -> Picture:
    """The first values, the histogram and the coarse map of an array."""
    flat = array.reshape(-1)
    low, high = np.inf, -np.inf
    for _, block in _blocks(flat, decode):
        finite = block[np.isfinite(block)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    width = array.shape[-1] if array.ndim else 1
    cells, broken = _grid(flat.size, width)
    edges = _edges(low, high)
    counts = np.zeros(max(0, edges.size - 1), np.int64)
    for start, block in _blocks(flat, decode):
        good = np.isfinite(block)
        if counts.size:
            places = np.searchsorted(edges, block[good], side="right") - 1
            counts += np.bincount(np.clip(places, 0, counts.size - 1), minlength=counts.size)
        _lay(cells, broken, start, block, good, flat.size // max(1, width), width)
    first = next(_blocks(flat[:FIRST], decode), (0, np.array([])))[1]
    cells[broken] = np.nan
    heat = Heat(len(cells), len(cells[0]), tuple(cells.reshape(-1).tolist())) if flat.size else None
    return Picture(flat.size, tuple(first.tolist()), tuple(counts.tolist()), tuple(edges.tolist()), heat)


def _blocks(
    flat: NDArray[Any], decode: Callable[[NDArray[Any]], NDArray[Any]]
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    for start in range(0, flat.size, BLOCK):
        block = decode(flat[start : start + BLOCK])
        yield start, np.asarray(np.abs(block) if np.iscomplexobj(block) else block, np.float64)


def _edges(low: float, high: float) -> NDArray[np.float64]:
    if low > high:
        return np.array([])
    shares = np.linspace(0.0, 1.0, BINS + 1)
    edges = low * (1 - shares) + high * shares  # not from high - low, which may be beyond the largest float
    if np.all(np.diff(edges) > 0):
        return edges
    return np.array([low, max(high, np.nextafter(low, np.inf))])  # no room for so many gaps between the two


def _grid(size: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    shape = (min(ROWS, size // max(1, width)), min(COLUMNS, width)) if size else (0, 0)
    return np.zeros(shape), np.zeros(shape, np.bool_)


def _lay(
    cells: NDArray[np.float64],
    broken: NDArray[np.bool_],
    start: int,
    block: NDArray[np.float64],
    good: NDArray[np.bool_],
    rows: int,
    width: int,
) -> None:
    """Put a block's largest magnitudes, with their signs, into the cells that they belong to."""
    places = np.arange(start, start + block.size)
    row = (places // width) * cells.shape[0] // rows
    place = row * cells.shape[1] + (places % width) * cells.shape[1] // width
    broken.reshape(-1)[place[~good]] = True
    flat = cells.reshape(-1)
    most, least = np.zeros(flat.size), np.zeros(flat.size)
    np.maximum.at(most, place[good], block[good])
    np.minimum.at(least, place[good], block[good])
    for side in (most, least):
        larger = np.abs(side) > np.abs(flat)
        flat[larger] = side[larger]
