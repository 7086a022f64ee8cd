"""A network that is nested as deep as Python allows runs as well while it is recorded."""

import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_torch


class Nest(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) if self.inner is not None else torch.relu(x) + 1


class Endless(nn.Module):
    def forward(self, x):
        return self(x)


def nested(depth):
    net = None
    for _ in range(depth):
        net = Nest(net)
    return net


def deepest():
    """How deep a network may be nested here without a recorder."""
    depth = 50
    while True:
        try:
            nested(depth + 10)(torch.ones(1))
        except RecursionError:
            return depth
        depth += 10


@pytest.mark.parametrize(
    "level", [pytest.param("module", marks=pytest.mark.slow), "mix", pytest.param("op", marks=pytest.mark.slow)]
)
def test_what_runs_bare_runs_recorded(tmp_path, level):
    depth, limit = deepest() - 10, sys.getrecursionlimit()
    assert depth > 100
    net = nested(depth)
    with tt.record(tmp_path / "t", net, level=level, strict=True) as rec:
        x = torch.ones(2, requires_grad=True)
        net(x).sum().backward()
        rec.step()
        net(x)
    assert sys.getrecursionlimit() == limit
    calls = list(tt.open(tmp_path / "t").journal(0).calls())
    if level != "op":
        assert sum(call.site.kind == "module" for call in calls) == depth


def test_an_endless_recursion_still_ends(tmp_path):
    limit = sys.getrecursionlimit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what could not be recorded of it is told
        with tt.record(tmp_path / "t", Endless()) as rec, pytest.raises(RecursionError):
            next(iter(rec._watch._modules._models.values()))(torch.ones(1))
    assert sys.getrecursionlimit() == limit
