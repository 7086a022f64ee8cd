"""Send what a recorder, ended or killed, has left on the local disk.

upload("runs/a", "s3://bucket/runs/a")     -> Remainder, or None where all of it is there
upload()                                   everything that waits in the default folder
"""

from __future__ import annotations

import os
from pathlib import Path

from ..model.words import Progress
from ..store.uploading import Remainder, upload_trace, waiting_traces

__all__ = ["upload", "waiting_uploads"]


def waiting_uploads() -> list[str]:
    """Folders of traces that were recorded to an address and have not arrived, where no `local` was given."""
    return [str(root) for root in waiting_traces()]


def upload(
    trace: str | os.PathLike[str],
    to: str | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Remainder | None:
    """Send a trace, or what has not arrived of it, to another file system.

    Args:
        trace: its folder on this machine.
        to: an address that fsspec knows; may be left out where the trace was recorded to one.
        resume: the address may hold earlier steps of the same run.
        progress: told (file, how many have arrived, how many there are).

    Returns:
        What could not be sent, and why; None where all of it is there.

    Raises:
        TraceNotFoundError: there is no trace.
        UsageError: nothing says where to.
        TraceExistsError: another trace is there.
        SessionError: it is still being recorded.
    """
    return upload_trace(Path(trace).absolute(), to, resume=resume, tell=progress)
