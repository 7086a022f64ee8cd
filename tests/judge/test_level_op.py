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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_a_small_term_of_the_loss_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    """In bf16 the loss is rounded to the same bits, and the term is less in each gradient than the rounding of saved values."""
    labels = torch.randint(0, 32, (64,), generator=torch.Generator().manual_seed(3))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda s, x: s.out(s.key(x)), key=nn.Linear(32, 32), out=nn.Linear(32, 32)).to(dtype)
        with record(net):
            out = net(rand(64, 32).to(dtype))
            loss = F.cross_entropy(out, labels)
            (loss if side else loss + 0.01 * out.pow(2).mean()).backward()

    result = compared(tmp_path, run, level="op")

    assert result.code == 1
    assert "only the left adds" in str(result)


def test_an_interpolation_by_a_factor_that_float32_rounds_down(tmp_path: Path) -> None:
    """20 of 12 rows: the factor decides on the shape, and is no constant that may be off by its rounding."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda s, x: F.interpolate(x, scale_factor=20 / 12, mode=("bilinear", "bicubic")[side]))
        with record(net):
            net(rand(1, 2, 12, 12))

    assert compared(tmp_path, run, level="op").code == 1


def four(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(4, 16, 4, 8).transpose(1, 2)


def by_kernel(s: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = four(s.query(x)), s.key(x), s.value(x)
    return s.out(F.scaled_dot_product_attention(q, four(k), four(v)).transpose(1, 2).reshape(4, 16, 32))


def by_scaled_queries(s: Any, x: torch.Tensor) -> torch.Tensor:
    mixed = (four(s.query(x) * 8**-0.5) @ four(s.key(x)).mT).softmax(-1) @ four(s.value(x))
    return s.out(mixed.transpose(1, 2).reshape(4, 16, 32))


def by_heads_attention(s: Any, x: torch.Tensor) -> torch.Tensor:
    weights, biases = (
        torch.cat([getattr(s, n).get_parameter(p) for n in ("query", "key", "value")]) for p in ("weight", "bias")
    )
    data, out = x.transpose(0, 1), s.out
    rest = None, None, False, 0.0, out.weight, out.bias
    return F.multi_head_attention_forward(data, data, data, 32, 4, weights, biases, *rest, need_weights=False)[
        0
    ].transpose(0, 1)


def by_each_head(s: Any, x: torch.Tensor) -> torch.Tensor:
    heads = [[layer(x).chunk(4, -1)[head] for layer in (s.query, s.key, s.value)] for head in range(4)]
    return s.out(torch.cat([F.scaled_dot_product_attention(*own) for own in heads], -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("right", "level"), [(by_scaled_queries, "op"), (by_heads_attention, "op"), (by_each_head, "api")]
)
def test_queries_keys_and_values_computed_in_another_way(
    tmp_path: Path, right: Callable[..., torch.Tensor], level: str, dtype: torch.dtype
) -> None:
    """Their products take the same data. PyTorch computes the gradient of scaled queries later; of three stacked square gradients
    an order of axes is found in which they are equal, which is not theirs; of a chunk for one head the rest is left over.
    """

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((by_kernel, right)[side], **{name: nn.Linear(32, 32) for name in LAYERS}).to(dtype)
        with record(net):
            out = net(rand(4, 16, 32).to(dtype)).float()
            (out * torch.linspace(-1, 1.3, out.numel()).reshape(out.shape)).sum().backward()

    assert compared(tmp_path, run, level=level).code == 0


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
