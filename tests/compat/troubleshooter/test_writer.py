"""What a dump's files hold when the disk is full."""

import errno
import json
import os

import pytest

from twintrace.compat.troubleshooter.writer import _StackFile
from twintrace.model.errors import TraceWriteError


@pytest.fixture
def stacks(tmp_path):
    file = _StackFile(tmp_path / "stack.json")
    yield file
    file.close()


@pytest.mark.parametrize("before", [{}, {"first": ["a"]}], ids=["nothing", "an entry"])
def test_stacks_are_whole_when_the_disk_is_full_and_go_on_when_it_is_not(stacks, tmp_path, monkeypatch, before):
    stacks.extend(list(before.items()))
    real, calls = os.pwrite, []

    def full(file, data, place):
        """The first write is cut short without an error, as a disk does; the next finds no room."""
        calls.append(data)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[:5], place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(TraceWriteError, match=r"stack.json: could not be written \(No space left on device\)"):
        stacks.extend([("second", ["b", "c"])])
    assert json.loads((tmp_path / "stack.json").read_bytes()) == before
    monkeypatch.undo()
    stacks.extend([("second", ["b", "c"])])
    assert json.loads((tmp_path / "stack.json").read_bytes()) == before | {"second": ["b", "c"]}
