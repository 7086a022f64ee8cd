"""A bar for long work: on a terminal only, and gone when the work is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..model.words import Progress as Tell

_REFRESH = 4
"""Times a second: nobody reads faster, and a terminal over a slow line has to draw each."""


@contextmanager
def progress_bar() -> Iterator[Tell | None]:
    """Function to call with (task, done, total); None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (text, BarColumn(bar_width=30), TaskProgressColumn(), TimeRemainingColumn(compact=True))
    # One line, whatever is told: a line for each thing that was ever told of is drawn anew ten times a second.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, expand=True, refresh_per_second=_REFRESH
    ) as shown:
        task = shown.add_task("", total=None)
        last = [0.0]

        def tell(what: str, done: int, total: int) -> None:
            now = time.monotonic()
            if now - last[0] >= 0.5 / _REFRESH or done >= total:
                last[0] = now
                shown.update(task, description=what, completed=done, total=total)

        yield tell
