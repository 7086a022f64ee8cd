"""One difference among the ranks, and the words for ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.records import Call


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference among the ranks: at which call, in a sentence, with its cause and what to do."""

    call: Call
    what: str
    why: str = ""
    advice: str = ""
    backward: bool = False
    group: int | None = None
    """The weight that shows it, where one does."""
    at: Call | None = None
    """The call whose gradient shows it, where another one is to blame."""
    suspicion: bool = False
    """True if it is no mistake by itself: it counts where the runs have parted."""
    around: tuple[int, ...] = ()
    """The call and the modules around it, by their ids, the innermost first."""


SHOWN = 6


def ranks_text(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN])) + (" …" if len(numbers) > SHOWN else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"
