"""The trace says in which precision torch was told to compute: for the step, and for each call where that was different."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks.torch.precision import precision  # noqa: E402
from twintrace.store import native  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def matmul_precision():
    """Whatever a test sets is undone."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


def settings(path):
    """The header's settings, and each call's own by name."""
    journal = tt.open(path).journal(0)
    return journal.header.precision, [(call.site.name, call.precision) for call in journal.calls()]


def test_equal_settings_are_one_object(matmul_precision):
    before = precision()
    assert precision() is before
    matmul_precision("high")
    assert precision() is not before
    assert precision()["float32_matmul"] == "high"
    matmul_precision("highest")
    assert precision() is before


@pytest.mark.offered("torch._C._get_fp32_precision_getter")
def test_the_head_has_the_settings_of_the_step(tmp_path, matmul_precision):
    matmul_precision("medium")
    with tt.record(tmp_path / "t", level="api", framework="torch"):
        torch.relu(torch.ones(2))
    head, calls = settings(tmp_path / "t")
    assert head["float32_matmul"] == "medium"
    assert head["autocast"] == {}
    assert head["deterministic"] is False
    assert {"reduced_f32", "reduced_sums", "attention", "onednn"} <= head.keys()
    assert [own for _, own in calls] == [{}] * len(calls)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bfloat16, "bf16"),
        pytest.param(
            torch.float16, "f16", marks=pytest.mark.offered("torch.get_autocast_dtype")
        ),  # on the host, from 2.4 on
    ],
)
def test_calls_under_autocast_are_marked(tmp_path, dtype, name):
    net = nn.Linear(3, 2)
    with tt.record(tmp_path / "t", net) as rec:
        rec.save("before", torch.ones(1))
        with torch.autocast("cpu", dtype=dtype):
            net(torch.ones(2, 3))
            with torch.autocast("cpu", enabled=False):
                torch.relu(torch.ones(2))
        torch.sigmoid(torch.ones(2))
    head, calls = settings(tmp_path / "t")
    found = dict(calls)
    inside = {"autocast": {"cpu": name}}
    assert head["autocast"] == {}
    assert found[""] == found["torch.nn.functional.linear"] == inside
    assert found["torch.relu"] == found["torch.sigmoid"] == {}


def test_autocast_that_is_off_in_a_block_is_told(tmp_path):
    """The step begins under autocast, so the head has it, and the call without it says so."""
    with torch.autocast("cpu"), tt.record(tmp_path / "t", level="api", framework="torch"):
        torch.relu(torch.ones(2))
        with torch.autocast("cpu", enabled=False):
            torch.sigmoid(torch.ones(2))
    head, calls = settings(tmp_path / "t")
    found = dict(calls)
    assert head["autocast"] == {"cpu": "bf16"}
    assert (found["torch.relu"], found["torch.sigmoid"]) == ({}, {"autocast": {}})


def test_switches_that_change_in_the_step_are_told(tmp_path, matmul_precision):
    with tt.record(tmp_path / "t", level="api", framework="torch"):
        torch.relu(torch.ones(2))
        torch.use_deterministic_algorithms(True)
        matmul_precision("high")
        try:
            F.gelu(torch.ones(2))
        finally:
            torch.use_deterministic_algorithms(False)
        matmul_precision("highest")
        torch.sigmoid(torch.ones(2))
    found = dict(settings(tmp_path / "t")[1])
    assert found["torch.relu"] == found["torch.sigmoid"] == {}
    marked = found["torch.nn.functional.gelu"]
    assert (marked["deterministic"], marked["float32_matmul"]) == (True, "high")


@pytest.mark.offered("torch._C._get_fp32_precision_getter")
def test_switches_that_contradict_each_other_do_not_end_the_recording(tmp_path):
    """torch refuses to say its precision when its older and its newer switches disagree."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "tf32"
    try:
        with tt.record(tmp_path / "t", level="api", framework="torch", strict=True):
            torch.relu(torch.ones(2))
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert "onednn_matmul" in settings(tmp_path / "t")[0]["reduced_f32"]


def test_a_copy_of_the_trace_has_them_too(tmp_path):
    with tt.record(tmp_path / "t", level="api", framework="torch"):
        torch.relu(torch.ones(2))
        with torch.autocast("cpu"):
            torch.relu(torch.ones(2))
    native.write(tt.open(tmp_path / "t"), tmp_path / "copy")
    assert settings(tmp_path / "copy") == settings(tmp_path / "t")
