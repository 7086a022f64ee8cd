"""`twintrace show`: what is printed of each call."""

import json

import numpy as np
import pytest

import twintrace as tt
from twintrace.api import opening
from twintrace.frameworks.reference.miniature import Tensor


@pytest.fixture
def trace(tmp_path):
    values = {
        "fine": np.array([-1.5, 0.0, 2.5], np.float32),
        "lost": np.array([1.0, np.nan, np.nan], np.float32),
        "over": np.array([1.0, np.inf, -np.inf, -np.inf], np.float32),
        "near": np.array([60000.0, 1.0], np.float16),
        "wide": np.array([60000.0, 1.0], np.float32),
        "one": np.array(0.25, np.float32),
        "void": np.array([np.nan], np.float32),
    }
    with tt.record(tmp_path / "t", level="api", framework="reference") as rec:
        for name, array in values.items():
            rec.save(name, Tensor(array))
    return tmp_path / "t"


def rows(command, trace, *options):
    return {
        row["site"].split("#")[0]: row
        for row in json.loads(command("show")(trace, "--json", *options, expect=None))["rows"]
    }


def test_values_and_marks(command, trace):
    found = rows(command, trace)
    assert found["fine"]["ranges"] == ["-1.5 … 2.5, norm 2.915"]
    assert found["one"]["ranges"] == ["0.25"]
    assert found["void"]["ranges"] == [""]
    marks = {name: row["marks"] for name, row in found.items() if row["marks"]}
    assert marks == {
        "lost": ["NaN 2 of 3"],
        "over": ["Inf 3 of 4"],
        "near": ["at the end of f16's range"],
        "void": ["NaN 1 of 1"],
    }


def test_they_are_printed(command, trace):
    for options in ((), ("--table",)):
        lines = command("show")(trace, *options, expect=None).splitlines()
        assert "-1.5 … 2.5, norm 2.915" in next(line for line in lines if "fine" in line)
        assert "NaN 2 of 3" in next(line for line in lines if "lost" in line)
    assert "!! NaN 2 of 3" in command("show")(trace, expect=None)


def test_only_what_is_not_finite(command, trace):
    assert set(rows(command, trace, "--nonfinite")) == {"lost", "over", "void"}
    text = command("show")(trace, "--nonfinite", "--limit", "1", expect=None)
    assert "2 more calls" in text


def test_gradients_are_marked(command, tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(1, 1)
    with tt.record(tmp_path / "t", net):
        (torch.sqrt(net(torch.zeros(1, 1)) * 0.0)).sum().backward()
    found = rows(command, tmp_path / "t", "--nonfinite")
    assert any(mark.startswith(("∂ NaN", "∂ Inf")) for row in found.values() for mark in row["marks"])


def test_the_largest_numbers_are_those_of_the_types():
    for name, dtype in (("f16", np.float16), ("f32", np.float32), ("f64", np.float64)):
        assert float(np.finfo(dtype).max) == opening._LARGEST[name]
    assert np.array([0x7F7F0000], np.uint32).view(np.float32)[0] == np.float32(opening._LARGEST["bf16"])
