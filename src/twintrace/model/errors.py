"""Everything that twintrace raises on purpose.

    TwintraceError
    ├── UsageError            an argument that cannot work (also a ValueError)
    ├── NonfiniteError        a recorded run made NaN or infinities, and was to end then (also an ArithmeticError)
    ├── DifferenceError       a recorded run is not that of the trace beside it, and was to end then
    ├── SessionError          the right call at the wrong time: stop without start, a step recorded twice
    ├── MissingPackageError   a package is needed and not installed, or too old; the sentence says how to get it
    ├── ReportError           a report that cannot be written, or a file that is none (also an OSError)
    ├── WeightsError          weights that cannot be mapped, converted or loaded (also a ValueError)
    │   └── CheckpointError       a weights file: damaged, hostile, of an unknown kind, or unable to hold a tensor
    └── TraceError            a trace on disk
        ├── TraceNotFoundError    nothing there, or not a trace
        ├── TraceExistsError      the path already holds another trace
        ├── TraceWriteError       not writable, disk full
        └── TraceFormatError      damaged, hostile, or of an unknown version: names file, record and field

Each message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations


class TwintraceError(Exception):
    """The root: `except TwintraceError` catches all that twintrace raises on purpose, and nothing else."""


class UsageError(TwintraceError, ValueError):
    """An argument that cannot work."""


class NonfiniteError(TwintraceError, ArithmeticError):
    """A recorded run made NaN or infinities that have an effect, and was to end then."""


class DifferenceError(TwintraceError):
    """A recorded run differs from that of the trace that it is compared with, and was to end then."""


class SessionError(TwintraceError, RuntimeError):
    """The right call at the wrong time."""


class MissingPackageError(TwintraceError, ImportError):
    """A package is needed and not installed, or too old."""


class ReportError(TwintraceError, OSError):
    """A report that cannot be written, or a file that is none."""


class WeightsError(TwintraceError, ValueError):
    """Weights that do not fit: names that are not there, shapes that differ, a map that contradicts itself."""


class CheckpointError(WeightsError):
    """A weights file that cannot be read or written. A file that could not be completed is removed."""


class TraceError(TwintraceError):
    """Something about a trace on disk."""


class TraceNotFoundError(TraceError, FileNotFoundError):
    """There is no trace at that path."""


class TraceExistsError(TraceError, FileExistsError):
    """The path already holds another trace, or something that is not a trace."""


class TraceWriteError(TraceError, OSError):
    """The trace cannot be written."""


class TraceFormatError(TraceError):
    """The trace is damaged, hostile, or of a version that this release does not know."""
