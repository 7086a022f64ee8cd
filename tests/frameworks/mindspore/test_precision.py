"""The trace says in which precision MindSpore was told to compute."""

import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, amp, nn, ops  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_mindspore


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.half, self.full = nn.Dense(3, 3), nn.Dense(3, 2)

    def construct(self, x):
        return ops.relu(self.full(self.half(x)))


def settings(path):
    journal = tt.open(path).journal(0)
    return journal.header.precision, {call.site.name: call.precision for call in journal.calls()}


def test_the_head_has_the_settings(tmp_path):
    net = Net()
    with tt.record(tmp_path / "t", net):
        net(Tensor([[1.0, 2.0, 3.0]]))
    head, calls = settings(tmp_path / "t")
    assert head == {"autocast": {}, "deterministic": False, "reduced_f32": []}
    assert set(map(len, calls.values())) == {0}


def test_calls_under_a_strategy_are_marked(tmp_path):
    net = amp.auto_mixed_precision(Net(), "auto", ms.float16)
    with tt.record(tmp_path / "t", net):
        net(Tensor([[1.0, 2.0, 3.0]]))
        ops.sigmoid(Tensor([1.0]))
    head, calls = settings(tmp_path / "t")
    assert head["autocast"] == {}
    assert (
        calls["half"]
        == calls["mindspore.mint.nn.functional.relu"]
        == {
            "autocast": {"cpu": "f16"},
            "autocast_level": "Auto",
        }
    )
    assert calls["mindspore.mint.sigmoid"] == {}


def test_a_cell_with_a_type_of_its_own_is_marked(tmp_path):
    net = Net()
    net.half.to_float(ms.float16)
    net.full.to_float(ms.float32)
    with tt.record(tmp_path / "t", net):
        net(Tensor([[1.0, 2.0, 3.0]]))
    calls = settings(tmp_path / "t")[1]
    assert calls["half"] == {"autocast": {"cpu": "f16"}}
    assert calls["full"] == {"autocast": {"cpu": "f32"}}
    assert calls["mindspore.mint.nn.functional.relu"] == calls[""] == {}
