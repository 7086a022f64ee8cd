"""What everybody above the store sees of a trace."""

import pytest
import specimens

from twintrace.model.errors import TraceNotFoundError
from twintrace.store.registry import open_trace
from twintrace.store.trace import Trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace"
    for rank in range(2):
        specimens.write_full(path, rank=rank, world=2, steps=3 - rank)
    return open_trace(path)


def test_steps_ranks_and_places(trace):
    assert (trace.framework, trace.layout) == ("reference", "twintrace")
    assert (trace.steps, trace.ranks) == ((0, 1, 2), (0, 1))
    assert trace.places == ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0))
    assert [(j.header.step, j.header.rank) for j in trace.journals()] == list(trace.places)
    assert len(trace) == len(list(trace.calls())) == 30


def test_a_journal_is_read_once(trace):
    assert trace.journal(1, 1) is trace.journal(1, 1)
    assert trace.journal(1) is trace.journal(1, 0)


def test_what_is_forgotten_is_read_again(trace):
    before = trace.journal(1, 1)
    trace.forget()
    again = trace.journal(1, 1)
    assert again is not before
    assert [call.site for call in again.calls()] == [call.site for call in before.calls()]


def test_a_step_that_is_not_there(trace):
    with pytest.raises(TraceNotFoundError, match=r"has no step 2 of rank 1. It has steps 0-2 of ranks 0, 1\."):
        trace.journal(2, 1)


def test_it_says_what_it_is(trace):
    assert repr(trace) == f"<Trace {trace.path}: reference, steps 0-2, ranks 0, 1>"
    empty = Trace("x", {}, [], lambda step, rank: None)
    assert repr(empty) == "<Trace x: unknown, steps none, ranks none>"
    assert (len(empty), empty.steps) == (0, ())


def test_names_that_are_not_ours_are_left_alone(tmp_path):
    path = specimens.write_full(tmp_path / "trace")
    for name in ("step01", "step-1", "stepx", "step1.bak", "step", "Step2", "step²", "step1\n"):
        specimens.copy(path / "step0", path / name)
    for name in ("rank00", "rank", "rank-1", "rank1.old"):
        specimens.copy(path / "step0" / "rank0", path / "step1" / name)
    (path / "step7").write_text("a file")
    (path / "step8" / "rank0").mkdir(parents=True)
    (path / "step9" / "rank0" / "journal.jsonl").mkdir(parents=True)
    (path / "readme.txt").write_text("")
    assert open_trace(path).places == ((0, 0), (1, 0))


def test_a_step_in_another_place_is_refused(tmp_path):
    """Payloads are addressed by step: a directory that was renamed would give other values."""
    path = specimens.write_full(tmp_path / "trace")
    (path / "step0").rename(path / "step5")
    with pytest.raises(Exception, match=r"field 'step': expected 5, as the directory says, got 0"):
        open_trace(path).journal(5)
