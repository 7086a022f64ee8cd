"""The zoo itself, without a recorder: cases are deterministic, do what they say, and the comparison can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from zoo import CASES, Built, Case, first_difference, same_bits

STEPS = 2


def run(case: Case, *, steps: int = STEPS) -> Built:
    """Build and step; where the case is meant to raise, see that each step does."""
    built = case.build()
    for _ in range(steps):
        if case.raises is None:
            built.step()
        else:
            with pytest.raises(case.raises):
                built.step()
    return built


def nudge(tensor: torch.Tensor) -> None:
    """Flip the lowest bit of the first element."""
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[real.element_size()]
    real.view(integer)[(0,) * real.ndim].bitwise_xor_(1)


# ------------------------------------------------------------------------------------------------ every case


@pytest.mark.parametrize("name", CASES)
def test_two_builds_give_the_same_bits(name):
    """Nothing but the seed decides, whatever happened in the process between the two runs."""
    left = run(CASES[name]).state()
    torch.rand(7)
    np.random.rand(7)
    right = run(CASES[name]).state()

    assert first_difference(left, right) is None


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_is_in_the_state(name):
    """One changed bit in any parameter is a difference, and the parameter is named."""
    built = CASES[name].build()
    models = built.model if isinstance(built.model, list) else [built.model]
    parameters = [p for model in models for p in model.parameters() if not torch.nn.parameter.is_lazy(p)]

    for parameter in parameters:
        before = built.state()
        nudge(parameter)
        assert re.match(r"parameter\..*: 1 of \d+ elements differ", first_difference(before, built.state()))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.raises is None])
def test_steps_keep_what_they_did(name):
    """A loss, something to compare besides it, and no leftovers: the second step is kept beside the first."""
    built = CASES[name].build()
    nothing = built.state()
    loss = built.step()
    one = built.state()
    built.step()
    two = built.state()

    assert loss.numel() == 1
    assert {"loss@0", "process.torch_rng@0"} <= one.keys() - nothing.keys()
    assert any(key.startswith(("grad", "output")) for key in one)
    assert {"loss@1", "process.torch_rng@1"} <= two.keys() - one.keys()


@pytest.mark.parametrize("name", CASES)
def test_steps_leave_no_global_hooks_or_modes(name):
    """What a case hangs up globally it takes down, so that cases can follow each other in one process."""
    module = torch.nn.modules.module
    registries = [getattr(module, key) for key in vars(module) if key.startswith("_global_") and key.endswith("_hooks")]
    assert registries

    run(CASES[name], steps=1)

    assert not any(registries)
    assert torch.is_grad_enabled()
    assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype is torch.float32  # no autocast


def test_cases_say_what_they_catch():
    assert len(CASES) >= 28
    assert all(case.name == name and case.notes for name, case in CASES.items())


# ------------------------------------------------------------------------------------------------ true to their name


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("encoder_layer_fast_path", "_transformer_encoder_layer_fwd"),
        ("encoder_nested_fast_path", "_transformer_encoder_layer_fwd"),
        ("attention_fast_path", "_native_multi_head_attention"),
    ],
)
def test_fast_paths_are_taken_and_have_bits_of_their_own(monkeypatch, name, kernel):
    calls = count_calls(monkeypatch, torch, kernel)
    fast = run(CASES[name]).state()
    assert calls

    calls.clear()
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    assert first_difference(fast, run(CASES[name]).state()).startswith("output@0 ")
    assert not calls


def test_a_hook_on_a_child_changes_the_bits_of_the_encoder_layer():
    """The disturbance that the fast path cases are there for is one that they can see."""
    fast = run(CASES["encoder_layer_fast_path"]).state()
    built = CASES["encoder_layer_fast_path"].build()
    built.model.linear1.register_forward_hook(lambda *_: None)
    built.step()
    built.step()

    assert first_difference(fast, built.state()).startswith("output@0 ")


@pytest.mark.parametrize("name", ["compiled_model", "compiled_in_place"])
def test_compiled_cases_compile(name):
    from torch._dynamo.utils import counters

    counters.clear()
    run(CASES[name])
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", ["checkpoint_reentrant", "checkpoint_non_reentrant"])
def test_checkpoints_run_the_inside_twice(name):
    built = CASES[name].build()
    calls = []
    built.model.inner[0].register_forward_hook(lambda *_: calls.append(1))
    built.step()
    assert len(calls) == 2


def test_scaler_skips_the_step_that_overflows():
    built = run(CASES["autocast_scaled"], steps=2)
    before = built.state()
    built.step()
    after = built.state()
    assert after["scale@2"] < after["scale@1"]
    assert same_bits(before["parameter.0.weight"], after["parameter.0.weight"])


def test_control_flow_takes_another_way_in_each_step():
    built = CASES["control_flow"].build()
    calls: list[int] = []
    built.model.inner.register_forward_hook(lambda *_: calls.append(1))
    built.step()
    first = len(calls)
    built.step()
    assert len(calls) - first != first


def test_autocast_puts_out_bf16():
    assert run(CASES["autocast_bf16"]).state()["output@0"].dtype is torch.bfloat16


def test_sparse_gradients_are_sparse_and_not_coalesced():
    gradient = run(CASES["sparse_gradients_sgd"]).state()["grad.0.weight@0"]
    assert gradient.is_sparse
    assert not gradient.is_coalesced()


def count_calls(monkeypatch, owner: object, name: str) -> list[str]:
    calls: list[str] = []
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: (calls.append(name), real(*args, **kwargs))[1])
    return calls


# ------------------------------------------------------------------------------------------------ the comparison


ONE = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(ONE, ONE.clone(), id="copy"),
        pytest.param(torch.tensor(float("nan")), torch.tensor(float("nan")), id="nan"),
        pytest.param(ONE.expand(3, 2), ONE.repeat(3, 1), id="other strides"),
        pytest.param(torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]), id="lazy conjugate"),
        pytest.param(torch.empty(0, 3), torch.empty(0, 3), id="empty"),
        pytest.param(torch.tensor(True), torch.tensor(True), id="bool scalar"),
        pytest.param(ONE.to(torch.float8_e5m2), ONE.to(torch.float8_e5m2), id="float8"),
        pytest.param(ONE.to_sparse(), ONE.to_sparse(), id="sparse"),
        pytest.param(ONE.bfloat16(), ONE.bfloat16().requires_grad_(), id="requires_grad"),
    ],
)
def test_same_bits_accepts(a, b):
    assert same_bits(a, b)
    assert first_difference({"x": a}, {"x": b}) is None


@pytest.mark.parametrize(
    ("a", "b", "how"),
    [
        pytest.param(ONE, ONE.nextafter(ONE * 2), "2 of 2 elements", id="one ulp"),
        pytest.param(torch.tensor(0.0), torch.tensor(-0.0), "0.0 != -0.0", id="minus zero"),
        pytest.param(ONE, ONE.double(), r"right is f64\[2\]", id="dtype"),
        pytest.param(torch.ones(2, dtype=torch.int32), torch.ones(2), r"i32\[2\]: right is f32\[2\]", id="kind"),
        pytest.param(ONE, ONE.unsqueeze(0), r"right is f32\[1, 2\]", id="shape"),
        pytest.param(torch.empty(0, 3), torch.empty(3, 0), r"right is f32\[3, 0\]", id="empty shape"),
        pytest.param(
            torch.tensor(float("nan")), torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)[0], "nan",
            id="other nan",
        ),
        pytest.param(torch.tensor([1 + 2j]), torch.tensor([1 - 2j]), "1 of 1", id="complex"),
        pytest.param(ONE, ONE.to_sparse(), "right is", id="layout"),
        pytest.param(ONE.to_sparse(), (2 * ONE).to_sparse(), "sparse", id="sparse values"),
        pytest.param(
            torch.eye(2).to_sparse(), torch.eye(2).flip(0).to_sparse(), "sparse", id="sparse indices",
        ),
    ],
)  # fmt: skip
def test_same_bits_rejects(a, b, how):
    assert not same_bits(a, b)
    with pytest.raises(AssertionError, match=how):
        assert first_difference({"same": ONE, "x": a}, {"same": ONE, "x": b}) is None


def test_first_difference_names_what_only_one_has():
    assert first_difference({"x": ONE}, {}) == "x f32[2]: only left"
    assert first_difference({}, {"x": ONE}) == "x f32[2]: only right"


def test_a_random_number_drawn_on_the_side_is_seen():
    """The cheapest way to disturb a run is found even by a case that draws none itself."""
    left = run(CASES["mlp"]).state()
    built = CASES["mlp"].build()
    built.step()
    torch.rand(1)
    built.step()

    assert first_difference(left, built.state()).startswith("process.torch_rng@1 ")


# ------------------------------------------------------------------------------------------------ two processes


def test_ddp_steps_are_deterministic(tmp_path):
    """Two runs of two ranks: same bits, ranks agree on the weights and not on the data."""
    script = str(Path(__file__).with_name("ddp_step.py"))
    runs = [subprocess.Popen([sys.executable, script, str(tmp_path / name)]) for name in ("left", "right")]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]

    state = {
        (side, rank): {name: torch.from_numpy(array) for name, array in np.load(tmp_path / side / rank).items()}
        for side in ("left", "right")
        for rank in ("rank0.npz", "rank1.npz")
    }
    for rank in ("rank0.npz", "rank1.npz"):
        assert first_difference(state["left", rank], state["right", rank]) is None

    rank0, rank1 = state["left", "rank0.npz"], state["left", "rank1.npz"]
    agreed = [name for name in rank0 if name.startswith(("parameter", "grad", "all_reduce", "all_gather", "broadcast"))]
    assert first_difference({name: rank0[name] for name in agreed}, {name: rank1[name] for name in agreed}) is None
    assert not same_bits(rank0["loss@1"], rank1["loss@1"])
    assert {"irecv@1", "reduce_scatter@1", "reduce_scatter_single@1", "scatter@1", "all_to_all@1"} <= rank0.keys()
