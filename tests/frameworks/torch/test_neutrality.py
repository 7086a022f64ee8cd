"""Recording changes nothing: every case of the zoo, bit by bit, through the product's own `selfcheck`."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from zoo import CASES, Case  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_torch
HERE = Path(__file__).parent

# Cases in which a level could disturb most; every case at every level is the slow sweep.
DELICATE = [
    "encoder_layer_fast_path",
    "attention_fast_path",
    "hf_llama",
    "inplace_relu_after_batch_norm",
    "inplace_on_views",
    "checkpoint_non_reentrant",
    "gradient_penalty",
    "custom_function_in_place",
    "autocast_bf16",
    "compiled_model",
    "sparse_adam",
    "optimizer_through_data",
    "whole_model_saved",
    "forward_in_thread",
    "raises_in_layer2",
]


def check(case: Case, level: str, keep: str = "tensor") -> tt.SelfCheck:
    """Self-check two steps of a case; a case that raises must raise in the same way."""

    def run(record):
        built = case.build()
        raised = ""
        with record(built.model) as recorder:
            try:
                for _ in range(2):
                    built.step()
                    recorder.step()
            except BaseException as error:
                if case.raises is None or not isinstance(error, case.raises):
                    raise
                raised = repr(error)
        return {**built.state(), "raised": np.frombuffer(raised.encode(), dtype=np.uint8)}

    return tt.selfcheck(run, level=level, keep=keep)


def offered(names):
    """Names of cases, each marked with what it needs."""
    return [pytest.param(name, marks=pytest.mark.offered.with_args(*CASES[name].needs)) for name in names]


@pytest.mark.filterwarnings("ignore:twintrace. compiled")
@pytest.mark.parametrize("name", offered(CASES))
def test_recording_everything_leaves_every_bit_as_it_was(name):
    found = check(CASES[name], "mix")
    assert found.same, str(found)


@pytest.mark.filterwarnings("ignore:twintrace. compiled")
@pytest.mark.parametrize("level", ["module", "api", "op"])
@pytest.mark.parametrize("name", offered(DELICATE))
def test_the_other_levels_leave_delicate_cases_alone(name, level):
    found = check(CASES[name], level, keep="fingerprint")
    assert found.same, str(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:twintrace. compiled")
@pytest.mark.parametrize("level", ["module", "api", "op"])
@pytest.mark.parametrize("name", offered(name for name in CASES if name not in DELICATE))
def test_every_level_leaves_every_case_alone(name, level):
    found = check(CASES[name], level)
    assert found.same, str(found)


def test_selfcheck_notices_a_recorder_that_changes_the_run():
    """The proof is worth something only if it can fail."""
    runs = itertools.count()

    def step(record):
        net = nn.Linear(3, 2)
        with record(net):
            if next(runs) == 2:  # two without recording, then the one with
                with torch.no_grad():
                    net.weight[0, 0] += 1e-7
            loss = net(torch.ones(1, 3)).sum()
            loss.backward()
        return loss, net

    found = tt.selfcheck(step)
    assert not found.same
    assert "result.1.weight" in found.differences
    assert "DIFFERENT" in str(found)


def test_selfcheck_says_when_the_run_does_not_repeat_itself():
    counter = iter(range(100))

    def step(record):
        net = nn.Linear(2, 2)
        with record(net):
            return net(torch.full((1, 2), float(next(counter))))

    found = tt.selfcheck(step)
    assert found.unstable
    assert not found.same
    assert "cannot tell" in str(found)


def test_selfcheck_says_when_nothing_was_recorded():
    found = tt.selfcheck(lambda: torch.ones(2))
    assert not found.same
    assert "nothing was recorded" in str(found)


@pytest.mark.parametrize("level", ["module", "mix", "op"])
@pytest.mark.offered("torch.ops._c10d_functional.wait_tensor")  # before it, Gloo had no all_gather_into_tensor
def test_two_gloo_ranks_with_ddp_keep_their_bits(level, tmp_path):
    """DDP and every collective, recorded and not: the same weights, gradients and results on both ranks."""
    for name, extra in {
        "plain": [],
        "recorded": ["--record", str(tmp_path / "trace"), "--level", level, "--keep", "tensor"],
    }.items():
        subprocess.run([sys.executable, HERE / "ddp_step.py", tmp_path / name, *extra], check=True, timeout=300)
    for rank in (0, 1):
        (left,), (right,) = (sorted((tmp_path / name).glob(f"*{rank}*.npz")) for name in ("plain", "recorded"))
        with np.load(left) as plain, np.load(right) as recorded:
            assert sorted(plain.files) == sorted(recorded.files)
            for key in plain.files:
                assert plain[key].tobytes() == recorded[key].tobytes(), key
    trace = tt.open(tmp_path / "trace")
    assert trace.ranks == (0, 1)
    assert len(trace) > 0
    if level == "mix":
        names = {call.site.name for call in trace.calls()}
        assert {"torch.distributed.all_reduce", "torch.distributed.broadcast"} <= names
        assert trace.journal(0, 1).header.groups == ((0, 1),)
