"""Long records: the cost grows with their length, not with its square."""

import time

import pytest

from benchmarks.align import PAIRS, pair
from twintrace.align import align

ROUNDS = 3
GROWTH = 2.9
"""Twice as long may take a little more than twice as long: sorting, caches. Four times would be a square."""


def cost(name: str, calls: int) -> float:
    """Processor seconds, the least of a few: what others do on the machine does not count."""
    sides = pair(name, calls)
    spent = []
    for _ in range(ROUNDS):
        start = time.process_time()
        align(*sides)
        spent.append(time.process_time() - start)
    return min(spent)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_cost_is_close_to_linear(name):
    cost(name, 900)  # caches
    assert cost(name, 9_000) / cost(name, 4_500) < GROWTH


@pytest.mark.parametrize("name", PAIRS)
def test_everything_in_the_benchmark_is_found(name):
    left, right = pair(name, 900)
    found = align(left, right)

    assert len({id(call) for match in found.matches for call in match.left}) >= len(left.calls) * 0.99
    assert not any(not item.skipped for item in found.only_right)  # what is extra goes nowhere
    if name == "longer":
        assert len(found.only_right) == len(right.calls) - len(left.calls)
