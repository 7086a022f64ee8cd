"""Files that are cut, and files in which a bit has changed: found out, or harmless."""

import random

import pytest
import specimens

READ = ["strict", "tolerant"]
LOOK = [*READ, "listing", "compare with good"]
GOOD_FILES = ["manifest.json"] + [f"step{n}/rank0/{name}" for n in (0, 1) for name in ("journal.jsonl", "payload.bin")]
KILLED_FILES = ["rank0.stage", "step0/rank0/journal.jsonl", "step1/rank0/journal.jsonl"]
CUTS = {
    "everything": 0.0,
    "all but one": -1,
    "one": 1,
    "a tenth": 0.1,
    "a third": 0.33,
    "a half": 0.5,
    "most": 0.9,
    "one byte off": -2,
}


def cut(path, where):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * where)] if isinstance(where, float) else data[:where])


@pytest.mark.parametrize("where", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("file", GOOD_FILES)
def test_a_file_that_is_cut(jail, good, whole, victim, file, where):
    cut(victim / file, where)
    answer = jail(victim, ways=LOOK, good=str(good))
    assert answer.noticed() or answer.same_as(whole)


@pytest.mark.parametrize("where", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("file", KILLED_FILES)
def test_a_file_of_a_killed_trace_that_is_cut(jail, good, killed, corpse, file, where):
    cut(corpse / file, where)
    answer = jail(corpse, ways=LOOK, good=str(good))
    assert answer.noticed() or answer.same_as(jail(killed, ways=READ))


def test_a_journal_that_is_cut_anywhere(jail, whole, victim):
    """What is before the cut is read, what is after it is missed, and nothing is invented."""
    journal = specimens.journal_file(victim)
    data = journal.read_bytes()
    for size in range(0, len(data), 97):
        journal.write_bytes(data[:size])
        answer = jail(victim, ways=READ)
        assert answer.noticed() or data[size - 1 : size] == b"\n"
        assert answer.strict.error is None or "has no step" in answer.strict.error or "at" in answer.strict.error


def flips(data: bytes, every: int, seed: int = 0):
    """`(position, changed)` for a bit in every so many bytes."""
    chance = random.Random(seed)
    for start in range(0, len(data), every):
        at = min(start + chance.randrange(every), len(data) - 1)
        yield at, data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def check_flips(jail, whole, victim, file, every, *, seed=0):
    data = (victim / file).read_bytes()
    missed = []
    for at, changed in flips(data, every, seed):
        (victim / file).write_bytes(changed)
        answer = jail(victim, ways=READ)
        if not (answer.noticed() or answer.same_as(whole)):
            missed.append(
                f"byte {at}: {data[max(0, at - 10) : at + 10]!r} became {changed[max(0, at - 10) : at + 10]!r}"
            )
    assert missed == []


@pytest.mark.parametrize("part", range(3))
def test_a_changed_bit_in_a_journal(jail, whole, victim, part):
    """Every line carries a check, so it is found out wherever it is."""
    check_flips(jail, whole, victim, "step0/rank0/journal.jsonl", 120, seed=part)


@pytest.mark.parametrize("kind", ["head", "call", "tensor", "grad", "stack", "module", "note", "end"])
def test_a_changed_bit_in_what_finds_a_line(jail, whole, victim, kind):
    """The first bytes of each kind of line, by which it is found, bit by bit."""
    journal = specimens.journal_file(victim)
    data = journal.read_bytes()
    start = data.index(b'{"k":"%b"' % kind.encode())
    for at in range(start, start + len('{"k":"","id":') + len(kind)):
        for bit in range(8) if data[at - 1 : at] == b'"' else (at % 8,):
            journal.write_bytes(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
            answer = jail(victim, ways=READ)
            assert answer.noticed() or answer.same_as(whole), (at - start, bit)


def test_a_changed_newline(jail, whole, victim):
    """Two lines become one, one becomes two."""
    journal = specimens.journal_file(victim)
    data = journal.read_bytes()
    for at in [position for position, byte in enumerate(data) if byte == 10][:-1]:
        for other in (b"", b" ", b"\r\n", b"\n\n"):
            journal.write_bytes(data[:at] + other + data[at + 1 :])
            answer = jail(victim, ways=["strict", "tolerant"])
            assert answer.noticed() or answer.same_as(whole)
    journal.write_bytes(data.replace(b",", b"\n", 40))
    assert jail(victim, ways=READ).noticed()


def test_a_changed_bit_in_a_payload(jail, whole, victim):
    """The fingerprint finds it when the tensor is read; between two tensors there is nothing to find."""
    check_flips(jail, whole, victim, "step0/rank0/payload.bin", 16)
    check_flips(jail, whole, victim, "step1/rank0/payload.bin", 2)


def test_a_changed_bit_in_a_ring(jail, killed, corpse):
    used = 1024  # what comes after has never been written to
    ring = corpse / "rank0.stage"
    data = ring.read_bytes()
    assert not any(data[used:])
    whole = jail(killed, ways=READ)
    for at, changed in flips(data[:used], 16):
        ring.write_bytes(changed + data[used:])
        answer = jail(corpse, ways=READ)
        assert answer.noticed() or answer.same_as(whole), at


def test_a_changed_bit_in_a_manifest(jail, good, victim):
    """It has no check: another framework's name is a framework's name. But nothing crashes, and the version is the version."""
    manifest = victim / "manifest.json"
    for _, changed in flips(manifest.read_bytes(), 3):
        manifest.write_bytes(changed)
        jail(victim, ways=["strict", "listing", "compare with good"], good=str(good))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_changed_bits_everywhere(jail, whole, victim, part):
    check_flips(jail, whole, victim, "step0/rank0/journal.jsonl", 4, seed=100 + part)
    check_flips(jail, whole, victim, "step0/rank0/payload.bin", 2, seed=100 + part)


def test_a_changed_bit_would_be_noticed(jail, good, whole, victim):
    """The check of the checks: under a fitting crc the same change goes through and is reported as missed."""
    journal = specimens.journal_file(victim)
    lines = specimens.lines_of(victim)
    lines[1]["text"] = "a kernel, by desigm"
    specimens.replace_lines(victim, list(map(specimens.reseal, lines)))
    assert journal.stat().st_size == specimens.journal_file(good).stat().st_size
    answer = jail(victim, ways=READ)
    assert not answer.noticed()
    assert not answer.same_as(whole)
