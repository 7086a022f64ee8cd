"""A JSON file that is whole after every commit."""

import json
import os

import pytest

from twintrace.compat import documents
from twintrace.compat.documents import Document
from twintrace.model.errors import TraceWriteError


@pytest.fixture
def document(tmp_path):
    document = Document(tmp_path / "a.json", '{\n "task": "x",\n "data": {', "\n }\n}\n")
    yield document
    document.abandon()


def read(document):
    return json.loads(document.path.read_text())["data"]


def test_it_is_whole_at_any_time(document):
    assert read(document) == {}
    for number in range(20):
        document.add(f"r{number}", f'{{"v": {number}}}')
        document.commit()
        assert read(document) == {f"r{n}": {"v": n} for n in range(number + 1)}


def test_what_is_open_is_said_again_until_it_is_complete(document):
    document.add("a", "1")
    document.commit([("open", '{"long": "' + "x" * 100 + '"}'), ("other", "[1]")])
    assert list(read(document)) == ["a", "open", "other"]
    document.add("b", "2")
    document.commit([("other", "[1]")])
    assert read(document) == {"a": 1, "b": 2, "other": [1]}
    document.commit()
    assert read(document) == {"a": 1, "b": 2}
    document.close()
    assert document.path.read_text().endswith('"b": 2\n }\n}\n'), "blanks are left behind the end"


def test_what_is_open_may_be_all_there_is(document):
    document.commit([("open", "1")])
    assert read(document) == {"open": 1}
    document.add("open", "2")
    document.commit()
    assert read(document) == {"open": 2}


def test_a_record_is_said_again(document):
    for name in "abc":
        document.add(name, f'"{name * 10}"')
    document.add("d", "null")
    document.commit([("e", "5")])
    document.replace({"b": '"longer than it was"', "a": "1", "new": "7"})
    assert read(document) == {"a": 1, "b": "longer than it was", "c": "c" * 10, "d": None, "new": 7}
    document.add("f", "6")
    document.commit()
    assert list(read(document)) == ["a", "b", "c", "d", "new", "f"]
    assert [path.name for path in document.path.parent.iterdir()] == ["a.json"]


def test_it_goes_on_after_it_was_closed(document):
    document.add("a", "1")
    document.close()
    document.resume()
    document.add("b", "2")
    document.close()
    assert read(document) == {"a": 1, "b": 2}


def test_names_may_hold_anything(document):
    names = ['"', "\\", "\n", "\ud800", "层", "{", "}"]
    for name in names:
        document.add(name, "1")
    document.commit()
    document.replace({"{": "2"})
    assert read(document) == dict.fromkeys(names, 1) | {"{": 2}


def test_a_full_disk_leaves_what_was_there(document, monkeypatch):
    document.add("a", "1")
    document.commit([("open", '"' + "x" * 50 + '"')])
    real = os.pwrite

    def full(file, data, place):
        if b'"b"' in data:
            real(file, data[: len(data) // 2], place)  # as a disk does that is full in the middle
            raise OSError(28, "No space left on device")
        return real(file, data, place)

    monkeypatch.setattr(documents.os, "pwrite", full)
    document.add("b", '"' + "y" * 500 + '"')
    with pytest.raises(TraceWriteError, match="No space left"):
        document.commit()
    assert read(document) == {"a": 1}


def test_the_file_of_an_earlier_run_is_left_to_those_who_hold_it(tmp_path):
    (tmp_path / "a.json").write_text("old")
    os.link(tmp_path / "a.json", tmp_path / "kept")
    Document(tmp_path / "a.json").close()
    assert (tmp_path / "kept").read_text() == "old"
    assert json.loads((tmp_path / "a.json").read_text()) == {}
