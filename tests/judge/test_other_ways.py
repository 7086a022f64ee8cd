"""Correct ports that go another way to the same result: pairs by chance, unseen copies, gradients of rounding are no mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from twintrace.report.text import verdict  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.mark.parametrize("scaled_before", [False, True])
def test_gradients_of_scores_that_decide_nothing_are_rounding(tmp_path: Path, scaled_before: bool) -> None:
    """The first token attends to itself alone: its scores have no gradient but rounding, and what that goes on to has none."""

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(3, 5, 4, 32).transpose(1, 2)

    def attend(net: Any, x: torch.Tensor, fused: bool) -> torch.Tensor:
        q, k, v = net.q(x), split(net.k(x)), split(net.v(x))
        mask = torch.full((5, 5), float("-inf")).triu(1)
        if fused:
            mixed = F.scaled_dot_product_attention(split(q), k, v, is_causal=True)
        elif scaled_before:
            mixed = (split(q * 32**-0.5) @ k.mT + mask).softmax(-1) @ v
        else:
            mixed = ((split(q) @ k.mT) * 32**-0.5 + mask).softmax(-1) @ v
        return net.o(mixed.transpose(1, 2).reshape(3, 5, 128))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(
            lambda net, x: attend(net, net.i(x), not side)[:, 0], **{name: nn.Linear(128, 128) for name in "iqkvo"}
        )
        with record(net):
            net(rand(3, 5, 128)).square().mean().backward()

    result = compared(tmp_path, run)

    noise = [
        item
        for one in result.results
        for item in one.tensors
        if item.pair.left_slot == "q.weight" and item.verdict.error
    ]
    assert noise[-1].verdict.error > 0.1
    assert result.code == 0


@pytest.mark.parametrize(("apart", "rows", "code"), [(2e-6, 64, 0), (2e-6, 8192, 0), (2e-4, 64, 1)])
def test_tables_that_each_side_computed_count_by_their_effect(
    tmp_path: Path, apart: float, rows: int, code: int
) -> None:
    """A table of sines that was made before the recording has the rounding of its arguments in it. That of rows which nobody
    takes does not count, however large.
    """

    def run(side: int, record: Callable[..., Any]) -> None:
        angles = torch.outer(torch.arange(float(rows)), torch.logspace(0, -4, 16))
        table = (angles + (apart * side if apart > 1e-5 else angles * 5e-8 * side)).sin()
        net = Net(lambda net, x: net.o(net.i(x) + table[:6]), i=nn.Linear(16, 16), o=nn.Linear(16, 4))
        with record(net):
            net(rand(2, 6, 16)).square().mean().backward()

    result = compared(tmp_path, run)

    assert result.code == code
    assert any("different data" in mistake.what for item in result.results for mistake in item.mistakes)


def test_data_that_were_given_count_however_small(tmp_path: Path) -> None:
    """Inputs of the run are the user's, and no table."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net, x = nn.Linear(16, 4), rand(4, 16) * (1 + 2e-6 * side)
        with record(net):
            net(x)

    result = compared(tmp_path, run)

    assert result.code == 1
    assert only_mistake(result).kind == "leaf"


def test_heads_as_many_as_tokens(tmp_path: Path) -> None:
    """What one side has split into heads, the other still has in one piece; the shapes do not tell."""

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 2, 2, 8).transpose(1, 2)

    def scaled_before(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return split(q * 8**-0.5) @ k.mT

    def scaled_after(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (split(q) @ k.mT) * 8**-0.5

    def forward(net: Any, x: torch.Tensor, side: int) -> torch.Tensor:
        q, k, v = net.q(x), split(net.k(x)), split(net.v(x))
        scores = scaled_before(q, k) if side else scaled_after(q, k)
        return net.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 2, 16))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: forward(net, x, side), **{name: nn.Linear(16, 16) for name in "qkvo"})
        with record(net):
            net(rand(2, 2, 16)).square().mean().backward()

    assert compared(tmp_path, run).code == 0


def ported(
    tmp_path: Path, forward: Callable[..., Any], construct: Callable[..., Any], x: torch.Tensor, **options: Any
) -> tt.Comparison:
    """A network of three layers `a`, `b`, `c` (8 to 8, without bias), an embedding `e` and an identity, beside its port."""
    ms = pytest.importorskip("mindspore")
    weights = {name: rand(8, 8, seed=seed) / 3 for seed, name in enumerate("abce")}

    class Right(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            for name in "abc":
                setattr(self, name, ms.nn.Dense(8, 8, ms.Tensor(weights[name].numpy()), has_bias=False))
            self.e = ms.nn.Embedding(8, 8, embedding_table=ms.Tensor(weights["e"].numpy()))
            self.same = ms.nn.Identity()

        def construct(self, x: Any) -> Any:
            return construct(self, x)

    layers: dict[str, nn.Module] = {name: nn.Linear(8, 8, bias=False) for name in "abc"}
    left = Net(forward, **layers, e=nn.Embedding(8, 8), same=nn.Identity())
    left.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    right, given = Right(), ms.Tensor(x.numpy())
    with tt.record(tmp_path / "left", left, level="mix", keep="tensor"):
        left(x).square().mean().backward()
    with tt.record(tmp_path / "right", right, level="mix", keep="tensor"):
        ms.value_and_grad(lambda: right(given).square().mean(), None, right.trainable_params())()
    return tt.compare(tmp_path / "left", tmp_path / "right", **options)


@pytest.mark.needs_mindspore
def test_values_that_are_numbered_anew_after_a_write(tmp_path: Path) -> None:
    """MindSpore has no version counter: after each write all tensors count as new, and are copies of what was there."""

    def forward(net: Any, x: Any) -> Any:
        bias = net.a(x).swapaxes(0, 1).contiguous()
        one, two = net.b(x), net.c(x)
        one += bias
        two += net.same(bias)
        return one.tanh() * two + net.same(bias)

    assert ported(tmp_path, forward, forward, rand(8, 8)).code == 0


@pytest.mark.needs_mindspore
def test_positions_for_a_mask_are_not_those_for_an_embedding(tmp_path: Path) -> None:
    """One side adds an offset to positions for the embedding, and the other for its mask."""
    ms = pytest.importorskip("mindspore")

    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        x = net.a(x) + net.e(torch.arange(6) + 2)
        return net.c(F.scaled_dot_product_attention(net.b(x), x, x, is_causal=True))

    def construct(net: Any, x: Any) -> Any:
        places = ms.ops.arange(6)
        hidden = (places < (places + 1).view(6, 1)).logical_not()
        x = net.a(x) + net.e(ms.ops.arange(2, 8))
        scores = ms.ops.matmul(net.b(x), x.swapaxes(-1, -2)) * 8**-0.5
        return net.c(ms.ops.matmul(ms.ops.softmax(scores.masked_fill(hidden, -1e9), -1), x))

    chance = {"mapping": 1, "calls": {"forward/api:torch.Tensor.add#0": "forward/api:mindspore.Tensor.add#0"}}
    mapping = tmp_path / "map.yaml"
    mapping.write_text(json.dumps(chance))
    assert ported(tmp_path, forward, construct, rand(2, 6, 8), mapping=mapping).code == 0


@pytest.mark.needs_mindspore
@pytest.mark.parametrize("shift", [1, 2])
def test_the_last_token_is_found_in_two_ways(tmp_path: Path, shift: int) -> None:
    """As the last that is no padding, or as the one before the first padding; one place too early is told."""
    ms = pytest.importorskip("mindspore")

    def forward(net: Any, tokens: torch.Tensor) -> torch.Tensor:
        x = net.a(net.e(tokens))
        known = (tokens != 0).to(torch.int32)
        last = (torch.arange(5, dtype=torch.int32) * known).argmax(-1)
        return x[torch.arange(3), last]

    def construct(net: Any, tokens: Any) -> Any:
        x = net.a(net.e(tokens))
        last = (ms.ops.equal(tokens, 0).to(ms.int32).argmax(-1) - shift) % 5
        return x[ms.ops.arange(3), last]

    tokens = torch.tensor([[5, 3, 7, 1, 2], [2, 6, 5, 5, 1], [4, 4, 4, 4, 3]])
    assert ported(tmp_path, forward, construct, tokens).code == (shift != 1)


@pytest.mark.needs_mindspore
def test_a_table_that_one_side_has_in_every_layer_is_compared_layer_by_layer(tmp_path: Path) -> None:
    """The second layer has other frequencies on the left; on the right all that comes of them is what the first layer made."""
    ms = pytest.importorskip("mindspore")
    weight = rand(8, 8) / 3

    def turned(x: Any, places: Any, frequencies: Any) -> Any:
        return x * (places * frequencies).cos()

    class Turn(nn.Module):
        def __init__(self, base: float) -> None:
            super().__init__()
            self.register_buffer("frequencies", base ** (-torch.arange(8) / 8))

        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            return turned(x, places, self.frequencies)

    class Turned(ms.nn.Cell):
        def __init__(self, base: float) -> None:
            super().__init__()
            self.register_buffer("frequencies", ms.Tensor((base ** (-torch.arange(8) / 8)).numpy()))

        def construct(self, x: Any, places: Any) -> Any:
            return turned(x, places, self.frequencies)

    class Right(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = ms.nn.Dense(8, 8, ms.Tensor(weight.numpy()), has_bias=False)
            self.one, self.two = Turned(100.0), Turned(100.0)

        def construct(self, x: Any, places: Any) -> Any:
            return self.two(self.a(self.one(x, places)), places)

    left = Net(
        lambda net, x, places: net.two(net.a(net.one(x, places)), places),
        a=nn.Linear(8, 8, bias=False), one=Turn(100.0), two=Turn(1000.0),
    )  # fmt: skip
    left.a.load_state_dict({"weight": weight})
    x, places = rand(5, 8), torch.arange(5.0)[:, None]
    with tt.record(tmp_path / "left", left, level="mix", keep="tensor"):
        left(x, places)
    with tt.record(tmp_path / "right", right := Right(), level="mix", keep="tensor"):
        right(ms.Tensor(x.numpy()), ms.Tensor(places.numpy()))

    result = tt.compare(tmp_path / "left", tmp_path / "right")

    assert only_mistake(result).what == "the two start from different buffers: the buffer frequencies"
    assert "all of the gap at the output goes away" in verdict(result)


@pytest.mark.parametrize("factor", [1.0, 1.0 + 2**-18])
def test_a_helper_that_is_not_recorded_begins_with_rounded_values(tmp_path: Path, factor: float) -> None:
    """Its result is held against what the other side makes of the values before it, not of those that the run begins with."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            h = x / 3.0 if side else x * (1 / 3.0)
            for layer in net.layers:
                h = torch.sin(8 * layer(h))
            gate, up = net.gate(h), net.up(h)
            if side:
                return net.down(F.silu(gate) * up)
            with torch._C.DisableTorchFunction():  # as a compiled function does
                made = F.silu(gate) * up * factor
            return net.down(made)

        layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(6))
        net = Net(forward, layers=layers, gate=nn.Linear(32, 32), up=nn.Linear(32, 32), down=nn.Linear(32, 8))
        with torch.no_grad(), record(net):
            net(rand(64, 32))

    assert compared(tmp_path, run).code == (0 if factor == 1.0 else 1)


@pytest.mark.needs_mindspore
@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.001, 1)])
def test_the_largest_values_come_in_any_order_unless_they_are_sorted(tmp_path: Path, factor: float, code: int) -> None:
    """A router that takes its experts as they come: weights and their gradients lie in another order on each side."""
    ms = pytest.importorskip("mindspore")

    def forward(net: Any, x: Any) -> Any:
        scores = net.a(x).sigmoid()
        _, places = torch.topk(scores, 5, dim=-1, sorted=False)
        weights = scores.gather(-1, places)
        weights = weights / weights.sum(-1, keepdim=True)
        return (net.e(places) * weights.unsqueeze(-1)).sum(1)

    def construct(net: Any, x: Any) -> Any:
        scores = net.a(x).sigmoid()
        _, places = ms.ops.topk(scores, 5, -1, True, False)
        weights = scores.gather_elements(-1, places)
        weights = weights / weights.sum(-1, keepdims=True) * factor
        return (net.e(places) * weights.unsqueeze(-1)).sum(1)

    result = ported(tmp_path, forward, construct, rand(8, 8))
    assert result.code == code
    assert not any(mistake.kind == "kernel" for item in result.results for mistake in item.mistakes)
    values = [value for item in result.results for value in item.tensors if value.left.spec.dtype.startswith("i")]
    assert any(value.left.fingerprint != value.right.fingerprint for value in values)


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.5, 1)])
def test_a_jagged_tensor_is_taken_by_whoever_takes_its_values(tmp_path: Path, factor: float, code: int) -> None:
    """It has a number for each time it is seen: without modules, what nobody takes is a result of the run."""

    def forward(jagged: bool) -> Callable[..., torch.Tensor]:
        def run(net: Any, x: torch.Tensor) -> torch.Tensor:
            y = net.a(x)
            if not jagged:
                return net.o(y.tanh())
            rows = torch.nested.nested_tensor_from_jagged(y.flatten(0, 1), torch.tensor([0, 5, 10]))
            return net.o((rows.tanh().values() * factor).view(2, 5, 8))

        return run

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(forward(bool(side)), a=nn.Linear(8, 8), o=nn.Linear(8, 4))
        with record(net):
            net(rand(2, 5, 8)).square().mean().backward()

    result = compared(tmp_path, run, level="api")
    assert result.code == code, verdict(result)
