"""Directories, pipes, links and holes where files are expected; manifests that are none; files that are far too large."""

import json
import os
import pickle
import socket
import tempfile
from pathlib import Path

import pytest
import specimens

# --- something that is not a file -----------------------------------------------------------------------------------


def as_directory(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("")


def as_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as it:  # its name must be short
        it.bind(f"{folder}/s")
        Path(folder, "s").rename(path)


SHAPES = {
    "a directory": as_directory,
    "a pipe": os.mkfifo,
    "a socket": as_socket,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to zeros": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file of the system": lambda path: path.symlink_to("/etc/passwd"),
    "a link to a directory": lambda path: path.symlink_to("/etc"),
    "a link to the memory": lambda path: path.symlink_to("/proc/self/mem"),
    "nothing": lambda path: None,
    "an empty file": Path.touch,
}
FILES = ["manifest.json", "step0/rank0/journal.jsonl", "step0/rank0/payload.bin", "rank0.stage"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("file", FILES)
def test_something_else_than_a_file(jail, good, killed, corpse, file, shape):
    (corpse / file).unlink()
    SHAPES[shape](corpse / file)
    answer = jail(corpse, good=str(good))
    assert answer.noticed() or answer.same_as(jail(killed, ways=["strict", "tolerant"])) or "journal" in file
    if file == "manifest.json":
        assert answer.strict.error is not None


FOLDERS = {
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link upwards": lambda path: path.symlink_to(".."),
    "a link to the root": lambda path: path.symlink_to("/"),
    "a file": lambda path: path.write_text(""),
    "a pipe": os.mkfifo,
    "an empty directory": Path.mkdir,
}


@pytest.mark.parametrize("folder", ["step1", "step1/rank0", "step2", "step0/rank7"])
@pytest.mark.parametrize("shape", FOLDERS)
def test_something_else_than_a_directory(jail, good, victim, folder, shape):
    if (victim / folder).exists():
        (victim / folder).rename(victim.parent / "away")
    FOLDERS[shape](victim / folder)
    jail(victim, good=str(good))


def test_directories_with_odd_names(jail, good, whole, victim):
    """They are not ours: nothing in them is looked at."""
    for name in (
        "step-1",
        "step01",
        "step 1",
        "step1e3",
        "step0x1",
        "step٣",
        "step99999999999999999999",
        "step",
        "..step1",
        "step1\n",
        "a\\b",
    ):
        specimens.copy(good / "step0", victim / name)
    for name in ("rank-1", "rank00", "rank9999999999", "rank0.stage", "rank1 "):
        specimens.copy(good / "step0" / "rank0", victim / "step0" / name)
    answer = jail(victim, good=str(good), watch=str(victim))
    assert answer.same_as(whole)
    assert {str(Path(name).relative_to(victim)) for name in answer.opened} <= {
        "manifest.json",
        *(f"step{n}/rank0/{file}" for n in (0, 1) for file in ("journal.jsonl", "payload.bin")),
    }


@pytest.mark.parametrize("step", [7, 10**17])
def test_a_step_of_another_number(jail, good, victim, step):
    (victim / "step0").rename(victim / f"step{step}")
    (victim / "step1").rename(victim.parent / "away")
    assert f"field 'step': expected {step}, as the directory says, got 0" in jail(victim, good=str(good)).strict.error


def test_steps_far_apart(jail, good, victim):
    specimens.copy(victim / "step0", victim / f"step{10**17}")
    assert f"expected {10**17}, as the directory says" in jail(victim, good=str(good)).strict.error


def test_files_that_may_not_be_read(jail, good, victim):
    for name in ("step1/rank0/payload.bin", "step1/rank0/journal.jsonl", "step1/rank0", "step1", "manifest.json", ""):
        (victim / name).chmod(0)
        if os.access(victim / name, os.R_OK):
            pytest.skip("root may read everything")
        answer = jail(victim, good=str(good))
        (victim / name).chmod(0o700)
        assert answer.strict.error is not None


# --- manifests ------------------------------------------------------------------------------------------------------


def manifest(**fields: object) -> str:
    return json.dumps({"format": "twintrace", "version": 1} | specimens.MANIFEST | fields)


MANIFESTS: dict[str, tuple[bytes | str, str | None]] = {
    "nothing": (b"", "expected JSON"),
    "a later version": (
        manifest(version=3),
        "field 'version': trace format version 3, but this release reads up to 2. Update twintrace",
    ),
    "a much later version": (manifest(version=10**400), "but this release reads up to 2"),
    "version 0": (manifest(version=0), "field 'version': expected a positive number, got '0'"),
    "version -1": (manifest(version=-1), "field 'version'"),
    "version '1'": (manifest(version="1"), "field 'version'"),
    "version 1.0": (manifest(version=1.0), "field 'version'"),
    "version true": (manifest(version=True), "field 'version'"),
    "version null": (manifest(version=None), "field 'version'"),
    "version [1]": (manifest(version=[1]), "field 'version'"),
    "another format": (manifest(format="safetensors"), "field 'format': expected 'twintrace'"),
    "a format that is a list": (manifest(format=["twintrace"]), "field 'format'"),
    "a framework that is a list": (manifest(framework=[["x"]]), "field 'framework': expected str"),
    "settings that are a list": (manifest(settings=[1]), "field 'settings': expected dict"),
    "a world that is a text": (manifest(world="x"), "field 'world': expected a number"),
    "a world below nothing": (manifest(world=-1), "field 'world'"),
    "deep settings": (manifest(settings=1)[:-1] + ',"x":' + "[" * 290 + "]" * 290 + "}", "field 'settings'"),
    "a list": (b"[]", "field 'format'"),
    "null": (b"null", "field 'format'"),
    "a number": (b"1", "field 'format'"),
    "a text": (b'"twintrace"', "field 'format'"),
    "torn": (manifest()[:-1], "expected JSON"),
    "two": (manifest() * 2, "expected JSON"),
    "NaN": (manifest()[:-1] + ',"x":NaN}', "not finite"),
    "not UTF-8": (manifest(framework="x").replace('"x"', '"\udcff"').encode(errors="surrogateescape"), "expected JSON"),
    "UTF-16": (manifest().encode("utf-16"), "expected JSON"),
    "UTF-32": (manifest().encode("utf-32"), "expected JSON"),
    "a mark before it": (b"\xef\xbb\xbf" + manifest().encode(), "expected JSON"),
    "NUL": (b"\0" * 5000, "expected JSON"),
    "NUL behind it": (manifest().encode() + b"\0", "expected JSON"),
    "pickle": (pickle.dumps({"format": "twintrace", "version": 1, "f": print}), "expected JSON"),
    "200,000 brackets": (b"[" * 200_000, "expected JSON"),
    "200,000 braces": (b'{"a":' * 200_000, "expected JSON"),
    "301 levels": (manifest(x=1)[:-1] + ',"y":' + "[" * 301 + "]" * 301 + "}", "nested deeper than 300"),
    "30,000 small lists": (manifest()[:-1] + ',"y":[' + "[]," * 30_000 + "[]]}", None),
    "5000 digits": (manifest()[:-1] + ',"y":' + "9" * 5000 + "}", "expected JSON"),
    "a long text": (manifest(y="x" * (1 << 20)), "at most 1048576 bytes"),
    "the same key twice": (manifest()[:-1] + ',"version":3}', "version 3"),
    "a name with a path": (manifest(framework="../../../etc/passwd"), None),
    "unknown fields": (manifest(new={"a": [1, None]}), None),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest(jail, good, victim, name):
    content, text = MANIFESTS[name]
    (victim / "manifest.json").write_bytes(content.encode() if isinstance(content, str) else content)
    answer = jail(victim, good=str(good))
    if text is None:
        assert answer.strict.error is None
    else:
        assert answer.strict.error.startswith(f"TraceFormatError: {victim / 'manifest.json'}: ")
        assert text in answer.strict.error


# --- sizes ----------------------------------------------------------------------------------------------------------


def make_hole(path: Path, size: int) -> None:
    """A file that has a size and no content, and takes no room on the disk."""
    os.truncate(path, size)


@pytest.mark.parametrize("size", [100 << 20, 1 << 40], ids=["100 MB", "1 TB"])
def test_a_manifest_as_large_as_a_disk(jail, good, victim, size):
    make_hole(victim / "manifest.json", size)
    assert "at most 1048576 bytes" in jail(victim, good=str(good), seconds=5, megabytes=64).strict.error


@pytest.mark.parametrize("size", [100 << 20, 1 << 40], ids=["100 MB", "1 TB"])
@pytest.mark.parametrize("limited", [True, False], ids=["little memory", "much memory"])
def test_a_journal_as_large_as_a_disk(jail, good, whole, victim, size, limited):
    """What is before the hole is read; the hole is not walked through."""
    make_hole(specimens.journal_file(victim), size)
    answer = jail(victim, good=str(good), seconds=5, megabytes=64 if limited else 0)
    assert answer.noticed()
    assert "cannot be read" in str(answer.strict.error) if limited else answer.strict.damage > 0


@pytest.mark.parametrize("file", ["step0/rank0/payload.bin", "rank0.stage"])
def test_a_payload_as_large_as_a_disk(jail, good, corpse, file):
    """It is believed to be that large, and still nothing of it is loaded."""
    make_hole(corpse / file, 1 << 40)
    answer = jail(corpse, good=str(good), seconds=5, megabytes=0)
    assert answer.noticed()


@pytest.mark.parametrize("where", ["payload", "ring"])
def test_a_tensor_as_large_as_a_disk(jail, good, corpse, where):
    """Everything fits together: shape, address, file. There is only no memory for it, and that is said."""
    size = 1 << 40
    make_hole(corpse / "step0/rank0/payload.bin" if where == "payload" else corpse / "rank0.stage", size)
    lines = specimens.lines_of(corpse)
    lines[0]["stage"] = [0, size]
    tensor = next(line for line in lines if line["k"] == "tensor")
    tensor |= {"dtype": "u8", "shape": [size], "at": [0, size]}
    specimens.replace_lines(corpse, list(map(specimens.reseal, lines)))
    answer = jail(corpse, good=str(good), seconds=5)
    assert "cannot be read" in answer.strict.error


def a_line(body: bytes) -> bytes:
    return specimens.seal_raw(body)


CALL = (
    b'{"k":"call","id":99,"kind":"api","name":"x","n":0,"phase":"forward","path":"","up":null,"kw":{},"out":null,"in":['
)
BOMBS = {
    "a million empty lines": (b"\n" * 1_000_000, "too short to hold a record"),
    "twenty million empty lines": (b"\n" * 20_000_000, "too short to hold a record"),
    "a thousand empty lines": (b"\n" * 1000, "line 4"),
    "a million lines of nonsense": (b"x" * 30 + b"\n", "line 4"),
    "20,000 lines of an unknown kind": (a_line(b'{"k":"future"') * 20_000, None),
    "50,000 damaged lines": (b'{"k":"note","topic":"a","text":"b","crc":"00000000"}\n' * 50_000, "line 4"),
    "10,000 notes": (a_line(b'{"k":"note","topic":"a","text":"b"') * 10_000, None),
    "a line of 5 MB": (a_line(b'{"k":"note","topic":"a","text":"%b"' % (b"x" * 5_000_000)), "longer than 4194304 bytes"),
    "a line of 4 MB": (a_line(b'{"k":"note","topic":"a","text":"%b"' % (b"x" * 4_000_000)), None),
    "three lines of 4 MB": (a_line(b'{"k":"note","topic":"a","text":"%b"' % (b"x" * 4_000_000)) * 3, None),
    "30,000 empty lists": (a_line(CALL + b"[]," * 30_000 + b"[]]"), None),
    "200,000 empty objects": (a_line(CALL + b"{}," * 200_000 + b"{}]"), "field 'in.0'"),
    "100,000 names": (a_line(CALL[:-6] + b'"in":[],"params":{' + b",".join(b'"%d":0' % n for n in range(100_000)) + b"}"), None),
    "a million brackets": (a_line(CALL + b"[" * 1_000_000), "not JSON"),
    "250 levels": (a_line(CALL + b"[" * 250 + b"]" * 250 + b"]"), "nested deeper than 64"),
    "64 levels": (a_line(CALL + b"[" * 60 + b"]" * 60 + b"]"), None),
    "a million zeros": (b"\0" * 1_000_000, "line 4"),
    "zeros at the end": (None, None),
    "gzip": (b"\x1f\x8b\x08\0" + bytes(range(256)) * 100 + b"\n", "line"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_a_journal(jail, good, victim, name):
    """Few bytes that want to be many: time and memory stay in proportion to the file."""
    bomb, text = BOMBS[name]
    raw = specimens.journal_file(victim).read_bytes().splitlines(keepends=True)
    if bomb is None:
        specimens.replace_lines(victim, [*raw, b"\0" * 100_000])
    elif "million lines" in name:
        specimens.replace_lines(victim, [*raw[:3], bomb * 1_000_000, *raw[3:]])
    else:
        specimens.replace_lines(victim, [*raw[:3], bomb, *raw[3:]])
    ways = ["strict", "tolerant", "listing", "compare with good"]
    answer = jail(victim, good=str(good), ways=ways)
    assert answer.strict.error is None if text is None else text in answer.strict.error
