"""Files that grow: what was there stays whole when the disk is full in the middle of a line."""

import errno
import json
import os

import pytest

from twintrace.model.errors import TraceWriteError
from twintrace.store.appending import append, replace_end

FIRST = b'{"a": 1'


@pytest.fixture
def room(monkeypatch):
    """`room(bytes)`: so much can still be written, then the disk is full. What is there already can be written over."""

    def leave(left):
        real = {name: getattr(os, name) for name in ("write", "pwrite")}

        def taken(name, file, data, *place):
            nonlocal left
            old = max(os.fstat(file).st_size - place[0], 0) if place else 0
            fits = data[: old + left]
            if data and not fits:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left -= max(len(fits) - old, 0)
            return real[name](file, fits, *place)

        monkeypatch.setattr(os, "write", lambda *arguments: taken("write", *arguments))
        monkeypatch.setattr(os, "pwrite", lambda *arguments: taken("pwrite", *arguments))

    leave.again = monkeypatch.undo
    return leave


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"first\n")
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    yield path, file
    os.close(file)


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "document.json"
    path.write_bytes(FIRST + b"}")
    file = os.open(path, os.O_RDWR)
    yield path, file
    os.close(file)


def test_a_line_is_there_after_the_call(lines):
    path, file = lines
    assert append(file, b"second\n", 6, where=path) == 13
    assert path.read_bytes() == b"first\nsecond\n"


def test_short_writes_are_gone_on_with(lines, document, monkeypatch):
    """A signal, or a pipe of the file system: fewer bytes than were given, and no error."""
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:2]))
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: pwrite(file, data[:2], place))
    append(lines[1], b"second\n", 6, where="")
    replace_end(document[1], b', "b": 2}', len(FIRST), b"}", where="")
    assert lines[0].read_bytes() == b"first\nsecond\n"
    assert json.loads(document[0].read_bytes()) == {"a": 1, "b": 2}


@pytest.mark.parametrize("left", [0, 1, 6])
def test_a_disk_that_is_full_in_the_middle_of_a_line_rolls_back(lines, room, left):
    path, file = lines
    room(left)
    with pytest.raises(TraceWriteError) as raised:
        append(file, b"second\n", 6, where=path)
    assert str(raised.value) == (
        f"{path}: could not be written (No space left on device). Everything recorded before is complete. Free some space."
    )
    assert path.read_bytes() == b"first\n"
    room.again()
    append(file, b"second\n", 6, where=path)
    assert path.read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize("left", [0, 1, 7])
def test_a_disk_that_is_full_in_the_middle_of_an_end_gives_the_old_end_back(document, room, left):
    path, file = document
    room(left)
    with pytest.raises(TraceWriteError, match=r"document.json: could not be written .* Go elsewhere\.$"):
        replace_end(file, b', "b": 2}', len(FIRST), b"}", where=path, advice="Go elsewhere.")
    assert path.read_bytes() == FIRST + b"}"
    room.again()
    replace_end(file, b', "b": 2}', len(FIRST), b"}", where=path)
    assert json.loads(path.read_bytes()) == {"a": 1, "b": 2}
