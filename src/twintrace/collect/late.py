"""Lines of a recorder as records for a writer of another tool's file, which must have a tensor before those that refer to it.

    lines = HeldLines(journal)
    lines.hold()                 from here on lines are kept
    lines.release([tensors])     the tensors' lines first, then all that was kept

A trace of our own allows a tensor's line to come later, where values on a device are known late. Other tools' files, into which
a recorder writes directly, are translated record by record, and do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..store.lines import unseal
from ..store.writer import Records


class HeldLines:
    """Passes lines on as records, or keeps them for a while."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._kept: list[bytes] = []
        self._holding = False

    def add(self, line: bytes) -> None:
        """A sealed line."""
        if self._holding:
            self._kept.append(line)
        else:
            self._records.take(unseal(line))

    def commit(self) -> None:
        """Lines that were passed on survive; those that are held do not yet."""
        if not self._holding:
            self._records.commit()

    def hold(self) -> None:
        """Keep what comes."""
        self._holding = True

    def release(self, first: Sequence[bytes]) -> None:
        """These lines, then what was kept, in its order."""
        kept, self._kept, self._holding = self._kept, [], False
        for line in (*first, *kept):
            self._records.take(unseal(line))
