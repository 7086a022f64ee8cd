"""The ring: exact bytes come out, whatever goes in; a failing disk is told to the training thread."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from twintrace.model.errors import TraceWriteError
from twintrace.store.stage import ALIGN, Stage, read_staged

TINY = ALIGN * 1024  # the smallest there is


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def test_many_payloads_through_a_tiny_ring(tmp_path):
    """Sizes from nothing to three times the ring, in three files: each comes back from its offset."""
    stage = Stage(tmp_path / "rank0.stage", 1)
    assert stage.size == TINY
    edges = [0, 1, 63, 64, 65, TINY - 1, TINY, TINY + 1, 3 * TINY + 5]
    sizes = [*np.random.default_rng(1).integers(0, 3000, 600).tolist(), *edges]
    kept, base = [], []
    for file in range(3):
        base.append(stage.begin(tmp_path / f"{file}.bin"))
        for seed, size in enumerate(sizes):
            data = numbers(size, seed * 3 + file)
            kept.append((file, stage.append(data), data))
        stage.end()
    stage.close()

    files = [(tmp_path / f"{file}.bin").read_bytes() for file in range(3)]
    for file, offset, data in kept:
        assert offset % ALIGN == 0
        assert files[file][offset : offset + len(data)] == data.tobytes()
    assert base == [0, len(files[0]), len(files[0]) + len(files[1])]
    assert not (tmp_path / "rank0.stage").exists()


def test_a_payload_much_larger_than_the_ring(tmp_path):
    stage = Stage(tmp_path / "rank0.stage", TINY)
    stage.begin(tmp_path / "payload.bin")
    data = numbers(200 * TINY + 77)
    assert stage.append(data) == 0
    stage.drain()
    assert (tmp_path / "payload.bin").read_bytes()[: len(data)] == data.tobytes()
    stage.close()


def test_a_payload_in_pieces_and_one_that_breaks_off(tmp_path):
    """What follows one that broke off has its own place."""
    stage = Stage(tmp_path / "rank0.stage", TINY)
    stage.begin(tmp_path / "payload.bin")
    pieces = [numbers(size, size) for size in (TINY, 1, 3 * TINY + 7, 64)]
    first = stage.append_pieces(pieces)

    def breaking():
        yield numbers(TINY + 3)
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="the device is gone"):
        stage.append_pieces(breaking())
    last = stage.append(numbers(100))
    stage.drain()
    content = (tmp_path / "payload.bin").read_bytes()
    whole = b"".join(piece.tobytes() for piece in pieces)
    assert content[first : first + len(whole)] == whole
    assert last % ALIGN == 0
    assert content[last : last + 100] == numbers(100).tobytes()
    stage.close()


def test_nothing_reaches_the_disk_before_it_must(tmp_path):
    """A small step costs no write on the way: `drain` and `close` bring it out."""
    stage = Stage(tmp_path / "rank0.stage", 1 << 20)
    stage.begin(tmp_path / "payload.bin")
    stage.append(numbers(100))
    stage.drain()
    assert (tmp_path / "payload.bin").stat().st_size == 128  # to the next multiple of 64
    stage.append(numbers(1))
    stage.close()
    assert (tmp_path / "payload.bin").stat().st_size == 192


def test_a_slow_disk_makes_append_wait(tmp_path, monkeypatch):
    """No byte is dropped and no more than the ring is in memory: the training thread waits."""
    gate = threading.Event()
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: gate.wait(30) and pwrite(*a))
    stage = Stage(tmp_path / "rank0.stage", TINY)
    stage.begin(tmp_path / "payload.bin")
    data = numbers(3 * TINY)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (stage.append(data), done.set()))
    thread.start()
    assert not done.wait(0.2)
    gate.set()
    thread.join(30)
    assert done.is_set()
    stage.close()
    assert (tmp_path / "payload.bin").read_bytes() == data.tobytes()


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, bytes(data[:1000]), at))
    stage = Stage(tmp_path / "rank0.stage", TINY)
    stage.begin(tmp_path / "payload.bin")
    data = numbers(2 * TINY)
    stage.append(data)
    stage.close()
    assert (tmp_path / "payload.bin").read_bytes() == data.tobytes()


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def full_disk(monkeypatch):
    """`full_disk(n)`: after n more writes the disk is full."""
    pwrite, left = os.pwrite, [1 << 60]

    def failing(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(*arguments)

    monkeypatch.setattr(os, "pwrite", failing)
    return lambda writes: left.__setitem__(0, writes)


def test_a_full_disk_is_told_to_the_training_thread(tmp_path, full_disk):
    """`append` and `close` raise; what was there before is there, in the file and in the ring; no file stays open."""
    before = open_files()
    stage = Stage(tmp_path / "rank0.stage", TINY)
    stage.begin(tmp_path / "payload.bin")
    kept = [numbers(TINY // 4, seed) for seed in range(3)]
    offsets = [stage.append(data) for data in kept]
    stage.drain()
    written = (tmp_path / "payload.bin").read_bytes()
    full_disk(0)
    waiting = numbers(TINY // 2, 9)
    position = stage.append(waiting)
    with pytest.raises(TraceWriteError, match=r"payload could not be written \(No space left on device\)"):
        stage.append(numbers(2 * TINY))
    with pytest.raises(TraceWriteError, match="no longer kept"):
        stage.append(numbers(1))
    with pytest.raises(TraceWriteError):
        stage.drain()
    with pytest.raises(TraceWriteError):
        stage.begin(tmp_path / "next.bin")
    stage.end()
    with pytest.raises(TraceWriteError):
        stage.close()

    assert (tmp_path / "payload.bin").read_bytes() == written
    for offset, data in zip(offsets, kept, strict=True):
        assert written[offset : offset + len(data)] == data.tobytes()
    assert read_staged(tmp_path / "rank0.stage", position, len(waiting)) == waiting.tobytes()
    assert open_files() == before


def test_no_room_for_the_ring(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Stage(tmp_path / "rank0.stage", TINY)
    assert not (tmp_path / "rank0.stage").exists()


def test_reading_a_ring_that_was_left_behind(tmp_path):
    ring = tmp_path / "rank0.stage"
    data = numbers(1000)
    ring.write_bytes(data.tobytes())
    assert read_staged(ring, 0, 1000) == data.tobytes()
    assert read_staged(ring, 5000, 10) == data[:10].tobytes()
    assert read_staged(ring, 990, 20) == np.concatenate([data[990:], data[:10]]).tobytes()
    assert read_staged(ring, 0, 1001) == b""
    assert read_staged(ring, 0, 0) == b""
    ring.write_bytes(b"")
    assert read_staged(ring, 7, 1) == b""
