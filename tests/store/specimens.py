"""Traces to look at: written as a recorder writes them, without a framework.

write_full(path)             two steps with every kind of line, every tag of a value and every element type
write_small(path)            the same with one element type
write_killed(path)           the same, left behind by a process that was killed: a torn tail, payload bytes in the ring
write_long(path, records)    one step of many records
snapshot(trace)              everything that can be read from a trace, to compare
reseal(line)                 a changed line with a check that fits again
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from twintrace.model.tensors import DTYPES
from twintrace.store import layout
from twintrace.store.arrays import STORAGE
from twintrace.store.digest import digest
from twintrace.store.lines import seal, unseal, wire_float
from twintrace.store.writer import Journal, TraceWriter

SETTINGS = {"level": "mix", "keep": "tensor"}
MANIFEST = {"framework": "reference", "settings": SETTINGS, "world": 1}
HEADER = {"world": 1, "framework": "reference", "settings": SETTINGS, "environment": {"numpy": "1.26"}, "groups": [[0]]}
HEADER |= {"precision": {"autocast": {}, "deterministic": False, "reduced_f32": ["convolution"]}}
SMALL_RING = 1 << 16

# One value of each form that a journal knows, and what it is read back as is said in test_lines.py.
VALUES = [
    None, True, 7, -1.5, "same", [1, [2]], {"$tuple": [1, {"$t": 0}]}, {"$set": ["a"]},
    {"$dict": ["dict", [["mask", {"$t": 1}], ["a.b/c\nd", 0]]]}, {"$object": ["Output", [["loss", {"$t": 2}]]]},
    {"$token": ["dtype", "float32"]}, {"$float": "nan"}, {"$float": "-inf"}, {"$complex": [1.0, {"$float": "inf"}]},
]  # fmt: skip


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes that differ from element to element, in the storage type of `dtype`; every bit pattern that fits."""
    count = int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype]
    raw = (np.arange(count, dtype=np.uint64) * 37 + len(dtype)).astype(np.uint8)
    if dtype == "b8":
        raw &= 1
    return raw.view(STORAGE[dtype]).reshape(shape)


def three_of(dtype: str) -> np.ndarray:
    """0, 1 and 2 (or the like): numbers whose sums are exact, so that every implementation finds the same statistics."""
    codes = {
        "bf16": [0, 0x3F80, 0x4000],
        "c32": [0, 0x3C00, 0x4000],
        "f4e2m1fn_x2": [0x00, 0x22, 0x44],
        "b8": [0, 1, 1],
    }
    return np.array(codes.get(dtype, [0x00, 0x38, 0x40] if dtype.startswith("f8") else [0, 1, 2])).astype(
        STORAGE[dtype]
    )


def tensor_line(writer: TraceWriter, identity: int, array: np.ndarray, dtype: str, **more: object) -> dict[str, object]:
    """The line of one tensor, its bytes stored."""
    found = digest(array, dtype)
    s = found.statistics
    numbers = [wire_float(n) if isinstance(n, float) else n for n in (s.min, s.max, s.mean, s.norm)]
    line: dict[str, object] = {"k": "tensor", "id": identity, "dtype": dtype, "shape": list(array.shape)}
    line |= {"device": "cpu", "grad": False, "by": None}
    line |= {
        "stats": [*numbers, s.nan, s.posinf, s.neginf, s.zero],
        "fp": found.fingerprint,
        "order": s.order and [0.5, -0.25],  # a golden file holds no last digits
    }
    place = writer.store(np.ascontiguousarray(array).reshape(-1).view(np.uint8), found.fingerprint)
    line["at"] = [place.offset, place.nbytes] + ([] if place.step is None else [place.step])
    return line | more


def call_line(identity: int, name: str, **more: object) -> dict[str, object]:
    """The line of one call."""
    line: dict[str, object] = {"k": "call", "id": identity, "kind": "api", "name": name, "n": 0, "phase": "forward"}
    return line | {"path": "", "up": None, "in": [], "kw": {}, "out": None} | more


def full_lines(writer: TraceWriter, step: int, dtypes: Iterable[str] = DTYPES) -> list[dict[str, object]]:
    """The lines of one step, without its head. In step 1 most contents are those of step 0."""
    odd = np.array([[1.0, -0.0, 0.25], [np.nan, np.inf, -np.inf]], dtype=np.float32)
    odd.view(np.uint32)[1, 0] = 0x7FC0BEEF  # a NaN with a payload of its own
    weight = np.arange(6, dtype=np.float32).reshape(2, 3) + step  # what changes from step to step
    lines: list[dict[str, object]] = [
        {"k": "note", "topic": "unseen", "text": "a kernel, by design"},
        {"k": "stack", "id": 0, "frames": [["train.py", 31, "step", "loss = net(x)"], ["net.py", 12, "forward", ""]]},
        {"k": "module", "id": 0, "path": "encoder.0", "type": "Linear", "values": {"training": True, "eps": {"$float": "inf"}}},
        tensor_line(writer, 0, odd, "f32", grad=True),
        tensor_line(writer, 1, weight, "f32", by=0, device="npu:0"),
        tensor_line(writer, 2, np.array(0.5, dtype=np.float32), "f32", by=2),
        {"k": "tensor", "id": 3, "dtype": "f32", "shape": [2**40], "device": "meta", "grad": False, "by": None, "missing": "meta"},
        tensor_line(writer, 4, values_of("i64", (2, 0)), "i64", facts={"layout": "sparse_coo", "scale": 0.5}),
        {"k": "tensor", "id": 5, "dtype": "f32", "shape": [4, 4], "device": "cpu", "grad": False, "by": None,
         "parts": {"indices": 4, "values": 1}, "facts": {"layout": "sparse_coo"}},
        call_line(1, "torch.nn.functional.linear", path="encoder.0", up=0, stack=0, out={"$t": 1},
                  precision={"autocast": {"cuda": "f16"}}, **{"in": VALUES}),
        call_line(0, "encoder.0", kind="module", type="Linear", config=0, stack=0, params={"weight": 1}, buffers={"mean": 0},
                  out={"$tuple": [{"$t": 1}, {"$t": 5}]}, kw={"mask": {"$t": 0}}, **{"in": [{"$t": 0}]}),
        call_line(2, "aten.add_.Tensor", kind="op", phase="update", mutates=["0"], after={"0": 2}, **{"in": [{"$t": 1}, 1]}),
        call_line(3, "loss", kind="save", out={"$t": 2}),
        call_line(4, "torch.relu", phase="recompute", raised="RuntimeError: no", missing=["gradients: not a leaf"]),
        {"k": "grad", "of": 1, "role": "output", "slot": "", "t": 2, "n": 0},
        {"k": "grad", "of": 1, "role": "input", "slot": "8.mask", "t": 1, "n": 1},
        {"k": "grad", "of": 3, "role": "saved", "slot": "", "t": 2, "n": 0},
        {"k": "grad", "role": "parameter", "slot": "encoder.0.weight", "t": 1, "n": 0},
        call_line(5, "aten.mm.default", kind="op", phase="backward", up=1, out={"$t": 2}),
    ]  # fmt: skip
    number = 6
    for dtype in dtypes:
        lines.append(tensor_line(writer, number, three_of(dtype), dtype))
        number += 1
    return [*lines, {"k": "end", "calls": 6, "tensors": number}]


def write_step(
    writer: TraceWriter, step: int, lines: list[dict[str, object]] | None = None, *, end: bool = True
) -> Journal:
    """One step; its journal stays open."""
    journal = writer.begin_step(step, HEADER)
    for line in full_lines(writer, step)[: None if end else -1] if lines is None else lines:
        journal.add(seal(line))
        journal.commit()
    return journal


def write_full(path: Path, *, steps: int = 2, rank: int = 0, world: int = 1) -> Path:
    """A whole trace."""
    writer = TraceWriter.create(
        path, MANIFEST | {"world": world}, rank=rank, world=world, keep_payload=True, buffer=SMALL_RING
    )
    for step in range(steps):
        write_step(writer, step)
        writer.end_step()
    writer.close()
    return path


def write_small(path: Path) -> Path:
    """The same without the long list of element types: quick to read, for tests that do so a thousand times."""
    writer = TraceWriter.create(path, MANIFEST, keep_payload=True, buffer=SMALL_RING)
    for step in range(2):
        write_small_step(writer, step)
        writer.end_step()
    writer.close()
    return path


def write_small_step(writer: TraceWriter, step: int, *, end: bool = True) -> Journal:
    journal = writer.begin_step(step, HEADER)
    for line in full_lines(writer, step, ["f32"])[: None if end else -1]:
        journal.add(seal(line))
    journal.commit()
    return journal


def write_killed(path: Path, *, small: bool = False) -> Path:
    """What is left of such a trace after `kill -9`: nothing has reached `payload.bin`, and the last line is torn."""
    script = (
        "import os, sys, pathlib; sys.path.insert(0, sys.argv[2]); import specimens\n"
        "from twintrace.store.stage import Stage; Stage._has_work = lambda self: False\n"
        "from twintrace.store.writer import TraceWriter\n"
        "w = TraceWriter.create(pathlib.Path(sys.argv[1]), specimens.MANIFEST, keep_payload=True, buffer=specimens.SMALL_RING)\n"
        "write = specimens.write_small_step if sys.argv[3] == 'True' else specimens.write_step\n"
        "write(w, 0); w.end_step(); j = write(w, 1, end=False)\n"
        'os.write(j._file, b\'{"k":"call","id":7\'); os.kill(os.getpid(), 9)'
    )
    command = [sys.executable, "-c", script, str(path), str(Path(__file__).parent), str(small)]
    subprocess.run(command, env=environment(), timeout=60)
    return path


def environment() -> dict[str, str]:
    """The environment of a process that runs this checkout's code."""
    source = str(Path(__file__).resolve().parent.parent.parent / "src")
    return os.environ | {"PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}


def write_long(path: Path, records: int) -> Path:
    """One step with `records` records, as fast as Python writes files."""
    writer = TraceWriter.create(path, MANIFEST)
    journal = writer.begin_step(0, HEADER)
    tensor = {"k": "tensor", "id": 0, "dtype": "f32", "shape": [8, 1024], "device": "cpu", "grad": True, "by": 0}
    tensor |= {"stats": [-1.0, 1.0, 0.5, 2.0, 0, 0, 0, 0], "fp": "0" * 32, "order": [0.25, -0.5]}
    for number in range(0, records, 2):
        journal.add(seal(tensor | {"id": number // 2, "by": number // 2}))
        journal.add(seal(call_line(number // 2, "torch.relu", n=number // 2, out={"$t": number // 2})))
        if number % 1000 == 0:
            journal.commit()
    journal.add(seal({"k": "end", "calls": records // 2, "tensors": records // 2}))
    writer.end_step()
    writer.close()
    return path


# --- looking ------------------------------------------------------------------------------------------------------


def snapshot(trace) -> dict[str, object]:
    """Everything that a trace says, without the numbers of its lines: equal for a trace and its copy."""
    found: dict[str, object] = {"manifest": {k: v for k, v in trace.manifest.items() if k != "created"}}
    for journal in trace.journals():
        head = journal.header
        calls = list(journal.calls())
        order = [("call", c.order, str(c.site)) for c in calls]
        order += [("gradient", g.order, f"{g.of} {g.role} {g.slot}") for c in calls for g in c.gradients]
        order += [("gradient", g.order, f"{g.role} {g.slot}") for g in journal.parameter_gradients()]
        order += [("note", n.order, n.text) for n in journal.notes()]
        found[f"step {head.step} rank {head.rank}"] = {
            "header": head,
            "complete": journal.complete,
            "calls": [_without_order(call) for call in calls],
            "parameter gradients": [(g.role, g.slot, g.tensor, g.of, g.count) for g in journal.parameter_gradients()],
            "notes": [(note.topic, note.text) for note in journal.notes()],
            "tensors": [_tensor(tensor) for tensor in journal.tensors()],
            "arrays": {t.id: journal.array(t).tobytes() for t in journal.tensors() if t.payload},
            "order": [item[::2] for item in sorted(order, key=lambda item: item[1])],
        }
    return found


def _tensor(tensor) -> tuple[object, ...]:
    stats = tensor.statistics and tuple(repr(getattr(tensor.statistics, name)) for name in tensor.statistics.__slots__)
    return (
        tensor.id, tensor.spec, tensor.device, tensor.requires_grad, tensor.producer, stats, tensor.fingerprint,
        tensor.payload is not None, tensor.missing, dict(tensor.facts), dict(tensor.parts),
    )  # fmt: skip


def _without_order(call) -> tuple[object, ...]:
    gradients = [(g.role, g.slot, g.tensor, g.of, g.count) for g in call.gradients]
    config = call.config and (call.config.path, call.config.type, repr(dict(call.config.values)))
    return (
        call.id, call.site, call.parent, repr(call.args), repr(call.kwargs), repr(call.output), dict(call.parameters),
        dict(call.buffers), call.mutates, dict(call.after), call.stack, config, gradients, call.raised, call.missing,
    )  # fmt: skip


# --- changing -----------------------------------------------------------------------------------------------------


def journal_file(path: Path, step: int = 0, rank: int = 0) -> Path:
    return layout.journal_dir(path, step, rank) / layout.JOURNAL


def payload_file(path: Path, step: int = 0, rank: int = 0) -> Path:
    return layout.journal_dir(path, step, rank) / layout.PAYLOAD


def lines_of(path: Path, step: int = 0) -> list[dict[str, object]]:
    """The lines of a journal, parsed."""
    return [unseal(raw) for raw in journal_file(path, step).read_bytes().splitlines()]


def reseal(line: dict[str, object]) -> bytes:
    """A line with whatever is in it, under a check that fits: damage that only the reader's own checks can find."""
    line = {name: value for name, value in line.items() if name != "crc"}
    body = json.dumps(line, separators=(",", ":"), ensure_ascii=False)[:-1]
    return seal_raw(body.encode("utf-8", "surrogatepass"))


def seal_raw(body: bytes) -> bytes:
    """Any bytes, without the closing brace, under a check that fits."""
    from zlib import crc32

    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def replace_lines(path: Path, lines: list[bytes], step: int = 0) -> None:
    journal_file(path, step).write_bytes(b"".join(lines))


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target
