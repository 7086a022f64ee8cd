"""State that a network carries along: buffers and attributes are results, and what is left in them counts in later steps."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge import recorded_pairs  # noqa: E402

pytestmark = pytest.mark.needs_torch


class Net(nn.Module):
    """A layer whose input is shifted by a running mean, which each step moves by a share of its own."""

    def __init__(self, share: float, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.share, self.how = nn.Linear(6, 6), share, how
        self.register_buffer("mean", torch.ones(6))
        self.carried = torch.zeros(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x - self.mean - self.carried)
        with torch.no_grad():
            if self.how == "buffer":
                self.mean.mul_(1 - self.share).add_(h.mean(0), alpha=self.share)
            elif self.how == "attribute":
                self.carried = h.mean(0).detach() * self.share
        return h


def recorded(path, share: float, how: str, steps: int):
    net = Net(share, how)
    batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    with tt.record(path, net, level="mix", keep="tensor") as recorder:
        for _ in range(steps):
            net(batch).square().mean().backward()
            recorder.step()
    return path


def compared(folder, left: tuple[float, str], right: tuple[float, str], steps: int):
    return tt.compare(recorded(folder / "a", *left, steps), recorded(folder / "b", *right, steps))


@pytest.mark.parametrize("how", ["buffer", "attribute"])
def test_the_same_state_agrees(how, tmp_path):
    assert compared(tmp_path, (0.1, how), (0.1, how), 3).code == 0


@pytest.mark.parametrize("steps", [1, 2])
def test_a_buffer_that_is_updated_otherwise_is_a_difference(steps, tmp_path):
    found = compared(tmp_path, (0.1, "buffer"), (0.2, "buffer"), steps)
    assert found.code == 1
    assert found.divergence.result.step == 0
    assert "mul_" in str(found).splitlines()[0]
    assert "factor: 0.9 | 0.8" in str(found)


def test_a_buffer_that_one_side_alone_updates_is_a_difference(tmp_path):
    found = compared(tmp_path, (0.1, "buffer"), (0.1, "none"), 1)
    assert found.code == 1
    assert "only the left changes a state of the network, f32[6], by torch.Tensor.add_" in str(found)


def test_what_a_step_leaves_in_an_attribute_counts_in_the_next(tmp_path):
    """Nothing of the first step depends on it: the second step's results do."""
    found = compared(tmp_path, (0.1, "attribute"), (0.5, "attribute"), 3)
    assert found.code == 1
    assert found.divergence.result.step == 0
    assert "factor: 0.1 | 0.5" in str(found)


def test_what_nobody_takes_is_without_effect(tmp_path):
    """In the only step an attribute is a value that nothing was made of."""
    found = compared(tmp_path, (0.1, "attribute"), (0.5, "attribute"), 1)
    assert found.code == 0
    assert "Without effect on any result" in str(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("decay", "code"), [(0.9, 0), (0.91, 1)])
def test_a_moving_average_of_weights_is_a_result_in_every_precision(tmp_path, decay, code, dtype):
    def run(side, record):
        net = nn.Linear(16, 4).to(dtype)
        average, optimizer = net.weight.detach().clone(), torch.optim.SGD(net.parameters(), 0.1)
        with record(net):
            net(recorded_pairs.rand(8, 16).to(dtype)).float().square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                if side:
                    average.lerp_(net.weight, 1 - decay)
                else:
                    average.mul_(0.9).add_(net.weight, alpha=0.1)

    assert recorded_pairs.compared(tmp_path, run).code == code


def batch_norms(tmp_path, level, *, momentum=0.1, counted=1, mean=0.0, trained=True):
    """A batch norm beside one whose counter and running mean begin elsewhere."""

    def run(side, record):
        norm = nn.BatchNorm2d(4, momentum=momentum).train(trained)
        if side:
            norm.num_batches_tracked += counted
            norm.running_mean += mean
        net = recorded_pairs.Net(lambda net, x: net.norm(net.conv(x)), conv=nn.Conv2d(3, 4, 3), norm=norm)
        with record(net):
            net(recorded_pairs.rand(2, 3, 8, 8)).square().sum().backward()

    return recorded_pairs.compared(tmp_path, run, level=level)


@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
@pytest.mark.parametrize("trained", [True, False])
def test_a_counter_that_nothing_is_computed_of_is_a_remark(level, trained, tmp_path):
    found = batch_norms(tmp_path, level, trained=trained)
    assert found.code == 0, found
    assert "rounding decides" not in str(found)
    if level in ("module", "mix"):
        assert "the buffer num_batches_tracked is a counter that differs" in str(found)


@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
def test_a_counter_that_the_momentum_is_taken_of_is_told(level, tmp_path):
    assert batch_norms(tmp_path, level, momentum=None).code == 1


@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
def test_running_means_that_differ_are_told_beside_a_counter(level, tmp_path):
    found = batch_norms(tmp_path, level, mean=1.0)
    assert found.code == 1
    assert "running_mean" in str(found) or level in ("api", "op")
    assert "the right has here" not in str(found), "ones are the values of many a parameter"
    assert "share" not in str(found), "there is no gap at the output"


@pytest.mark.parametrize("level", ["mix", "api"])
def test_a_counter_that_a_result_is_computed_of_is_told(level, tmp_path):
    def run(side, record):
        def forward(net, x):
            net.count.add_(1)
            return x * (net.count * 0.5).sin()

        net = recorded_pairs.Net(forward)
        net.register_buffer("count", torch.tensor(side))
        with record(net):
            net(recorded_pairs.rand(4, 6))

    assert recorded_pairs.compared(tmp_path, run, level=level).code == 1


@pytest.mark.parametrize("viewed", [False, True])
def test_state_that_one_side_alone_writes_to_is_told_at_level_api(viewed, tmp_path):
    def run(side, record):
        def forward(net, x):
            if side:
                (net.mean.view(2, 3) if viewed else net.mean).mul_(0.5)
            return x.tanh()

        net = recorded_pairs.Net(forward)
        net.register_buffer("mean", torch.arange(6.0))
        with record(net):
            net(recorded_pairs.rand(4, 6))

    found = recorded_pairs.compared(tmp_path, run, level="api")
    assert found.code == 1
    assert "only the right changes a state of the network" in str(found)


def test_what_is_written_over_a_value_of_the_run_is_no_state_at_level_api(tmp_path):
    def run(side, record):
        def forward(net, x):
            places = torch.arange(6)
            if side:
                places.view(2, 3).mul_(2)
            return x.tanh()

        net = recorded_pairs.Net(forward)
        with record(net):
            net(recorded_pairs.rand(4, 6))

    found = recorded_pairs.compared(tmp_path, run, level="api")
    assert found.code != 1, found


@pytest.mark.parametrize("trained", [False, True])
def test_a_result_that_one_side_goes_on_to_compute_in_another_shape_is_told(trained, tmp_path):
    def run(side, record):
        net = recorded_pairs.Net(lambda net, x: net.a(x).mean(0) if side else net.a(x), a=nn.Linear(6, 3))
        with record(net), torch.set_grad_enabled(trained):
            net(recorded_pairs.rand(4, 6))

    assert recorded_pairs.compared(tmp_path, run, level="api").code == 1
