"""Recording goes on in a trace that is there, and steps have the numbers that they are given."""

import subprocess
import sys

import numpy as np
import pytest

import twintrace as tt
from twintrace.frameworks.reference.miniature import Tensor
from twintrace.model.errors import SessionError, TraceExistsError, UsageError

KILLED = """
import os, sys
import numpy as np
import twintrace as tt
from twintrace.frameworks.reference.miniature import Tensor
rec = tt.record(sys.argv[1], level="api", keep="tensor", framework="reference")
rec.start()
rec.save("x", Tensor(np.arange(1000.0)))
rec.step()
rec.save("y", Tensor(np.arange(1000.0) * 3))
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def record(tmp_path):
    def make(**options):
        return tt.record(
            tmp_path / "t", **({"level": "api", "keep": "tensor", "framework": "reference", "strict": True} | options)
        )

    return make


@pytest.fixture
def steps(tmp_path):
    """Each step's number and the first value that was saved in it."""

    def read():
        trace = tt.open(tmp_path / "t")
        assert not [item for journal in trace.journals() for item in journal.damage]
        found = {}
        for step in trace.steps:
            journal = trace.journal(step)
            found[step] = [float(journal.array(journal.tensor(call.output.id)).ravel()[0]) for call in journal.calls()]
        return found

    return read


def save(rec, value):
    rec.save("x", Tensor(np.full(3, value)))


def test_the_steps_go_on_after_the_last(record, steps):
    with record() as rec:
        save(rec, 1.0)
        rec.step()
        save(rec, 2.0)
    with record(resume=True) as rec:
        assert rec.number == 2
        save(rec, 3.0)
        rec.step()
        save(rec, 2.0)  # a content that the first recording has as well
    assert steps() == {0: [1.0], 1: [2.0], 2: [3.0], 3: [2.0]}


def test_without_a_trace_there_is_a_new_one(record, steps):
    with record(resume=True) as rec:
        save(rec, 1.0)
    assert steps() == {0: [1.0]}


def test_a_number_of_its_own_before_the_first_call_leaves_no_empty_step(record, steps):
    with record() as rec:
        rec.step(500)
        save(rec, 1.0)
        rec.step()
        save(rec, 2.0)
    assert steps() == {500: [1.0], 501: [2.0]}


def test_a_number_of_its_own_after_resuming(record, steps):
    with record() as rec:
        save(rec, 1.0)
    with record(resume=True) as rec:
        rec.step(7)
        save(rec, 2.0)
    assert steps() == {0: [1.0], 7: [2.0]}


def test_a_step_with_something_in_it_is_kept(record, steps):
    with record() as rec:
        save(rec, 1.0)
        rec.step(9)
        save(rec, 2.0)
    assert steps() == {0: [1.0], 9: [2.0]}


def test_notes_of_a_step_that_was_taken_back_are_in_the_next(record, tmp_path):
    with record() as rec:
        rec.note("topic", "a sentence", quiet=True)
        rec.step(3)
        save(rec, 1.0)
    assert [note.text for note in tt.open(tmp_path / "t").journal(3).notes()] == ["a sentence"]


def test_a_step_that_is_there_is_refused(record):
    with record() as rec:
        save(rec, 1.0)
    rec = record(resume=True)
    with pytest.raises(SessionError, match="step 0 is already recorded"):
        rec.step(0)
    rec.save("x", 1)
    rec.close()


def test_another_kind_of_recording_is_refused(record):
    with record() as rec:
        save(rec, 1.0)
    with pytest.raises(TraceExistsError, match=r"settings: .*'tensor'.* there, .*'statistics'.* now"):
        record(resume=True, keep="statistics")
    with pytest.raises(TraceExistsError, match="already holds another trace"):
        record()


def test_what_is_no_trace_is_refused(record, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "manifest.json").write_text("{}")
    with pytest.raises(TraceExistsError):
        record(resume=True)


def test_it_is_not_for_what_is_removed_or_written_elsewhere(record):
    with pytest.raises(UsageError, match="leave out overwrite=True"):
        record(resume=True, overwrite=True)


def test_after_a_kill_nothing_is_lost(record, steps, tmp_path, checkout_env):
    """The values of the killed run are still in the ring, whose place the next one needs."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "t")], env=checkout_env, timeout=200)
    assert done.returncode == -9
    assert (tmp_path / "t" / "rank0.stage").exists()
    with record(resume=True) as rec:
        assert rec.number == 2
        save(rec, 5.0)
    assert not (tmp_path / "t" / "rank0.stage").exists()
    trace = tt.open(tmp_path / "t")
    values = {
        (step, call.site.name): trace.journal(step).array(trace.journal(step).tensor(call.output.id))
        for step in trace.steps
        for call in trace.journal(step).calls()
    }
    assert np.array_equal(values[0, "x"], np.arange(1000.0))
    assert np.array_equal(values[1, "y"], np.arange(1000.0) * 3)
    assert values[2, "x"][0] == 5.0
    assert (tmp_path / "t" / "step1" / "rank0" / "payload.bin").stat().st_size == 8000
