"""The first value that is not finite, in real runs of MindSpore, from statistics alone."""

from __future__ import annotations

import numpy as np
import pytest

import twintrace as tt
from twintrace.model.nonfinite import Pass, Source

pytestmark = pytest.mark.needs_mindspore
ms = pytest.importorskip("mindspore")

from mindspore import mint, nn, ops  # noqa: E402 - behind the skip

INF = float("inf")
LEVELS = ("module", "api", "mix")


class Net(nn.Cell):
    """Two layers; what happens between them is an argument."""

    def __init__(self, between):
        super().__init__()
        ms.set_seed(0)
        self.first, self.last, self.between = nn.Dense(4, 8), nn.Dense(8, 2), between

    def construct(self, x):
        return self.last(self.between(self.first(x)))


def run(path, between, level, *, dtype=np.float32, scale=1.0):
    net = Net(between)
    x = ms.Tensor(np.full((2, 4), scale, dtype))
    with tt.record(path, net, level=level, keep="statistics", strict=True):
        ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
    return tt.first_nonfinite(path)


def log_of_relu(x):
    return ops.log(ops.relu(x))


def divided_by_zero(x):
    return x / ops.relu(x)


def masked_row(x):
    x = ops.masked_fill(x, ms.Tensor(np.ones((2, 8), bool)), ms.Tensor(-INF))
    return ops.exp(x - x.max(-1, keepdims=True))  # MindSpore's softmax gives what was in memory on a CPU


def masked_half(x):
    return ops.softmax(ops.masked_fill(x, ms.Tensor(np.arange(8) % 2 == 0), ms.Tensor(-INF)), -1)


def added_mask(x):
    return mint.nn.functional.softmax(x + ms.Tensor(np.where(np.arange(8) % 2, 0, -INF).astype(np.float32)), -1)


def large(x):
    return ops.exp(x * 1e4).mean(-1, True) * x


def root(x):
    return ops.sqrt(x * 0 * x) + x


@pytest.mark.parametrize(
    ("between", "source", "when"),
    [
        (log_of_relu, Source.LOGARITHM, Pass.FORWARD),
        (divided_by_zero, Source.DIVISION, Pass.FORWARD),
        (masked_row, Source.CANCELLED, Pass.FORWARD),
        (large, Source.OVERFLOW, Pass.FORWARD),
        (root, Source.SLOPE, Pass.BACKWARD),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_the_call_and_the_cause_are_named(tmp_path, between, source, when, level):
    found = run(tmp_path / "t", between, level).origin
    assert found is not None
    assert found.when is when
    if level == "module":
        assert found.source is Source.UNRECORDED
        assert "first (Dense)" in found.why
    else:
        assert found.source is source, found.why
        assert found.call.stack[0].function == between.__name__


@pytest.mark.parametrize("between", [masked_half, added_mask])
@pytest.mark.parametrize("level", LEVELS)
def test_a_mask_is_not_accused(tmp_path, between, level):
    report = run(tmp_path / "t", between, level)
    assert report.code == 0, str(report)
