"""A parameter that is one on one side and several on the other: gradients of the parts are compared with those of their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Way = Callable[..., torch.Tensor]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
HEADS = torch.arange(96).reshape(3, 4, 8).transpose(0, 1).reshape(-1)
"""Rows of queries, keys and values, head by head."""


def parts() -> dict[str, nn.Module]:
    """Queries, keys and values, each for itself and in one: after each other, head by head, and turned."""
    layers: dict[str, nn.Module] = {name: nn.Linear(32, 32) for name in "qkvo"}
    weight = torch.cat([layers[name].weight for name in "qkv"])
    bias = torch.cat([layers[name].bias for name in "qkv"])
    for name, rows in (("qkv", torch.arange(96)), ("heads", HEADS)):
        layers[name] = nn.Linear(32, 96)
        layers[name].load_state_dict({"weight": weight[rows], "bias": bias[rows]})
    layers["turned"] = nn.Linear(96, 32)
    layers["turned"].load_state_dict({"weight": weight.T, "bias": torch.zeros(32)})
    return layers


def attend(s: Any, *projected: torch.Tensor) -> torch.Tensor:
    q, k, v = (part.reshape(4, 16, 4, 8).transpose(1, 2) for part in projected)
    return s.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(4, 16, 32))


def several(s: Any, x: torch.Tensor) -> torch.Tensor:
    return attend(s, s.q(x), s.k(x), s.v(x))


def in_one(s: Any, x: torch.Tensor) -> torch.Tensor:
    return attend(s, *s.qkv(x).chunk(3, -1))


def by_heads(s: Any, x: torch.Tensor) -> torch.Tensor:
    return attend(s, *s.heads(x).reshape(4, 16, 4, 3, 8).transpose(2, 3).reshape(4, 16, 96).chunk(3, -1))


def transposed(s: Any, x: torch.Tensor) -> torch.Tensor:
    return attend(s, *(x @ s.turned.weight + torch.cat([s.q.bias, s.k.bias, s.v.bias])).chunk(3, -1))


def keys_cut(s: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = s.qkv(x).chunk(3, -1)
    return attend(s, q, k.detach(), v)


def weight_cut(s: Any, x: torch.Tensor) -> torch.Tensor:
    """No call of its own stops the gradient of the keys' rows: they are a constant."""
    weight = torch.cat([s.qkv.weight[:32], s.constant, s.qkv.weight[64:]])
    return attend(s, *F.linear(x, weight, s.qkv.bias).chunk(3, -1))


def frozen(s: Any, x: torch.Tensor) -> torch.Tensor:
    s.k.requires_grad_(False)
    return several(s, x)


def trained(tmp_path: Path, left: Way, right: Way, dtype: torch.dtype = torch.float32, **options: Any) -> tt.Comparison:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], **parts()).to(dtype)
        net.constant = net.k.weight.detach().clone()
        with record(net):
            out = net(rand(4, 16, 32).to(dtype)).float()
            (out * torch.linspace(-1, 1.3, out.numel()).reshape(out.shape)).sum().backward()

    return compared(tmp_path, run, **options)


@DTYPES
@pytest.mark.parametrize("right", [in_one, by_heads, transposed])
def test_right_ports_agree(tmp_path: Path, right: Way, dtype: torch.dtype) -> None:
    assert trained(tmp_path, several, right, dtype).code == 0


def test_what_was_compared_in_parts_is_on_both_sides(tmp_path: Path) -> None:
    compared_in_parts, uncompared = (
        trained(tmp_path / keep, several, in_one, keep=keep) for keep in ("tensor", "statistics")
    )

    assert uncompared.strays - compared_in_parts.strays == 8  # weights and biases of three layers, and of one
    told = f"{uncompared.strays} gradients are on one side only."
    assert told in uncompared.remarks
    page = tmp_path / "page.html"
    uncompared.to_html(page)
    assert page.read_text(encoding="utf-8").count(f">{told}<") == 1


@pytest.mark.parametrize("level", ["op", "module"])
def test_right_ports_agree_at_other_levels(tmp_path: Path, level: str) -> None:
    assert trained(tmp_path, several, in_one, level=level).code == 0


@DTYPES
def test_a_gradient_of_some_rows_that_is_cut_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    result = trained(tmp_path, several, keys_cut, dtype)

    assert result.code == 1
    assert "only the right calls torch.Tensor.detach" in str(result)


@DTYPES
def test_rows_without_a_gradient_are_told(tmp_path: Path, dtype: torch.dtype) -> None:
    result = trained(tmp_path, several, weight_cut, dtype)

    assert result.code == 1
    assert (
        "the gradients of k.weight | qkv.weight differ in what they have in common: relative error 1.0e+00"
        in result.lone
    )
    assert not any("q.weight |" in difference or "v.weight |" in difference for difference in result.lone)


@DTYPES
@pytest.mark.parametrize("part", ["q", "k", "v", "weight"])
def test_a_gain_in_the_gradient_of_some_rows_is_told(tmp_path: Path, part: str, dtype: torch.dtype) -> None:
    """Computed by the calls of both sides: rounding in many layers explains as much, and that of the scores does in each element,
    but not in all of them alike.
    """

    def partly_cut(value: torch.Tensor) -> torch.Tensor:
        return value * 0.995 + (value - value * 0.995).detach()

    def right(s: Any, x: torch.Tensor) -> torch.Tensor:
        weight = s.qkv.weight
        if part == "weight":
            weight = torch.cat([weight[:64], partly_cut(weight[64:])])
        values = dict(zip("qkv", F.linear(x, weight, s.qkv.bias).chunk(3, -1), strict=True))
        return attend(s, *(partly_cut(value) if name == part else value for name, value in values.items()))

    result = trained(tmp_path, several, right, dtype)

    assert result.code == 1


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return (gradient.double() * 0.98).to(gradient.dtype)


@DTYPES
def test_rows_whose_gradient_an_unseen_function_changes_do_not_agree(tmp_path: Path, dtype: torch.dtype) -> None:
    def right(s: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = s.qkv(x).chunk(3, -1)
        return attend(s, Scaled.apply(q), k, v)

    assert trained(tmp_path, several, right, dtype).code in (1, 3)


@DTYPES
def test_keys_that_are_computed_for_each_head_anew(tmp_path: Path, dtype: torch.dtype) -> None:
    """Each part of the gradient of their bias is what rounding leaves of terms that cancel."""

    def by_head(s: Any, x: torch.Tensor) -> torch.Tensor:
        heads = [[layer(x).chunk(4, -1)[head] for layer in (s.q, s.k, s.v)] for head in range(4)]
        return s.o(torch.cat([F.scaled_dot_product_attention(*own) for own in heads], -1))

    assert trained(tmp_path, several, by_head, dtype).code == 0


def test_at_level_module_the_rows_are_those_of_the_gradients(tmp_path: Path) -> None:
    result = trained(tmp_path, several, keys_cut, level="module")

    assert result.code == 1
    assert "k.weight | qkv.weight" in str(result)


def test_a_part_that_is_frozen_is_told(tmp_path: Path) -> None:
    result = trained(tmp_path, frozen, in_one)

    assert result.code == 1
    assert "only the right has a gradient of a part of qkv.weight: is it frozen on the left?" in str(result)


@pytest.mark.parametrize("level", ["mix", "module", "op"])
@pytest.mark.parametrize("right", [in_one, weight_cut])
def test_without_values_nothing_is_claimed(tmp_path: Path, right: Way, level: str) -> None:
    result = trained(tmp_path, several, right, level=level, keep="statistics")

    assert result.code == 3
    assert any(text.startswith("of the right, the gradient of qkv.") for text in result.untold)
    assert "record both runs with keep='tensor'" in str(result)


def test_a_gradient_whose_parameter_the_other_side_never_held_is_untold(tmp_path: Path) -> None:
    """At level module, who holds a weight is known by the modules that were called."""

    def functional(s: Any, x: torch.Tensor) -> torch.Tensor:
        weight = torch.cat([s.q.weight, s.constant, s.v.weight])
        return attend(s, *F.linear(x, weight, torch.cat([s.q.bias, s.k.bias, s.v.bias])).chunk(3, -1))

    result = trained(tmp_path, several, functional, level="module")

    assert result.code == 3
    assert "of the left, the gradient of k.weight was compared with none of the right's" in result.untold
