"""Verdicts held against the truth.

    outcome = judge(case, left_trace, right_trace)       one comparison
    outcome.right, outcome.placed, outcome.caused        did it say the right thing, at the right place, with the right cause?
    summary([outcome, …])                                shares

A verdict "3" (could not tell) is wrong wherever tensors were kept, and they always are here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import twintrace as tt
from twintrace.model.records import Call
from twintrace.model.results import Comparison

from .cases import Case, is_blamed

PLACE_F32, PLACE_16, CAUSE = 0.98, 0.95, 0.90
"""Shares of the mistakes whose place and whose cause are to be told. False alarms and false agreements: none."""

Headline = tuple[Sequence[Call], Sequence[Call], tuple[str, str]]


@dataclass(frozen=True)
class Outcome:
    case: Case
    code: int
    text: str
    headline: tuple[str, str]
    placed: bool
    caused: bool

    @property
    def right(self) -> bool:
        """Is the answer right, whatever is said of the place?"""
        want = self.case.truth.want
        if want == "remark":
            return self.code in (0, 1) and self.caused
        return self.code == (0 if want == "agree" else 1)

    @property
    def false_alarm(self) -> bool:
        """A right rewrite was accused, or is said to be in doubt."""
        return self.case.truth.want == "agree" and self.code != 0

    @property
    def false_agreement(self) -> bool:
        return self.case.truth.want == "part" and self.code == 0


def judge(case: Case, left: Path, right: Path) -> Outcome:
    """Compare two traces, and hold the verdict against the truth."""
    found = tt.compare(left, right)
    text = tt.verdict(found)
    return outcome_of(case, found.code, text, headline_of(found))


def outcome_of(case: Case, code: int, text: str, headline: Headline) -> Outcome:
    truth = case.truth
    blamed = is_blamed(truth, *headline)
    placed = code == 0 if truth.want == "agree" else blamed and code == 1
    if truth.want == "remark":
        placed = code == 0 or blamed
    caused = truth.want == "agree" or (code in (0, 1) and re.search(truth.cause, told(text)) is not None)
    shown = [", ".join(f"{call.site} in {call.site.path or '.'}" for call in calls[:4]) for calls in headline[:2]]
    return Outcome(case, code, text, (shown[0] or headline[2][0], shown[1] or headline[2][1]), placed, caused)


def headline_of(found: Comparison) -> Headline:
    """The calls that a verdict names first, on both sides; where it names no call, the parameters."""
    first = found.divergence
    if first is None:
        return (), (), ("", "")
    left, right = first.calls
    slots = ("", "")
    if not left and not right and first.tensors:
        slots = first.tensors[0].pair.left_slot, first.tensors[0].pair.right_slot
    return left, right, slots


def told(text: str) -> str:
    """A verdict without the source lines that it quotes: a word in them is no cause."""
    lines = (line for line in text.splitlines() if not re.match(r"\s{2,}(left|right)\s{2,}", line))
    return "\n".join(re.sub(r"`[^`]*`", "", line) for line in lines)


@dataclass(frozen=True)
class Summary:
    """Of some outcomes: how many mistakes, the shares of them that were placed and explained, and what must not be."""

    mistakes: int
    placed: float
    caused: float
    rewrites: int
    false_alarms: int
    false_agreements: int
    undecided: int
    """Exit code 3 (or 2) for a mistake."""


def summary(outcomes: Iterable[Outcome]) -> Summary:
    outcomes = list(outcomes)
    wrong = [outcome for outcome in outcomes if outcome.case.truth.want != "agree"]
    return Summary(
        mistakes=len(wrong),
        placed=_share([outcome.placed for outcome in wrong]),
        caused=_share([outcome.caused for outcome in wrong]),
        rewrites=len(outcomes) - len(wrong),
        false_alarms=sum(outcome.false_alarm for outcome in outcomes),
        false_agreements=sum(outcome.false_agreement for outcome in outcomes),
        undecided=sum(outcome.code not in (0, 1) for outcome in wrong),
    )


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 1.0
