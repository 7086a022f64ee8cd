"""Two trainings whose forward and backward passes agree: what their optimizers do differently is named."""

from __future__ import annotations

import numpy as np
import pytest

import twintrace as tt

X = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)

ADAM = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-4, "weight_decay": 0.1}


def in_torch(path, *, forgotten=False, clipped=False, steps=1, level="mix", keep="tensor", **settings):
    import torch

    net = torch.nn.Linear(6, 3)
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(WEIGHT))
        net.bias.zero_()
    optimizer = torch.optim.Adam(net.parameters(), **{**ADAM, **settings})
    with tt.record(path, net, level=level, keep=keep, strict=True) as rec:
        for _ in range(steps):
            if not forgotten:
                optimizer.zero_grad()
            net(torch.from_numpy(X)).square().sum().backward()
            if clipped:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            rec.step()
    return path


def in_mindspore(path, **settings):
    import mindspore as ms
    from mindspore import nn

    net = nn.Dense(6, 3)
    net.weight.set_data(ms.Tensor(WEIGHT))
    net.bias.set_data(ms.Tensor(np.zeros(3, np.float32)))
    told = {**ADAM, **settings}
    beta1, beta2 = told.pop("betas")
    optimizer = nn.Adam(net.trainable_params(), told.pop("lr"), beta1=beta1, beta2=beta2, **told)
    differentiated = ms.value_and_grad(lambda x: net(x).square().sum(), None, net.trainable_params())
    with tt.record(path, net, level="mix", keep="tensor", strict=True) as rec:
        optimizer(differentiated(ms.Tensor(X))[1])
        rec.step()
    return path


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"eps": 1e-2}, {"eps": ("0.0001", "0.01")}),
        ({"betas": (0.8, 0.99)}, {"beta1": ("0.9", "0.8")}),
        ({"betas": (0.9, 0.9)}, {"beta2": ("0.99", "0.9")}),
        ({"weight_decay": 0.5}, {"weight_decay": ("0.1", "0.5")}),
        ({"lr": 1e-3}, {"lr": ("0.01", "0.001")}),
    ],
    ids=["eps", "beta1", "beta2", "weight decay", "learning rate"],
)
def test_what_two_optimizers_were_told_differently_is_named(changed, told, tmp_path):
    found = tt.compare(in_torch(tmp_path / "torch"), in_mindspore(tmp_path / "mindspore", **changed))
    assert found.divergence is not None
    assert found.divergence.result.settings == told
    assert found.divergence.mistake is not None
    assert found.divergence.mistake.why.startswith(f"{next(iter(told))}: ")
    assert "→" in found.divergence.mistake.why


def of_both(folder, in_torch, in_mindspore, steps):
    """The same network with an optimizer of each framework, made from its parameters."""
    import mindspore as ms
    import torch

    paths = folder / "torch", folder / "mindspore"
    ours = torch.nn.Linear(6, 3)
    with torch.no_grad():
        ours.weight.copy_(torch.from_numpy(WEIGHT))
        ours.bias.zero_()
    optimizer = in_torch(ours.parameters())
    with tt.record(paths[0], ours, level="mix", keep="tensor", strict=True) as rec:
        for _ in range(steps):
            optimizer.zero_grad()
            ours(torch.from_numpy(X)).square().mean().backward()
            optimizer.step()
            rec.step()
    theirs = ms.nn.Dense(6, 3)
    theirs.weight.set_data(ms.Tensor(WEIGHT))
    theirs.bias.set_data(ms.Tensor(np.zeros(3, np.float32)))
    optimizer = in_mindspore(ms, theirs.trainable_params())
    differentiated = ms.value_and_grad(lambda x: theirs(x).square().mean(), None, theirs.trainable_params())
    with tt.record(paths[1], theirs, level="mix", keep="tensor", strict=True) as rec:
        for _ in range(steps):
            optimizer(differentiated(ms.Tensor(X))[1])
            rec.step()
    return tt.compare(*paths)


def torch_sgd(**settings):
    import torch

    return lambda parameters: torch.optim.SGD(parameters, 0.1, **settings)


def torch_adamw(**settings):
    import torch

    return lambda parameters: torch.optim.AdamW(parameters, 1e-2, **settings)


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch_sgd, lambda ms, weights: ms.experimental.optim.SGD(weights, 0.1)),
        (torch_sgd, lambda ms, weights: ms.nn.SGD(weights, 0.1)),
        (lambda: torch_sgd(momentum=0.9), lambda ms, weights: ms.nn.SGD(weights, 0.1, momentum=0.9)),
        (lambda: torch_sgd(momentum=0.9), lambda ms, weights: ms.nn.Momentum(weights, 0.1, momentum=0.9)),
        (torch_adamw, lambda ms, weights: ms.experimental.optim.AdamW(weights, 1e-2)),
    ],
    ids=["SGD", "nn.SGD", "nn.SGD with momentum", "nn.Momentum", "AdamW"],
)
def test_a_state_that_one_optimizer_alone_keeps_is_no_result(ours, theirs, tmp_path):
    """MindSpore's SGD has a momentum that it does not use, and its AdamW the largest squares."""
    found = of_both(tmp_path, ours(), theirs, steps=2)
    assert found.code == 0, tt.verdict(found)


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.parametrize("steps", [1, 2])
def test_momentum_on_one_side_is_never_agreement(steps, tmp_path):
    """The first step is the same with and without."""
    found = of_both(tmp_path, torch_sgd(momentum=0.9), lambda ms, weights: ms.nn.SGD(weights, 0.1), steps)
    assert found.code == 1
    assert "momentum" in tt.verdict(found)


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_optimizers_that_were_told_the_same_agree(tmp_path):
    """With a small epsilon: PyTorch adds it after it has corrected the bias, MindSpore before."""
    found = tt.compare(in_torch(tmp_path / "torch", eps=1e-8), in_mindspore(tmp_path / "mindspore", eps=1e-8))
    assert found.agree, tt.verdict(found)


# --- what is done to gradients between the backward pass and the optimizer -------------------------------------------


@pytest.mark.needs_torch
@pytest.mark.parametrize("forgetful", ["left", "right"])
@pytest.mark.parametrize(("level", "keep"), [("mix", "tensor"), ("mix", "statistics"), ("api", "fingerprint")])
def test_a_forgotten_zero_grad_is_told(forgetful, level, keep, tmp_path):
    options = {"steps": 3, "level": level, "keep": keep}
    sides = [in_torch(tmp_path / side, forgotten=side == forgetful, **options) for side in ("left", "right")]
    found = tt.compare(*sides)
    assert found.divergence is not None
    assert (found.divergence.result.step, found.divergence.place) == (1, 2)
    assert f"call zero_grad() before each backward pass on the {forgetful}" in tt.verdict(found)


@pytest.mark.needs_torch
def test_at_level_module_the_optimizer_is_suspected(tmp_path):
    """Its step is not recorded there. That the weights were the same before it, is."""
    options = {"steps": 3, "level": "module"}
    found = tt.compare(in_torch(tmp_path / "a", **options), in_torch(tmp_path / "b", forgotten=True, **options))
    assert "the weights were the same in step 1: look at the optimizer's step" in tt.verdict(found)


@pytest.mark.needs_torch
def test_gradients_that_were_clipped_are_not_said_to_add_up(tmp_path):
    found = tt.compare(in_torch(tmp_path / "a", steps=2), in_torch(tmp_path / "b", steps=2, clipped=True))
    assert "zero_grad" not in tt.verdict(found)
    assert found.divergence is not None
    assert found.divergence.mistake is not None
    assert found.divergence.mistake.why.startswith("only the right calls")
    assert "_foreach_mul_" in found.divergence.mistake.why
    assert found.divergence.result.step == 0


@pytest.mark.needs_torch
def test_weights_that_differ_from_the_start_are_still_to_be_made_the_same(tmp_path, monkeypatch):
    left = in_torch(tmp_path / "a", level="module")
    monkeypatch.setitem(in_torch.__globals__, "WEIGHT", WEIGHT + 1)
    found = tt.compare(left, in_torch(tmp_path / "b", level="module"))
    assert "give both sides the same weights" in tt.verdict(found)
