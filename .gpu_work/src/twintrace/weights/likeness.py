"""Names that could be each other's.

q_proj, k_proj    query, key         nearest by name
conv1, conv2      first, second      in the order of their numbers
a, b              x, y               nothing: names do not decide
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence


def assign(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, float, str]] | None:
    """(left, right, confidence, reason) for equally many names of things that are alike; None if names do not decide."""
    if len(left) == 1:
        return [(left[0], right[0], 1.0, "alike, and the only ones")]
    if set(left) == set(right) and not any(name.rpartition(".")[2].isdigit() for name in left):
        return [(name, name, 1.0, "same name") for name in left]
    shorts = [_shortened(left), _shortened(right)]
    numbers = [[_number(short) for short in side] for side in shorts]
    if all(None not in side and len(set(side)) == len(side) for side in numbers):
        orders = [sorted(range(len(side)), key=lambda at, side=side: side[at]) for side in numbers]  # type: ignore[misc]
        return [
            (left[one], right[other], 0.9, f"alike, in the order of their numbers: {left[one]!r} and {right[other]!r}")
            for one, other in zip(*orders, strict=True)
        ]
    return _nearest(left, right, *shorts)


def _nearest(
    left: Sequence[str], right: Sequence[str], ones: Sequence[str], others: Sequence[str]
) -> list[tuple[str, str, float, str]] | None:
    """Each name with the one that it resembles most, if that is clear in both directions."""
    scores = [[difflib.SequenceMatcher(None, one, other).ratio() for other in others] for one in ones]
    chosen: list[tuple[str, str, float, str]] = []
    for at, row in enumerate(scores):
        best = max(range(len(row)), key=row.__getitem__)
        column = [scores[number][best] for number in range(len(ones))]
        rivals = [
            *(value for number, value in enumerate(row) if number != best),
            *(v for n, v in enumerate(column) if n != at),
        ]
        if row[best] < 0.25 or max(rivals) > row[best] - 0.15:
            return None
        chosen.append((left[at], right[best], 0.85, f"alike; {left[at]!r} is nearest to {right[best]!r} by name"))
    return chosen


def _shortened(names: Sequence[str]) -> list[str]:
    """The names without what all of them begin and end with, whole words and numbers at a time."""
    parts = [re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]+", name) for name in names]
    head = tail = 0
    shortest = min(map(len, parts))
    while head < shortest - 1 and len({part[head] for part in parts}) == 1:
        head += 1
    while tail < shortest - head - 1 and len({part[-1 - tail] for part in parts}) == 1:
        tail += 1
    return ["".join(part[head : len(part) - tail]).lower() for part in parts]


def _number(short: str) -> int | None:
    """The one number that tells a name from those like it: digits, a word, or a letter of the alphabet."""
    found = re.fullmatch(r"\D*(\d+)\D*", short)
    if found:
        return int(found[1])
    words = [part for part in re.split(r"[._]", short) if part in _WORDS]
    if len(words) == 1:
        return _WORDS[words[0]]
    letter = re.fullmatch(r"[._]?([a-h])[._]?", short)
    return ord(letter[1]) - ord("a") + 1 if letter else None


_WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "first": 1, "second": 2, "third": 3, "fourth": 4, "last": 99, "pre": 1, "post": 2, "in": 1, "mid": 2, "out": 3,
    "input": 1, "hidden": 2, "output": 3,
}  # fmt: skip
