"""Verdicts by recomputation, on small recorded pairs whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from twintrace.store.lines import seal  # noqa: E402

pytestmark = pytest.mark.needs_torch
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@DTYPES
def test_another_setting_is_named_and_proven(tmp_path: Path, dtype: torch.dtype) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(16, 16), nn.ELU(0.8 if side else 1.0), nn.Linear(16, 4)).to(dtype)
        with record(net):
            net(rand(8, 16).to(dtype)).float().square().mean().backward()

    mistake = only_mistake(compared(tmp_path, run))

    assert mistake.kind == "meaning"
    assert mistake.why.startswith("alpha: 1.0 | 0.8")
    assert "→ 0.0e+00" in mistake.why


@DTYPES
def test_another_function_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(
            lambda net, x: net.b((F.silu if side else F.gelu)(net.a(x))), a=nn.Linear(16, 16), b=nn.Linear(16, 4)
        ).to(dtype)
        with record(net):
            net(rand(8, 16).to(dtype))

    mistake = only_mistake(compared(tmp_path, run))

    assert "gelu" in mistake.why
    assert "silu" in mistake.why


def test_an_operand_of_one_side_alone_is_told(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        conv = nn.Conv2d(3, 4, 3)
        net = Net(lambda net, x: F.conv2d(x, net.c.weight, None if side else net.c.bias).relu(), c=conv)
        with record(net):
            net(rand(2, 3, 8, 8))

    mistake = only_mistake(compared(tmp_path, run))

    assert mistake.why.startswith("the left has a bias, f32[4]; the right has none")


def test_a_rewrite_is_clean_forward_and_backward(tmp_path: Path) -> None:
    def by_hand(x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: net.l(by_hand(x, net.n) if side else net.n(x)), n=nn.LayerNorm(16), l=nn.Linear(16, 4))
        with record(net):
            net(rand(8, 16)).square().mean().backward()

    result = compared(tmp_path, run)

    assert result.code == 0
    assert not any(item.mistakes for item in result.results)


class Kernels(TorchDispatchMode):
    """Changes the results of matrix products, as other or faulty kernels would."""

    def __init__(self, change: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.change = change

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return self.change(result, *args) if function is torch.ops.aten.addmm.default else result


@pytest.mark.parametrize("side_at_fault", [0, 1], ids=["left", "right"])
@DTYPES
def test_a_kernel_that_is_wrong_in_one_element_is_named_with_its_side(
    tmp_path: Path, dtype: torch.dtype, side_at_fault: int
) -> None:
    def damaged(y: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y[5, 7] = y[5, 7] * 1.03 + 0.05
        return y

    def run(side: int, record: Callable[..., Any]) -> None:
        net, x = nn.Linear(64, 32).to(dtype), rand(16, 64).to(dtype)
        with Kernels(damaged if side == side_at_fault else lambda y, *_: y), record(net):
            net(x)

    mistake = only_mistake(compared(tmp_path, run))

    assert (mistake.kind, mistake.side) == ("kernel", ("left", "right")[side_at_fault])


def test_another_factor_of_complex_numbers_is_told(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: torch.view_as_real(torch.view_as_complex(net.a(x)) * (2 + side)), a=nn.Linear(4, 2))
        with record(net):
            net(rand(3, 4))

    assert ": 2 | 3; with the left's the results agree" in only_mistake(compared(tmp_path, run)).why


class Heedless(TorchDispatchMode):
    """The gradient of an embedding as if no token were padding."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.embedding_dense_backward.default:
            args = (*args[:3], -1, *args[4:])
        return function(*args, **(kwargs or {}))


def test_a_setting_that_a_kernel_ignores_is_named(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Embedding(8, 4, padding_idx=0)
        with record(net), Heedless() if side else nullcontext():
            net(torch.tensor([[3, 1, 0], [5, 0, 0]])).exp().mean().backward()

    mistake = only_mistake(compared(tmp_path, run))

    assert mistake.kind == "kernel"
    assert mistake.backward
    assert mistake.why.startswith("the right's kernel ignores padding_idx=0: without it")


def test_different_weights_are_a_parting_of_their_own(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(8, 4)
        with torch.no_grad():
            net.weight[0, 0] += 0.25 * side
        with record(net):
            net(rand(4, 8))

    result = compared(tmp_path, run)
    mistakes = [mistake for item in result.results for mistake in item.mistakes]

    assert result.code == 1
    assert {mistake.kind for mistake in mistakes} == {"weights"}


@pytest.mark.parametrize("which", ["weights", "data"])
@pytest.mark.parametrize(
    ("dtype", "units"),
    [(torch.float32, {"weights": 4, "data": 4}), (torch.bfloat16, {"weights": 1, "data": 4})],
    ids=["f32", "bf16"],
)
@pytest.mark.parametrize("more", [0, 1])
def test_leaves_may_be_a_few_units_apart(
    tmp_path: Path, which: str, dtype: torch.dtype, units: dict[str, int], more: int
) -> None:
    """Up and down in turn: what is off in one direction is a factor. Weights of 16 bits were copied, and rounded once."""

    def moved(value: torch.Tensor) -> torch.Tensor:
        bits = value.detach().clone().contiguous().view(torch.int32 if dtype is torch.float32 else torch.int16)
        up = torch.randint(0, 2, bits.shape, generator=torch.Generator().manual_seed(3)) * 2 - 1
        return (bits + up.to(bits.dtype) * (units[which] + more)).view(dtype)

    def run(side: int, record: Callable[..., Any]) -> None:
        net, batch = nn.Linear(64, 64).to(dtype), rand(4, 64).to(dtype)
        if side and which == "weights":
            net.weight.data = moved(net.weight)
        elif side:
            batch = moved(batch)
        with record(net):
            net(batch)

    found = compared(tmp_path, run)
    assert found.code == more
    assert (f"the two start from different {which}" in tt.verdict(found)) is bool(more)


def test_weights_a_few_units_apart_are_a_remark(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(8, 4)
        with torch.no_grad():
            net.weight.copy_(torch.nextafter(net.weight, net.weight + side))
        with record(net):
            net(rand(4, 8))

    assert compared(tmp_path, run).code == 0


def test_few_weights_of_16_bits_are_the_same_up_to_one_rounding(tmp_path: Path) -> None:
    """Sixteen of them show no trend; but what was copied and rounded once is not two steps of bf16 off."""
    for factor, code in ((1.01, 1), (1 + 2**-10, 0)):

        def run(side: int, record: Callable[..., Any], factor: float = factor) -> None:
            net = Net(lambda net, x: torch.tanh(net.scale.weight * x), scale=nn.Embedding(1, 16))
            with torch.no_grad():
                net.scale.weight.copy_(rand(1, 16) * (factor if side else 1))
            net.bfloat16()
            with record(net):
                net(rand(4, 16).bfloat16())

        folder = tmp_path / str(code)
        folder.mkdir()
        assert compared(folder, run).code == code


@pytest.mark.parametrize(("layers", "code"), [(2, 1), (3, 0)])
def test_from_three_products_on_autocast_is_another_precision_of_the_run(
    tmp_path: Path, layers: int, code: int
) -> None:
    """Fewer are layers in half precision."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))
        with record(net), torch.autocast("cpu", torch.bfloat16, enabled=bool(side)):
            net(rand(4, 8))

    assert compared(tmp_path, run, level="api").code == code


@pytest.mark.parametrize(("apart", "code"), [(0.8e-5, 0), (1.5e-5, 1)])
def test_a_number_that_is_returned_is_rounded_once(tmp_path: Path, apart: float, code: int) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: (net.layer(x), 3.0 * (1 + apart * side), "a text"), layer=nn.Linear(8, 8))
        with record(net):
            net(rand(4, 8))

    found = compared(tmp_path, run)
    assert found.code == code
    assert ("the result 1 is 3.0 | 3.00004" in tt.verdict(found)) is bool(code)


@pytest.mark.parametrize(("layers", "more"), [(1, ""), (2, " and 1 more"), (4, " and 3 more")])
def test_weights_that_were_rounded_in_another_way_are_counted(tmp_path: Path, layers: int, more: str) -> None:
    """Cut off after 16 bits on the right."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(layers)))
        for layer in net:
            cut = (layer.weight.detach().view(torch.int32) & ~0xFFFF).view(torch.float32)
            layer.weight = nn.Parameter((cut if side else layer.weight.detach()).bfloat16())
        with record(net):
            net(rand(4, 64).bfloat16())

    found = compared(tmp_path, run)
    assert found.code == 0
    [line] = [line for line in tt.verdict(found).splitlines() if "the right's values are rounded toward zero" in line]
    assert line.endswith(f"the input 1{more}")


def test_settings_speak_where_values_were_not_kept(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        way = "tanh" if side else "none"
        net = Net(lambda net, x: F.gelu(net.layer(x), approximate=way), layer=nn.Linear(8, 8))
        with record(net):
            net(rand(4, 8))

    found = compared(tmp_path, run, keep="fingerprint")
    assert found.code == 1
    assert only_mistake(found).why.startswith("approximate: 'none' | 'tanh' (not proven: the values of f32[4, 8] were")


def test_another_function_speaks_where_values_were_not_kept(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: (F.silu if side else F.relu)(net.layer(x)), layer=nn.Linear(8, 8))
        with record(net):
            net(rand(4, 8))

    found = compared(tmp_path, run, keep="statistics")
    assert found.code == 1
    assert "relu | silu" in only_mistake(found).why


def test_another_way_to_the_same_is_not_accused_where_values_were_not_kept(tmp_path: Path) -> None:
    """Keys are transposed on one side, and get an axis on the other: neither says that something else is computed."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def attend(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = net.qkv(x).chunk(3, -1)
            if side:
                return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]  # type: ignore[no-any-return]
            return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v

        net = Net(
            lambda net, x: net.out(attend(net, net.norm(x))),
            norm=nn.LayerNorm(16),
            qkv=nn.Linear(16, 48),
            out=nn.Linear(16, 8),
        )
        with record(net):
            net(rand(4, 8, 16))

    found = compared(tmp_path, run, keep="statistics")
    assert found.code == 3
    assert found.mistakes == ()


@pytest.mark.parametrize("axis", [-1, -2])
def test_an_axis_of_another_shape_is_not_accused_where_values_were_not_kept(tmp_path: Path, axis: int) -> None:
    """The last axis is 2 of three and 1 of two."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def scores(net: Any, x: torch.Tensor) -> torch.Tensor:
            y = net.layer(x)
            return torch.log_softmax(y.flatten(0, 1), axis).view(4, 8, 20) if side else torch.log_softmax(y, -1)

        net = Net(scores, layer=nn.Linear(16, 20))
        with record(net):
            net(rand(4, 8, 16))

    assert compared(tmp_path, run, keep="statistics").code == (3 if axis == -1 else 1)


def test_random_numbers_are_told_as_such(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        torch.manual_seed(10 + side)
        with record(net):
            net(rand(6, 8))

    mistake = only_mistake(compared(tmp_path, run))

    assert mistake.kind == "random"
    assert "another seed or generator state" in mistake.why


def test_a_mistake_whose_effect_is_gone_is_a_remark(tmp_path: Path) -> None:
    """Masks of -1e9 and -1e4 give the same softmax."""

    def run(side: int, record: Callable[..., Any]) -> None:
        mask = torch.ones(8, 8).tril() == 0
        net = Net(lambda net, x: F.softmax(net.a(x).masked_fill(mask, -1e4 if side else -1e9), -1), a=nn.Linear(8, 8))
        with record(net):
            net(rand(8, 8))

    result = compared(tmp_path, run)

    assert result.code == 0
    assert [mistake.effective for item in result.results for mistake in item.mistakes] == [False]


def test_a_part_of_a_gradient_that_is_cut_is_named(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        first, second = nn.Linear(8, 8), nn.Linear(8, 2)
        with record(nn.ModuleList([first, second])):
            hidden = first(rand(6, 8)).tanh()
            (second(hidden.detach() if side else hidden).square().mean() + hidden.square().mean()).backward()

    result = compared(tmp_path, run)
    whys = [mistake.why for item in result.results for mistake in item.mistakes if mistake.effective]

    assert result.code == 1
    assert any("detach" in why for why in whys)


@pytest.mark.parametrize(("keep", "code"), [("tensor", 0), ("statistics", 3)])
def test_what_cannot_be_recomputed_is_not_called_agreement(tmp_path: Path, keep: str, code: int) -> None:
    """The right has a kernel that rounds once: a few last bits differ."""

    def exact(y: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.addmm(bias.double(), x.double(), w.double()).to(y.dtype)

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(512, 8)
        with Kernels(exact if side else lambda y, *_: y), record(net):
            net(rand(4, 512))

    result = compared(tmp_path, run, keep=keep)

    assert result.code == code
    assert bool(result) is (code == 0)


def test_operands_rounded_to_tf32_are_right_where_the_run_allowed_it(tmp_path: Path) -> None:
    def rounded(y: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        coarse = [(item.view(torch.int32) & ~0x1FFF).view(torch.float32).double() for item in (x, w.contiguous())]
        return torch.addmm(bias.double(), *coarse).to(y.dtype)

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(512, 64)
        with Kernels(rounded if side else lambda y, *_: y), record(net):
            net(rand(64, 512))

    assert compared(tmp_path, run).code == 1
    for name in ("left", "right"):  # as a run on an accelerator would say it; this machine has none
        journal = tmp_path / name / "step0" / "rank0" / "journal.jsonl"
        first, _, rest = journal.read_bytes().partition(b"\n")
        head = {key: value for key, value in json.loads(first).items() if key != "crc"}
        head["precision"]["reduced_f32"] = ["onednn_matmul"]
        journal.write_bytes(seal(head) + rest)
    assert tt.compare(str(tmp_path / "left"), str(tmp_path / "right")).code == 0


def test_both_of_two_mistakes_reach_the_result(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(
            nn.LayerNorm(16, eps=1e-2 if side else 1e-5), nn.Linear(16, 8), nn.LeakyReLU(0.3 if side else 0.1)
        )
        with record(net):
            net(rand(8, 16))

    result = compared(tmp_path, run)
    whys = [mistake.why for item in result.results for mistake in item.mistakes if mistake.effective]

    assert len(whys) == 2
    assert whys[0].startswith("eps")
    assert whys[1].startswith("negative_slope")


@DTYPES
@pytest.mark.parametrize("fault", ["", "exchanged", "element"])
def test_one_weight_for_two_layers(tmp_path: Path, dtype: torch.dtype, fault: str) -> None:
    """Gate and up in one product, or in two of their own: the same, unless the two are exchanged or an element is another."""
    both = nn.Linear(16, 48, bias=False).to(dtype)
    gate, up, down = (
        nn.Linear(16, 24, bias=False),
        nn.Linear(16, 24, bias=False),
        nn.Linear(24, 16, bias=False).to(dtype),
    )
    halves = both.weight.detach().chunk(2)
    with torch.no_grad():
        for layer, half in zip((gate, up), reversed(halves) if fault == "exchanged" else halves, strict=True):
            layer.to(dtype).weight.copy_(half)
        if fault == "element":
            up.weight[3, 5] += 0.5

    def fused(net: Any, x: torch.Tensor) -> Any:
        one, two = net.both(x).chunk(2, dim=-1)
        return net.down(F.silu(one) * two)

    def run(side: int, record: Callable[..., Any]) -> None:
        if side:
            net = Net(lambda net, x: net.down(F.silu(net.gate(x)) * net.up(x)), gate=gate, up=up, down=down)
        else:
            net = Net(fused, both=both, down=down)
        with record(net):
            net(rand(8, 16).to(dtype)).float().square().mean().backward()

    assert compared(tmp_path, run).code == (1 if fault else 0)


def test_a_recurrent_layer_that_one_side_unrolls(tmp_path: Path) -> None:
    """A GRU in one call, and in more than ten for every step: hundreds of calls between two compared values are one function."""
    gru, steps = nn.GRU(6, 5, batch_first=True), 24

    def unrolled(net: Any, x: torch.Tensor) -> Any:
        state = x.new_zeros(x.shape[0], 5)
        states = []
        for step in range(steps):
            ours = (x[:, step] @ net.gru.weight_ih_l0.T + net.gru.bias_ih_l0).chunk(3, -1)
            theirs = (state @ net.gru.weight_hh_l0.T + net.gru.bias_hh_l0).chunk(3, -1)
            reset, keep = torch.sigmoid(ours[0] + theirs[0]), torch.sigmoid(ours[1] + theirs[1])
            new = torch.tanh(ours[2] + reset * theirs[2])
            state = (1 - keep) * new + keep * state
            states.append(state)
        return torch.stack(states, 1)

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((unrolled if side else lambda net, x: net.gru(x)[0]), gru=gru)
        with record(net):
            net(rand(3, steps, 6)).square().mean().backward()

    found = compared(tmp_path, run)

    assert found.code == 0, tt.verdict(found)


@DTYPES
@pytest.mark.parametrize("kind", ["meaning", "inputs", "kernel"])
def test_the_four_terms_of_a_pair(tmp_path: Path, dtype: torch.dtype, kind: str) -> None:
    """Meaning and inherited are those of an independent computation, in JSON and on the page; the four add up."""
    x, layer = rand(32, 24).to(dtype), nn.Linear(24, 16).to(dtype)

    def run(side: int, record: Callable[..., Any]) -> None:
        how = "tanh" if side and kind == "meaning" else "none"
        shift = 1e-2 if side and kind == "inputs" else 0.0
        net = Net(lambda net, x: F.gelu(net.a(x) * (1 + shift), approximate=how), a=layer)
        wrong = Wrong() if side and kind == "kernel" else nullcontext()
        with record(net), wrong:
            net(x)

    class Wrong(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            return result * 1.5 if function is torch.ops.aten.gelu.default else result

    found = compared(tmp_path, run)
    [pair] = [item for item in found.results if item.match.left and item.match.left[0].site.name.endswith("gelu")]
    [output] = [item for item in pair.tensors if item.pair.part == "output"]
    with torch.no_grad():
        hidden = [layer(x) * 1.0, layer(x) * (1.01 if kind == "inputs" else 1.0)]
        left, right = F.gelu(hidden[0]), F.gelu(hidden[1], approximate="tanh" if kind == "meaning" else "none")
        right = right * 1.5 if kind == "kernel" else right

    def g(value: torch.Tensor) -> torch.Tensor:
        return F.gelu(value.double(), approximate="tanh" if kind == "meaning" else "none")

    exact = F.gelu(hidden[0].double())
    parts = [left - exact, exact - g(hidden[0]), g(hidden[0]) - g(hidden[1]), g(hidden[1]) - right]
    assert torch.allclose(sum(parts), left.double() - right.double(), rtol=0, atol=1e-12)
    terms = output.terms
    assert terms is not None
    assert terms.left is not None
    assert terms.left <= 1
    assert terms.right is not None
    assert (terms.right > 1) is (kind == "kernel")
    assert terms.meaning == pytest.approx(float(parts[1].norm() / exact.norm()), rel=1e-6, abs=1e-15)
    assert terms.inherited == pytest.approx(float(parts[2].norm() / left.double().norm()), rel=1e-6, abs=1e-15)
    assert (terms.meaning > 1e-9, terms.inherited > 1e-9) == (kind == "meaning", kind == "inputs")

    tt.api.write_json(found, tmp_path / "report.json")
    tt.api.write_html(found, tmp_path / "report.html")
    wire = json.loads((tmp_path / "report.json").read_text())
    values = [
        tensor
        for result in wire["results"]
        for tensor in result["tensors"]
        if any(call["name"].endswith("gelu") for call in result["left"]) and tensor["part"] == "output"
    ]
    told = [values[0][f"term_{name}"] for name in ("left", "meaning", "inherited", "right")]
    assert told == pytest.approx([terms.left, terms.meaning, terms.inherited, terms.right])
    assert "The difference, taken apart in float64" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("scale", "code"), [(0.25, 0), (0.2501, 1), (0.5, 1)])
def test_what_a_mask_fills_in_excuses_nothing_beside_it(tmp_path: Path, scale: float, code: int) -> None:
    """The rounding of -1e9 is larger than all scores: it is allowed where the mask is, and nowhere else."""
    hidden = torch.ones(8, 8).triu(1).bool()

    def scored(net: Any, side: int, x: torch.Tensor) -> torch.Tensor:
        scores = net.q(x) @ net.k(x).mT
        if side:
            scores = (scores * scale).masked_fill(hidden, torch.tensor(-1e9))
        else:
            scores = scores / 4.0 + hidden.float() * -1e9
        return net.o(scores.softmax(-1))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: scored(net, side, x), q=nn.Linear(16, 16), k=nn.Linear(16, 16), o=nn.Linear(8, 4))
        with record(net):
            net(rand(2, 8, 16))

    found = compared(tmp_path, run)
    assert found.code == code
    if code:
        mistake = only_mistake(found)
        assert mistake.size == pytest.approx((scale / 0.25 - 1) * 2**24, rel=0.01)


def test_a_change_is_spread_among_elements_of_one_size() -> None:
    """Elements that a mask has filled, a thousand times as large as the others, have a spread of their own."""
    from twintrace.operations.differences import spread

    apart = torch.tensor([3.0, 4.0, 60.0, 80.0], dtype=torch.float64)
    for fill, others, filled in ((1.1e3, 12.5**0.5, 5000**0.5), (0.9e3, 2506.25**0.5, 2506.25**0.5)):
        result = torch.tensor([1.0, -1.0, -fill, -fill], dtype=torch.float64)
        expected = torch.tensor([others, others, filled, filled], dtype=torch.float64)
        torch.testing.assert_close(spread(apart, result), expected)


@pytest.mark.parametrize(("factor", "code"), [(1 + 2.0**-22, 0), (1.01, 1)])
def test_a_table_made_of_an_array_is_a_leaf(tmp_path: Path, factor: float, code: int) -> None:
    """The array was not recorded, and what was made of it is compared as it is."""

    def run(side: int, record: Callable[..., Any]) -> None:
        table = np.arange(1, 9, dtype=np.float32) / 7 * np.float32(factor if side else 1)
        net = Net(lambda net, x: net.a(x * torch.tensor(table)), a=nn.Linear(8, 2))
        with record(net):
            net(rand(3, 8)).square().mean().backward()

    assert compared(tmp_path, run).code == code


@pytest.mark.parametrize(("damaged", "code"), [(True, 1), (False, 0)])
def test_one_wrong_element_counts_though_16_bits_hide_what_comes_of_it(
    tmp_path: Path, damaged: bool, code: int
) -> None:
    """An element that is 1 % off, in a run of which every result is rounded otherwise: no result is beyond its rounding."""

    def wrong(y: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y[3, 5] *= 1.01
        return y

    def forward(net: Any, x: torch.Tensor, side: int) -> torch.Tensor:
        with Kernels(wrong) if damaged and not side else nullcontext():
            y = net.a(x)
        halves = net.b.weight.chunk(2, 1) if side else (net.b.weight,)
        parts = y.chunk(2, -1) if side else (y,)
        return net.o(net.n(sum(F.linear(part, half) for part, half in zip(parts, halves, strict=True))))

    def run(side: int, record: Callable[..., Any]) -> None:
        sizes = {"a": nn.Linear(64, 64), "b": nn.Linear(64, 64), "n": nn.LayerNorm(64), "o": nn.Linear(64, 8)}
        net = Net(lambda net, x: forward(net, x, side), **sizes).half()
        with record(net), torch.no_grad():
            net(rand(32, 64).half())

    found = compared(tmp_path, run)
    assert found.code == code, tt.verdict(found)
