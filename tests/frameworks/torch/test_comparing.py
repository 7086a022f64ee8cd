"""Runs of one network that are not run alike: compiled, in another dtype."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore:twintrace. compiled:RuntimeWarning"),  # that is what is recorded here
    pytest.mark.filterwarnings(
        "ignore:The .grad attribute of a Tensor that is not a leaf"
    ),  # torch's compiler looks at it
]


def run(path, *, eps=1e-5, compiled="", dtype=None):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16, eps=eps), nn.Linear(16, 4)).to(dtype)
    if compiled == "part":
        net[2] = torch.compile(net[2], backend="aot_eager")
    model = torch.compile(net, backend="aot_eager") if compiled == "whole" else net
    x = torch.randn(5, 8).to(dtype)
    with tt.record(path, model, level="module", keep="tensor"):
        model(x).square().sum().backward()
    return path


@pytest.mark.parametrize("compiled", ["whole", "part"])
def test_a_compiled_network_agrees_with_itself_uncompiled(tmp_path, compiled):
    found = tt.compare(run(tmp_path / "eager"), run(tmp_path / "compiled", compiled=compiled))
    assert found.agree, tt.verdict(found)


def test_a_difference_inside_what_is_compiled_is_named(tmp_path):
    found = tt.compare(run(tmp_path / "eager"), run(tmp_path / "compiled", compiled="part", eps=1e-2))
    assert found.divergence.result.match.left[0].site.name == "2"
    assert found.divergence.result.settings["eps"] == ("1e-05", "0.01")


def test_another_dtype_is_rounding_and_is_told(tmp_path):
    found = tt.compare(run(tmp_path / "single"), run(tmp_path / "half", dtype=torch.bfloat16))
    assert found.divergence is None, tt.verdict(found)
    assert found.code in (0, 3)  # level module does not show the functions between the modules
    assert any("f32 | bf16" in remark for remark in found.remarks)


def test_a_real_difference_shows_through_another_dtype(tmp_path):
    found = tt.compare(run(tmp_path / "single"), run(tmp_path / "half", dtype=torch.bfloat16, eps=1.0))
    assert found.divergence.result.match.left[0].site.name == "2"
