"""Which saved array belongs to which."""

import itertools
import random

import pytest

from twintrace.align.files import by_name, by_number, by_shape


def test_by_name_then_what_only_the_right_has():
    assert by_name(["a", "b", "c"], ["c", "x", "a"]) == [(0, 2), (1, None), (2, 0), (None, 1)]


def test_by_number_one_after_the_other():
    assert by_number("ab", "xyz") == [(0, 0), (1, 1), (None, 2)]
    assert by_number("ab", "") == [(0, None), (1, None)]


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ("", "", []),
        ("ab", "ab", [(0, 0), (1, 1)]),
        ("ABBB", "AB", [(0, 0), (1, 1), (2, None), (3, None)]),  # a batch norm that one side lacks
        ("AB", "AXB", [(0, 0), (None, 1), (1, 2)]),
        ("AXB", "AYB", [(0, 0), (None, 1), (1, None), (2, 2)]),
        ("A", "", [(0, None)]),
    ],
)
def test_by_shape_the_order_is_kept(left, right, pairs):
    assert by_shape(left, right)[0] == pairs


def test_shapes_that_differ_may_be_made_partners():
    assert by_shape("AXB", "AYB", change=1) == ([(0, 0), (1, 1), (2, 2)], 1)


def cheapest(left, right, costs):
    """By trying every way."""
    drop, add, change = costs
    if not left or not right:
        return len(left) * drop + len(right) * add
    ways = [cheapest(left[1:], right, costs) + drop, cheapest(left, right[1:], costs) + add]
    return min(*ways, cheapest(left[1:], right[1:], costs) + (0 if left[0] == right[0] else change))


@pytest.mark.parametrize("costs", [(1, 1, 5), (2, 1, 1), (1, 3, 2)])
def test_by_shape_no_other_way_is_cheaper(costs):
    numbers = random.Random(0)
    for _ in range(60):
        left, right = ("".join(numbers.choices("AB", k=numbers.randrange(6))) for _ in range(2))
        pairs, cost = by_shape(left, right, drop=costs[0], add=costs[1], change=costs[2])
        assert cost == cheapest(left, right, costs), (left, right)
        paid = sum(
            costs[0] if two is None else costs[1] if one is None else costs[2] * (left[one] != right[two])
            for one, two in pairs
        )
        assert paid == cost


def test_everything_is_there_once_and_in_order():
    for function in (by_number, lambda left, right: by_shape(left, right)[0]):
        for left, right in itertools.product(["", "A", "AB", "BAB"], repeat=2):
            for side, items in enumerate((left, right)):
                found = [pair[side] for pair in function(left, right) if pair[side] is not None]
                assert found == list(range(len(items)))
