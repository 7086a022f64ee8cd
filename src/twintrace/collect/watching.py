"""Watch for values that are not finite while a run is recorded.

    the observer reads a tensor      its counts of NaN and infinities are there anyway: those that have some are remembered
    a call ends                      NaN out of values without NaN: told at once, and the values around it are kept
    a step ends                      `judge` reads the step's journal: an origin with an effect ends the recording, a mask does not

The judge comes from above (`api/recording.py`): finding the origin needs what calls mean, which is not a recorder's business.
On an accelerator the counts come at the end of the step, so everything is told there, and nothing waits inside the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r'"\$t":(\d+)|"(?:params|buffers|after)":\{([^}]*)\}')
_WRITTEN = re.compile(r'\{"\$float":"(nan|-?inf)"\}')
_MOST_KEPT = 8
"""Places of a run of which the values are kept, until it is known that they are harmless."""
_PATIENCE = 20
"""Steps to wait for the update after gradients that overflowed. A loss scaler that begins at 2^16 has reached 1 after 16."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings at the end of a step. `sentence` tells the origin; `waits`: the next steps decide whether it had an effect."""

    sentence: str = ""
    waits: bool = False


Judge = Callable[[Path, Sequence[int], int], Judgement]
"""`judge(path, steps, rank)`: what these steps of a trace tell."""


class NonfiniteWatch:
    """The counts of one recorder, and what follows from them."""

    def __init__(self, judge: Judge, *, raises: bool = False) -> None:
        self.raises = raises
        self.counts: dict[int, tuple[int, int, int]] = {}
        """Of this step: NaN, +inf and -inf of each tensor that has any, by number."""
        self.sentence = ""
        """The origin, once it is known."""
        self.kept = 0
        self._judge = judge
        self._pending: list[int] = []
        self._harmless: set[frozenset[tuple[int, int, int]]] = set()
        self._told = False

    def begin(self) -> None:
        """A new journal."""
        self.counts.clear()

    def fresh(self, since: int) -> list[int]:
        """Tensors that are not finite among those numbered since then."""
        numbers = []
        for number in reversed(self.counts):
            if number < since:
                break
            numbers.append(number)
        return numbers

    def is_origin(self, text: str, fresh: Sequence[int]) -> bool:
        """Did a call make something of a new kind: NaN without NaN before it, or infinities where nothing came in?

        `text` is the call's line as far as it was written before the call: its arguments' numbers, and infinities that stand in it.
        """
        taken = self._taken(text)
        written = set(_WRITTEN.findall(text))
        if any(self.counts[number][0] for number in fresh):
            return "nan" not in written and not any(counts[0] for counts in taken)
        return not written and not taken

    def _taken(self, text: str) -> list[tuple[int, int, int]]:
        return [self.counts[number] for number in numbers_in(text) if number in self.counts]

    def may_keep(self) -> bool:
        """Is there room for the values around another place?"""
        self.kept += 1
        return self.kept <= _MOST_KEPT

    def tells_now(self, fresh: Sequence[int]) -> bool:
        """Is this the first NaN of the run? It is told at once; infinities may be meant, and wait for the end of the step."""
        first = not self._told and any(self.counts[number][0] for number in fresh)
        self._told = self._told or first
        return first

    def judge(self, path: Path, step: int, rank: int) -> str:
        """The sentence about the origin, if the step that has ended shows one; empty if not, or not yet."""
        signature = frozenset(self.counts.values())
        if not self._pending and (not signature or signature in self._harmless):
            return ""
        self._pending.append(step)
        verdict = self._judge(path, self._pending, rank)
        if verdict.waits and len(self._pending) < _PATIENCE:
            return ""
        if not verdict.sentence:
            self._pending.clear()
            self._harmless.add(signature)
            self.kept = 0
            self._told = False
        self.sentence = verdict.sentence
        return self.sentence


def numbers_in(text: str) -> list[int]:
    """Numbers of the tensors that a call's line, or a part of it, names."""
    numbers: list[int] = []
    for single, several in _NUMBER.findall(text):
        numbers += [int(single)] if single else [int(item) for item in re.findall(r":(\d+)", several)]
    return numbers
