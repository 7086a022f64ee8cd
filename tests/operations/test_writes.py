"""Writes through views: what they leave in the tensor that the view is of, held against what was recorded."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import twintrace as tt  # noqa: E402
from twintrace.operations.sides import Side  # noqa: E402

pytestmark = pytest.mark.needs_torch


def middle(y):
    y[:, 1:3].mul_(2)


def place(y):
    y[1, 2].zero_()


def of_a_slice(y):
    y[1:, ::2][:, 1].fill_(5)


def twice(y):
    row = y[0]
    row.add_(1)
    row.mul_(3)


def piece(y):
    y.split((1, 3), 1)[1].neg_()


def one_by_one(y):
    for number, column in enumerate(y.unbind(1)):
        if number == 2:
            column.copy_(torch.arange(3.0))


def row_after_row(y):
    for number in range(3):
        y[number].copy_(y[number] + number + 1)


def assigned(y):
    y[2, 1:] = 7


def recorded(folder, write, level, shape=(3, 4)):
    """The side of a run that writes to a tensor and reads it, and its journal."""
    x = torch.arange(float(np.prod(shape))).reshape(shape)
    with tt.record(folder, torch.nn.Identity(), level=level, keep="tensor"):
        y = x + 1
        write(y)
        torch.sin(y)
    journal = tt.open(folder).journal(0)
    return Side("torch", list(journal.calls()), journal.tensor, level), journal


def read_last(side):
    """What the last call takes."""
    return side.meaning(side.calls[-1]).arguments["input"].tensor


@pytest.mark.parametrize("level", ["api", "op"])
@pytest.mark.parametrize("write", [middle, place, of_a_slice, twice, piece, one_by_one, row_after_row, assigned])
def test_the_whole_is_what_it_was_with_what_was_written(tmp_path, write, level):
    side, journal = recorded(tmp_path / "t", write, level)
    number, steps = read_last(side), 0
    while (meaning := side.meaning(side.maker(number))).operation == "setitem":
        given = {name: side.tensor(operand.tensor) for name, operand in meaning.operands()}
        made = journal.array(given["input"]).copy()
        made[meaning.arguments["index"]] = (
            journal.array(given["value"]) if "value" in given else meaning.arguments["value"]
        )
        np.testing.assert_array_equal(made, journal.array(side.tensor(number)))
        number, steps = given["input"].id, steps + 1
    assert meaning.operation == "add"
    assert steps == (3 if write is row_after_row else 1)


def test_a_written_whole_is_no_state_of_the_network(tmp_path):
    side, _ = recorded(tmp_path / "t", row_after_row, "op")
    writes = [call for call in side.calls if call.mutates]
    assert writes
    assert not any(side.is_written_state(call, number) for call in writes for number in [call.output.id])


def test_of_a_whole_that_is_also_seen_turned_nothing_is_told(tmp_path):
    """Its shape does not say which of the two was read."""

    def write(y):
        y.t()
        y[0].zero_()

    side, _ = recorded(tmp_path / "t", write, "op", (4, 4))
    assert side.maker(read_last(side)) is None


def test_of_a_view_in_another_shape_nothing_is_told(tmp_path):
    side, _ = recorded(tmp_path / "t", lambda y: y.view(-1)[3:5].zero_(), "op")
    assert side.maker(read_last(side)) is None


@pytest.mark.parametrize(
    ("made", "shared"),
    [
        (lambda x: x[0], True),
        (lambda x: x.view(-1), True),
        (lambda x: x.t()[1:], True),
        (lambda x: x.triu(), False),
        (lambda x: x.clone(), False),
        (lambda x: torch.cat([x, x]), False),
        (lambda x: x[torch.tensor([0, 2])], False),
        (lambda x: x.roll(1, 0).t(), False),
    ],
)
def test_a_write_to_a_copy_changes_no_state(tmp_path, made, shared):
    """A mask is cut to its upper half and multiplied in place: what it was made of stays as it is."""
    x = torch.arange(12.0).reshape(3, 4)
    with tt.record(tmp_path / "t", torch.nn.Identity(), level="api", keep="tensor"):
        made(x).mul_(2)
    journal = tt.open(tmp_path / "t").journal(0)
    side = Side("torch", list(journal.calls()), journal.tensor, "api")
    [write] = [call for call in side.calls if call.mutates]

    assert side.is_written_state(write, write.output.id) is shared
