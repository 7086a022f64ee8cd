"""A network that is nested as deep as Python allows runs as well while it is recorded."""

import sys

import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_mindspore


class Nest(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def construct(self, x):
        return self.inner(x) if self.inner is not None else ops.relu(x)


def nested(depth):
    net = None
    for _ in range(depth):
        net = Nest(net)
    return net


def deepest():
    """How deep a network may be nested here without a recorder: Python 3.12 counts calls by way of C apart, and allows fewer."""
    depth = 50
    while depth < 300:
        try:
            nested(depth + 10)(Tensor([1.0]))
        except RecursionError:
            break
        depth += 10
    return depth


def test_what_runs_bare_runs_recorded(tmp_path):
    depth, limit, x = deepest() - 10, sys.getrecursionlimit(), Tensor([1.0])
    assert depth > 100
    net = nested(depth)
    with tt.record(tmp_path / "t", net, strict=True):
        net(x)
    assert sys.getrecursionlimit() == limit
    assert len(list(tt.open(tmp_path / "t").journal(0).calls())) == depth + 1
