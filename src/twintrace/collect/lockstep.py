"""Compare a run with another's trace while it is recorded.

    a tensor is read      its fingerprint beside that of the same number in the other's step
    a call ends           its line beside the other's: another call, another argument; results that differ while all that it took is
                          the same: the values around it are kept
    a step ends           `judge` reads both journals of the step: a difference with an effect ends the recording

Two runs of one program number their calls and tensors alike, so nothing is paired: the numbers are the pairing. Where the two make
other calls the numbers part, and nothing more is compared in that step. On an accelerator fingerprints come at the end of the step,
and everything is told there.

The judge comes from above (`api/lockstep.py`): a difference that nothing takes over does not count, and seeing that needs what
calls mean.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..store.folding import Pattern
from ..store.trace import Trace
from .watching import numbers_in

_FINGERPRINT = '"fp":"'
_MARK = re.compile("[\x10-\x1f]")
_PASSING = re.compile(r',"stack":[0-9]+| at 0x[0-9a-fA-F]+')
"""Parts of a call's line that another run of the same program need not repeat: lines of the source, addresses."""
_TENSOR, _CALL = '{"k":"tensor","id":', '{"k":"call","id":'
_STRUCTURES = 4
"""Structures of steps that are remembered: training, evaluation, the step that logs."""
_MOST_KEPT = 8
"""Places of a step of which the values are kept, until it is known that they are harmless."""

Judge = Callable[[Path, int, int], str]
"""`judge(path, step, rank)`: the sentence about the first difference with an effect in that step, or nothing."""


class _Structure:
    """Lines of a step of the other run, by the numbers of its calls and tensors."""

    def __init__(self, pattern: Pattern) -> None:
        self.calls: dict[int, str] = {}
        self.gradients: list[str] = []
        self.tensors: dict[int, tuple[str, int]] = {}
        """The line up to the statistics and the place of these; or the whole line, and -1."""
        place = 0
        for line in pattern.text.decode("utf-8", "surrogatepass").split("\n"):
            marks = len(_MARK.findall(line))
            if line.startswith(_TENSOR):
                head = _MARK.split(line, maxsplit=1)[0]
                self.tensors.setdefault(_number(line, _TENSOR), (head, place if marks == 1 else -1))
            elif line.startswith(_CALL):
                self.calls.setdefault(_number(line, _CALL), line)
            elif line.startswith('{"k":"grad",'):
                self.gradients.append(line)
            place += marks

    def changed(self, pattern: Pattern) -> _Structure | None:
        """The same for a copy of the pattern; None where lines of tensors or gradients are others in it."""
        if pattern.base is None:
            return None
        structure = copy.copy(self)
        structure.calls = dict(self.calls)
        for place, line in pattern.changed.items():
            if any(each.startswith((b'{"k":"tensor"', b'{"k":"grad"')) for each in (line, pattern.base.lines[place])):
                return None
            text = line.decode("utf-8", "surrogatepass")
            if text.startswith(_CALL):
                structure.calls[_number(text, _CALL)] = text
        return structure


class Lockstep:
    """Another run's trace, and how far this one is the same."""

    def __init__(self, other: Trace, judge: Judge, *, raises: bool = False) -> None:
        self.other, self.raises = other, raises
        self.compared = 0
        """Steps that were compared."""
        self.first = ""
        """The first difference of this step that something took over, in words; the judge has not seen it yet."""
        self._judge = judge
        self._known: dict[str, _Structure] = {}
        self._step: _Structure | None = None
        self._bits = ""
        self._apart: dict[int, str] = {}  # by tensor: where the difference comes from, once a call has shown it
        self._parted = False  # other calls were made, and the numbers mean different things
        self._gradients = self._calls = self._kept = 0
        self._harmless: set[frozenset[tuple[int, str]]] = set()  # by what differs, and where that comes from

    def begin(self, step: int, rank: int) -> str:
        """A new step; why it cannot be compared, or nothing."""
        self._step, self.first = None, ""
        self._apart.clear()
        self._parted = False
        self._gradients = self._calls = self._kept = 0
        if (step, rank) not in self.other.places:
            return f"{self.other.path} has no step {step} of rank {rank}, so it is recorded and not compared"
        self.other.forget()
        journal: Any = self.other.journal(step, rank)
        outline = journal.outline() if hasattr(journal, "outline") else None
        if outline is None:
            return f"step {step} of {self.other.path} is damaged or was not closed, so it is not compared"
        # Lines of a pattern. Those with a number or two changed (a learning rate) are made of the one that they are copies of.
        base = outline.pattern.base or outline.pattern
        known = self._known.pop(base.identity, None) or _Structure(base)
        while len(self._known) >= _STRUCTURES:
            del self._known[next(iter(self._known))]
        self._known[base.identity] = known
        self._step = known if base is outline.pattern else known.changed(outline.pattern) or _Structure(outline.pattern)
        self._bits = outline.numbers.fingerprints.tobytes().hex()
        self.compared += 1
        return ""

    def tensor(self, number: int, head: str, values: str, rest: str) -> None:
        """A tensor's line has been written, in these three parts."""
        if self._step is None or self._parted:
            return
        known, place = self._step.tensors.get(number, ("", -1))
        if place >= 0:
            at = values.find(_FINGERPRINT) + len(_FINGERPRINT)
            bits = self._bits[32 * place : 32 * place + 32]
            if values[at : at + 32] == bits and (head == known or _spec(head) == _spec(known)):
                return
        elif known and _same_values(f"{head}{values}{rest}", known):
            return
        self._apart[number] = ""

    def call(self, identity: int, before: str, text: str) -> bool:
        """A call has ended, with this line, of which `before` was there when it began. Are the values around it to be kept?"""
        if self._step is None or self._parted:
            return False
        self._calls += 1
        known = self._step.calls.get(identity)
        if not self._apart and text == known:
            return False
        return self._look(before, text, known)

    def gradient(self, text: str, number: int) -> bool:
        """A gradient has come, with this line. Is it to be kept?"""
        if self._step is None or self._parted:
            return False
        place, self._gradients = self._gradients, self._gradients + 1
        known = self._step.gradients[place] if place < len(self._step.gradients) else "{"
        if text != known and _of_gradient(text) != _of_gradient(known):
            self._part(f"a {_named_gradient(text)} comes where {self.other.path} has {_named_gradient(known)}")
            return False
        if number not in self._apart or self.first:
            return False
        self._apart[number] = self.first = _named_gradient(text)
        return self._may_keep()

    def end(self) -> None:
        """The step is over."""
        if self._step is not None and not self._parted and self._calls < len(self._step.calls):
            self._part(f"{len(self._step.calls) - self._calls} calls of {self.other.path} are not made")

    def judge(self, path: Path, step: int, rank: int) -> str:
        """The sentence about the first difference, if the step that has ended shows one that has an effect."""
        if self._step is None or not (self._apart or self._parted):
            return ""
        signature = frozenset((*self._apart.items(), (-1, self.first)))
        if signature in self._harmless:
            return ""
        sentence = self._judge(path, step, rank)
        if not sentence:
            self._harmless.add(signature)
        return sentence

    def _look(self, before: str, text: str, known: str | None) -> bool:
        """The same, where the line is another or something differs."""
        ours, theirs = _line(text), _line(known or "{")
        site = _site(ours)
        if site != _site(theirs):
            self._part(f"{site}, where {self.other.path} has {_site(theirs)}")
            return False
        own = numbers_in(before)
        taken = [number for number in own if number in self._apart]
        made = [number for number in numbers_in(text[len(before) :]) if number in self._apart and number not in taken]
        settings = known is not None and _PASSING.sub("", text) != _PASSING.sub("", known)
        if not made and not (settings and not taken):
            return False
        origin = next((self._apart[number] for number in taken if self._apart[number]), "")
        is_origin = not origin and not self.first  # what follows differs because of it, seen or unseen
        origin = origin or (f"what comes into {site}" if taken else site)
        for number in (*taken, *made):
            self._apart[number] = self._apart[number] or origin
        if not self.first and (own or settings):  # what draws, or hands out memory, may do nothing
            self.first = origin
        return is_origin and self._may_keep()

    def _part(self, sentence: str) -> None:
        self._parted = True
        self.first = self.first or sentence

    def _may_keep(self) -> bool:
        self._kept += 1
        return self._kept <= _MOST_KEPT


def _number(line: str, start: str) -> int:
    return int(line[len(start) : line.index(",", len(start))])


def _line(text: str) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(text + "}")
    return line


def _spec(head: str) -> tuple[Any, ...]:
    line = _line(head)
    return line.get("dtype"), line.get("shape")


def _same_values(ours: str, theirs: str) -> bool:
    """Do two lines without plain numbers (of parts, of a tensor that is missing, or not finite) say the same?"""
    if ours == theirs:
        return True
    one, two = _line(ours), _line(theirs)
    fields = ("dtype", "shape", "fp") if one.get("fp") and two.get("fp") else ("dtype", "shape", "stats", "parts")
    return all(one.get(field) == two.get(field) for field in fields)


def _site(line: dict[str, Any]) -> str:
    return f"{line['phase']}/{line['kind']}:{line['name']}#{line['n']}" if "name" in line else "nothing"


def _of_gradient(text: str) -> tuple[Any, ...]:
    line = _line(text)
    return line.get("of"), line.get("role"), line.get("slot"), line.get("n")


def _named_gradient(text: str) -> str:
    line = _line(text)
    return f"gradient of {line['role']} {line['slot'] or '0'}" if "role" in line else "nothing"
