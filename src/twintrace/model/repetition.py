"""Does a run repeat itself? The first call in which two runs of one script differ, and why.

Repetition("train.py")
    first       torch.randn in forward, step 0: random numbers without a seed
    compared    values with equal bits, up to there
"""

from __future__ import annotations

from dataclasses import dataclass

from .records import Call
from .words import Word


class Unsteadiness(Word):
    """Why two runs of one script differ."""

    RANDOM = "random numbers without a seed"
    ORDER = "order of the data"
    WEIGHTS = "initial weights"
    DATA = "data from outside"
    NUMBER = "a number that Python made"
    KERNEL = "kernel that is not deterministic"
    UNINITIALISED = "uninitialised memory"
    THREADS = "threads"
    FLOW = "other calls"
    OUTSIDE = "code that was not recorded"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first call that differs: its inputs are the same, bit by bit, and its results are not."""

    step: int
    rank: int
    cause: Unsteadiness
    what: str
    why: str
    advice: str
    call: Call | None = None
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Repetition:
    """Answer to "is my run deterministic?". `bool()` is True if the two runs are the same, bit by bit."""

    script: str
    first: FirstDifference | None
    calls: int = 0
    compared: int = 0
    """Values that were compared."""
    raised: str = ""
    """Exception that ended the script, in both runs or in one."""
    remarks: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Exit code: 0 the run repeats itself, 1 it does not, 3 could not be told."""
        return 1 if self.first is not None else 3 if not self.compared else 0

    def __bool__(self) -> bool:
        return self.code == 0

    def __str__(self) -> str:
        if self.first is not None:
            where = "" if self.first.call is None else f" at {self.first.call.site}"
            return f"{self.script}: does not repeat itself: step {self.first.step}{where}: {self.first.cause}: {self.first.why}"
        if not self.compared:
            return f"{self.script}: could not be told: nothing was recorded"
        return f"{self.script}: repeats itself: {self.compared} values of {self.calls} calls are the same, bit by bit"
