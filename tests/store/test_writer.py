"""Who may write where, what is stored once, and what is left when the disk is full."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import specimens

from twintrace.model.errors import SessionError, TraceExistsError, TraceWriteError
from twintrace.model.tensors import Location
from twintrace.store import digest, layout, writer
from twintrace.store.lines import seal
from twintrace.store.registry import open_trace
from twintrace.store.writer import TraceWriter

NOTE = {"k": "note", "topic": "t", "text": "x"}


def create(path: Path, **options) -> TraceWriter:
    options = {"keep_payload": True, "buffer": specimens.SMALL_RING} | options
    return TraceWriter.create(path, specimens.MANIFEST | {"world": options.get("world", 1)}, **options)


def tree(path: Path) -> list[str]:
    return sorted(str(item.relative_to(path)) for item in path.rglob("*"))


# --- where ----------------------------------------------------------------------------------------------------------


def test_a_trace_is_a_few_plain_files(tmp_path):
    specimens.write_full(tmp_path / "new" / "trace")
    ranks = [f"step{n}/rank0/{name}" for n in (0, 1) for name in ("journal.jsonl", "payload.bin")]
    assert tree(tmp_path / "new" / "trace") == sorted(
        ["manifest.json", "step0", "step0/rank0", "step1", "step1/rank0", *ranks]
    )
    manifest = json.loads((tmp_path / "new" / "trace" / "manifest.json").read_text())
    assert manifest | {"created": 0} == specimens.MANIFEST | {"format": "twintrace", "version": 1, "created": 0}


def test_an_existing_empty_directory_will_do(tmp_path):
    create(tmp_path).close()
    assert tree(tmp_path) == ["manifest.json"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_with_something_else_in_it_is_refused(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TraceExistsError, match=r"is not empty \(thesis.tex …\) and holds no trace"):
        create(tmp_path, overwrite=overwrite)
    assert tree(tmp_path) == ["thesis.tex"]


def test_another_trace_is_not_touched(tmp_path):
    specimens.write_full(tmp_path / "trace")
    before = specimens.snapshot(open_trace(tmp_path / "trace"))
    with pytest.raises(TraceExistsError, match="already holds another trace"):
        create(tmp_path / "trace")
    assert specimens.snapshot(open_trace(tmp_path / "trace")) == before


def test_overwrite_replaces_a_trace(tmp_path):
    """Whole or left behind by a kill: nothing of the old one remains."""
    path = specimens.write_full(tmp_path / "trace", steps=3)
    (path / "rank0.stage").write_bytes(b"left behind")
    (path / "step9" / "rank0").mkdir(parents=True)  # killed before the journal was made
    (path / ".manifest-77").write_text("{")
    create(path, overwrite=True).close()
    assert tree(path) == ["manifest.json"]


@pytest.mark.parametrize("stranger", [
        "notes.txt", "step0/rank0.txt", "step1/plots", "step01", "rank0.stage.bak", "step0/rank0/precious.txt",
        "step0/rank0/plots/loss.png", "step1/rank0/step0/rank0/journal.jsonl", "rank1.stage/x", "step0/rank1", "step7",
        ".manifest-x/y",
])  # fmt: skip
def test_overwrite_removes_nothing_that_is_not_of_a_trace(tmp_path, stranger):
    path = specimens.write_full(tmp_path / "trace")
    (path / stranger).parent.mkdir(parents=True, exist_ok=True)
    (path / stranger).write_text("precious")
    before = tree(path)
    with pytest.raises(TraceExistsError, match=r"something else .*, so nothing was removed") as raised:
        create(path, overwrite=True)
    assert re.search(r"\((.*?) …\)", str(raised.value))[1] in stranger
    assert tree(path) == before
    assert len(open_trace(path)) == 12


def test_overwrite_does_not_follow_links(tmp_path):
    specimens.write_full(tmp_path / "precious")
    path = specimens.write_full(tmp_path / "trace")
    (path / "step5").symlink_to(tmp_path / "precious" / "step0")
    (path / "step6").mkdir()
    (path / "step6" / "rank0").symlink_to(tmp_path / "precious" / "step1" / "rank0")
    (path / "step1" / "rank0" / "payload.bin").unlink()
    (path / "step1" / "rank0" / "payload.bin").symlink_to(tmp_path / "precious" / "step0" / "rank0" / "payload.bin")
    create(path, overwrite=True).close()
    assert tree(path) == ["manifest.json"]
    assert specimens.snapshot(open_trace(tmp_path / "precious"))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"format":"other"}', b"[" * 100_000, b"\0" * 5_000_000, None],
    ids=lambda content: repr(content)[:16],
)
def test_overwrite_leaves_what_only_looks_like_a_trace(tmp_path, content):
    (tmp_path / "step0").mkdir()
    if content is None:
        os.mkfifo(tmp_path / "manifest.json")
    else:
        (tmp_path / "manifest.json").write_bytes(content)
    for overwrite in (False, True):
        with pytest.raises(TraceExistsError, match="already holds another trace"):
            create(tmp_path, overwrite=overwrite)
        with pytest.raises(TraceExistsError, match="already holds another trace"):
            create(tmp_path, overwrite=overwrite, world=2)
    assert tree(tmp_path) == ["manifest.json", "step0"]


def test_a_file_is_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TraceExistsError, match="found a file in the way"):
            create(path)


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(TraceWriteError, match=r"/proc/trace cannot be written \(.*\). Choose another path"):
        create(Path("/proc/trace"))
    with pytest.raises(TraceWriteError, match="File name too long"):
        create(tmp_path / ("x" * 300))

    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(TraceWriteError, match=r"is not writable \(Permission denied\)"):
        create(tmp_path / "trace")
    assert tree(tmp_path / "trace") == []  # no draft is left


def test_a_directory_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write everywhere")
    with pytest.raises(TraceWriteError, match="not writable"):
        create(tmp_path / "trace")


# --- several ranks --------------------------------------------------------------------------------------------------


def test_two_processes_make_one_trace(tmp_path):
    """Both create at the same moment; one comes first, the other joins."""
    script = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[3]); import specimens; sys.stdin.readline();"
        "specimens.write_full(pathlib.Path(sys.argv[1]), rank=int(sys.argv[2]), world=2)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "trace")]
    options = {"env": specimens.environment(), "stdin": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([*command, str(rank), str(Path(__file__).parent)], **options) for rank in range(2)]
    for process in ranks:
        process.communicate("go\n", timeout=60)
    assert [process.returncode for process in ranks] == [0, 0]

    trace = open_trace(tmp_path / "trace")
    assert trace.places == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert [name for name in tree(tmp_path / "trace") if "/" not in name] == ["manifest.json", "step0", "step1"]
    steps = specimens.snapshot(trace)
    for step in (0, 1):  # each rank has its own payload
        assert steps[f"step {step} rank 0"]["arrays"] == steps[f"step {step} rank 1"]["arrays"]
        assert specimens.payload_file(tmp_path / "trace", step, 1).stat().st_size > 0


def test_a_rank_joins_its_own_run_only(tmp_path):
    specimens.write_full(tmp_path, rank=0, world=2)
    for manifest, rank in (
        (specimens.MANIFEST | {"world": 2}, 0),  # this rank is there already
        (specimens.MANIFEST | {"world": 3}, 1),
        (specimens.MANIFEST | {"world": 2, "framework": "other"}, 1),
        (specimens.MANIFEST | {"world": 2, "settings": {}}, 1),
    ):
        for overwrite in (False, True):  # nobody knows whether another rank has begun: nothing is removed
            with pytest.raises(TraceExistsError, match="remove it before the ranks are started"):
                TraceWriter.create(tmp_path, manifest, rank=rank, world=manifest["world"], overwrite=overwrite)
    TraceWriter.create(tmp_path, specimens.MANIFEST | {"world": 2}, rank=1, world=2).close()


# --- steps and payloads ---------------------------------------------------------------------------------------------


def test_a_step_is_recorded_once(tmp_path):
    it = create(tmp_path)
    it.begin_step(3, specimens.HEADER)
    it.end_step()
    assert it.has_step(3)
    assert not it.has_step(4)
    with pytest.raises(SessionError, match="a trace holds each step once"):
        it.begin_step(3, specimens.HEADER)
    it.close()


def test_each_content_is_stored_once(tmp_path):
    """Within a step and across steps; the same bits of another length are another content."""
    it = create(tmp_path)
    data = {size: np.arange(size, dtype=np.uint8) for size in (0, 4, 100)}
    print_of = {size: digest.fingerprint(array) for size, array in data.items()}
    it.begin_step(0, specimens.HEADER)
    assert [it.store(data[size], print_of[size]) for size in (4, 4, 100)] == [
        Location(0, 4),
        Location(0, 4),
        Location(64, 100),
    ]
    it.end_step()
    it.begin_step(1, specimens.HEADER)
    assert it.store(data[100], print_of[100]) == Location(64, 100, 0)
    assert it.store(data[4][:3], print_of[4]) == Location(0, 3)
    assert it.store(data[4], print_of[4]) == Location(0, 4, 0)
    it.close()
    assert [specimens.payload_file(tmp_path, step).stat().st_size for step in (0, 1)] == [192, 64]


def test_contents_of_earlier_steps_are_found_by_the_reader(tmp_path):
    specimens.write_full(tmp_path / "trace", steps=3)
    sizes = [specimens.payload_file(tmp_path / "trace", step).stat().st_size for step in range(3)]
    assert sizes[1] == sizes[2] == 64  # only the weight has changed
    trace = open_trace(tmp_path / "trace")
    steps = {tensor.payload.step for tensor in trace.journal(2).tensors() if tensor.payload}
    assert steps == {None, 0}
    for tensor in trace.journal(2).tensors():
        if tensor.payload:
            assert digest.fingerprint(trace.journal(2).array(tensor)) == tensor.fingerprint


def test_memory_for_deduplication_is_bounded(tmp_path, monkeypatch):
    """The oldest content is forgotten, and stored again when it comes back."""
    monkeypatch.setattr(writer, "REMEMBERED", 2)
    it = create(tmp_path)
    it.begin_step(0, specimens.HEADER)
    arrays = [np.full(8, n, dtype=np.uint8) for n in range(3)]
    places = [it.store(array, digest.fingerprint(array)).offset for array in (*arrays, arrays[2], arrays[0])]
    assert places == [0, 64, 128, 128, 192]
    it.close()


def test_without_payload_there_is_no_ring(tmp_path):
    it = create(tmp_path, keep_payload=False)
    journal = it.begin_step(0, specimens.HEADER)
    assert tree(tmp_path) == ["manifest.json", "step0", "step0/rank0", "step0/rank0/journal.jsonl"]
    it.close()
    assert specimens.lines_of(tmp_path)[0]["stage"] is None
    assert journal.path == specimens.journal_file(tmp_path)


def test_a_single_value_of_a_trace_without_payload(tmp_path):
    """It goes straight to its file; the step stays whole, and the others are folded as ever."""
    it = create(tmp_path, keep_payload=False)
    it.begin_step(0, specimens.HEADER)
    places = [it.store(np.full(4, n, dtype=np.uint8), str(n) * 32) for n in (1, 2)]
    assert [place.offset for place in places] == [0, 64]
    raw = (tmp_path / "step0" / "rank0" / "payload.bin").read_bytes()
    assert (raw[:4], raw[64:]) == (b"\1" * 4, b"\2" * 4)
    it.close()
    assert "rank0.stage" not in tree(tmp_path)


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch):
    """`failing(name, after=n)`: os.name works n more times, then the disk is full; `failing.stop()`: there is room again."""

    class Failing:
        def __call__(self, name, *, after=0, partly=0):
            original, left = getattr(os, name), [after]

            def function(*arguments):
                left[0] -= 1
                if left[0] >= 0:
                    return original(*arguments)
                if partly and left[0] == -1:
                    return original(arguments[0], arguments[1][:partly])
                raise OSError(errno.ENOSPC, "No space left on device")

            monkeypatch.setattr(os, name, function)

        stop = staticmethod(monkeypatch.undo)

    return Failing()


def test_a_journal_that_cannot_be_written_keeps_what_it_has(tmp_path, failing):
    """Half a record was on disk already: it is cut away, and when there is room again the journal goes on."""
    it = create(tmp_path)
    journal = specimens.write_step(it, 0)
    whole = specimens.journal_file(tmp_path).read_bytes()
    failing("write", partly=20)
    journal.add(seal(NOTE))
    with pytest.raises(TraceWriteError, match=r"journal.jsonl: could not be written \(No space left on device\)"):
        journal.commit()
    failing.stop()
    assert specimens.journal_file(tmp_path).read_bytes() == whole
    journal.add(seal(NOTE))
    it.close()
    assert specimens.journal_file(tmp_path).read_bytes() == whole + seal(NOTE)


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    it = create(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    specimens.write_step(it, 0)
    monkeypatch.undo()
    it.close()
    assert open_trace(tmp_path).journal(0).complete


def test_a_payload_that_cannot_be_written_keeps_what_it_has(tmp_path, failing):
    """The training thread is told; tensors from before can be read, from the file or from the ring; journals go on."""
    it = create(tmp_path)
    specimens.write_step(it, 0)
    it.end_step()
    it.drain()
    failing("pwrite")
    journal = it.begin_step(1, specimens.HEADER)
    ring = np.arange(1000, dtype=np.uint16)
    journal.add(seal(specimens.tensor_line(it, 0, ring, "u16")))
    big = np.zeros(4 * specimens.SMALL_RING, dtype=np.uint8)
    with pytest.raises(TraceWriteError, match="payload could not be written"):
        it.store(big, digest.fingerprint(big))
    journal.commit()
    it.end_step()
    journal = it.begin_step(2, specimens.HEADER)
    with pytest.raises(TraceWriteError, match="tensors are not kept"):
        it.store(big, digest.fingerprint(big))
    known = specimens.tensor_line(it, 0, specimens.three_of("f32"), "f32")
    journal.add(seal(known))
    with pytest.raises(TraceWriteError):
        it.close()

    trace = open_trace(tmp_path)
    arrays = specimens.snapshot(trace)
    assert len(arrays["step 0 rank 0"]["arrays"]) > 20
    assert arrays["step 1 rank 0"]["arrays"] == {0: ring.tobytes()}
    assert arrays["step 2 rank 0"]["arrays"] == {0: specimens.three_of("f32").tobytes()}
    assert specimens.lines_of(tmp_path, 2)[0]["stage"] is None


def test_no_room_for_the_ring_is_not_the_end_of_the_journal(tmp_path, failing):
    failing("posix_fallocate")
    it = create(tmp_path)
    journal = it.begin_step(0, specimens.HEADER)
    with pytest.raises(TraceWriteError, match="tensors are not kept"):
        it.store(np.zeros(4, dtype=np.uint8), "0" * 32)
    journal.add(seal(NOTE))
    it.close()
    assert [note.text for note in open_trace(tmp_path).journal(0).notes()] == ["x"]


def test_no_room_for_a_step(tmp_path, monkeypatch):
    """A journal that cannot be made is an error of ours; a payload that cannot be made costs the tensors only."""
    it = create(tmp_path)
    opened = os.open

    def refuse(name):
        def function(path, *arguments):
            if Path(path).name == name:
                raise OSError(errno.ENOSPC, "No space left on device")
            return opened(path, *arguments)

        monkeypatch.setattr(os, "open", function)

    refuse(layout.JOURNAL)
    with pytest.raises(TraceWriteError, match=r"journal.jsonl: could not be made \(No space left on device\)"):
        it.begin_step(0, specimens.HEADER)
    refuse(layout.PAYLOAD)
    it.begin_step(1, specimens.HEADER)
    with pytest.raises(TraceWriteError, match="tensors are not kept"):
        it.store(np.zeros(4, dtype=np.uint8), "0" * 32)
    monkeypatch.undo()
    it.end_step()
    specimens.write_step(it, 2)
    it.close()
    trace = open_trace(tmp_path)
    assert trace.steps == (1, 2)
    assert specimens.snapshot(trace)["step 2 rank 0"]["arrays"]


def test_letting_go_writes_nothing(tmp_path):
    """What a forked child does with the parent's files."""
    it = create(tmp_path)
    journal = it.begin_step(0, specimens.HEADER)
    before = specimens.journal_file(tmp_path).read_bytes()
    stage = it._stage
    journal.add(seal(NOTE))
    it.abandon()
    it.close()
    assert specimens.journal_file(tmp_path).read_bytes() == before
    assert (tmp_path / "rank0.stage").exists()
    stage.close()


def test_a_trace_that_was_recorded_over_takes_no_more_steps(tmp_path):
    first = TraceWriter.create(tmp_path / "t", {"framework": "reference"})
    first.begin_step(0, {})
    first.end_step()
    second = TraceWriter.create(tmp_path / "t", {"framework": "reference"}, overwrite=True)
    with pytest.raises(TraceWriteError, match="somebody has recorded over this one"):
        first.begin_step(1, {})
    second.begin_step(0, {})
    second.close()
    assert open_trace(tmp_path / "t").steps == (0,)


def test_a_manifest_that_was_only_touched_is_the_same(tmp_path):
    writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"})
    manifest = tmp_path / "t" / layout.MANIFEST
    content = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(content)
    os.utime(manifest, (0, 0))
    writer.begin_step(0, {})
    writer.close()
    assert open_trace(tmp_path / "t").steps == (0,)
