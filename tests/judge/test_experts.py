"""Experts that see the tokens that are routed to them, beside experts that see all: other shapes inside, one result."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_torch
WIDTH = 8


class Routed(nn.Module):
    """Each expert takes the rows of its own tokens."""

    def __init__(self, act: type[nn.Module] = nn.SiLU, normalised: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.normalised, self.router = normalised, nn.Linear(WIDTH, 3, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 12), act(), nn.Linear(12, WIDTH)) for _ in range(3))

    def routes(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        return (weights / weights.sum(-1, keepdim=True) if self.normalised else weights), chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.routes(x)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen == number)
            result.index_add_(0, tokens, expert(x[tokens]) * weights[tokens, places, None])
        return result


class Dense(Routed):
    """Every expert takes all tokens, and a weight of zero drops what is not its own."""

    order = slice(None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.routes(x)
        shares = (F.one_hot(chosen, 3) * weights[..., None]).sum(1)
        return torch.einsum("ne,ned->nd", shares, torch.stack([e(x) for e in self.experts][self.order], 1))


class Masked(Routed):
    """Every expert takes all tokens, and its part is added to those of the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.routes(x)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            result = result + (weights * (chosen == number)).sum(-1, keepdim=True) * expert(x)
        return result


class Reversed(Dense):
    """Gives each expert another one's tokens."""

    order = slice(None, None, -1)


def recorded(path, net: nn.Module):
    batch = torch.randn(10, WIDTH, generator=torch.Generator().manual_seed(1))
    with tt.record(path, net, level="mix", keep="tensor") as recorder:
        net(batch).square().mean().backward()
        recorder.step()
    return path


def compared(folder, left: nn.Module, right: nn.Module):
    return tt.compare(recorded(folder / "a", left), recorded(folder / "b", right))


@pytest.mark.parametrize("other", [Dense, Masked])
def test_routed_and_dense_experts_agree(other, tmp_path):
    found = compared(tmp_path, Routed(), Dense())
    assert found.code == 0, str(found)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Dense(act=nn.GELU), "silu"),
        (Dense(normalised=False), "div"),
        (Reversed(), ""),
    ],
)
def test_a_mistake_among_experts_is_found(other, told, tmp_path):
    found = compared(tmp_path, Routed(), other)
    assert found.code == 1, str(found)
    assert told in str(found).lower()
