"""Alignments and verdicts held against the truth.

for outcome in outcomes_of(pair, folder)        the pair in three types and both directions
outcome.missing, outcome.wrong                  tensors without their partner; pairs that do not belong together
outcome.right, outcome.placed, outcome.said     the exit code, the place, the cause
Score.of(outcomes)                              a class
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import twintrace as tt
from twintrace.model.pairs import TensorPair
from twintrace.model.records import Call
from twintrace.model.results import CallResult, Comparison

from ..generator.scoring import headline_of, told
from .cases import WANTED, Pair
from .running import DTYPES, recorded
from .truth import Known, Run, Truth, counterparts, equal

ENOUGH = 0.99
"""Share of the tensors of a class, of those that both sides have, that are paired."""


@dataclass(frozen=True)
class Outcome:
    """One comparison of a pair: what was wanted, what was said, what was paired."""

    pair: str
    want: str
    dtype: str
    direction: str
    code: int
    place: str
    """The first place told; empty if none is."""
    placed: bool
    said: bool
    """Is what must be told of a mistake told?"""
    asked: int
    """Number of tensors that both sides have."""
    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    text: str = ""

    @property
    def right(self) -> bool:
        """Is the exit code right?"""
        return self.code in WANTED[self.want]

    @property
    def perfect(self) -> bool:
        return self.right and self.placed and self.said and not self.wrong and not self.missing

    def __str__(self) -> str:
        lines = [
            f"{self.pair} {self.dtype} {self.direction}: want {self.want}, exit {self.code}, at {self.place or '–'}"
        ]
        lines += [] if self.placed else ["  not the place"]
        lines += [] if self.said else ["  not the cause"]
        lines += [f"  wrong    {text}" for text in self.wrong]
        lines += [f"  missing  {text}" for text in self.missing]
        return "\n".join(lines)


def outcomes_of(pair: Pair, folder: Path, dtypes: Sequence[str] = tuple(DTYPES)) -> Iterator[Outcome]:
    """The pair in each of these types, there and back."""
    sound = [tt.open(path) for path in recorded(pair, folder / "sound", torch.float64, sound=True)]
    truths = {
        step: Truth(*(Run(trace.journal(step)) for trace in sound)) for step in sound[0].steps if step in sound[1].steps
    }
    for dtype in dtypes:
        paths = recorded(pair, folder / dtype, DTYPES[dtype])
        runs = [{step: Run(trace.journal(step)) for step in trace.steps} for trace in map(tt.open, paths)]
        if pair.want == "agree" and any(
            runs[side][step].names != run.names
            for step, truth in truths.items()
            for side, run in enumerate((truth.left, truth.right))
        ):  # other kernels than in float64: the runs themselves tell, less sharply
            truths = {step: Truth(runs[0][step], runs[1][step], ROUNDING[dtype]) for step in truths}
        for direction in ("there", "back"):
            found = tt.compare(*(paths if direction == "there" else paths[::-1]))
            yield _outcome(pair, dtype, direction, found, truths, runs)


def _outcome(
    pair: Pair,
    dtype: str,
    direction: str,
    found: Comparison,
    truths: dict[int, Truth],
    runs: Sequence[dict[int, Run]],
) -> Outcome:
    back = direction == "back"
    wrong: list[str] = []
    missing: list[str] = []
    asked = 0
    by_step: dict[int, list[CallResult]] = {}
    for result in found.results:
        by_step.setdefault(result.step, []).append(result)
    for step, results in by_step.items():
        truth = truths[step]
        known = [
            counterparts(runs[0][step], truth.left),
            counterparts(runs[1][step], truth.right),
        ]
        wrong += _wrong(
            results, truth, known, back, pair.want == "agree", [run[step] for run in runs][:: -1 if back else 1]
        )
        shared = _shared(truth, known)
        asked += len(shared)
        missing += _missing(results, truth, shared, known, back)
    text = tt.verdict(found)
    place, placed = _place(pair, found, text)
    said = pair.want not in ("part", "remark") or re.search(pair.told, told(text)) is not None
    return Outcome(
        pair.name,
        pair.want,
        dtype,
        direction,
        found.code,
        place,
        placed,
        said,
        asked,
        tuple(dict.fromkeys(missing)),
        tuple(wrong),
        text,
    )


def _place(pair: Pair, found: Comparison, text: str) -> tuple[str, bool]:
    """The first place told, and whether it is the right one. A result that one side alone has is told in the first line."""
    *calls, slots = headline_of(found)
    sides = [[f"{call.site.name} in {call.site.path}" for call in side] for side in calls]
    sides = [side or [slot] for side, slot in zip(sides, slots, strict=True)]
    if not any(map(any, sides)) and found.code == 1:
        sides = [[text.partition("\n")[0]]]
    held = [any(re.search(pair.place, name) for name in side) for side in sides if any(side)]
    blamed = bool(held) and (any(held) if pair.lone else all(held))
    shown = " | ".join(", ".join(side[:3]) for side in sides) if held else ""
    return shown, blamed or pair.want != "part"


def _pairs(result: CallResult) -> list[TensorPair]:
    """Pairs of a result: those of its calls, or of a parameter's gradient, which goes with none."""
    return list(result.match.tensors) or [item.pair for item in result.tensors]


def _turned(pair: TensorPair, back: bool) -> tuple[int, int]:
    return (pair.right, pair.left) if back else (pair.left, pair.right)


def _wrong(
    results: Iterable[CallResult], truth: Truth, known: Sequence[Known], back: bool, sound: bool, runs: Sequence[Run]
) -> Iterator[str]:
    """Pairs of tensors whose counterparts in the sound runs hold other values, or lie in another order of axes."""
    if back:
        truth = truth.turned
    for result in results:
        right: set[tuple[str, str]] = set()
        for pair in _pairs(result):
            ours, theirs = (
                known[number].get(tensor)
                for number, tensor in zip((back, not back), (pair.left, pair.right), strict=True)
            )
            if not ours or not theirs:
                continue
            choices = list(itertools.product(ours, theirs))
            slots = pair.left_slot, pair.right_slot
            # A mistake may have put a tensor in another's place, and the gradient goes with it.
            if any(truth.belong(*choice, pair.layout) for choice in choices) or (
                not sound and (_met(pair, runs) or (pair.part.backward and slots in right))
            ):
                right.add(slots)
                continue
            where = f"{_names(result)}: {pair.part} {pair.left_slot} | {pair.right_slot} ({result.match.because})"
            if not any(truth.same_elements(*choice) for choice in choices):
                yield where
            elif sound and any(truth.lies(*choice, pair.layout) for choice in choices):
                yield f"{where}, {pair.layout}"  # otherwise a mistake may have changed the layout, or none is claimed


ROUNDING = {"f32": 1e-4, "bf16": 0.05, "f16": 0.01}
"""Share of the largest element by which equal results may differ in a type."""


def _met(pair: TensorPair, runs: Sequence[Run]) -> bool:
    """Do the two hold the same values in fact?"""
    one, two = runs[0].values(pair.left), runs[1].values(pair.right)
    dtype = runs[0].journal.tensor(pair.left).spec.dtype
    return one is not None and equal(one, two, pair.layout, ROUNDING.get(dtype, 0.0))


def _shared(truth: Truth, known: Sequence[Known]) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Groups of values that both runs have, in the numbers of the sound runs."""
    there = [set().union(*numbers.values()) for numbers in known]
    return [group for group in truth.shared if group[0] & there[0] and group[1] & there[1]]


def _missing(
    results: Sequence[CallResult],
    truth: Truth,
    shared: Sequence[tuple[frozenset[int], frozenset[int]]],
    known: Sequence[Known],
    back: bool,
) -> Iterator[str]:
    """Groups of which no two tensors are paired, and that no region holds on both sides."""
    paired: set[tuple[int, int]] = set()
    regions: list[tuple[set[int], set[int]]] = []
    for result in results:
        for pair in _pairs(result):
            ours, theirs = _turned(pair, back)
            paired.update(itertools.product(known[0].get(ours, ()), known[1].get(theirs, ())))
        sides = (result.match.right, result.match.left) if back else (result.match.left, result.match.right)
        if max(map(len, sides)) > 1:
            regions.append(tuple(_held(calls, numbers) for calls, numbers in zip(sides, known, strict=True)))  # type: ignore[arg-type]
    for left, right in shared:
        if any((one, two) in paired for one in left for two in right):
            continue
        if any(left & one and right & two for one, two in regions):
            continue
        yield " = ".join(_maker(run, numbers) for run, numbers in ((truth.left, left), (truth.right, right)))


def _held(calls: Sequence[Call], numbers: Known) -> set[int]:
    return set().union(*(numbers.get(number, ()) for call in calls for _, _, _, number in call.tensors()))


def _maker(run: Run, numbers: frozenset[int]) -> str:
    for call in run.calls:
        for part, slot, _, number in call.tensors():
            if number in numbers and part != "input":
                return f"{call.site.name} in {call.site.path or '.'}: {part} {slot}".rstrip()
    return next((f"gradient of {slot}" for (slot, _), number in run.gradients.items() if number in numbers), "?")


def _names(result: CallResult) -> str:
    sides = (result.match.left, result.match.right)
    return " = ".join(", ".join(call.site.name for call in calls[:4]) or "–" for calls in sides)


@dataclass(frozen=True)
class Score:
    """A class: how many pairs and comparisons, what was paired, what was said."""

    pairs: int
    compared: int
    tensors: int
    paired: int
    wrong: int
    codes: int
    """Comparisons with the right exit code."""
    false_agreements: int
    false_alarms: int
    undecided: int
    mistakes: int
    placed: int
    said: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Score:
        outcomes = list(outcomes)
        mistakes = [item for item in outcomes if item.want in ("part", "remark")]
        return cls(
            pairs=len({item.pair for item in outcomes}),
            compared=len(outcomes),
            tensors=sum(item.asked for item in outcomes),
            paired=sum(item.asked - len(item.missing) for item in outcomes),
            wrong=sum(len(item.wrong) for item in outcomes),
            codes=sum(item.right for item in outcomes),
            false_agreements=sum(item.want == "part" and item.code == 0 for item in outcomes),
            false_alarms=sum(item.want != "part" and item.code == 1 for item in outcomes),
            undecided=sum(not item.right and item.code not in (0, 1) for item in outcomes),
            mistakes=len(mistakes),
            placed=sum(item.right and item.placed for item in mistakes),
            said=sum(item.right and item.said for item in mistakes),
        )

    @property
    def share(self) -> float:
        return self.paired / self.tensors if self.tensors else 1.0

    @property
    def met(self) -> bool:
        """Is nothing wrong, every exit code right, and nearly everything paired?"""
        return self.share >= ENOUGH and not self.wrong and self.codes == self.compared
