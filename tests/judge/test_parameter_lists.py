"""Optimizers that take their parameters in another order, or not all of them: each goes with its own, by the forward pass."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_torch


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6))


def recorded(path, groups, steps=2):
    """Steps of AdamW with these groups of parameters, each its places in the network and its weight decay."""
    made = net()
    parameters = [*made.parameters()]
    optimizer = torch.optim.AdamW(
        [{"params": [parameters[n] for n in places], "weight_decay": decay} for places, decay in groups], lr=0.1
    )
    batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    with tt.record(path, made, level="mix", keep="tensor") as recorder:
        for _ in range(steps):
            made(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return path


SPLIT = [((0, 4), 0.1), ((1, 2, 3, 5), 0.0)]


def test_groups_in_another_order_agree(tmp_path):
    found = tt.compare(recorded(tmp_path / "a", SPLIT), recorded(tmp_path / "b", SPLIT[::-1]))
    assert found.code == 0
    steps = [result for result in found.results if any("AdamW" in call.site.name for call in result.match.left)]
    pairs = {(item.pair.left_slot, item.pair.right_slot) for item in steps[1].tensors}
    assert {("0.0", "0.4"), ("kw.gradients.0", "kw.gradients.4"), ("parameters.2", "parameters.0")} <= pairs
    assert {("kw.state.2.exp_avg", "kw.state.0.exp_avg"), ("state.5.exp_avg_sq", "state.3.exp_avg_sq")} <= pairs


def test_decay_on_norms_is_told_by_its_setting(tmp_path):
    found = tt.compare(recorded(tmp_path / "a", SPLIT), recorded(tmp_path / "b", [((0, 1, 2, 3, 4, 5), 0.1)]))
    assert found.code == 1
    assert "weight_decay" in found.divergence.mistake.why
    assert "[6] | [6, 6]" not in str(found)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_parameters_that_one_optimizer_lacks_are_told_at_the_first_step(side, steps, tmp_path):
    whole, part = [((0, 1, 2, 3, 4, 5), 0.1)], [((0, 1, 4, 5), 0.1)]
    left, right = (whole, part) if side == "left" else (part, whole)
    found = tt.compare(recorded(tmp_path / "a", left, steps), recorded(tmp_path / "b", right, steps))
    other = "right" if side == "left" else "left"
    mistake = found.divergence.mistake
    assert found.code == 1
    assert found.divergence.result.step == 0
    assert mistake.what == f"only the {side}'s optimizer updates 1.weight, 1.bias"
    assert mistake.advice == f"give 1.weight, 1.bias to the {other}'s optimizer"
    assert [item for result in found.results for item in result.mistakes if item.effective] == [mistake]
    assert mistake.advice in str(found)
    assert "exp_avg: (None" not in str(found)


def test_many_parameters_that_one_optimizer_lacks_are_counted(tmp_path):
    left, right = [((0, 1, 2, 3, 4, 5), 0.1)], [((0, 1), 0.1)]
    found = tt.compare(recorded(tmp_path / "a", left, 1), recorded(tmp_path / "b", right, 1))
    assert found.divergence.mistake.what == "only the left's optimizer updates 1.weight, 1.bias, 2.weight and 1 more"
