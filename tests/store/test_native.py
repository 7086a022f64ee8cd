"""A copy in our own layout equals the original, record by record."""

import pytest
import specimens

from twintrace.model.errors import TraceExistsError
from twintrace.store import native
from twintrace.store.lines import seal
from twintrace.store.registry import layout_of, open_trace
from twintrace.store.writer import TraceWriter


def test_the_copy_equals_the_original(tmp_path):
    """Every kind of line, every form of a value, every element type; and the order in which things were observed."""
    path = specimens.write_full(tmp_path / "a", steps=3)
    kinds = {line["k"] for line in specimens.lines_of(path)}
    assert kinds == {"head", "call", "tensor", "grad", "stack", "module", "note", "end"}
    layout_of("twintrace").write(open_trace(path), tmp_path / "b")
    assert specimens.snapshot(open_trace(tmp_path / "b")) == specimens.snapshot(open_trace(path))


def test_the_comparison_would_notice(tmp_path):
    """One bit of one tensor, one gradient later."""
    path = specimens.write_full(tmp_path / "a")
    whole = specimens.snapshot(open_trace(path))
    lines = specimens.lines_of(path)
    changed = [line | ({"text": "another"} if line["k"] == "note" else {}) for line in lines]
    specimens.replace_lines(path, list(map(specimens.reseal, changed)))
    assert specimens.snapshot(open_trace(path)) != whole
    lines.insert(-3, lines.pop(next(n for n, line in enumerate(lines) if line["k"] == "grad")))
    specimens.replace_lines(path, list(map(specimens.reseal, lines)))
    assert specimens.snapshot(open_trace(path)) != whole


def test_several_ranks(tmp_path):
    for rank in (0, 1, 5):
        specimens.write_full(tmp_path / "a", rank=rank, world=8)
    native.write(open_trace(tmp_path / "a"), tmp_path / "b")
    copied = open_trace(tmp_path / "b")
    assert copied.ranks == (0, 1, 5)
    assert specimens.snapshot(copied) == specimens.snapshot(open_trace(tmp_path / "a"))


def test_a_trace_without_steps(tmp_path):
    TraceWriter.create(tmp_path / "a", specimens.MANIFEST).close()
    native.write(open_trace(tmp_path / "a"), tmp_path / "b")
    assert open_trace(tmp_path / "b").places == ()
    assert open_trace(tmp_path / "b").framework == "reference"


def test_an_empty_step(tmp_path):
    writer = TraceWriter.create(tmp_path / "a", specimens.MANIFEST, keep_payload=True, buffer=specimens.SMALL_RING)
    specimens.write_step(writer, 0, [])
    specimens.write_step(writer, 1, [{"k": "end", "calls": 0, "tensors": 0}])
    writer.close()
    native.write(open_trace(tmp_path / "a"), tmp_path / "b")
    assert specimens.snapshot(open_trace(tmp_path / "b")) == specimens.snapshot(open_trace(tmp_path / "a"))
    assert [journal.complete for journal in open_trace(tmp_path / "b").journals()] == [False, True]


def test_what_a_kill_left_is_copied_whole(tmp_path):
    """The copy needs no ring; that the step was not closed stays known."""
    path = specimens.write_killed(tmp_path / "a")
    native.write(open_trace(path), tmp_path / "b")
    assert not (tmp_path / "b" / "rank0.stage").exists()
    assert specimens.snapshot(open_trace(tmp_path / "b")) == specimens.snapshot(open_trace(path))


def test_values_that_cannot_be_read_are_missing_in_the_copy(tmp_path):
    path = specimens.write_full(tmp_path / "a")
    specimens.payload_file(path).write_bytes(b"")
    native.write(open_trace(path), tmp_path / "b")
    journal = open_trace(tmp_path / "b").journal(0)
    assert "The payload is cut off" in journal.tensor(0).missing
    assert journal.tensor(0).payload is None
    assert journal.tensor(0).statistics == open_trace(path).journal(0).tensor(0).statistics


def test_damaged_records_are_left_out_when_read_tolerantly(tmp_path):
    path = specimens.write_full(tmp_path / "a")
    file = specimens.journal_file(path)
    file.write_bytes(file.read_bytes().replace(b'"aten.add_.Tensor"', b'"aten.sub_.Tensor"'))
    native.write(open_trace(path, tolerant=True), tmp_path / "b")
    assert [call.id for call in open_trace(tmp_path / "b").journal(0).calls()] == [1, 0, 3, 4, 5]


def test_a_copy_replaces_nothing(tmp_path):
    path = specimens.write_full(tmp_path / "a")
    with pytest.raises(TraceExistsError):
        native.write(open_trace(path), path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("")
    with pytest.raises(TraceExistsError):
        native.write(open_trace(path), tmp_path / "b")


def test_a_tensor_line_is_written_as_the_recorder_writes_it(tmp_path):
    """Same fields, same order of the first two: the reader finds tensors by them."""
    path = specimens.write_full(tmp_path / "a")
    native.write(open_trace(path), tmp_path / "b")
    [first] = [line for line in specimens.lines_of(tmp_path / "b") if line["k"] == "tensor" and line["id"] == 0]
    assert seal(first).startswith(
        b'{"k":"tensor","id":0,"dtype":"f32","shape":[2,3],"device":"cpu","grad":true,"by":null,"stats":['
    )
