"""The first value of a run that is not finite, and its origin.

NonfiniteReport("runs/a")
    origin      torch.Tensor.log in head, step 7, forward: log of zero
    harmless    a mask of -inf that a softmax swallows, and the like
    untold      gaps in the record
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .records import Call
from .tensors import Spec, Statistics
from .words import Word


class Source(Word):
    """Origin of a value that is not finite."""

    OVERFLOW = "overflow"
    DIVISION = "division by zero"
    LOGARITHM = "logarithm of zero or less"
    ROOT = "root of a negative number"
    DOMAIN = "argument outside the domain"
    SLOPE = "infinite derivative"
    MASKED = "softmax over nothing but -inf"
    CANCELLED = "infinity minus infinity"
    ZERO_TIMES = "zero times infinity"
    EMPTY = "average of nothing"
    PASSED_ON = "infinity that was made on purpose"
    UNINITIALISED = "uninitialised memory"
    DATA = "data that came in so"
    WEIGHTS = "weights that came in so"
    UPDATE = "update of the weights"
    ELSEWHERE = "another process"
    KERNEL = "kernel that is wrong"
    UNRECORDED = "code that was not recorded"
    UNKNOWN = "unknown"


class Pass(Word):
    """When in a step it arose."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Counts:
    """Elements of a tensor that are not finite."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0

    @property
    def inf(self) -> int:
        return self.posinf + self.neginf

    def __bool__(self) -> bool:
        return bool(self.nan or self.posinf or self.neginf)

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.nan + other.nan, self.posinf + other.posinf, self.neginf + other.neginf)

    def __str__(self) -> str:
        named = ((self.nan, "NaN"), (self.posinf, "+inf"), (self.neginf, "-inf"))
        return ", ".join(f"{count:,} {name}" for count, name in named if count) or "nothing but finite values"


FINITE = Counts()


@dataclass(frozen=True, slots=True)
class ValueRange:
    """One tensor of a call, by its part in it, and the range of its values. A number that stands in the call has no dtype."""

    name: str
    spec: Spec
    statistics: Statistics | None
    is_rough: bool = False
    """Another tool's statistics: nothing was counted, 1 is some."""

    @property
    def counts(self) -> Counts:
        """Elements that are not finite; none where nothing is known."""
        known = self.statistics
        return FINITE if known is None else Counts(known.nan, known.posinf, known.neginf)

    @property
    def elements(self) -> int:
        return math.prod(self.spec.shape)

    @property
    def is_tensor(self) -> bool:
        return bool(self.spec.dtype)

    @property
    def lo(self) -> float | None:
        """The smallest finite value."""
        return None if self.statistics is None or self.statistics.min is None else float(self.statistics.min)

    @property
    def hi(self) -> float | None:
        """The largest finite value."""
        return None if self.statistics is None or self.statistics.max is None else float(self.statistics.max)

    @property
    def norm(self) -> float | None:
        return None if self.statistics is None else self.statistics.norm

    @property
    def zeros(self) -> int:
        return 0 if self.statistics is None else self.statistics.zero

    @property
    def size(self) -> float | None:
        """The largest finite magnitude."""
        return None if self.lo is None or self.hi is None else max(abs(self.lo), abs(self.hi))

    @property
    def below_zero(self) -> bool:
        return self.lo is not None and self.lo < 0

    @property
    def is_constant(self) -> bool:
        return self.lo is not None and self.lo == self.hi and not self.counts

    def told(self) -> str:
        """`input (-1.2 … 3.4)`, `other (0)`."""
        if self.lo is None or self.hi is None:
            return f"{self.name} (nothing finite)"
        one = not self.is_tensor or self.lo == self.hi
        return f"{self.name} ({self.lo:.4g})" if one else f"{self.name} ({self.lo:.4g} … {self.hi:.4g})"


@dataclass(frozen=True, slots=True)
class Origin:
    """The call that made the first value that is not finite.

    `call` is None where nothing that was recorded made it and nothing recorded took it (the gradient of a parameter alone).
    """

    step: int
    rank: int
    when: Pass
    source: Source
    what: str
    """One sentence on inputs and results."""
    why: str
    """The cause, with the numbers that show it."""
    advice: str = ""
    call: Call | None = None
    given: tuple[ValueRange, ...] = ()
    """Tensors that came in, before the call; of a backward pass the gradients that came in first, then the forward's."""
    made: tuple[ValueRange, ...] = ()
    """Tensors that are not finite."""
    led: tuple[str, ...] = ()
    """Events before it, one sentence each: growth over the calls and the steps before."""
    reached: str = ""
    """Its later effect, one sentence."""


@dataclass(frozen=True, slots=True)
class NonfiniteReport:
    """Answer to "where does the NaN come from?". `bool(report)` is True if something was found."""

    path: str
    origin: Origin | None
    steps: int = 0
    """Steps that were looked through."""
    harmless: tuple[str, ...] = ()
    """Values that are not finite and have no effect, one sentence each."""
    untold: tuple[str, ...] = ()
    """Gaps in the record, one sentence each."""

    @property
    def code(self) -> int:
        """Exit code: 0 nothing that counts is not finite, 1 found, 3 could not be told."""
        return 1 if self.origin is not None else 3 if self.untold else 0

    def __bool__(self) -> bool:
        return self.origin is not None

    def __str__(self) -> str:
        origin = self.origin
        if origin is None:
            return f"{self.path}: could not be told: {self.untold[0]}" if self.untold else f"{self.path}: all finite"
        where = "" if origin.call is None else f" at {origin.call.site}"
        return f"{self.path}: step {origin.step}, {origin.when}{where}: {origin.source}: {origin.why}"
