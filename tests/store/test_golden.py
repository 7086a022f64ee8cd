"""Journals, byte for byte, as files that can be read in a review. UPDATE_GOLDEN=1 writes them anew.

golden/trace/…               a trace with every kind of line, written by the store: exact bytes, checks and all
golden/trace-without-order/  the same as it was written before tensors had order sums
golden/recorded.jsonl        what the recorder writes of two calls of a small network; what differs from machine to
                             machine (environment, files, checks) is replaced by …
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import specimens

from twintrace.store.registry import open_trace

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.fc.weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.0]]))
            self.fc.bias.zero_()

    def forward(self, x, scale=1.0):
        return torch.relu(self.fc(x)) * scale

net = Net()
x = torch.tensor([[1.0, 1.0]], requires_grad=True)

def step():
    net(x, scale=2.0).sum().backward()
"""


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def without_time(found: dict[str, bytes]) -> dict[str, bytes]:
    return found | {"manifest.json": re.sub(rb'"created": [0-9.e+]+', b'"created": 0.0', found["manifest.json"])}


def test_a_trace_byte_for_byte(tmp_path):
    found = without_time(files(specimens.write_full(tmp_path / "trace")))
    if UPDATE:
        shutil.rmtree(GOLDEN / "trace", ignore_errors=True)
        for name, data in found.items():
            (GOLDEN / "trace" / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / "trace" / name).write_bytes(data)
    expected = files(GOLDEN / "trace")
    for name in sorted(expected.keys() | found.keys()):
        if name.endswith(".jsonl"):
            assert found[name].decode().splitlines() == expected[name].decode().splitlines()
        assert found[name] == expected[name], name


def test_the_golden_trace_can_be_read(tmp_path):
    """Not only written as ever: a trace of version 1 that lies here since then stays readable."""
    written = specimens.snapshot(open_trace(specimens.write_full(tmp_path / "trace")))
    assert specimens.snapshot(open_trace(GOLDEN / "trace")) == written


def test_a_trace_from_before_the_order_sums_can_be_read():
    """It says nothing of the order, and everything else."""
    old, new = (open_trace(GOLDEN / name).journal(0) for name in ("trace-without-order", "trace"))
    told = [tensor.statistics for tensor in old.tensors()]
    assert told == [tensor.statistics for tensor in new.tensors()]
    assert {statistics.order for statistics in told if statistics is not None} == {None}


def normalised(journal: Path) -> str:
    """The journal with … where machines differ."""
    text = ""
    for raw in journal.read_text(encoding="utf-8").splitlines():
        line = json.loads(raw) | {"crc": "…"}
        if line["k"] == "head":
            line["environment"] = {"…": "…"}
            line["precision"] = {"…": "…"}
        if line.get("order"):
            line["order"] = ["…"]  # weights are no round numbers: the last digits depend on the order of additions
        if line["k"] == "stack":
            line["frames"] = [frame for frame in line["frames"] if frame[0] == "train.py"] + [["…"]]
        text += json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"
    return text


@pytest.mark.needs_torch
def test_a_recording_line_for_line(tmp_path):
    """Numbers are exact in every order of addition; the network's file is called train.py and does not exist."""
    import twintrace as tt

    place: dict[str, object] = {}
    exec(compile(NET, "train.py", "exec"), place)
    with tt.record(tmp_path / "trace", place["net"], keep="tensor", buffer="64 KB") as recorder:
        place["step"]()
        recorder.step()
        place["step"]()  # every content is known by now
    found = "".join(normalised(specimens.journal_file(tmp_path / "trace", step)) for step in (0, 1))
    golden = GOLDEN / "recorded.jsonl"
    if UPDATE:
        golden.write_text(found, encoding="utf-8")
    assert found.splitlines() == golden.read_text(encoding="utf-8").splitlines()


def test_a_changed_line_would_be_noticed(tmp_path):
    found = without_time(files(specimens.write_full(tmp_path / "trace")))
    assert found != without_time(files(specimens.write_full(tmp_path / "other", steps=3)))
    changed = found["step0/rank0/journal.jsonl"].replace(b'"grad":true', b'"grad":1')
    assert changed != found["step0/rank0/journal.jsonl"]
