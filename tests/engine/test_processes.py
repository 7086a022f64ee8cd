"""Processes: results in the order of the items, a lost one is replaced, an error costs its task alone."""

import os
import time
from pathlib import Path

import pytest

from twintrace.engine.processes import Processes


def double(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return 2 * number


def die_once(flag: Path) -> int:
    """Ends its process without a word, the first time."""
    if flag.exists():
        return os.getpid()
    flag.touch()
    os._exit(1)


def die(_: int) -> None:
    os._exit(1)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_results_come_in_order_and_an_error_costs_its_task_alone():
    told: list[int] = []
    found = list(Processes(2).run(double, range(6), progress=told.append))

    assert [done.value for done in found] == [0, 2, 4, None, 8, 10]
    assert str(found[3].error) == "three"
    assert told == [1, 2, 3, 4, 5, 6]


def test_work_of_a_process_that_is_lost_is_done_by_another(tmp_path):
    [done] = Processes(1).run(die_once, [tmp_path / "was here"])

    assert done.result() != os.getpid()


def test_a_task_that_ends_every_process_ends_as_an_error():
    [done] = Processes(1).run(die, [0])

    assert "3 times" in str(done.error)


def test_whoever_stops_listening_stops_the_work():
    running = Processes(2).run(sleep, [0.0, 60.0, 60.0])
    next(running)
    began = time.monotonic()
    running.close()

    assert time.monotonic() - began < 20


def test_the_number_of_processes_is_checked():
    with pytest.raises(ValueError, match="from 1 on, got 0"):
        Processes(0)
