"""Tasks on all cores: in order, a bounded number ahead, each on its own."""

import itertools
import pickle
import threading
import time

import pytest

from twintrace.engine.local import Local
from twintrace.engine.protocol import AHEAD, Done, Engine
from twintrace.model.errors import UsageError


@pytest.fixture(params=[1, 2, 5])
def engine(request) -> Engine:
    return Local(workers=request.param)


def double(number: int) -> int:
    return 2 * number


def test_results_come_in_the_order_of_the_items(engine):
    def slow_at_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return -number

    found = list(engine.run(slow_at_first, range(50)))
    assert found == [Done(number, -number) for number in range(50)]


def test_an_error_costs_its_task_alone(engine):
    def fragile(number: int) -> int:
        if number % 7 == 3:
            raise ValueError(f"cannot do {number}")
        return number

    found = list(engine.run(fragile, range(20)))
    assert [done.item for done in found if done.error] == [3, 10, 17]
    assert [done.value for done in found if not done.error] == [number for number in range(20) if number % 7 != 3]
    assert found[4].result() == 4
    with pytest.raises(ValueError, match="cannot do 3"):
        found[3].result()


def test_items_are_taken_a_bounded_number_ahead(engine):
    taken = []

    def items():
        for number in itertools.count():
            taken.append(number)
            yield number

    stream = engine.run(double, items())
    for number in range(10):
        assert next(stream).value == 2 * number
        assert len(taken) <= number + 1 + engine.workers * AHEAD + 1
    stream.close()


def test_whoever_stops_listening_stops_the_work(engine):
    begun = []
    before = threading.active_count()

    def note(number: int) -> None:
        begun.append(number)
        time.sleep(0.001)

    stream = engine.run(note, range(10_000))
    next(stream)
    stream.close()
    assert threading.active_count() == before
    assert len(begun) <= 2 + engine.workers * AHEAD + engine.workers


def test_what_goes_wrong_with_the_items_themselves_is_raised(engine):
    def items():
        yield 1
        raise OSError("the list is torn")

    before = threading.active_count()
    with pytest.raises(OSError, match="torn"):
        list(engine.run(double, items()))
    assert threading.active_count() == before


def test_progress_is_told_in_the_callers_thread(engine):
    told = []
    list(engine.run(double, range(9), progress=lambda number: told.append((number, threading.get_ident()))))
    assert told == [(number, threading.get_ident()) for number in range(1, 10)]


def test_several_tasks_run_at_once():
    meeting = threading.Barrier(3, timeout=20)  # nobody gets through before the third is there
    assert [done.error for done in Local(workers=3).run(lambda _: meeting.wait(), range(3))] == [None] * 3


def test_a_single_worker_is_the_caller():
    [done] = Local(workers=1).run(lambda _: threading.get_ident(), [None])
    assert done.value == threading.get_ident()


def test_no_items_no_results(engine):
    assert list(engine.run(double, [])) == []


def test_what_is_handed_over_can_be_pickled():
    """So that tasks may go to another process one day."""
    done = Done(3, 6)
    assert pickle.loads(pickle.dumps(done)) == done


def test_no_workers_is_no_number():
    assert Local().workers >= 1
    with pytest.raises(UsageError, match="from 1 on, got 0"):
        Local(workers=0)
