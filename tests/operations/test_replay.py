"""Share of a mistake in the gap at the end, of recorded runs of PyTorch."""

import pytest

import twintrace as tt

pytestmark = pytest.mark.needs_torch


def run(path, *, eps=1e-5, slope=0.01, stop=False, offset=0.0):
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
        loss = nn.functional.mse_loss(out, y)
        (loss + offset if offset else loss).backward()
    return path


def share(tmp_path, **changed):
    return tt.compare(run(tmp_path / "left"), run(tmp_path / "right", **changed)).forward.share


def test_a_single_mistake_explains_the_whole_gap(tmp_path):
    assert share(tmp_path, eps=0.5) == "all of the gap at the loss goes away if this call gives what the left's gives"


def test_one_of_two_mistakes_explains_a_part(tmp_path):
    found = share(tmp_path, eps=0.5, slope=0.5)
    assert found.endswith("of the gap at the loss goes away if this call gives what the left's gives")
    assert not found.startswith("all")


def test_a_loss_that_is_off_by_its_last_bits_has_no_shares(tmp_path):
    """One rounding of the loss is as large as the gap there; the output of the model is far beyond its own."""
    left, right = run(tmp_path / "left", offset=64.0), run(tmp_path / "right", offset=64.0, eps=1e-4, slope=0.0101)
    found = tt.compare(left, right)
    [loss] = [row for row in found.results if row.match.left and row.match.left[0].site.name == "torch.Tensor.add"]
    [gap] = [item.measurement.max_abs for item in loss.tensors if item.pair.part == "output"]
    assert 0 < gap < 16 * 64 * 2**-24
    assert "of the gap at the output goes away" in found.forward.share
    assert not found.forward.share.startswith("nothing")


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


def test_an_effect_far_below_the_rounding_of_the_run_is_seen(tmp_path):
    """Two choices of a value of bf16 that differ by 1e-6: nothing on the way rounds it off."""
    import torch
    from torch import nn

    from twintrace.operations.evaluation import Values
    from twintrace.operations.recomputation import Recomputation
    from twintrace.operations.replay import effect
    from twintrace.operations.sides import Side, outputs_of
    from twintrace.store.arrays import as_float

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).bfloat16()
    with tt.record(tmp_path / "trace", net, level="mix", keep="tensor"):
        net(torch.randn(4, 8).bfloat16())
    [journal] = tt.open(tmp_path / "trace").journals()
    calls = list(journal.calls())
    side = Side("torch", calls, journal.tensor)

    def read(number):
        return as_float(journal.array(journal.tensor(number)), journal.tensor(number).spec.dtype)

    values = Values(read, lambda number: journal.tensor(number).spec)
    recomputation = Recomputation((side, side), (values, values))
    [hidden] = {number for call in calls if call.site.name == "0" for number in outputs_of(call).values()}
    [end] = {number for call in calls if call.site.name == "2" for number in outputs_of(call).values()}
    value = values(hidden)

    assert 1e-7 < effect(recomputation, {hidden: (value, value * (1 + 1e-6))}, end) < 1e-5
    assert effect(recomputation, {hidden: (value, value)}, end) == 0.0
    assert effect(recomputation, {end: (values(end), values(end) * 2)}, hidden) == 0.0  # what does not depend on it
    # Asked for again, with other choices, and where a part of the way was replayed already: as if it were the first time.
    [middle] = {number for call in calls if call.site.name == "1" for number in outputs_of(call).values()}
    turned = {hidden: (value, value.flip(0))}
    both = {**turned, middle: (values(middle), values(middle) * 2)}
    for changed, asked in (
        (turned, middle),
        (turned, end),
        (both, end),
        (turned, end),
        ({hidden: (value, value.flip(1))}, end),
    ):
        fresh = Recomputation((side, side), (values, values))
        assert effect(recomputation, changed, asked) == effect(fresh, changed, asked) > 0


def test_what_was_replayed_on_the_way_is_not_replayed_again(tmp_path, monkeypatch):
    import torch
    from torch import nn

    from twintrace.operations import replay
    from twintrace.operations.evaluation import Values
    from twintrace.operations.recomputation import Recomputation
    from twintrace.operations.sides import Side, outputs_of

    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
    with tt.record(tmp_path / "trace", net, level="mix", keep="tensor"):
        net(torch.randn(4, 8))
    [journal] = tt.open(tmp_path / "trace").journals()
    calls = list(journal.calls())
    side = Side("torch", calls, journal.tensor)
    values = Values(lambda number: journal.array(journal.tensor(number)), lambda number: journal.tensor(number).spec)
    recomputation = Recomputation((side, side), (values, values))
    evaluated, original = [], replay.evaluate
    monkeypatch.setattr(replay, "evaluate", lambda *args: evaluated.append(args[0]) or original(*args))
    ends = [number for call in calls if call.site.name.isdigit() for number in outputs_of(call).values()]
    first = values(ends[0])
    for end in ends[1:]:
        replay.effect(recomputation, {ends[0]: (first, first + 1)}, end)
    assert len(evaluated) == 2 * (len(ends) - 1)
