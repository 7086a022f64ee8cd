"""Right rewrites whose calls meet at a result, at a gradient or in an update, and the mistakes that look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

LABELS = torch.arange(12) % 10
Forward = Callable[..., torch.Tensor]


def of_losses(tmp_path: Path, left: Forward, right: Forward) -> Any:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(16, 10)
        with record(net):
            (left, right)[side](net(rand(12, 16))).backward()

    return compared(tmp_path, run)


def of_functions(tmp_path: Path, left: Forward, right: Forward, **options: Any) -> Any:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: (left, right)[side](net.a(x)), a=nn.Linear(8, 16))
        with record(net):
            net(rand(4, 5, 8)).square().mean().backward()

    return compared(tmp_path, run, **options)


def mean_loss(logits: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, LABELS)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        lambda logits: F.cross_entropy(logits, LABELS, reduction="sum") / 12,
        lambda logits: F.cross_entropy(logits, LABELS, reduction="none").mean(),
    ],
)
def test_a_loss_that_is_averaged_after_it_agrees(tmp_path: Path, other: Forward, turned: bool) -> None:
    found = of_losses(tmp_path, *((other, mean_loss) if turned else (mean_loss, other)))
    assert found.code == 0, tt.verdict(found)


def test_a_loss_that_is_divided_by_another_number_does_not(tmp_path: Path) -> None:
    found = of_losses(tmp_path, mean_loss, lambda logits: F.cross_entropy(logits, LABELS, reduction="sum") / 12.05)
    assert found.code == 1


def test_an_index_is_no_result_of_the_other_side(tmp_path: Path) -> None:
    """The call of a name that makes a place on one side makes the result on the other."""

    def gathered(x: torch.Tensor) -> torch.Tensor:
        return x.gather(1, torch.tensor([2, 0, 1])[None, :, None].expand(4, 3, 16))

    found = of_functions(tmp_path, lambda x: x[:, [2, 0, 1]], gathered)
    assert found.code == 0, tt.verdict(found)


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.01, 1)])
def test_a_product_of_three_in_another_order(tmp_path: Path, factor: float, code: int) -> None:
    """The first products of the two have other shapes."""
    found = of_functions(tmp_path, lambda x: x @ x.mT @ x, lambda x: x @ (x.mT @ (factor * x)))
    assert found.code == code, tt.verdict(found)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("after", "code"), [(0.3, 0), (0.301, 1)])
def test_a_product_that_is_scaled_before_or_after_it(tmp_path: Path, after: float, code: int, turned: bool) -> None:
    """The product is the result on one side, and a step on the way to it on the other."""
    ways: list[Forward] = [lambda x: (x * 0.3) @ x.mT, lambda x: (x @ x.mT) * after]
    found = of_functions(tmp_path, *(ways[::-1] if turned else ways))
    assert found.code == code, tt.verdict(found)


@pytest.mark.parametrize("keep", ["statistics", "fingerprint"])
def test_without_values_another_operation_of_the_same_result_is_not_accused(tmp_path: Path, keep: str) -> None:
    found = of_functions(tmp_path, lambda x: x / 3, lambda x: x * (1 / 3), keep=keep)
    assert found.code == 3, tt.verdict(found)


@pytest.mark.parametrize("keep", ["statistics", "fingerprint"])
def test_without_values_another_operation_of_another_result_is(tmp_path: Path, keep: str) -> None:
    found = of_functions(tmp_path, lambda x: x / 3, lambda x: x * (1 / 2.9), keep=keep)
    assert found.code == 1
    assert "div | mul" in tt.verdict(found)


def rotated(x: torch.Tensor, angles: torch.Tensor, halves: bool, sign: float = 1.0) -> torch.Tensor:
    """Pairs of the first and the second half, rotated; each half, or the whole with what its halves are exchanged for."""
    first, second = x.chunk(2, -1) if not halves else (x[..., :8], x[..., 8:])
    cosine, sine = angles.cos(), sign * angles.sin()
    if halves:
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
    return x * torch.cat((cosine, cosine), -1) + torch.cat((-second, first), -1) * torch.cat((sine, sine), -1)


@pytest.mark.parametrize(("sign", "code"), [(1.0, 0), (-1.0, 1)])
def test_values_that_are_taken_otherwise_have_other_gradients(tmp_path: Path, sign: float, code: int) -> None:
    """The halves get back other gradients, and what they are taken from gets the same."""
    angles = torch.arange(5.0)[:, None] * 0.7 ** torch.arange(8)
    found = of_functions(tmp_path, lambda x: rotated(x, angles, False), lambda x: rotated(x, angles, True, sign))
    assert found.code == code, tt.verdict(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("setting", ["padding_idx", "scale_grad_by_freq"])
def test_a_setting_that_changes_the_gradient_alone_is_named(tmp_path: Path, setting: str, dtype: torch.dtype) -> None:
    value = {"padding_idx": 0, "scale_grad_by_freq": True}[setting]

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8)).to(dtype)
        setattr(net[0], setting, value if side else nn.Embedding(20, 8).__dict__[setting])
        with record(net):
            net(torch.arange(12).reshape(2, 6) % 9).float().square().mean().backward()

    found = compared(tmp_path, run)
    assert found.code == 1, tt.verdict(found)
    assert only_mistake(found).why.startswith(f"{setting}: ")
    assert "the gradients agree" in only_mistake(found).why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_mask_of_truth_values_that_is_added_as_numbers_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    """One hides scores, the other adds one to them, though the two are equal."""
    mask = torch.ones(5, 5).tril().bool()

    def attend(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=given)

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: attend(net.a(x), mask.to(x.dtype) if side else mask), a=nn.Linear(8, 16)).to(dtype)
        with record(net), torch.no_grad():
            net(rand(4, 5, 8).to(dtype))

    found = compared(tmp_path, run)
    assert found.code == 1, tt.verdict(found)
    assert "the masks differ" in only_mistake(found).why


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_that_are_handed_to_the_update(tmp_path: Path, frozen: bool) -> None:
    """`autograd.grad` leaves none at the parameters, and the update takes the same ones; one that is not taken is told."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with record(net) as recorder:
            loss = net(rand(4, 6)).square().mean()
            if not side:
                loss.backward()
            else:
                net.weight.grad, gradient = torch.autograd.grad(loss, [net.weight, net.bias])
                net.bias.grad = None if frozen else gradient
            optimizer.step()
            recorder.step()

    found = compared(tmp_path, run)
    assert found.code == int(frozen), tt.verdict(found)


@pytest.mark.parametrize("written", [False, True])
def test_what_is_looked_at_on_one_side_alone(tmp_path: Path, written: bool) -> None:
    """The largest weight, for a log, changes nothing, unless it is written somewhere."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with record(net) as recorder:
            net(rand(4, 6)).square().mean().backward()
            optimizer.step()
            if side:
                logged = net.weight.detach().abs().max()
                if written:
                    net.bias.detach().add_(logged)
            recorder.step()

    found = compared(tmp_path, run)
    assert (found.code in (1, 3)) is written, tt.verdict(found)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda x: x.max(-1)[0], lambda x: x.amax(-1)),
        (lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1], lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)),
    ],
)
def test_what_comes_along_with_a_result_is_none(tmp_path: Path, left: Forward, right: Forward) -> None:
    """Places of the greatest elements that nobody takes, a view of which others take the shape; at level api, without a module."""
    found = of_functions(tmp_path, left, right, level="api")
    assert found.code == 0, tt.verdict(found)


def test_whole_numbers_without_a_partner_are_compared_with_others(tmp_path: Path) -> None:
    def right(x: torch.Tensor) -> torch.Tensor:
        return x.argmax() * 0 + x

    assert of_functions(tmp_path, lambda x: (x.argmin(), x)[1], right, level="api").code in (1, 3)


def test_a_norm_of_float32_beside_its_kernel_in_16_bits(tmp_path: Path) -> None:
    """The kernel computes in float32, too; its gradients are rounded in another place."""

    def written_out(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def run(side: int, record: Callable[..., Any]) -> None:
        norm = written_out if side else lambda x: F.rms_norm(x, (16,), eps=1e-6)
        net = Net(lambda net, x: norm(net.a(x)), a=nn.Linear(8, 16)).bfloat16()
        with record(net):
            net(rand(4, 5, 8).bfloat16()).float().square().mean().backward()

    found = compared(tmp_path, run)
    assert found.code == 0, tt.verdict(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_greatest_elements_by_sorting(tmp_path: Path, dtype: torch.dtype) -> None:
    """What is sorted on the way was paired with what nobody has sorted."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            x = net.a(x)
            return x.sort(-1, descending=True)[0][..., :3] if side else x.topk(3, -1)[0]

        net = Net(forward, a=nn.Linear(8, 16)).to(dtype)
        with record(net):
            net(rand(4, 5, 8).to(dtype)).float().square().mean().backward()

    found = compared(tmp_path, run)
    assert found.code == 0, tt.verdict(found)


def test_a_loss_in_the_other_16_bit_type_is_told(tmp_path: Path) -> None:
    """Everything else is bf16; nothing that is lost in float16 is more than its rounding."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net, target = nn.Linear(16, 10).bfloat16(), rand(12, 10, seed=4).bfloat16()
        with record(net):
            logits = net(rand(12, 16).bfloat16())
            if side:
                F.mse_loss(logits.half(), target.half()).float().backward()
            else:
                F.mse_loss(logits.float(), target.float()).backward()

    found = compared(tmp_path, run)
    assert found.code == 1, tt.verdict(found)
    assert "f32 | f16" in tt.verdict(found)


def test_a_part_of_a_result_that_one_side_alone_looks_at_is_none(tmp_path: Path) -> None:
    """Without modules, what nobody takes is a result; Python that iterates over one takes its rows."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda s, x: F.relu(s.a(x)).square(), a=nn.Linear(8, 8))
        with record(net):
            out = net(rand(4, 8))
            out.sum().backward()
            if side:
                assert out[0].shape == (8,)

    result = compared(tmp_path, run, level="api")

    assert result.code == 0, str(result)
