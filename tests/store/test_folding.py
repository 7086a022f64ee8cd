"""Folded journals: nothing is lost, whatever the numbers are; a kill leaves one of the two; damage is told."""

import json
import os
import random
import signal
import struct
import time
import warnings

import numpy as np
import pytest

from twintrace.model.errors import TraceFormatError
from twintrace.store import layout, writer
from twintrace.store.folded import FoldedJournal
from twintrace.store.folding import (
    MAX_CHANGED,
    NotFoldable,
    Numbers,
    Outline,
    Pattern,
    changed_lines,
    fold,
    unfold,
)
from twintrace.store.journal import NativeJournal
from twintrace.store.lines import seal, seal_text
from twintrace.store.reader import body_of
from twintrace.store.registry import open_trace
from twintrace.store.writer import TraceWriter

MANIFEST = {"framework": "reference", "settings": {"level": "mix", "keep": "fingerprint"}, "world": 1}
HEADER = {"world": 1, "framework": "reference", "settings": MANIFEST["settings"]}
END = seal({"k": "end", "calls": 1, "tensors": 3})


def any_float(draw: random.Random) -> float:
    """Any bit pattern that is finite; half of the time one that is an f32."""
    while True:
        number = struct.unpack("<d", draw.randbytes(8))[0]
        if draw.random() < 0.5:
            number = float(struct.unpack("<f", draw.randbytes(4))[0])
        if np.isfinite(number):
            return number


def any_tensor(draw: random.Random, identity: int) -> bytes:
    """A tensor's line with statistics of any kind."""
    low, high, mean, norm, one, two = (any_float(draw) for _ in range(6))
    whole = draw.random() < 0.2
    ends = (draw.randrange(-(2**40), 2**40), draw.randrange(2**40)) if whole else (low, high)
    counts = [draw.choice((0, 0, 0, draw.randrange(2**32))) for _ in range(4)]
    text = f'{{"k":"tensor","id":{identity},"dtype":"f32","shape":[2]'
    kind = draw.random()
    if kind < 0.1:
        text += f',"stats":[null,null,null,null,{counts[0]},0,0,0],"fp":"{draw.randbytes(16).hex()}"'
    elif kind < 0.15:
        text += ',"missing":"a meta tensor \\"stats\\":[1,2]"'
    else:
        text += f',"stats":[{ends[0]!r},{ends[1]!r},{mean!r},{norm!r},{",".join(map(str, counts))}]'
        if draw.random() < 0.9:
            text += f',"fp":"{draw.randbytes(16).hex()}"'
        if draw.random() < 0.9:
            text += f',"order":[{one!r},{two!r}]'
    return seal_text(text)


def any_body(draw: random.Random) -> bytes:
    lines = [any_tensor(draw, identity) for identity in range(draw.randrange(12))]
    strange = 'a\\u0010 b\\n,"stats":[ \U0001f642 \ud800'
    lines.insert(draw.randrange(len(lines) + 1), seal({"k": "note", "topic": "t", "text": strange}))
    lines.insert(0, seal({"k": "module", "id": 0, "path": "", "type": "T", "values": {"a": 1, "some": [1, 2]}}))
    return b"".join([*lines, END])


@pytest.mark.parametrize("seed", range(200))
def test_a_body_comes_back_byte_for_byte(seed):
    body = any_body(random.Random(seed))
    pattern, numbers = fold(body)
    packed, ends, counts = numbers.pack()
    assert unfold(pattern, Numbers.unpack(packed, len(numbers), ends, counts)) == body


def test_a_list_of_another_length_is_not_folded():
    body = any_body(random.Random(0)).replace(b'"some":[1,2]', b'"stats":[1,2]')
    with pytest.raises(NotFoldable):
        fold(body)


@pytest.mark.parametrize(
    "number", ["1.50", "1e5", "100000.00000000001e0", "0.10000000000000001", "-0", "18446744073709551616"]
)
def test_numbers_that_would_be_written_otherwise_are_not_folded(number):
    text = f'{{"k":"tensor","id":0,"stats":[{number},2.0,1.5,2.5,0,0,0,0],"fp":"{"0" * 32}"'
    with pytest.raises(NotFoldable):
        fold(seal_text(text) + END)
    fold(seal_text(text.replace(number, "1.5")) + END)


def test_a_journal_that_was_not_closed_is_not_folded():
    with pytest.raises(NotFoldable):
        fold(any_tensor(random.Random(3), 0))


def test_a_program_is_the_same_wherever_it_stands():
    """Two files, two lines: the same calls. Another shape, another name: another program."""

    def body(file: str, number: int, name: str) -> bytes:
        stack = seal({"k": "stack", "id": number, "frames": [[file, 1, "f", "x"]]})
        call = seal({"k": "call", "id": 0, "kind": "api", "name": name, "n": 0, "in": [], "kw": {}, "stack": number})
        return stack + call + END

    one, two = fold(body("a.py", 0, "relu"))[0], fold(body("b.py", 7, "relu"))[0]
    assert one.identity != two.identity
    assert one.program == two.program != fold(body("a.py", 0, "gelu"))[0].program


# --- traces ---------------------------------------------------------------------------------------------------------


def tensor_line(identity: int, value: float) -> bytes:
    bits = np.float64(value).tobytes().hex() * 2
    return seal_text(
        f'{{"k":"tensor","id":{identity},"dtype":"f32","shape":[1],"stats":[{value!r},{value!r},{value!r},{abs(value)!r},0,0,0,0],'
        f'"fp":"{bits}","order":[{value!r},{value!r}]'
    )


def write_steps(path, steps: int, *, rate=lambda step: 0.1, folds: bool = True, extra=lambda step: 0) -> None:
    with_writer = TraceWriter.create(path, MANIFEST, folds=folds)
    for step in range(steps):
        journal = with_writer.begin_step(step, HEADER)
        for number in range(3 + extra(step)):
            journal.add(tensor_line(number, step + number / 7))
        call = {"k": "call", "id": 0, "kind": "api", "name": "f", "n": 0, "in": [{"$t": 0}], "kw": {"lr": rate(step)}}
        journal.add(seal(call))
        journal.add(seal({"k": "end", "calls": 1, "tensors": 3}))
        with_writer.end_step()
    with_writer.close()


def contents(path) -> list[object]:
    trace = open_trace(path)
    found: list[object] = []
    for journal in trace.journals():
        assert journal.complete
        assert journal.damage == ()
        orders = [tensor.statistics.order for tensor in journal.tensors()]
        found.append((journal.header, list(journal.calls()), list(journal.tensors()), orders, list(journal.notes())))
    return found


@pytest.mark.parametrize(
    ("rate", "extra"),
    [
        (lambda step: 0.1, lambda step: 0),
        (lambda step: 0.1 / (step + 1), lambda step: 0),
        (lambda step: 0.1, lambda step: step % 3),
        (lambda step: 0.1, lambda step: step),
    ],
    ids=["the same calls", "a rate that changes", "three kinds of steps", "always another structure"],
)
def test_a_folded_trace_reads_as_a_whole_one(tmp_path, rate, extra):
    write_steps(tmp_path / "whole", 20, rate=rate, extra=extra, folds=False)
    write_steps(tmp_path / "folded", 20, rate=rate, extra=extra)
    assert contents(tmp_path / "whole") == contents(tmp_path / "folded")
    for step in range(20):
        whole, folded = (body_of(tmp_path / name, step, 0).partition(b"\n")[2] for name in ("whole", "folded"))
        assert whole == folded


def test_what_repeats_is_kept_once(tmp_path):
    write_steps(tmp_path / "trace", 5, extra=lambda step: 40)
    sizes = [sum(file.stat().st_size for file in (tmp_path / f"trace/step{step}/rank0").iterdir()) for step in range(5)]
    assert all(size < sizes[0] / 3 for size in sizes[1:])
    assert json.loads((tmp_path / "trace/manifest.json").read_text())["version"] == 2


def test_a_writer_that_does_not_fold_writes_version_1(tmp_path):
    write_steps(tmp_path / "trace", 2, folds=False)
    assert json.loads((tmp_path / "trace/manifest.json").read_text())["version"] == 1
    assert not list(tmp_path.rglob("numbers.bin"))


def test_a_trace_of_version_1_is_continued_as_one(tmp_path):
    write_steps(tmp_path / "trace", 2, folds=False)
    resumed = TraceWriter.create(tmp_path / "trace", MANIFEST, resume=True, folds=True)
    for step in (2, 3):
        journal = resumed.begin_step(step, HEADER)
        journal.add(tensor_line(0, 1.0))
        journal.add(END)
        resumed.end_step()
    resumed.close()
    assert not list(tmp_path.rglob("numbers.bin"))
    assert [journal.header.step for journal in open_trace(tmp_path / "trace").journals()] == [0, 1, 2, 3]


def test_too_many_changed_lines_make_a_structure_of_their_own():
    lines = [b'{"k":"call","n":%d' % number for number in range(100)]
    one = Pattern(b"\n".join(lines) + b"\n")
    few = one.with_lines({place: b"x" for place in range(MAX_CHANGED)})
    many = one.with_lines({place: b"x" for place in range(MAX_CHANGED + 1)})
    assert len(changed_lines(one, few)) == MAX_CHANGED
    assert changed_lines(one, many) is None
    assert changed_lines(one, Pattern(one.text + b"x\n")) is None


def test_an_overwritten_trace_leaves_nothing(tmp_path):
    write_steps(tmp_path / "trace", 3)
    (tmp_path / "trace/step1/rank0" / layout.FOLDED).write_bytes(b"left by a kill")
    TraceWriter.create(tmp_path / "trace", MANIFEST, overwrite=True).close()
    assert [file.name for file in (tmp_path / "trace").iterdir()] == ["manifest.json"]


# --- damage ---------------------------------------------------------------------------------------------------------

NUMBERS = "step2/rank0/numbers.bin"


def reseal(path, **changes) -> None:
    file = path / "step2/rank0/journal.jsonl"
    head, same = file.read_bytes().splitlines(keepends=True)
    line = json.loads(same)
    line.pop("crc")
    file.write_bytes(head + seal(line | changes))


DAMAGE = {
    "numbers removed": lambda path: (path / NUMBERS).unlink(),
    "numbers cut": lambda path: (path / NUMBERS).write_bytes((path / NUMBERS).read_bytes()[:-1]),
    "numbers changed": lambda path: (path / NUMBERS).write_bytes((path / NUMBERS).read_bytes()[::-1]),
    "numbers are a folder": lambda path: ((path / NUMBERS).unlink(), (path / NUMBERS).mkdir()),
    "the reference removed": lambda path: (path / "step0/rank0/journal.jsonl").unlink(),
    "the reference is another": lambda path: (path / "step0/rank0/journal.jsonl").write_bytes(
        (path / "step0/rank0/journal.jsonl").read_bytes().replace(b'"name":"f"', b'"name":"g"')
    ),
    "a folded reference": lambda path: reseal(path, **{"as": 1}),
    "itself": lambda path: reseal(path, **{"as": 2}),
    "a reference of another type": lambda path: reseal(path, **{"as": "../step0"}),
    "numbers without a size": lambda path: reseal(path, numbers=["x", 3]),
    "a huge size": lambda path: reseal(path, numbers=[2**61, "00000000"]),
    "unknown ends": lambda path: reseal(path, ends="f128"),
    "unknown counts": lambda path: reseal(path, counts=["zero", "zero"]),
    "counts of lists": lambda path: reseal(path, counts=[[]]),
    "changed beyond the end": lambda path: reseal(path, changed={"99": "x"}),
    "changed nowhere": lambda path: reseal(path, changed={"-1": "x"}),
    "changed into two": lambda path: reseal(path, changed={"0": "x\ny"}),
    "changed to a number": lambda path: reseal(path, changed={"0": 1}),
    "changed a lot": lambda path: reseal(path, changed={"9" * 4000: "x"}),
    "another pattern": lambda path: reseal(path, pattern="0" * 32),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told(tmp_path, damage):
    path = tmp_path / "trace"
    write_steps(path, 4)
    DAMAGE[damage](path)
    with pytest.raises(TraceFormatError):
        open_trace(path).journal(2)
    if damage != "the reference is another":  # of which the lines themselves are damaged
        journal = open_trace(path, tolerant=True).journal(2)
        assert journal.damage
        assert not journal.complete
        assert list(journal.calls()) == list(journal.tensors()) == []
        assert journal.tensor(0).missing


def test_every_bit_of_the_numbers_counts(tmp_path):
    path = tmp_path / "trace"
    write_steps(path, 3)
    whole = (path / NUMBERS).read_bytes()
    for place in range(0, 8 * len(whole), 61):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        (path / NUMBERS).write_bytes(changed)
        with pytest.raises(TraceFormatError, match=r"numbers\.bin"):
            open_trace(path).journal(2)


def test_a_full_disk_leaves_the_whole_journal(tmp_path, monkeypatch):
    def full(file, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_write", full)
    write_steps(tmp_path / "trace", 3)
    assert not list(tmp_path.rglob("numbers.bin"))
    assert len(contents(tmp_path / "trace")) == 3


def test_a_kill_leaves_the_whole_journal_or_the_folded_one(tmp_path):
    """All steps whose end was reported are there, with all their records, at whatever moment the process was killed."""
    draw = random.Random(1)
    kinds = set()
    for attempt in range(12):
        path = tmp_path / f"trace{attempt}"
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that other tests of this process have threads
            child = os.fork()
        if not child:
            try:
                original = TraceWriter.end_step

                def told(self, original=original, writing=writing):
                    original(self)
                    os.write(writing, b".")

                TraceWriter.end_step = told
                write_steps(path, 100_000, extra=lambda step: 20)
            finally:
                os._exit(0)
        os.close(writing)
        os.read(reading, 1)
        time.sleep(draw.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        ended = 1
        while block := os.read(reading, 4096):
            ended += len(block)
        os.close(reading)
        trace = open_trace(path, tolerant=True)
        for step in range(ended):
            journal = trace.journal(step)
            kinds.add(type(journal))
            assert journal.complete
            assert [tensor.statistics.min for tensor in journal.tensors()][:2] == [step + 0 / 7, step + 1 / 7]
            assert len(list(journal.tensors())) == 23
    assert kinds == {NativeJournal, FoldedJournal}


def test_an_outline_has_the_numbers(tmp_path):
    write_steps(tmp_path / "trace", 2)
    whole, folded = (open_trace(tmp_path / "trace").journal(step).outline() for step in (0, 1))
    assert isinstance(whole, Outline)
    assert whole.pattern.program == folded.pattern.program
    assert len(whole.numbers) == len(folded.numbers) == 3
    assert whole.numbers.fingerprints.tolist() != folded.numbers.fingerprints.tolist()
    assert folded.pattern.tensors == {0: 0, 1: 1, 2: 2}
