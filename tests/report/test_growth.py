"""Ranking of calls by what they add: is a difference normal, and where does it grow most?"""

import pytest
from click.testing import CliRunner

import twintrace as tt
from twintrace import api
from twintrace.cli import cli
from twintrace.report.growth import growth_text, ranking

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    """A layer that may compute in another type than the rest."""

    def __init__(self, dtype=None, scale=1.0):
        super().__init__()
        self.linear, self.dtype, self.scale = torch.nn.Linear(16, 16), dtype, scale

    def forward(self, x):
        if self.dtype is None:
            return torch.nn.functional.gelu(self.linear(x)) * self.scale
        with torch.autocast("cpu", dtype=self.dtype):
            return torch.nn.functional.gelu(self.linear(x)).to(x.dtype) * self.scale


def recorded(path, *, dtype=torch.float32, middle=None, scale=1.0, keep="tensor"):
    torch.manual_seed(0)
    net = torch.nn.Sequential(Block(), Block(middle, scale), Block()).to(dtype)
    with tt.record(path, net, level="mix", keep=keep):
        net(torch.linspace(-1, 1, 64).reshape(4, 16).to(dtype))
    return path


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("growth") / "single")


def test_fewer_bits_are_normal(single, tmp_path):
    found = tt.compare(single, recorded(tmp_path / "b", dtype=torch.bfloat16))
    said = growth_text(found)
    assert ": normal. Every result agrees; no call adds more than" in said
    ranked = ranking(found)
    assert [growth.added for growth in ranked] == sorted((growth.added for growth in ranked), reverse=True)
    for growth in ranked:
        assert 0 <= growth.share <= 1
        assert growth.added**2 + growth.inherited**2 == pytest.approx(max(growth.total, growth.inherited) ** 2)
    values = [growth.tensor.pair.left for growth in ranked]
    assert len(values) == len(set(values))  # a module gives what its last call gives


def test_the_call_that_rounds_comes_first(single, tmp_path):
    """A layer that alone computes in fewer bits is told, and adds most."""
    found = tt.compare(single, recorded(tmp_path / "b", middle=torch.bfloat16))
    assert ": not normal." in growth_text(found)
    first = ranking(found)[0]
    assert first.result.match.left[0].site.path.startswith("1")
    assert first.added > 1e-4
    later = [growth for growth in ranking(found) if growth.result.match.left[0].site.path.startswith("2")]
    assert later
    assert all(growth.added < 1e-5 < growth.inherited for growth in later)


def test_a_mistake_is_not_normal(single, tmp_path):
    assert ": not normal." in growth_text(tt.compare(single, recorded(tmp_path / "b", scale=1.01)))


def test_without_values_it_cannot_be_told(single, tmp_path):
    found = tt.compare(single, recorded(tmp_path / "b", dtype=torch.bfloat16, keep="statistics"))
    assert "cannot be told what each call adds" in growth_text(found)


def test_on_the_command_line(single, tmp_path):
    other = recorded(tmp_path / "b", dtype=torch.bfloat16)
    said = CliRunner().invoke(cli, ["compare", str(single), str(other), "--growth", "--curves"])
    assert said.exit_code == 0
    assert ": normal." in said.output
    assert "over the depth" in said.output
    assert api.growth_text(tt.compare(single, other)) in said.output
