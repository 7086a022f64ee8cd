"""Copies of this process: results in order, and no failure of a copy is lost."""

import os
import time
from pathlib import Path

import pytest

from twintrace.engine.forked import forked


@pytest.fixture(autouse=True)
def three_cores(monkeypatch):
    monkeypatch.setattr("twintrace.engine.forked.cores", lambda: 3)


def test_results_come_in_the_order_of_the_items():
    mine = os.getpid()

    def work(number: int) -> bytes:
        time.sleep(0.02 * (3 - number))
        return f"{number} {os.getpid() == mine}".encode()

    assert [*forked(work, [0, 1, 2])] == [b"0 True", b"1 False", b"2 False"]
    assert [*forked(work, [])] == []


@pytest.mark.parametrize("count", range(9))
def test_every_item_is_done_once_however_many_there_are(count):
    assert [*forked(lambda number: b"%d" % number, range(count))] == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize(("count", "processes"), [(3, 1), (4, 2), (5, 2), (6, 3), (60, 3)])
def test_few_items_are_worth_few_copies(count, processes):
    assert len({*forked(lambda number: b"%d" % os.getpid(), range(count), least=2)}) == processes


def test_results_may_be_empty():
    assert [*forked(lambda number: b"x" * number, [0, 0, 0, 2, 0, 0])] == [b"", b"", b"", b"xx", b"", b""]


def test_results_lie_where_it_is_said_and_are_gone_afterwards(tmp_path):
    assert [*forked(lambda number: b"x", range(6), folder=tmp_path)] == [b"x"] * 6
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(FileNotFoundError):
        [*forked(lambda number: b"x", range(6), folder=tmp_path / "missing")]


def test_much_comes_back_whole():
    assert [len(made) for made in forked(lambda number: bytes([number]) * 3_000_000, [1, 2])] == [3_000_000] * 2


def test_what_fails_in_a_copy_is_done_here():
    mine = os.getpid()

    def only_here(number: int) -> bytes:
        if os.getpid() != mine:
            raise RuntimeError("not in a copy")
        return b"here"

    assert [*forked(only_here, [0, 1])] == [b"here", b"here"]


def test_what_fails_everywhere_is_raised():
    def broken(number: int) -> bytes:
        if number:
            raise ValueError("broken")
        return b""

    with pytest.raises(ValueError, match="broken"):
        [*forked(broken, [0, 1])]


def test_without_fork_all_is_done_here(monkeypatch):
    monkeypatch.delattr(os, "fork")
    mine = os.getpid()
    assert [*forked(lambda _: str(os.getpid() == mine).encode(), [0, 1])] == [b"True", b"True"]


def left_behind() -> set[str]:
    """The children of this process, those that have ended and were not fetched among them."""
    tasks = Path("/proc/self/task")
    return (
        {child for task in tasks.iterdir() for child in (task / "children").read_text().split()}
        if tasks.is_dir()
        else set()
    )


def test_nothing_is_left_behind():
    children = left_behind()  # of other tests
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH208, PTH112
    for _ in range(5):
        assert [*forked(lambda number: b"x", [0, 1])] == [b"x", b"x"]
    assert left_behind() == children
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before  # noqa: PTH208


def test_nothing_is_left_behind_when_nobody_waits():
    children = left_behind()
    results = forked(lambda number: b"x" if number == 0 else time.sleep(60) or b"", range(3))
    assert next(results) == b"x"
    began = time.monotonic()
    results.close()
    assert left_behind() == children
    assert time.monotonic() - began < 30
