"""Which rows of a parameter those of the other side have."""

import pytest

torch = pytest.importorskip("torch")

from twintrace.operations.splits import Rows, split_of  # noqa: E402

pytestmark = pytest.mark.needs_torch


def rows(*shape: int) -> "torch.Tensor":
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_parts_one_after_the_other() -> None:
    whole = rows(6, 3)
    split = split_of(whole, [whole[:2], whole[2:4], whole[4:]])
    assert split is not None
    assert split.axis == 0
    assert [part.places for part in split.parts.values()] == [(0, 1), (2, 3), (4, 5)]
    assert not split.rest(whole).numel()


def test_parts_that_take_turns_and_those_that_are_turned() -> None:
    """Queries, keys and values of each head together; and layers that hold their weights the other way round."""
    whole = rows(4, 6)
    split = split_of(whole, [whole[:, [1, 3, 5]].T, whole[:, [4, 0, 2]]])
    assert split is not None
    assert (split.axis, split.parts) == (1, {0: Rows((1, 3, 5), True), 1: Rows((4, 0, 2))})
    assert torch.equal(split.as_laid(0, whole[:, [1, 3, 5]].T), split.of(0, whole))


def test_others_are_no_parts_and_rows_may_be_left() -> None:
    whole = rows(6, 3)
    split = split_of(whole, [torch.zeros(2, 3, dtype=torch.float64), whole[3:5], whole, rows(6, 4)])
    assert split is not None
    assert list(split.parts) == [1]
    assert torch.equal(split.rest(whole), whole[[0, 1, 2, 5]])


def test_equal_rows_are_taken_once_each() -> None:
    one = rows(2, 3)
    split = split_of(torch.cat([one, one]), [one, one])
    assert split is not None
    assert [part.places for part in split.parts.values()] == [(0, 1), (2, 3)]
    split = split_of(torch.cat([one, one[:1]]), [one, one])
    assert split is not None
    assert list(split.parts) == [0]


def test_rows_that_training_has_moved_are_the_nearest() -> None:
    whole = rows(6, 8)
    moved = whole + 0.01 * rows(8, 8)[:6]
    split = split_of(whole, [moved[[0, 2]], whole[[1, 3]], moved[4:]])
    assert split is not None
    assert [part.places for part in split.parts.values()] == [(0, 2), (1, 3), (4, 5)]
    assert split_of(whole, [whole[:3] + 0.3 * rows(8, 8)[:3]]) is None
    assert split_of(whole, [moved[[0, 0]]]) is None


def test_rows_that_are_told_by_more_than_their_first_elements() -> None:
    whole = rows(2, 100)
    other = whole.clone()
    other[:, 99] += 1
    assert split_of(whole, [other[:1]]) is None


def test_constants_tell_nothing() -> None:
    assert split_of(torch.zeros(6), [torch.zeros(2), torch.zeros(4)]) is None
