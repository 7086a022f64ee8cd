"""One network in two layouts of its activations: the layout is carried from call to call, and hides no mistake."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = pytest.mark.needs_torch
WIDTH = 12


class Tokens(nn.Module):
    """Layers that act on each token by itself."""

    def __init__(self, gelu: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.n, self.o, self.gelu = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4), gelu

    def layers(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(F.gelu(self.n(self.a(x)), approximate=self.gelu))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Flat(Tokens):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.reshape(-1, WIDTH)).view(*x.shape[:2], -1)


class SequenceFirst(Tokens):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.transpose(0, 1)).transpose(0, 1)


class LeftTransposed(Tokens):
    """Forgets to bring its result back into order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.transpose(0, 1))


class LeftFlat(Tokens):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.reshape(-1, WIDTH))


class Block(nn.Module):
    """A ConvNeXt block with linear layers, channels last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.c = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.p, self.q = nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.q(F.gelu(self.p(self.c(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


class BlockOfConvolutions(Block):
    """The same with convolutions of one pixel, channels first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.gelu(F.conv2d(self.c(x), self.p.weight[:, :, None, None], self.p.bias))
        return x + F.conv2d(inner, self.q.weight[:, :, None, None], self.q.bias)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.w = nn.Linear(WIDTH, 8), nn.Parameter(torch.randn(2, 4, WIDTH) / 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bthi,hid->btd", F.silu(self.a(x)).unflatten(-1, (2, 4)), self.w)


class HeadsFlattened(Heads):
    """Calls einsum as well, for another product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.silu(torch.einsum("btd,ed->bte", x, self.a.weight) + self.a.bias)
        return inner @ self.w.reshape(8, WIDTH)


class Causal(nn.Module):
    """Attention over a whole sequence."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scale = scale

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) * self.scale
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[-2] - q.shape[-2])
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attend(*(self.heads(layer(x)) for layer in (self.q, self.k, self.v)))
        return self.o(y.transpose(1, 2).flatten(2))


class Cached(Causal):
    """The same in two parts: the first tokens' keys and values are kept for the last ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts, keys, values = [], None, None
        for part in (x[:, :3], x[:, 3:]):
            q, k, v = (self.heads(layer(part)) for layer in (self.q, self.k, self.v))
            keys, values = (k, v) if keys is None else (torch.cat((keys, k), 2), torch.cat((values, v), 2))
            parts.append(self.attend(q, keys, values))
        return self.o(torch.cat(parts, 2).transpose(1, 2).flatten(2))


class FoldedHeads(Causal):
    """Batch and heads in one axis."""

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return super().heads(x).flatten(0, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attend(*(self.heads(layer(x)) for layer in (self.q, self.k, self.v)))
        return self.o(y.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2))


class Rotated(nn.Module):
    """Rotary positions of pairs of neighbours, in real numbers."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.o, self.factor = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4), factor
        self.register_buffer("angles", torch.outer(torch.arange(5.0), 10.0 ** -torch.arange(WIDTH // 2)))

    def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        one, two = x[..., ::2], x[..., 1::2]
        turned = one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()
        return torch.stack(turned, -1).flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.turn(self.a(x), self.angles * self.factor))


class RotatedByComplexNumbers(Rotated):
    def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)


def recorded(path, net: nn.Module, shape: tuple[int, ...]):
    batch = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tt.record(path, net, level="mix", keep="tensor") as recorder:
        net(batch).square().mean().backward()
        optimizer.step()
        recorder.step()
    return path


def compared(folder, left: nn.Module, right: nn.Module, *shape: int):
    return tt.compare(recorded(folder / "a", left, shape), recorded(folder / "b", right, shape))


TOKENS, SQUARE, IMAGES = (3, 5, WIDTH), (4, 4, WIDTH), (2, 6, 5, 5)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        (Tokens, Flat, TOKENS),
        (Tokens, SequenceFirst, TOKENS),
        (Tokens, SequenceFirst, SQUARE),
        (Block, BlockOfConvolutions, IMAGES),
        (Block, BlockOfConvolutions, (2, 6, 6, 6)),
        (Heads, HeadsFlattened, TOKENS),
        (Causal, FoldedHeads, TOKENS),
        (Causal, FoldedHeads, (2, 6, WIDTH)),
    ],
)
def test_another_layout_of_the_same_network_agrees(left, right, shape, tmp_path):
    found = compared(tmp_path, left(), right(), *shape)
    assert found.code == 0, str(found)
    assert "returned in another" not in str(found)  # inside each as it likes; the results lie alike


@pytest.mark.parametrize(("other", "shape"), [(Flat, TOKENS), (SequenceFirst, TOKENS), (SequenceFirst, SQUARE)])
def test_a_mistake_in_another_layout_is_named(other, shape, tmp_path):
    found = compared(tmp_path, Tokens(), other(gelu="tanh"), *shape)
    assert found.code == 1
    assert "gelu" in str(found).splitlines()[0]
    assert "approximate" in str(found)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Causal(), Cached(1.02)),
        (Causal(1.02), Cached()),
        (Causal(), FoldedHeads(1.02)),
        (Rotated(), RotatedByComplexNumbers(1.1)),
    ],
)
def test_another_factor_in_another_layout_is_a_difference(left, right, tmp_path):
    assert compared(tmp_path, left, right, *TOKENS).code == 1


def test_complex_numbers_are_no_other_precision(tmp_path):
    assert compared(tmp_path, Rotated(), RotatedByComplexNumbers(), *TOKENS).code != 1


@pytest.mark.parametrize(
    ("other", "shape", "told"),
    [
        (LeftTransposed, TOKENS, "another order (axes 1, 0, 2)"),
        (LeftTransposed, SQUARE, ""),
        (LeftFlat, TOKENS, "another shape (reshaped)"),
    ],
)
def test_a_result_in_another_order_is_no_agreement(other, shape, told, tmp_path):
    found = compared(tmp_path, Tokens(), other(), *shape)
    assert found.code == 1
    assert told in str(found)
