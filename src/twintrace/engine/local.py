"""On the cores of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run(task: Callable[[_Item], _Result], items: Sequence[_Item], *, workers: int | None = None) -> Iterator[_Result]:
    """The results, in order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(task, items)
