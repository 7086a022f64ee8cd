"""Everything that twintrace raises on purpose: `except tt.errors.TwintraceError` catches all of it, and nothing else.

The tree is drawn in `twintrace.model.errors`, where it lives; these are its names.
"""

from __future__ import annotations

from .model.errors import (
    CheckpointError,
    DifferenceError,
    MissingPackageError,
    NonfiniteError,
    ReportError,
    SessionError,
    TraceError,
    TraceExistsError,
    TraceFormatError,
    TraceNotFoundError,
    TraceWriteError,
    TwintraceError,
    UsageError,
    WeightsError,
)

__all__ = [
    "CheckpointError",
    "DifferenceError",
    "MissingPackageError",
    "NonfiniteError",
    "ReportError",
    "SessionError",
    "TraceError",
    "TraceExistsError",
    "TraceFormatError",
    "TraceNotFoundError",
    "TraceWriteError",
    "TwintraceError",
    "UsageError",
    "WeightsError",
]
