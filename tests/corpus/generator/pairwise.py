"""A small sample of a large product in which every two choices meet.

    cover(valid, rng)      -> combinations out of `valid`; every pair of values that one of them has is in one of these

Greedy: of a few dozen random valid combinations the one that covers most pairs not yet covered. Not the smallest sample, but a good
one, and the same for the same random numbers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

Combination = tuple[Any, ...]
_TRIED = 40


def pairs_of(combination: Combination) -> Iterator[tuple[int, Any, int, Any]]:
    for (one, first), (two, second) in itertools.combinations(enumerate(combination), 2):
        yield one, first, two, second


def cover(valid: Sequence[Combination], rng: random.Random) -> list[Combination]:
    """Combinations out of `valid` in which every pair of values occurs that occurs in any of them."""
    wanted = {pair for combination in valid for pair in pairs_of(combination)}
    by_pair: dict[Any, list[int]] = {}
    for number, combination in enumerate(valid):
        for pair in pairs_of(combination):
            by_pair.setdefault(pair, []).append(number)
    chosen = []
    # By text where the numbers are equal: the order of a set is another in every process.
    for pair in sorted(wanted, key=lambda pair: (len(by_pair[pair]), str(pair))):
        if pair not in wanted:
            continue
        tried = rng.sample(by_pair[pair], min(_TRIED, len(by_pair[pair])))
        best = max(tried, key=lambda number: sum(found in wanted for found in pairs_of(valid[number])))
        chosen.append(valid[best])
        wanted -= set(pairs_of(valid[best]))
    return chosen
