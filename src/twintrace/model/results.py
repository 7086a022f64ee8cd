"""What a comparison, a listing and a check-up find.

Match        two calls that belong together, or one that has no partner, with the reason
Divergence   the first place where two runs part
Comparison   all of it; `agree` is the answer
Listing      a trace as a tree of lines, for people
Finding      one line of `twintrace doctor`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .records import Call
from .tensors import Tensor


@dataclass(frozen=True, slots=True)
class Match:
    """Two calls side by side; one of them may be missing. `because` says why they are together, or why it is alone."""

    left: Call | None
    right: Call | None
    because: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor that is not the same on both sides. `role` is input, parameter, output, gradient."""

    role: str
    slot: str
    left: Tensor
    right: Tensor


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs first part: the calls, what differs, what was set differently."""

    step: int
    rank: int
    left: Call
    right: Call
    differences: tuple[Difference, ...]
    inherited: bool
    """True when the inputs differed already: the cause is before this call, outside what was recorded."""
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    backward: bool = False
    """True when it is the gradients that part, and not the values."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two traces side by side."""

    left: str
    right: str
    same: int
    """Pairs of calls with the same values; gradients are told in `divergence`."""
    different: int
    only_left: tuple[Match, ...]
    only_right: tuple[Match, ...]
    divergence: Divergence | None
    exact: bool = True
    """True when every value was compared by its bits, not by its statistics."""
    left_out: tuple[tuple[int, int], ...] = ()
    """(step, rank) that only one side has."""
    remarks: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Every pair is the same, and nothing is alone: no call, no gradient, no step."""
        return self.divergence is None and not (self.only_left or self.only_right or self.left_out) and self.same > 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a listing."""

    step: int
    rank: int
    depth: int
    site: str
    kind: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: int
    where: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A trace for people."""

    path: str
    layout: str
    framework: str
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    settings: Mapping[str, object]
    calls: int
    tensors: int
    rows: tuple[Row, ...]
    hidden: int = 0
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `doctor` looked at."""

    subject: str
    good: bool
    text: str
    remedy: str = ""
