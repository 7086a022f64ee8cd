"""Share of a mistake in the gap at the end, of recorded runs of PyTorch."""

import pytest

import twintrace as tt

pytestmark = pytest.mark.needs_torch


def run(path, *, eps=1e-5, slope=0.01, stop=False):
    """One training step without an update, recorded."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(8, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 8), nn.LeakyReLU(slope), nn.Linear(8, 2)
    )
    x, y = torch.randn(4, 8), torch.randn(4, 2)
    with tt.record(path, net, level="mix", keep="tensor"):
        out = net(x)
        if stop:
            out = nn.functional.dropout(out, 0.5)
        nn.functional.mse_loss(out, y).backward()
    return path


def share(tmp_path, **changed):
    return tt.compare(run(tmp_path / "left"), run(tmp_path / "right", **changed)).forward.share


def test_a_single_mistake_explains_the_whole_gap(tmp_path):
    assert share(tmp_path, eps=0.5) == "all of the gap at the loss goes away if this call gives what the left's gives"


def test_one_of_two_mistakes_explains_a_part(tmp_path):
    found = share(tmp_path, eps=0.5, slope=0.5)
    assert found.endswith("of the gap at the loss goes away if this call gives what the left's gives")
    assert not found.startswith("all")


def test_the_share_is_what_the_corrected_run_would_give(tmp_path):
    """With the first mistake mended the runs are as far apart as its share says."""
    import torch
    from torch import nn

    def loss(eps, slope):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(8, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 8), nn.LeakyReLU(slope), nn.Linear(8, 2)
        )
        x, y = torch.randn(4, 8), torch.randn(4, 2)
        return nn.functional.mse_loss(net(x), y).item()

    wanted = 1 - abs(loss(1e-5, 0.5) - loss(1e-5, 0.01)) / abs(loss(0.5, 0.5) - loss(1e-5, 0.01))
    found = share(tmp_path, eps=0.5, slope=0.5)
    assert found.startswith("nothing" if wanted < 0 else f"{100 * wanted:.1f} %")


def test_the_call_that_stops_the_replay_is_named(tmp_path):
    left, right = run(tmp_path / "left", stop="drop"), run(tmp_path / "right", eps=0.5, stop="drop")
    found = tt.compare(left, right).forward.share
    assert "stops at torch.nn.functional.dropout, which draws random numbers" in found
