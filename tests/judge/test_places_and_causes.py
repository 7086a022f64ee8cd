"""Places and causes that verdicts name: calls of one side alone, casts, cuts, ties, leaves, small effects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from twintrace.model.results import Comparison, Divergence  # noqa: E402
from twintrace.model.verdicts import Outcome  # noqa: E402
from twintrace.report.text import verdict  # noqa: E402

pytestmark = pytest.mark.needs_torch
Record = Callable[..., Any]
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
SIDES = pytest.mark.parametrize("side_alone", [0, 1], ids=["left", "right"])


def run_of(forward: Callable[[int, Any, torch.Tensor], Any], dtype: torch.dtype = torch.float32) -> Callable[..., None]:
    """A forward pass of two linear layers, `a` and `b`, of which `forward(side, net, x)` makes a network."""

    def run(side: int, record: Record) -> None:
        net = Net(lambda net, x: forward(side, net, x), a=nn.Linear(16, 16), b=nn.Linear(16, 4)).to(dtype)
        x = rand(8, 16).to(dtype)
        with record(net):
            net(x)

    return run


def headline(result: Comparison) -> Divergence:
    found = result.forward or result.backward
    assert found is not None
    return found


def blamed(result: Comparison) -> tuple[list[str], list[str]]:
    """Names of the calls that the headline blames, of both sides."""
    left, right = headline(result).calls
    return [call.site.name for call in left], [call.site.name for call in right]


def alone(side: int, name: str) -> tuple[list[str], list[str]]:
    return ([], [name]) if side else ([name], [])


# --- calls that one side alone makes ------------------------------------------------------------------------------------


@FLOATS
@SIDES
def test_a_residual_of_one_side_alone_is_the_place(tmp_path: Path, dtype: torch.dtype, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).tanh()
        return net.b(hidden + x if side == side_alone else hidden)

    result = compared(tmp_path, run_of(forward, dtype))
    name = ("left", "right")[side_alone]
    mistake = headline(result).mistake

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.add")
    assert mistake is not None
    assert mistake.why.startswith(f"only the {name} adds ")
    assert "; without it the results agree: " in mistake.why
    assert f"part at torch.Tensor.add, on the {name} alone, step 0" in verdict(result)


def test_a_residual_is_told_although_the_other_side_adds_something_else(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).tanh()
        if not side:
            return net.b(F.layer_norm(hidden + x, (16,)))
        centred = hidden - hidden.mean(-1, keepdim=True)
        return net.b(centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5))

    result = compared(tmp_path, run_of(forward))

    assert only_mistake(result).why.startswith(
        "only the left adds f32[8, 16] (torch.Tensor.add); without it the results agree"
    )
    assert blamed(result) == alone(0, "torch.Tensor.add")


@FLOATS
def test_a_factor_of_one_side_alone_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    result = compared(tmp_path, run_of(lambda side, net, x: net.b(net.a(x) * 0.125 if side else net.a(x)), dtype))

    assert only_mistake(result).why.startswith("only the right multiplies by 0.125 (torch.Tensor.mul); without it")
    assert blamed(result) == alone(1, "torch.Tensor.mul")


def test_an_epsilon_of_one_side_alone_is_told_as_one(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        norm = hidden.norm(dim=-1, keepdim=True)
        return net.b(hidden / (norm + 1e-3 if side else norm))

    result = compared(tmp_path, run_of(forward))

    assert only_mistake(result).why.startswith("only the right adds an epsilon of 0.001 (torch.Tensor.add); without it")
    assert blamed(result) == alone(1, "torch.Tensor.add")


def test_a_number_that_is_no_epsilon_is_not_called_one(tmp_path: Path) -> None:
    result = compared(tmp_path, run_of(lambda side, net, x: net.b(net.a(x) + 0.5 if side else net.a(x))))

    assert only_mistake(result).why.startswith("only the right adds 0.5 (torch.Tensor.add)")


def test_a_bias_of_one_side_alone_is_told_as_one(tmp_path: Path) -> None:
    class Biased(nn.Module):
        def __init__(self, biased: int) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 16, bias=False), nn.Linear(16, 4)
            self.shift, self.biased = nn.Parameter(rand(16, seed=3)), biased

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.a(x)
            return self.b((hidden + self.shift if self.biased else hidden).tanh())

    def run(side: int, record: Record) -> None:
        net = Biased(side)
        with record(net):
            net(rand(8, 16))

    result = compared(tmp_path, run)

    assert only_mistake(result).why.startswith("only the right adds a bias, f32[16] (torch.Tensor.add); without it")


@SIDES
def test_dropout_of_one_side_alone_is_the_place(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).tanh()
        return net.b(F.dropout(hidden, 0.3) if side == side_alone else hidden)

    result = compared(tmp_path, run_of(forward))
    name = ("left", "right")[side_alone]

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.nn.functional.dropout")
    assert f"only the {name} draws random numbers: torch.nn.functional.dropout" in verdict(result)


# --- calls before the value that shows it -------------------------------------------------------------------------------


def test_a_setting_is_told_once_at_the_call_that_has_it(tmp_path: Path) -> None:
    """Three values show what `topk` did; its own results have other shapes, and no partners."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        values, places = hidden.softmax(-1).topk(2 + side, -1)
        chosen = [((places == k).to(x.dtype) * values).sum(-1, keepdim=True) for k in range(3)]
        return net.b(hidden / values.sum(-1, keepdim=True) + chosen[0] * 2 + chosen[1] * 3 + chosen[2])

    result = compared(tmp_path, run_of(forward))

    assert only_mistake(result).why.startswith("k: 2 | 3; with the left's the results agree")
    assert blamed(result) == (["torch.Tensor.topk"], ["torch.Tensor.topk"])


def test_the_same_values_in_another_shape_are_no_difference(tmp_path: Path) -> None:
    """The mean over two axes, and over one that is as long as both: the mistake is the factor after it."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            image = net.a(x)
            mean = image.reshape(4, 8, 36).mean(-1) * 1.5 if side else image.mean((2, 3))
            return net.b(mean)

        net = Net(forward, a=nn.Conv2d(3, 8, 3), b=nn.Linear(8, 2))
        with record(net):
            net(rand(4, 3, 8, 8))

    assert only_mistake(compared(tmp_path, run)).why.startswith("only the right multiplies by 1.5")


def turned(hidden: torch.Tensor, parts: int, side: int) -> torch.Tensor:
    """The parts of the last axis, each one place further: consecutive elements on the left, every `parts`-th one on the right."""
    if side:
        apart = hidden.reshape(*hidden.shape[:-1], -1, parts)
        taken = [-apart[..., (place + 1) % parts] for place in range(parts)]
        return torch.stack(taken, -1).reshape(hidden.shape)
    width = hidden.shape[-1] // parts
    places = [(place + 1) % parts * width for place in range(parts)]
    return torch.cat([-hidden[..., place : place + width] for place in places], -1)


def test_interleaved_halves_are_told(tmp_path: Path) -> None:
    result = compared(tmp_path, run_of(lambda side, net, x: net.b(turned(net.a(x), 2, side))))
    why = headline(result).mistake

    assert why is not None
    assert why.why.startswith(
        "torch.Tensor.__getitem__: every second element from 1 (interleaved) on the right, not on the left"
    )


def test_slices_of_other_elements_are_told_with_their_indices(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        return net.b(torch.cat([turned(hidden[:, :12], 3, side), hidden[:, 12:]], -1))

    result = compared(tmp_path, run_of(forward))
    mistake = headline(result).mistake

    assert blamed(result) == (["torch.Tensor.__getitem__"], ["torch.Tensor.__getitem__"])
    assert mistake is not None
    assert re.match(r"input of neg: getitem\(.*\) on the left, reshape\(.*\) → getitem\(.*\) on the right", mistake.why)


@pytest.mark.parametrize("place", ["in between", "last"])
def test_another_index_is_the_place(tmp_path: Path, place: str) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).reshape(8, 4, 4)
        chosen = hidden[:, 0] if side else hidden[:, -1]
        return net.b(torch.cat([chosen] * 4, -1)) if place == "in between" else chosen

    result = compared(tmp_path, run_of(forward))

    assert only_mistake(result).why.startswith("index: ")
    assert blamed(result) == (["torch.Tensor.__getitem__"], ["torch.Tensor.__getitem__"])


@SIDES
def test_a_variant_within_a_written_norm_is_told(tmp_path: Path, side_alone: int) -> None:
    """One side has the norm of the framework, the other its own with the unbiased variance."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        if side != side_alone:
            return net.b(F.layer_norm(hidden, (16,)))
        return net.b((hidden - hidden.mean(-1, keepdim=True)) * torch.rsqrt(hidden.var(-1, keepdim=True) + 1e-5))

    result = compared(tmp_path, run_of(forward))
    sides = ("left", "right")

    assert only_mistake(result).why.startswith(
        f"torch.Tensor.var: divided by n (biased) on the {sides[1 - side_alone]}, not on the {sides[side_alone]}; "
        "with it on both sides the results agree: "
    )


# --- precision ----------------------------------------------------------------------------------------------------------


@SIDES
def test_a_cast_to_a_coarser_type_and_back_is_guilty(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        return net.b(hidden.to(torch.bfloat16).to(torch.float16) if side == side_alone else hidden)

    result = compared(tmp_path, run_of(forward, torch.float16))
    name = ("left", "right")[side_alone]

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.to")
    assert f"only the {name} casts to bf16 in between" in verdict(result)


def test_a_computation_in_a_finer_type_is_not_guilty(tmp_path: Path) -> None:
    """The right casts to f32, which is finer, and back to what it had: it loses nothing by that."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).float() if side else net.a(x)
        return net.b((hidden.tanh() * hidden).to(torch.float16))

    result = compared(tmp_path, run_of(forward, torch.float16))

    assert result.code == 0
    assert not all(item.verdict.outcome is Outcome.SAME for found in result.results for item in found.tensors)


def four_layers(forward: Callable[[int, Any, torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    """Four linear layers, the second of which is called by `forward(side, layer, x)`."""

    def run(side: int, record: Record) -> None:
        net = Net(
            lambda net, x: net.d(net.c(forward(side, net.b, net.a(x)))), **{name: nn.Linear(16, 16) for name in "abcd"}
        )
        with record(net):
            net(rand(8, 16))

    return run


def test_one_layer_under_autocast_is_guilty(tmp_path: Path) -> None:
    def forward(side: int, layer: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(side)):
            y = layer(x)
        return y.float() if side else y

    result = compared(tmp_path, four_layers(forward))

    assert result.code == 1
    assert only_mistake(result).why.startswith("dtype: f32 | bf16, where most of the two runs have one precision")
    assert [call.site.path for call in headline(result).calls[1]] == ["b"]


@pytest.mark.parametrize("held", ["in half precision", "cast for the call"])
def test_one_layer_in_half_precision_is_guilty(tmp_path: Path, held: str) -> None:
    def forward(side: int, layer: Any, x: torch.Tensor) -> torch.Tensor:
        if not side:
            return layer(x)
        if held == "cast for the call":
            return F.linear(x.half(), layer.weight.half(), layer.bias.half()).float()
        return layer.half()(x.half()).float()

    assert compared(tmp_path, four_layers(forward)).code == 1


@SIDES
def test_one_layer_in_another_half_precision_is_guilty(tmp_path: Path, side_alone: int) -> None:
    """float16 is no finer than bfloat16: it overflows. All casts around the layer are on one side alone."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x).tanh()
            if side == side_alone:
                hidden = F.linear(hidden.half(), net.b.weight.half(), net.b.bias.half()).bfloat16()
            else:
                hidden = F.linear(hidden, net.b.weight, net.b.bias)
            return net.c(hidden).float()

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "abc"}).bfloat16()
        with record(net):
            net(rand(8, 16).bfloat16())

    result = compared(tmp_path, run)
    types = ("f16", "bf16") if side_alone == 0 else ("bf16", "f16")

    assert result.code == 1
    assert blamed(result) == (["torch.nn.functional.linear"], ["torch.nn.functional.linear"])
    assert only_mistake(result).why.startswith(f"dtype: {types[0]} | {types[1]}, where most of the two runs")


@pytest.mark.parametrize("factor", [1.0, 1e-5])
@SIDES
def test_a_layer_in_another_half_precision_is_told_by_its_gradients(
    tmp_path: Path, side_alone: int, factor: float
) -> None:
    """Results that both types hold exactly are equal; gradients that float16 has no digits for are not."""

    def run(side: int, record: Record) -> None:
        net = Net(lambda net, x: None, a=nn.Linear(16, 16), b=nn.Linear(16, 4, bias=False)).bfloat16()
        with torch.no_grad():
            net.b.weight.copy_(rand(4, 16).sign())

        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x).relu().round()
            dtype = torch.float16 if side == side_alone else torch.bfloat16
            return F.linear(hidden.to(dtype), net.b.weight.to(dtype)).bfloat16()

        net.run = forward
        with record(net):
            (net(rand(8, 16, seed=3).bfloat16()).float().square().mean() * factor).backward()

    result = compared(tmp_path, run)
    if factor == 1.0:  # the gradients are equal, too
        assert result.code == 0
        return
    types = ("f16", "bf16") if side_alone == 0 else ("bf16", "f16")
    mistake = only_mistake(result)

    assert result.code == 1
    assert mistake.why.startswith(f"dtype: {types[0]} | {types[1]}, where most of the two runs")
    assert mistake.what.endswith("the results are equal, the gradients that they send back are not")


@pytest.mark.parametrize("factor", [1.0, 1e-5])
@SIDES
def test_a_cast_that_changes_the_gradient_alone_is_guilty(tmp_path: Path, side_alone: int, factor: float) -> None:
    """float16 holds the values of a bf16 run, and the gradients only if they are large enough."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x).relu()
            return net.b(hidden.half().bfloat16() if side == side_alone else hidden)

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4)).bfloat16()
        with record(net):
            (net(rand(8, 16, seed=3).bfloat16()).float().square().mean() * factor).backward()

    result = compared(tmp_path, run)
    assert result.code == (factor != 1.0)
    if result.code:
        assert blamed(result) == alone(side_alone, "torch.Tensor.half")
        assert "casts to f16 in between (torch.Tensor.half)" in only_mistake(result).why


@pytest.mark.parametrize("autocast", [False, True], ids=["held in bf16", "autocast"])
def test_a_whole_run_in_another_precision_is_not_guilty(tmp_path: Path, autocast: bool) -> None:
    def run(side: int, record: Record) -> None:
        dtype = torch.bfloat16 if side and not autocast else torch.float32
        net = nn.Sequential(
            nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4), nn.Linear(4, 4)
        ).to(dtype)
        x = rand(8, 16).to(dtype)
        with record(net), torch.autocast("cpu", torch.bfloat16, enabled=bool(side and autocast)):
            net(x)

    result = compared(tmp_path, run)

    assert result.code == 0
    assert "different precision" in verdict(result)


# --- gradients ----------------------------------------------------------------------------------------------------------


def trained(forward: Callable[[int, Any, torch.Tensor], Any]) -> Callable[..., None]:
    def run(side: int, record: Record) -> None:
        net = Net(lambda net, x: forward(side, net, x), a=nn.Linear(8, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 2))
        with record(net):
            net(rand(6, 8)).square().mean().backward()

    return run


@pytest.mark.parametrize("what", ["a residual", "a block"])
@SIDES
def test_a_detach_of_one_side_alone_is_the_place(tmp_path: Path, what: str, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        def cut(value: torch.Tensor) -> torch.Tensor:
            return value.detach() if side == side_alone else value

        hidden = net.a(x).tanh()
        if what == "a residual":
            return net.c(net.b(hidden).tanh() + cut(hidden))
        return net.c(cut(net.b(hidden).tanh()))

    result = compared(tmp_path, trained(forward))
    name = ("left", "right")[side_alone]

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.detach")
    assert f"the {name} cuts the gradient: torch.Tensor.detach" in verdict(result)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_a_detach_for_numpy_cuts_nothing(tmp_path: Path, frozen: bool) -> None:
    """It is not accused, and explains no weight that is frozen on the same side."""

    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        net[0].weight.requires_grad_(not (side and frozen))
        with record(net):
            y = net(rand(6, 8))
            y.square().mean().backward()
            if side:
                y.detach().numpy().sum()

    result = compared(tmp_path, run)

    assert result.code == int(frozen)
    assert [text.partition(":")[0] for text in result.lone] == ["only the left has a gradient of 0.weight"] * frozen
    assert not any(item.mistakes for item in result.results)


@SIDES
def test_an_untied_head_is_told_at_the_head(tmp_path: Path, side_alone: int) -> None:
    """`side_alone` has a head of its own, with the values of the embedding."""

    class Head(nn.Module):
        def __init__(self, tied: bool) -> None:
            super().__init__()
            self.emb, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            if tied:
                self.head.weight = self.emb.weight
            else:
                self.head.load_state_dict(self.emb.state_dict())

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.emb(tokens).tanh())

    def run(side: int, record: Record) -> None:
        net, tokens = Head(side != side_alone), torch.arange(24).reshape(4, 6) % 12
        with record(net):
            F.cross_entropy(net(tokens).reshape(-1, 12), tokens.reshape(-1) * 5 % 12).backward()

    result = compared(tmp_path, run)
    mistake = headline(result).mistake
    other = ("right", "left")[side_alone]

    assert result.code == 1
    assert mistake is not None
    assert mistake.why.startswith(f"on the {other} the weight is shared (tied to emb.weight)")
    assert [[call.site.type for call in calls] for calls in headline(result).calls] == [["Linear"]] * 2


def test_a_parameter_that_is_a_buffer_elsewhere_is_a_remark(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self, fixed: int) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)
            if fixed:
                self.register_buffer("scale", rand(8, seed=9))
            else:
                self.scale = nn.Parameter(rand(8, seed=9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x) * self.scale)

    def run(side: int, record: Record) -> None:
        net = Scaled(side)
        with record(net):
            net(rand(6, 8)).square().mean().backward()

    result = compared(tmp_path, run)

    assert result.code == 0
    assert "scale is a parameter on the left and a buffer on the right" in result.remarks


# --- losses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
@SIDES
def test_a_loss_that_one_side_goes_on_to_divide_is_told(tmp_path: Path, backward: bool, side_alone: int) -> None:
    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        with record(net):
            loss = F.mse_loss(net(rand(6, 8)), rand(6, 2, seed=4))
            if side == side_alone:
                loss = loss / 4
            if backward:
                loss.backward()

    result = compared(tmp_path, run)
    mistake = headline(result).mistake

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.div")
    assert mistake is not None
    assert mistake.why.startswith(f"only the {('left', 'right')[side_alone]} divides by 4 (torch.Tensor.div); without")


def test_a_loss_outside_of_any_module_counts_in_a_forward_run(tmp_path: Path) -> None:
    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5))
        with record(net):
            F.cross_entropy(net(rand(6, 8)), torch.arange(6) % 5, label_smoothing=0.1 if side else 0.0)

    result = compared(tmp_path, run)

    assert result.code == 1
    assert only_mistake(result).why.startswith("label_smoothing: 0.0 | 0.1; with the left's the results agree")


# --- operands -----------------------------------------------------------------------------------------------------------


def attention(change: Callable[..., tuple[torch.Tensor, torch.Tensor]], dtype: torch.dtype = torch.float32) -> Record:
    """An attention whose queries and keys `change(side, q, k, *tables)` makes of those of the layers."""

    def run(side: int, record: Record, *tables: Callable[[int], torch.Tensor]) -> None:
        def forward(net: Any, x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
            q, k = change(side, net.q(x), net.k(x), *given)
            return net.o(F.softmax(q @ k.transpose(-1, -2) / 4, -1) @ net.v(x))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"}).to(dtype)
        inputs = rand(2, 5, 16).to(dtype), *(table(side).to(dtype) for table in tables)
        with record(net):
            net(*inputs)

    return run


def test_exchanged_queries_and_keys_are_named(tmp_path: Path) -> None:
    result = compared(tmp_path, attention(lambda side, q, k: (k, q) if side else (q, k)))
    mistake = headline(result).mistake

    assert result.code == 1
    assert mistake is not None
    taken = re.search(r"takes the result of \S+ in (\w) where the left takes the result of \S+ in (\w)", mistake.why)
    assert taken is not None
    assert set(taken.groups()) == {"q", "k"}
    assert ": are the two exchanged?" in mistake.why


def test_other_permutations_before_a_reshape_are_named(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        heads = net.a(x).reshape(2, 4, 4, 4).permute((0, 2, 3, 1) if side else (0, 2, 1, 3))
        return net.b(heads.reshape(8, 16))

    result = compared(tmp_path, run_of(lambda side, net, x: forward(side, net, x)))

    assert result.code == 1
    assert only_mistake(result).why.startswith("dims: (0, 2, 1, 3) | (0, 2, 3, 1); with the left's the results agree")


# --- leaves -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda net: net[2].weight.T.clone(), "the right's is the left's, transposed"),
        (lambda net: net[0].weight, "the right has here what the left has as 0.weight"),
        (lambda net: net[2].weight * 2, "the right's is 2 times the left's"),
        (lambda net: net[2].weight * 0, "the right's is all zeros"),
        (
            lambda net: net[2].weight.flatten()[torch.randperm(64)].reshape(8, 8),
            "both have the same values, in another",
        ),
    ],
    ids=["transposed", "another layer's", "scaled", "zeros", "order"],
)
def test_other_weights_are_told_by_what_they_are(tmp_path: Path, change: Callable[..., torch.Tensor], why: str) -> None:
    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        if side:
            with torch.no_grad():
                net[2].weight.copy_(change(net))
        with record(net):
            net(rand(6, 8))

    result = compared(tmp_path, run)
    mistake = only_mistake(result)

    assert result.code == 1
    assert mistake.kind == "weights"
    assert mistake.why.startswith(why)


@pytest.mark.parametrize("shift", [1, -1])
def test_labels_that_are_moved_by_one_are_told(tmp_path: Path, shift: int) -> None:
    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 7))
        labels = torch.tensor([0, 3, 1, 6, 5, 2, 4, 0, 2]).roll(shift * side)
        with record(net):
            F.cross_entropy(net(rand(9, 8)), labels).backward()

    result = compared(tmp_path, run)

    assert result.code == 1
    assert only_mistake(result).why == "the right's is the left's, moved by one along axis 0"


# --- small effects ------------------------------------------------------------------------------------------------------


def test_another_function_below_the_rounding_of_its_run_counts(tmp_path: Path) -> None:
    def run(side: int, record: Record) -> None:
        gelu = nn.GELU(approximate="tanh" if side else "none")
        net = nn.Sequential(nn.Linear(16, 16), gelu, nn.Linear(16, 4)).bfloat16()
        with record(net):
            net(rand(8, 16).bfloat16())

    result = compared(tmp_path, run)
    mistake = only_mistake(result)

    assert result.code == 1
    assert mistake.size < 1  # of the rounding of bf16
    assert mistake.why.startswith("approximate: 'none' | 'tanh'")


@pytest.mark.parametrize("scale", [1e-5, 0.0])
def test_another_function_that_is_lost_in_the_rounding_counts(tmp_path: Path, scale: float) -> None:
    """Its effect is far below a unit of bf16 where it is added. Times zero it has none."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        return net.b(hidden + (F.silu if side else F.gelu)(hidden) * scale)

    assert compared(tmp_path, run_of(forward, torch.bfloat16)).code == (1 if scale else 0)


def angles(base: float, start: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of rotary positions, f32[5, 8]."""
    turn = (torch.arange(5) + start)[:, None] / base ** (torch.arange(8) / 8)
    return turn.cos(), turn.sin()


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def test_tables_that_differ_by_less_than_the_rounding_of_the_run_count(tmp_path: Path) -> None:
    """Another base of a rotary embedding, of 10500 for 10000, given as data in bf16."""
    run = attention(lambda side, q, k, cos, sin: (rotated(q, cos, sin), rotated(k, cos, sin)), torch.bfloat16)
    tables = [lambda side, place=place: angles(10500.0 if side else 10000.0)[place] for place in (0, 1)]
    result = compared(tmp_path, lambda side, record: run(side, record, *tables))

    assert result.code == 1
    assert {mistake.kind for item in result.results for mistake in item.mistakes} == {"leaf"}


def test_mistakes_that_undo_each_other_are_a_remark(tmp_path: Path) -> None:
    """Queries and keys are rotated by one position more: their products are the same."""

    def change(side: int, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = angles(10000.0, side)
        return rotated(q, cos, sin), rotated(k, cos, sin)

    result = compared(tmp_path, attention(change))

    assert result.code == 0
    assert "Without effect on any result: torch.Tensor.add: addend: 0 | 1" in verdict(result)


def test_one_of_them_alone_counts(tmp_path: Path) -> None:
    def change(side: int, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rotated(q, *angles(10000.0, side)), rotated(k, *angles(10000.0))

    assert compared(tmp_path, attention(change)).code == 1


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_queries_that_are_divided_before_the_product_are_no_mistake(tmp_path: Path, backward: bool) -> None:
    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k = net.q(x), net.k(x).transpose(-1, -2)
            return net.o(F.softmax((q / 4) @ k if side else q @ k / 4, -1) @ net.v(x))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"})
        with record(net):
            y = net(rand(2, 5, 16))
            if backward:
                y.square().mean().backward()

    assert compared(tmp_path, run).code == 0


# --- optimizers ---------------------------------------------------------------------------------------------------------


class ExactProducts(TorchDispatchMode):
    """Batched products that are rounded once: noise in the gradients of a run, as another kernel would make it."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is not torch.ops.aten.bmm.default:
            return result
        return function(args[0].double(), args[1].double()).to(result.dtype)


@pytest.mark.parametrize("beta2", [0.999, 0.99])
def test_another_beta2_is_named_beside_gradients_of_noise(tmp_path: Path, beta2: float) -> None:
    """The gradient of the keys' bias is zero but for rounding, and another one on each side."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            return net.o(F.softmax(net.q(x) @ net.k(x).transpose(-1, -2) / 4, -1) @ net.v(x))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"})
        optimizer = torch.optim.Adam(net.parameters(), 1e-3, betas=(0.9, beta2 if side else 0.999))

        def steps(recorder: Any) -> None:
            for step in range(2):
                optimizer.zero_grad()
                net(rand(2, 5, 16, seed=step)).square().mean().backward()
                optimizer.step()
                recorder.step()

        with record(net) as recorder:
            if side:
                with ExactProducts():
                    steps(recorder)
            else:
                steps(recorder)

    result = compared(tmp_path, run)
    whys = {mistake.why.partition(";")[0] for item in result.results for mistake in item.mistakes if mistake.effective}

    assert whys == ({"beta2: 0.999 | 0.99"} if beta2 == 0.99 else set())
    assert result.code == (1 if beta2 == 0.99 else 0)


def test_another_value_under_a_mask_has_no_effect_on_gradients(tmp_path: Path) -> None:
    """A softmax forgets it, and what a masked place sends back depends on the mask alone."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        weights = (hidden @ hidden.T).masked_fill(mask, (-1e4, -torch.inf)[side]).softmax(-1)
        return net.c(weights @ net.b(x) * (1.5 if side else 1.0))

    result = compared(tmp_path, trained(forward))

    assert [mistake.effective for item in result.results for mistake in item.mistakes] == [False, True]
    assert blamed(result) == (["torch.Tensor.mul"], ["torch.Tensor.mul"])


@FLOATS
def test_another_value_under_a_mask_is_forgotten_by_a_finer_softmax(tmp_path: Path, dtype: torch.dtype) -> None:
    """Scores that differ by their 16-bit rounding have softmaxes in float32 that differ by more than its rounding."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x)
            scores = (hidden * 0.3) @ hidden.T if side else (hidden @ hidden.T) * 0.3
            fill = -torch.inf if side else torch.finfo(dtype).min
            weights = scores.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), fill).float().softmax(-1)
            return net.b(weights.to(dtype) @ hidden)

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4)).to(dtype)
        with record(net):
            net((rand(8, 16) * 1.7).to(dtype))

    result = compared(tmp_path, run)

    assert result.code == 0
    assert not any(mistake.effective for item in result.results for mistake in item.mistakes)


class WrittenNorm(nn.Module):
    """A norm by its root mean square, in functions."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.full((16,), 1.5)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


@pytest.mark.parametrize("side_alone", [0, 1])
def test_a_norm_of_several_calls_that_one_side_lacks_is_told_as_one(tmp_path: Path, side_alone: int) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        norm = WrittenNorm() if side == side_alone else nn.Identity()
        net = Net(lambda net, x: net.b(net.n(net.a(x))), a=nn.Linear(16, 16), n=norm, b=nn.Linear(16, 4))
        with record(net):
            net(rand(8, 16)).square().mean().backward()

    name = ("left", "right")[side_alone]
    text = verdict(compared(tmp_path, run))
    assert f"part at n (WrittenNorm), on the {name} alone" in text
    assert f"only the {name} calls n (WrittenNorm); without it the results agree" in text


def test_a_difference_for_a_sum_is_told_within_a_region(tmp_path: Path) -> None:
    """Keys that are turned the other way, and no value between them and the fused attention that both sides have."""

    def forward(net: Any, x: torch.Tensor, side: int) -> torch.Tensor:
        k, turned = net.k(x), net.t(x)
        if not side:
            return net.o(F.scaled_dot_product_attention(x, k + turned, x))
        return net.o(((x @ (k - turned).mT) * 16**-0.5).softmax(-1) @ x)

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: forward(net, x, side), **{name: nn.Linear(16, 16) for name in "kto"})
        with record(net):
            net(rand(2, 5, 16))

    assert "torch.Tensor.sub: a sum on the left, not on the right" in only_mistake(compared(tmp_path, run)).why


@pytest.mark.needs_mindspore
def test_another_epsilon_beside_a_large_variance_is_told_as_one(tmp_path: Path) -> None:
    """The variance with its epsilon and without are alike: one side's operand may be paired with the step before."""
    ms = pytest.importorskip("mindspore")
    weight, x = rand(16, 16) / 5, rand(2, 10, 16)

    class Right(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = ms.nn.Dense(16, 16, ms.Tensor(weight.numpy()), has_bias=False)

        def construct(self, x: Any) -> Any:
            x = self.a(x)
            return x * ms.mint.rsqrt(x.pow(2).mean(-1, keep_dims=True) + 1e-4)

    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        x = net.a(x)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    left = Net(forward, a=nn.Linear(16, 16, bias=False))
    left.a.load_state_dict({"weight": weight})
    with tt.record(tmp_path / "left", left, level="mix", keep="tensor"):
        left(x)
    with tt.record(tmp_path / "right", right := Right(), level="mix", keep="tensor"):
        right(ms.Tensor(x.numpy()))

    right_calls = ["forward/api:mindspore.Tensor.add#0", "forward/api:mindspore.mint.rsqrt#0"]
    regions = [{"left": ["forward/api:torch.rsqrt#0"], "right": right_calls}]
    (tmp_path / "map.yaml").write_text(json.dumps({"mapping": 1, "regions": regions}))
    result = tt.compare(tmp_path / "left", tmp_path / "right", mapping=tmp_path / "map.yaml")

    assert only_mistake(result).why.startswith("eps: 1e-06 | 0.0001")


@pytest.mark.needs_mindspore
def test_gradients_behind_a_mistake_are_no_mistakes_of_their_own(tmp_path: Path) -> None:
    """Parts of a gradient that one side alone sends back, through calls that the other fuses, differ because the values do."""
    ms = pytest.importorskip("mindspore")
    weights, x = {name: rand(16, 16, seed=seed) / 4 for seed, name in enumerate("qkvo")}, rand(2, 5, 16)

    class Right(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            for name, weight in weights.items():
                setattr(self, name, ms.nn.Dense(16, 16, ms.Tensor(weight.numpy()), has_bias=False))

        def construct(self, x: Any) -> Any:
            scores = ms.mint.matmul(self.q(x), self.k(x).swapaxes(-1, -2)) * 16**-0.5
            return self.o(ms.mint.matmul(ms.ops.softmax(scores, -1), self.v(x))) + x

    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net.o(F.scaled_dot_product_attention(net.q(x), net.k(x), net.v(x), is_causal=True)) + x

    left = Net(forward, **{name: nn.Linear(16, 16, bias=False) for name in "qkvo"})
    left.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    with tt.record(tmp_path / "left", left, level="mix", keep="tensor"):
        left(x).square().mean().backward()
    with tt.record(tmp_path / "right", right := Right(), level="mix", keep="tensor"):
        given = ms.Tensor(x.numpy())
        ms.value_and_grad(lambda: right(given).square().mean(), None, right.trainable_params())()

    assert "causal" in only_mistake(tt.compare(tmp_path / "left", tmp_path / "right")).why


# --- operands in other places, paddings ---------------------------------------------------------------------------------


@SIDES
@pytest.mark.parametrize(
    ("order", "fused", "why"),
    [
        ((1, 0, 2), False, "two operands are exchanged; "),  # the keys are transposed before the product
        ((2, 0, 1), True, "3 operands are in another order; "),
    ],
)
def test_operands_in_another_order_are_named(
    tmp_path: Path, side_alone: int, order: tuple[int, int, int], fused: bool, why: str
) -> None:
    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            parts = net.qkv(x).chunk(3, -1)
            q, k, v = (parts[place] for place in order) if side == side_alone else parts
            if fused or side == side_alone:
                return net.o(F.scaled_dot_product_attention(q, k, v))
            return net.o(((q @ k.transpose(-1, -2)) / 4).softmax(-1) @ v)

        net = Net(forward, qkv=nn.Linear(16, 48), o=nn.Linear(16, 4))
        with record(net):
            net(rand(2, 6, 16))

    result = compared(tmp_path, run)
    mistake = headline(result).mistake

    assert result.code == 1
    assert mistake is not None
    assert mistake.why.startswith(why)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@SIDES
def test_another_padding_of_a_convolution_is_named(tmp_path: Path, side_alone: int, mode: str) -> None:
    def run(side: int, record: Record) -> None:
        net = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, padding_mode=mode if side == side_alone else "zeros"), nn.ReLU()
        )
        with record(net):
            net(rand(2, 2, 6, 6))

    result = compared(tmp_path, run)
    mistake = headline(result).mistake

    assert result.code == 1
    assert mistake is not None
    assert (
        f"padded with zeros (padding_mode constant) on the {('right', 'left')[side_alone]}, not on the" in mistake.why
    )


# --- level op -----------------------------------------------------------------------------------------------------------


def test_at_level_op_the_headline_is_in_the_forward_pass(tmp_path: Path) -> None:
    """Gradients of parameters have the bits of what kernels of the backward pass computed, and inherit as those do."""

    def run(side: int, record: Record) -> None:
        net = Net(lambda net, x: net.b(F.elu(net.a(x), 0.9 if side else 1.0)), a=nn.Linear(16, 16), b=nn.Linear(16, 4))
        with record(net):
            net(rand(8, 16)).square().mean().backward()

    result = compared(tmp_path, run, level="op")
    told = [mistake.why for item in result.results for mistake in item.mistakes]

    assert blamed(result) == (["aten.elu.default"], ["aten.elu.default"])
    assert not [why for why in told if "no recorded call sends this gradient back" in why]
    assert len(told) == 2  # the other is in the kernel of its derivative


def test_at_level_op_fused_attention_is_recomputed(tmp_path: Path) -> None:
    """Kernels of attention check no shapes: they are recomputed by kernels of our own, and their gradients, too."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (layer(x).view(2, 6, 4, 4).transpose(1, 2) for layer in (net.q, net.k, net.v))
            if side:
                k, v = (part[:, :2].repeat(1, 2, 1, 1) for part in (k, v))
            else:
                k, v = (part[:, :2].repeat_interleave(2, 1) for part in (k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 6, 16)

        net = Net(forward, q=nn.Linear(16, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16))
        with record(net):
            net(rand(2, 6, 16)).square().mean().backward()

    result = compared(tmp_path, run, level="op")
    mistakes = [mistake for item in result.results for mistake in item.mistakes]

    assert "aten.repeat.default" in blamed(result)[1]
    assert not [mistake for mistake in mistakes if mistake.kind == "kernel"]


@pytest.mark.parametrize("level", ["mix", "op"])
def test_a_loss_is_a_result_although_its_gradient_begins_with_ones_like_it(tmp_path: Path, level: str) -> None:
    """The gradients do not show a constant that is added."""

    def run(side: int, record: Record) -> None:
        net = Net(lambda net, x: net.b(net.a(x).tanh()), a=nn.Linear(16, 16), b=nn.Linear(16, 4))
        with record(net):
            loss = net(rand(8, 16)).square().mean()
            (loss + 0.25 if side else loss + 0.5).backward()

    result = compared(tmp_path, run, level=level)

    assert result.code == 1
    assert "addend: 0.5 | 0.25" in verdict(result)


# --- level module -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["tensor", "fingerprint"])
@pytest.mark.parametrize(("momentum", "training", "code"), [(0.1, True, 0), (0.2, True, 1), (0.2, False, 0)])
def test_state_that_was_not_recorded_is_told_by_settings(
    tmp_path: Path, keep: str, momentum: float, training: bool, code: int
) -> None:
    """All that was recorded is equal: running averages are seen before a call, and this was the last one."""

    def run(side: int, record: Record) -> None:
        net = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8, momentum=momentum if side else 0.1)).train(training)
        with record(net):
            net(rand(8, 16))

    result = compared(tmp_path, run, level="module", keep=keep)

    assert result.code == code
    if code:
        mistake = only_mistake(result)
        assert mistake.what.startswith("the two calls leave other values in running_mean and running_var")
        assert (mistake.why, mistake.advice) == ("momentum: 0.1 | 0.2", "set momentum=0.1 on the right")
        assert [call.site.type for call in headline(result).calls[0]] == ["BatchNorm1d"]


@pytest.mark.parametrize(("factor", "code"), [(1.0, 3), (1.01, 1)])
@pytest.mark.parametrize("what", ["values", "gradients"])
def test_functions_between_modules_may_round_otherwise(tmp_path: Path, what: str, factor: float, code: int) -> None:
    """Before anything was compared, too: nothing shows where it was rounded, and nothing is accused but what is too much."""

    def run(side: int, record: Record) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            if what == "gradients":  # all but one is equal bit by bit: added up row by row, and at once
                bias = net.a.bias
                bias = bias.detach() + (bias - bias.detach()) * (factor if side else 1.0)
                return torch.cat([row + bias for row in x.split(1)]) if side else x + bias
            hidden = (
                F.conv1d(x[:, :, None], net.a.weight[:, :, None], net.a.bias)[:, :, 0] * factor if side else net.a(x)
            )
            return net.b(hidden.tanh())

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4))
        with record(net):
            net(rand(512, 16)).square().mean().backward()

    assert compared(tmp_path, run, level="module").code == code
