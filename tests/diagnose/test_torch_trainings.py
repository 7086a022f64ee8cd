"""Whole trainings in PyTorch: levels, steps, optimizers, loss scalers."""

from __future__ import annotations

import pytest

import twintrace as tt
from twintrace.model.nonfinite import Pass, Source

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")

LEVELS = ("module", "api", "mix", "op")


class Net(torch.nn.Module):
    """Two layers; what happens between them is an argument."""

    def __init__(self, between=torch.relu):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2), between

    def forward(self, x):
        return self.last(self.between(self.first(x)))


def train(path, net, *, steps=3, optimizer=None, batch=None, level="mix", **options):
    batch = batch or (lambda step: torch.ones(2, 4) + step)
    with tt.record(path, net, level=level, keep="statistics", strict=True, **options) as rec:
        for step in range(steps):
            loss = net(batch(step)).square().mean()
            loss.backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
            rec.step()
    return tt.first_nonfinite(path)


def log_of_relu(x):
    return x.relu().log()


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_names_the_place_as_closely_as_it_can(tmp_path, level):
    found = train(tmp_path / "t", Net(log_of_relu), level=level).origin
    assert (found.step, found.when) == (0, Pass.FORWARD)
    if level == "module":  # the code between the two layers is the model's own
        assert found.source is Source.UNRECORDED
        assert found.call.site.name == ""
        assert "between first (Linear)" in found.why
        assert "and last (Linear)" in found.why
    else:
        assert found.source is Source.LOGARITHM
        assert found.call.stack[0].function == "log_of_relu"
        assert "zero" in found.why


@pytest.mark.parametrize("level", LEVELS)
def test_data_that_is_not_finite(tmp_path, level):
    data = [torch.ones(2, 4), torch.full((2, 4), float("nan")), torch.ones(2, 4)]
    found = train(tmp_path / "t", Net(), level=level, batch=lambda step: data[step]).origin
    assert (found.step, found.source) == (1, Source.DATA), found.why


@pytest.mark.parametrize("level", LEVELS)
def test_data_with_an_infinity(tmp_path, level):
    data = torch.ones(2, 4)
    data[0, 1] = float("inf")
    found = train(tmp_path / "t", Net(), level=level, batch=lambda step: data).origin
    assert (found.step, found.source) == (0, Source.DATA), found.why


@pytest.mark.parametrize("level", ["module", "api", "mix"])
def test_weights_that_were_loaded_so(tmp_path, level):
    net = Net()
    with torch.no_grad():
        net.last.bias[1] = float("nan")
    found = train(tmp_path / "t", net, level=level).origin
    assert (found.step, found.source) == (0, Source.WEIGHTS), found.why
    assert "bias" in found.why
    assert "when the run begins" in found.why


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_explodes(tmp_path, level):
    net = Net()
    report = train(tmp_path / "t", net, steps=40, level=level, optimizer=torch.optim.SGD(net.parameters(), lr=50.0))
    found = report.origin
    assert found.source is Source.OVERFLOW, found.why
    assert any("grows over the steps" in text for text in found.led)


@pytest.mark.parametrize("level", ["api", "mix"])
def test_an_epsilon_that_is_zero_in_f16(tmp_path, level):
    net = Net().half()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8, foreach=False)
    found = train(
        tmp_path / "t", net, level=level, optimizer=optimizer, batch=lambda step: torch.zeros(2, 4, dtype=torch.float16)
    ).origin
    assert (found.step, found.when, found.source) == (0, Pass.UPDATE, Source.DIVISION), found.why
    assert "eps=1e-08 is 0 in f16" in found.why


def test_an_update_that_was_not_recorded(tmp_path):
    net = Net().half()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8, foreach=False)
    found = train(
        tmp_path / "t",
        net,
        level="module",
        optimizer=optimizer,
        batch=lambda step: torch.zeros(2, 4, dtype=torch.float16),
    ).origin
    assert (found.step, found.source) == (1, Source.UPDATE), found.why
    assert "was finite in step 0" in found.why


def scaled(path, level, *, broken_at=None, scale=2.0**20):
    """A training with a loss scaler that begins far too high, as they do; `broken_at`: a step with a mistake of its own."""
    net = Net().half().float()
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tt.record(path, net, level=level, keep="statistics", strict=True) as rec:
        for step in range(6):
            with torch.autocast("cpu", dtype=torch.float16):
                out = net(torch.ones(2, 4))
            loss = out.float().square().mean()
            if step == broken_at:
                loss = loss / torch.zeros(())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            rec.step()
    return tt.first_nonfinite(path)


@pytest.mark.parametrize("level", ["module", "api", "mix"])
def test_a_loss_scaler_that_skips_a_step_is_not_accused(tmp_path, level):
    report = scaled(tmp_path / "t", level)
    assert report.origin is None, str(report)
    assert any("no update followed" in text for text in report.harmless)


@pytest.mark.parametrize("level", ["api", "mix"])
def test_what_comes_after_the_skipped_steps_is_found(tmp_path, level):
    found = scaled(tmp_path / "t", level, broken_at=5).origin
    assert found is not None
    assert (found.step, found.source) == (5, Source.DIVISION)


def test_a_mask_in_attention_is_not_accused(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
    for level in LEVELS:
        with tt.record(tmp_path / level, net, level=level, keep="statistics", strict=True):
            net(torch.randn(2, 5, 8), src_mask=mask).sum().backward()
        report = tt.first_nonfinite(tmp_path / level)
        assert report.code == 0, (level, str(report))


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_without_a_key(tmp_path, level):
    """Padding that closes every key of a sequence."""
    torch.manual_seed(0)
    net = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1] = True
    with tt.record(tmp_path / "t", net, level=level, keep="statistics", strict=True):
        net(x, x, x, key_padding_mask=padding)[0].sum().backward()
    report = tt.first_nonfinite(tmp_path / "t")
    assert report.code == 1
    if level == "op":
        assert report.origin.source is Source.MASKED


def test_nothing_to_look_at(tmp_path):
    with tt.record(tmp_path / "t", level="api", framework="torch"):
        torch.ones(2, device="meta") + 1
    report = tt.first_nonfinite(tmp_path / "t")
    assert report.code == 3
    assert "nothing was recorded that has values" in report.untold[0]


def test_a_value_that_was_saved_and_that_no_call_made(tmp_path):
    with tt.record(tmp_path / "t", level="api", keep="statistics", framework="torch") as rec:
        rec.save("loss", data_of(float("nan")))
    found = tt.first_nonfinite(tmp_path / "t").origin
    assert (found.source, found.call.site.name) == (Source.UNRECORDED, "loss")


def data_of(*values):
    """A tensor that no recorded call makes."""
    import numpy as np

    return torch.from_numpy(np.array(values, np.float32))


class Scores(torch.nn.Module):
    """A module of its own that masks."""

    def forward(self, x):
        return (x @ x.transpose(-1, -2)).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))


class Attention(torch.nn.Module):
    """Takes the softmax in its own code."""

    def __init__(self):
        super().__init__()
        self.scores, self.out = Scores(), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.scores(x).softmax(-1) @ x)


@pytest.mark.parametrize("level", LEVELS)
def test_a_mask_that_a_module_hands_on(tmp_path, level):
    torch.manual_seed(0)
    net = Attention()
    with tt.record(tmp_path / "t", net, level=level, keep="statistics", strict=True):
        net(torch.randn(2, 4, 4)).sum().backward()
    report = tt.first_nonfinite(tmp_path / "t")
    assert report.code == 0, str(report)


@pytest.mark.parametrize(("rate", "says"), [(float("nan"), "NaN"), (float("inf"), "")])
def test_a_number_that_is_not_finite(tmp_path, rate, says):
    with tt.record(tmp_path / "t", level="api", keep="statistics", framework="torch", strict=True):
        torch.ones(3).mul(rate).sum()
    found = tt.first_nonfinite(tmp_path / "t").origin
    assert found.call.site.name == "torch.Tensor.mul"
    assert found.source is Source.DATA
    assert says in found.why


def test_a_learning_rate_that_is_not_a_number(tmp_path):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = float("nan")
    found = train(tmp_path / "t", net, optimizer=optimizer).origin
    assert (found.step, found.when) == (0, Pass.UPDATE)


@pytest.mark.parametrize("level", ["api", "mix", "op"])
def test_infinities_of_a_forward_that_come_back_as_nan(tmp_path, level):
    """A sigmoid by hand is finite where exp overflows, and its gradient is not."""
    x = torch.tensor([-200.0, 1.0], requires_grad=True)
    with tt.record(tmp_path / "t", torch.nn.Identity(), level=level, keep="statistics", strict=True):
        (1 / (1 + torch.exp(-x))).sum().backward()
    found = tt.first_nonfinite(tmp_path / "t").origin
    if level == "op":  # the backward pass is seen to take the forward's infinity
        assert (found.when, found.call.site.name, found.source) == (Pass.FORWARD, "aten.exp.default", Source.OVERFLOW)
    else:
        assert (found.when, found.call.site.name, found.source) == (Pass.BACKWARD, "torch.exp", Source.ZERO_TIMES)


@pytest.mark.parametrize("level", ["module", "mix"])
def test_padding_that_closes_a_whole_sequence(tmp_path, level):
    torch.manual_seed(0)
    net = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x, padding = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    padding[1] = True
    with tt.record(tmp_path / "t", net, level=level, keep="statistics", strict=True):
        net(x, x, x, key_padding_mask=padding)[0].sum().backward()
    found = tt.first_nonfinite(tmp_path / "t").origin
    if level == "mix":
        assert found.source is Source.MASKED, found.why


def test_another_tools_dump(tmp_path):
    net = Net(log_of_relu)
    with tt.record(tmp_path / "t", net, level="mix", keep="statistics"):
        net(torch.ones(2, 4)).sum().backward()
    tt.convert_trace(tmp_path / "t", tmp_path / "dump", to="msprobe")
    found = tt.first_nonfinite(tmp_path / "dump").origin
    assert (found.when, found.call.site.name.rpartition(".")[2]) == (Pass.FORWARD, "log")
    assert found.call.stack[0].function == "log_of_relu"
    assert " 1 " not in found.what  # it counts nothing
