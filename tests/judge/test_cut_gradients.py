"""Gradients that one side alone sends back: the call that stops them is named, however far from the parameter it is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402
from tests.judge.test_places_and_causes import alone, blamed, headline  # noqa: E402
from twintrace.judge.backward import Gradients  # noqa: E402
from twintrace.judge.cuts import Cuts  # noqa: E402
from twintrace.judge.gradient_rounding import GradientRounding  # noqa: E402
from twintrace.judge.state import Standing  # noqa: E402
from twintrace.model.records import Call, Gradient, Role  # noqa: E402
from twintrace.model.results import Comparison, Mistake  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.model.verdicts import Outcome  # noqa: E402
from twintrace.operations.meanings import Meaning, Operand  # noqa: E402
from twintrace.report.text import verdict  # noqa: E402

pytestmark = pytest.mark.needs_torch
SIDES = pytest.mark.parametrize("side_alone", [0, 1], ids=["left", "right"])


def trained(forward: Callable[[int, Any, torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    """A training step of an embedding, which has another name on each side, and of what `forward(side, net, x)` makes of it."""

    def run(side: int, record: Callable[..., Any]) -> None:
        table = ("tokens", "wte")[side]
        parts = {table: nn.Embedding(12, 8), "r": nn.LSTM(8, 8, batch_first=True)}
        net = Net(
            lambda net, tokens: net.c(forward(side, net, getattr(net, table)(tokens))),
            **parts, a=nn.Linear(8, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 2),
        )  # fmt: skip
        with record(net):
            net(torch.arange(24).reshape(4, 6) % 12).square().mean().backward()

    return run


def test_a_way_back_may_be_longer_than_the_stack() -> None:
    """Gradients of a deep network that nothing was compared with: the standing of the first is that of the last."""
    depth = 2 * sys.getrecursionlimit()
    last = Standing(Outcome.DIFFERENT)
    calls = [
        Call(n, Site(Kind.API, "torch.Tensor.exp", n), None, (TensorRef(n),), {}, TensorRef(n + 1),
             gradients=(Gradient(Role.OUTPUT, "", n + 1, 0), Gradient(Role.INPUT, "0", n, 0)))
        for n in range(depth)
    ]  # fmt: skip
    audit = SimpleNamespace(backward={n: SimpleNamespace(ratio=0.0) for n in range(depth)})
    state: Any = SimpleNamespace(
        gradient_of=({depth: last}, {}),
        senders=({call.id: [(call, call.id)] for call in calls}, {}),
        received=({}, {}),
        sides=(SimpleNamespace(meaning=lambda call: None), None),
        standing=lambda which, number: Standing(Outcome.ROUNDING),
        recomputation=SimpleNamespace(audit=lambda which, call: audit),
    )
    assert Gradients(state)._comes_back(0, calls[0]).outcome is Outcome.DIFFERENT


def test_a_wrong_gradient_is_the_source_of_all_that_is_made_of_it() -> None:
    """A kernel is accused once, on the way of the gradient that is judged first; others that it reaches part by it, too."""
    mistake = Mistake("kernel", "wrong")
    call = Call(0, Site(Kind.API, "torch.Tensor.exp", 0), None, (TensorRef(0),), {}, TensorRef(1))
    audit = SimpleNamespace(backward={0: SimpleNamespace(ratio=5.0)})
    state: Any = SimpleNamespace(
        accused={},
        between=[],
        recomputation=SimpleNamespace(audit=lambda which, call: audit),
        kernel_mistake=lambda *details: mistake,
    )
    gradients = Gradients(state)
    first, again = (gradients._audited_gradient(0, call, 0) for _ in range(2))
    assert first.outcome is again.outcome is Outcome.DIFFERENT
    assert len(first.mistakes) == 1
    assert again.mistakes == ()
    assert first.sources == again.sources == frozenset(first.mistakes)


def test_a_cut_is_found_behind_a_copy() -> None:
    """What cuts the gradient takes another tensor than the last call has made: a module handed it out wrapped anew."""
    call = Call(0, Site(Kind.API, "torch.Tensor.detach", 0), None, (TensorRef(8),), {}, TensorRef(9))
    own = SimpleNamespace(
        calls=[call],
        is_leaf=lambda call: True,
        meaning=lambda call: Meaning("detach", {"0": Operand(8)}, {9: 0}),
        origin=lambda number: {8: 5}[number],
        leads_to_gradients=lambda number: True,
    )
    state: Any = SimpleNamespace(
        sides=(SimpleNamespace(has_gradient=lambda number: number == 3), own),
        match_of=({}, {}),
        partner=lambda which, number: {5: 3}.get(number),
        standing=lambda which, number: Standing(Outcome.ROUNDING),
    )
    assert Cuts(state, GradientRounding(state))._cut(1) is call


@SIDES
def test_a_cut_is_named_though_calls_without_gradients_follow_it(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x).tanh()
        return ((hidden.detach() if side == side_alone else hidden) * 2).exp()

    result = compared(tmp_path, trained(forward))

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.detach")


def test_settings_of_the_pair_before_a_cut_are_not_told_beside_it(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.hardtanh(net.a(x), -50.0, 60.0 if side else 50.0)  # without effect on these values
        return hidden if side else hidden.detach()

    result = compared(tmp_path, trained(forward))

    assert blamed(result) == alone(0, "torch.Tensor.detach")
    assert headline(result).result.settings
    assert "\n  set " not in verdict(result)


@SIDES
def test_the_gradient_of_an_embedding_shows_a_cut_residual(tmp_path: Path, side_alone: int) -> None:
    """Every call sends back what it should of what it was sent. On the left one tensor is the gradient of the LSTM's input and all
    that comes back to the embedding; on the right a move lies between.
    """

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, tokens: torch.Tensor) -> torch.Tensor:
            x = net.e(tokens) if not side else net.e.weight.index_select(0, tokens.reshape(-1)).reshape(4, 6, 8)
            return net.c(net.r(x)[0] + (x.detach() if side == side_alone else x))

        net = Net(forward, e=nn.Embedding(12, 8), r=nn.LSTM(8, 8, batch_first=True), c=nn.Linear(8, 2))
        with record(net):
            net(torch.arange(24).reshape(4, 6) % 12).square().mean().backward()

    result = compared(tmp_path, run)

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.detach")


@SIDES
def test_a_call_without_gradients_is_the_place(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(side != side_alone):
            shifted = x * 2
        return net.a(x).tanh() + shifted

    result = compared(tmp_path, trained(forward))
    names = ("left", "right")
    mistake = headline(result).mistake

    assert result.code == 1
    assert blamed(result) == (["torch.Tensor.mul"], ["torch.Tensor.mul"])
    assert mistake is not None
    assert mistake.why == (
        f"only the {names[1 - side_alone]} sends a gradient back through torch.Tensor.mul; on the {names[side_alone]} it has none "
        "(no_grad, or operands without gradients)"
    )


@SIDES
def test_data_that_is_taken_out_of_the_graph_unseen_is_told(tmp_path: Path, side_alone: int) -> None:
    result = compared(tmp_path, trained(lambda side, net, x: net.r(x)[0] + (x.data if side == side_alone else x)))

    assert result.code == 1
    assert "torch.nn.functional.embedding" in verdict(result)


def test_gradients_that_are_noise_are_not_accused(tmp_path: Path) -> None:
    """A bias before a norm over the batch has no gradient but rounding: the two are as far apart as they are large."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: norm(net.a(x), side).tanh(), a=nn.Linear(8, 8))

        def norm(x: torch.Tensor, side: int) -> torch.Tensor:
            if not side:
                return nn.functional.batch_norm(x, None, None, training=True)
            centred = x - x.mean(0)
            return centred * torch.rsqrt(centred.square().mean(0) + 1e-5)

        with record(net):
            net(rand(64, 8)).pow(3).mean().backward()

    result = compared(tmp_path, run)
    found = [item for pair in result.results for item in pair.tensors if item.pair.left_slot == "a.bias"]

    assert any((item.verdict.error or 0.0) > 0.1 for item in found)
    assert result.code == 0


Change = Callable[[torch.Tensor], torch.Tensor]


def attention_over_alike_positions(tmp_path: Path, spread: float, change: Change) -> Comparison:
    """Attention with softmax, and written out; the right's keys are changed."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part(x).view(8, 16, 2, 8).transpose(1, 2) for part in (net.q, net.k, net.v))
            if not side:
                weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 8**0.5, -1)
            else:
                scores = torch.matmul(q / 8**0.5, change(k).transpose(-1, -2))
                weights = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
                weights = weights / weights.sum(-1, keepdim=True)
            return net.o(torch.matmul(weights, v).transpose(1, 2).reshape(8, 16, 16))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"})
        x = rand(1, 1, 16) + spread * rand(8, 16, 16, seed=2)
        with record(net):
            result = net(x.requires_grad_())
            (result * rand(*result.shape, seed=5)).sum().backward()

    return compared(tmp_path, run)


@pytest.mark.parametrize("spread", [1e-5, 1e-4, 5e-4, 1e-3, 2e-3, 1e-2])
def test_rounding_of_terms_that_cancel_is_carried_to_what_is_made_of_it(tmp_path: Path, spread: float) -> None:
    """Gradients of keys are 1e-4 of them apart, and that of their bias, the sum, as far as it is large."""
    result = attention_over_alike_positions(tmp_path, spread, lambda k: k)

    assert result.code == 0


@pytest.mark.parametrize("spread", [1e-3, 1e-2])
def test_a_mistake_beside_terms_that_cancel_is_told(tmp_path: Path, spread: float) -> None:
    result = attention_over_alike_positions(tmp_path, spread, lambda k: k * 0.9 + (k * 0.1).detach())

    assert result.code == 1


class Damaged(TorchDispatchMode):
    """Makes gradients of zeros of those that a factor of 0.5 sends back."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        halved = func is torch.ops.aten.mul.Tensor and not isinstance(args[1], torch.Tensor | int) and args[1] == 0.5
        return made.zero_() if halved else made


@pytest.mark.parametrize("damaged", [False, True], ids=["right", "wrong"])
def test_a_wrong_gradient_between_two_compared_ones_is_told(tmp_path: Path, damaged: bool) -> None:
    """Two factors on one side alone undo each other; none of their gradients has a partner."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x)
            return net.c((hidden * 2 * 0.5 if side else hidden).tanh())

        net = Net(forward, a=nn.Linear(8, 8), c=nn.Linear(8, 2))
        with record(net):
            loss = net(rand(6, 8)).square().mean()
            with Damaged() if side and damaged else contextlib.nullcontext():
                loss.backward()

    result = compared(tmp_path, run)

    assert result.code == int(damaged)
    if damaged:
        mistake = headline(result).mistake
        assert mistake is not None
        assert mistake.kind == "kernel"
        assert blamed(result) == ([], ["torch.Tensor.mul"])


class Scaled(TorchDispatchMode):
    """Makes the gradients that a factor of 2 sends back a little larger."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        doubled = func is torch.ops.aten.mul.Tensor and not isinstance(args[1], torch.Tensor) and args[1] == 2
        return made * 1.01 if doubled else made


def normed(x: torch.Tensor, side: int) -> torch.Tensor:
    """A norm in one call on the left, in several on the right: its gradients have other roundings."""
    if not side:
        return nn.functional.layer_norm(x, (8,))
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("scaled", [False, True], ids=["right", "wrong"])
def test_a_call_that_cannot_be_audited_is_right_if_the_gradients_beyond_it_agree(tmp_path: Path, scaled: bool) -> None:
    """The result of the factor 2 is written over, so that no gradient of it is recorded, and none has a partner."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            hidden = net.a(x)
            return net.c(normed((hidden * 2).mul_(0.5) if side else hidden, side))

        net = Net(forward, a=nn.Linear(8, 8), c=nn.Linear(8, 2))
        with record(net):
            loss = net(rand(6, 8)).square().mean()
            with Scaled() if side and scaled else contextlib.nullcontext():
                loss.backward()

    assert (compared(tmp_path, run).code != 0) is scaled


def test_a_sum_that_is_written_in_place_tells_the_gradient_of_what_was_there(tmp_path: Path) -> None:
    """A hook on the old value became one on the new: the layer before has gradients of its operands, but none of its result."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        return normed(hidden + x if side else hidden.add_(x), side)

    result = compared(tmp_path, trained(forward))

    assert result.code == 0
    assert any(
        item.verdict.error for pair in result.results for item in pair.tensors if item.pair.left_slot == "a.weight"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@SIDES
def test_another_derivative_of_the_same_values_is_told_with_its_cut(
    tmp_path: Path, side_alone: int, dtype: torch.dtype
) -> None:
    """A straight-through estimator beside the derivative of a clamp: the values are the same."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            h = net.a(x)
            clamped = h.clamp(-0.5, 0.5)
            return net.b(h + (clamped - h).detach() if side == side_alone else clamped)

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4)).to(dtype)
        with record(net):
            net(rand(8, 16).to(dtype)).float().square().mean().backward()

    result = compared(tmp_path, run)
    mistake = headline(result).mistake

    assert result.code == 1
    assert blamed(result) == alone(side_alone, "torch.Tensor.detach")
    assert mistake is not None
    assert mistake.why.startswith(
        f"only the {('left', 'right')[side_alone]} cuts the gradient (torch.Tensor.detach); without"
    )


def test_two_estimators_of_one_derivative_agree(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            h = net.a(x)
            rounded = torch.round(h * 4) / 4
            return net.b(h + (rounded - h).detach() if side else rounded.detach() + (h - h.detach()))

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4))
        with record(net):
            net(rand(8, 16)).square().mean().backward()

    assert compared(tmp_path, run).code == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("power", "code"), [(2.0, 0), (2.1, 1)])
def test_gradients_that_come_back_by_other_ways_meet_again(
    tmp_path: Path, dtype: torch.dtype, power: float, code: int
) -> None:
    """A focal loss whose probability is a softmax on one side, and exp(-entropy) on the other: other gradients of the entropy."""
    target = torch.arange(8) % 4

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)
        with record(net):
            logits = net(rand(8, 16).to(dtype)).float()
            entropy = nn.functional.cross_entropy(logits, target, reduction="none")
            chosen = torch.exp(-entropy) if side else logits.softmax(-1).gather(1, target[:, None]).squeeze(1)
            ((1 - chosen) ** (power if side else 2.0) * entropy).mean().backward()

    assert compared(tmp_path, run).code == code


class Doubled(torch.autograd.Function):
    """Twice its argument, with a backward pass of its own; `factor` is 2 if that is right."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


@pytest.mark.parametrize("factor", [2.0, 3.0])
@pytest.mark.parametrize("last", [False, True])
def test_a_call_in_a_backward_pass_of_its_own_counts_by_the_gradient_that_it_makes(tmp_path, factor, last):
    """One side alone makes it, and its result is the gradient of what both have: of a call, or of a parameter."""

    def forward(net, x):
        twice = (lambda y: Doubled.apply(y, factor)) if net.side else (lambda y: y * 2)
        return twice(net.scale) * net.a(x) if last else net.a(twice(net.b(x).tanh()))

    def run(side, record):
        net = Net(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
        net.side, net.scale = side, nn.Parameter(torch.ones(4))
        with record(net):
            net(rand(3, 4)).square().mean().backward()

    assert compared(tmp_path, run).agree is (factor == 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_mistake_in_a_backward_pass_of_its_own_is_told_at_the_call_that_made_it(tmp_path, dtype):
    """It is in the middle of the backward pass: what comes before it was judged by then, and what comes after it follows."""

    def run(side, record):
        net = Net(
            lambda net, x: net.a(Doubled.apply(net.b(x).tanh(), 3.0 if side else 2.0)),
            a=nn.Linear(4, 4),
            b=nn.Linear(4, 4),
        )
        with record(net.to(dtype)):
            net(rand(3, 4).to(dtype)).float().square().mean().backward()

    found = compared(tmp_path, run)
    assert found.code == 1
    assert [call.site.name for side in found.first.calls for call in side] == ["torch.Tensor.mul"] * 2
    told = verdict(found)
    assert "step 0, backward" in told
    assert "factor: 2.0 | 3.0" in told


def attention(tmp_path: Path, scores: Change, weight: Change = lambda w: w) -> Comparison:
    """Attention whose input wants a gradient; the right changes its scores, or the weight of its keys."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            keys = nn.functional.linear(x, weight(net.k.weight) if side else net.k.weight)
            found = net.q(x) @ keys.transpose(-1, -2) / 8**0.5
            return net.o(((scores(found) if side else found).softmax(-1)) @ net.v(x))

        net = Net(forward, **{name: nn.Linear(8, 8) for name in "qkvo"})
        with record(net):
            result = net(rand(2, 5, 8).requires_grad_())
            (result * rand(*result.shape, seed=5)).sum().backward()

    return compared(tmp_path, run)


def test_a_cut_is_told_once(tmp_path: Path) -> None:
    """The input of the network has a gradient, too, and lacks what comes by way of the scores."""
    result = attention(tmp_path, lambda found: found.detach() * 1.0)

    assert result.code == 1
    assert len(result.mistakes) == 1
    assert blamed(result) == ([], ["torch.Tensor.detach"])
    assert "Without effect" not in str(result)
    assert "Could not be told" not in str(result)


def test_a_gradient_of_data_counts(tmp_path: Path) -> None:
    """All parameters are frozen: what the run is for is the gradient of its input."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: net.a(x) * (x * 0.5 + (x * 0.5).detach() if side else x), a=nn.Linear(8, 8))
        net.requires_grad_(False)
        with record(net):
            net(rand(4, 8).requires_grad_()).square().sum().backward()

    result = compared(tmp_path, run)

    assert result.code == 1
    assert "Without effect" not in str(result)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_gradient_far_beyond_rounding_differs_whatever_sent_it_back(tmp_path: Path, share: float) -> None:
    """Half of a weight is cut out of the graph: its gradient is half as large, and all before it agrees."""
    result = attention(tmp_path, lambda found: found, lambda w: w * share + (w * (1 - share)).detach())

    assert result.code == int(share < 1)
    if share < 1:
        assert "k.weight differs far beyond rounding" in verdict(result)
