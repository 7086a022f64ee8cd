"""Level op: one computation in other kernels. Nothing but kernels is recorded there, so that results are what no kernel takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch
LAYERS = {"query": (16, 16), "key": (16, 16), "value": (16, 16), "out": (16, 16)}
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, 6, 2, 8).transpose(1, 2)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float = 8**-0.5) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v


def attended(attend: Attention, *, fused: bool = False) -> Callable[..., torch.Tensor]:
    def run(net: Any, x: torch.Tensor) -> torch.Tensor:
        layers = net.query, net.key, net.value
        if fused:
            weight, bias = torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])
            parts = F.linear(x, weight, bias).chunk(3, -1)
        else:
            parts = tuple(layer(x) for layer in layers)
        return net.out(attend(*map(heads, parts)).transpose(1, 2).reshape(2, 6, 16))

    return run


def judged(tmp_path: Path, left: Callable[..., Any], right: Callable[..., Any], *, trained: bool = True) -> Any:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], **{name: nn.Linear(*sizes) for name, sizes in LAYERS.items()})
        with record(net):
            loss = net(rand(2, 6, 16)).pow(2).mean()
            if trained:
                loss.backward()

    return compared(tmp_path, run, level="op")


@pytest.mark.parametrize("trained", [True, False])
def test_attention_written_out_agrees_with_its_kernel(tmp_path: Path, trained: bool) -> None:
    """Its kernel puts out the sums of its softmax as well, which nobody takes without a backward pass."""
    result = judged(tmp_path, attended(F.scaled_dot_product_attention), attended(plain), trained=trained)
    assert result.code == 0, result


def test_another_scale_is_told_between_the_kernel_and_the_calls(tmp_path: Path) -> None:
    wrong = attended(lambda q, k, v: plain(q, k, v, 1 / 8))
    assert judged(tmp_path, attended(F.scaled_dot_product_attention), wrong).code == 1


def test_gradients_of_one_weight_and_of_three_are_not_paired_by_their_numbers(tmp_path: Path) -> None:
    """`detach` is called for each gradient, in another order on each side: the fourth of one is not the fourth of the other."""
    three, one = attended(F.scaled_dot_product_attention), attended(F.scaled_dot_product_attention, fused=True)
    result = judged(tmp_path, three, one)
    assert result.code != 1, result


def test_attention_of_a_module_beside_one_of_functions(tmp_path: Path) -> None:
    """Calls that complete a pair are in none of their own."""

    def own(net: Any, x: torch.Tensor) -> torch.Tensor:
        inner = net.attention
        q, k, v = (
            part.view(3, 7, 2, 8).transpose(1, 2)
            for part in F.linear(x, inner.in_proj_weight, inner.in_proj_bias).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        return inner.out_proj(mixed.transpose(1, 2).reshape(x.shape))

    def run(side: int, record: Callable[..., Any]) -> None:
        attention = nn.MultiheadAttention(16, 2, batch_first=True)
        forward = own if side else lambda net, x: net.attention(x, x, x, need_weights=False)[0]
        net = Net(forward, attention=attention)
        with record(net):
            net(rand(3, 7, 16)).square().mean().backward()

    found = compared(tmp_path, run, level="op")
    assert found.code == 0


@pytest.mark.parametrize("level", ["mix", "op"])
def test_transposed_weights_of_a_square_layer_are_told(tmp_path: Path, level: str) -> None:
    """The layer transposes its weight on both sides, which makes the same values in another order of axes out of them."""

    def run(side: int, record: Callable[..., Any]) -> None:
        layer = nn.Linear(16, 16)
        if side:
            with torch.no_grad():
                layer.weight.copy_(layer.weight.t().clone())
        net = Net(lambda net, x: net.b(torch.tanh(net.a(x))), a=layer, b=nn.Linear(16, 4))
        with record(net):
            net(rand(3, 16)).square().mean().backward()

    result = compared(tmp_path, run, level=level)
    assert result.code == 1
    first = next(mistake for item in result.results for mistake in item.mistakes if mistake.effective)
    assert (first.kind, first.why) == ("weights", "the right's is the left's, transposed")


def test_transposed_data_are_told(tmp_path: Path) -> None:
    """Both sides transpose their data, which are each other's in another order of axes."""

    def run(side: int, record: Callable[..., Any]) -> None:
        data = rand(16, 16)
        net = Net(lambda net, x: net.a(x.t()), a=nn.Linear(16, 4))
        with record(net):
            net(data.t().contiguous() if side else data).square().mean().backward()

    assert compared(tmp_path, run, level="op").code == 1


def norm_by_hand(factor: float) -> Callable[[Any], Any]:
    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) * factor + 1e-5)

    return norm


@pytest.mark.parametrize("factor", [1.0, 1.0001])
@pytest.mark.parametrize("turned", [False, True])
def test_a_backward_pass_begins_with_values_that_were_rounded(tmp_path: Path, factor: float, turned: bool) -> None:
    """The kernel takes the mean and the deviation that it has saved in float32, the other side its own ones."""

    def run(side: int, record: Callable[..., Any]) -> None:
        norm = (lambda x: F.layer_norm(x, (16,)), norm_by_hand(factor))[side ^ turned]
        net = Net(lambda net, x: net.b(norm(net.a(x))), a=nn.Linear(16, 16), b=nn.Linear(16, 16))
        with record(net):
            result = net(rand(4, 5, 16))
            ((result * torch.arange(320.0).cos().reshape(4, 5, 16)).mean() + result.square().mean()).backward()

    assert compared(tmp_path, run, level="op").code == int(factor != 1)


@pytest.mark.parametrize("level", ["op", "mix"])
def test_gradients_of_keys_in_one_weight_beside_three_are_rounding(tmp_path: Path, level: str) -> None:
    """A softmax does not change with the bias of its keys. At level op no call has a gradient that would say how large they are."""

    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        if hasattr(net, "whole"):
            q, k, v = net.whole(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (heads(layer(x)) for layer in (net.query, net.key, net.value))
        return net.out(plain(q, k, v).transpose(1, 2).reshape(2, 6, 16))

    def run(side: int, record: Callable[..., Any]) -> None:
        torch.manual_seed(0)
        whole, out = nn.Linear(16, 48), nn.Linear(16, 16)
        parts = {name: nn.Linear(16, 16) for name in ("query", "key", "value")}
        with torch.no_grad():
            for layer, weight, bias in zip(parts.values(), whole.weight.chunk(3), whole.bias.chunk(3), strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        net = Net(forward, out=out, **(parts if side else {"whole": whole}))
        with record(net):
            net(rand(2, 6, 16)).square().mean().backward()

    result = compared(tmp_path, run, level=level)
    assert result.code == 0, result
    modules = [match for item in result.results if (match := item.match).left and match.left[0].site.name == "whole"]
    assert not [match.right[0].site.name for match in modules if match.right[0].site.kind == "module"]
