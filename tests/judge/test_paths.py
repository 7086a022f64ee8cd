"""Operands that reach a call in two ways: the calls that move or compute them are the place, and what they do is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from tests.judge.test_places_and_causes import FLOATS, SIDES, alone, blamed, headline, run_of  # noqa: E402
from twintrace.model.results import Comparison  # noqa: E402

pytestmark = pytest.mark.needs_torch
Forward = Callable[[int, Any, torch.Tensor], torch.Tensor]


def why(result: Comparison) -> str:
    assert result.code == 1
    mistake = headline(result).mistake
    assert mistake is not None
    return mistake.why


# --- before a layer ---------------------------------------------------------------------------------------------------


@FLOATS
@SIDES
def test_values_repeated_in_another_order(tmp_path: Path, dtype: torch.dtype, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        half = net.a(x)[:, :8]
        return net.b(half.repeat(1, 2) if side == side_alone else half.repeat_interleave(2, 1))

    result = compared(tmp_path, run_of(forward, dtype))

    names = ["torch.Tensor.repeat_interleave", "torch.Tensor.repeat"]
    texts = ["repeat_interleave(repeats=2, dim=1)", "tile(dims=(1, 2))"]
    if not side_alone:
        names.reverse()
        texts.reverse()
    assert blamed(result) == ([names[0]], [names[1]])
    assert why(result).startswith(
        f"input of linear: {texts[0]} on the left, {texts[1]} on the right; with the left's the results agree: "
    )


@SIDES
def test_a_transpose_of_one_side_alone(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        square = net.a(x).view(8, 4, 4)
        return net.b((square.transpose(1, 2) if side == side_alone else square).reshape(8, 16))

    result = compared(tmp_path, run_of(forward))

    assert blamed(result) == alone(side_alone, "torch.Tensor.transpose")
    assert why(result).startswith(f"only the {('left', 'right')[side_alone]} calls torch.Tensor.transpose; without it")


@SIDES
def test_groups_shuffled_by_another_shape(tmp_path: Path, side_alone: int) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        shape = (8, 2, 8) if side == side_alone else (8, 8, 2)
        return net.b(net.a(x).view(shape).transpose(1, 2).reshape(8, 16))

    result = compared(tmp_path, run_of(forward))

    assert blamed(result) == (["torch.Tensor.view"], ["torch.Tensor.view"])
    assert "shape: " in why(result)


@SIDES
def test_a_sign_that_one_half_lost_is_the_place_of_what_follows(tmp_path: Path, side_alone: int) -> None:
    """The half without its sign was compared as it was taken, too: what is made of it inherits, and is not accused again."""

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        one, two = hidden[:, :8], hidden[:, 8:]
        return net.b(torch.cat((two if side == side_alone else -two, one), -1) * torch.linspace(-1, 1, 16))

    result = compared(tmp_path, run_of(forward))

    assert blamed(result) == alone(1 - side_alone, "torch.Tensor.neg")
    assert only_mistake(result) is headline(result).mistake


def test_several_calls_of_one_side_are_told_with_the_last_ones(tmp_path: Path) -> None:
    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net.a(x)
        return net.b(hidden if side else hidden * hidden.cos() + hidden.roll(1, -1) * hidden.sin())

    result = compared(tmp_path, run_of(forward))

    assert blamed(result) == alone(0, "torch.Tensor.add")
    assert why(result).startswith("only the left computes here: … → ")
    assert "→ add(alpha=1); without it the results agree: " in why(result)


def test_an_operand_that_is_given_on_one_side_and_made_on_the_other(tmp_path: Path) -> None:
    given = torch.ones(8, 16, dtype=torch.bool).tril()

    def forward(side: int, net: Any, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(8, 16, dtype=torch.bool).tril(1) if side else given
        return net.b(net.a(x).masked_fill(~mask, 0.0))

    result = compared(tmp_path, run_of(forward))

    assert blamed(result) == alone(1, "torch.Tensor.tril")
    assert "no such call on the left, ones(size=(8, 16), dtype='b8') → tril(diagonal=1) on the right" in why(result)


# --- attention ----------------------------------------------------------------------------------------------------------


def attention(
    heads: Callable[[int, torch.Tensor], torch.Tensor], **settings: Callable[[int], object]
) -> Callable[..., None]:
    """Attention of four queries to two keys and values, which `heads(side, …)` repeats."""

    def run(side: int, record: Any) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (layer(x).view(2, 6, -1, 8).transpose(1, 2) for layer in (net.q, net.k, net.v))
            set_ = {name: value(side) for name, value in settings.items()}
            out = F.scaled_dot_product_attention(q, heads(side, k), heads(side, v), **set_)
            return net.o(out.transpose(1, 2).reshape(2, 6, 32))

        net = Net(forward, q=nn.Linear(16, 32), k=nn.Linear(16, 16), v=nn.Linear(16, 16), o=nn.Linear(32, 16))
        with record(net):
            net(rand(2, 6, 16))

    return run


def test_keys_and_values_repeated_in_another_order(tmp_path: Path) -> None:
    run = attention(lambda side, x: x.repeat(1, 2, 1, 1) if side else x.repeat_interleave(2, 1))

    result = compared(tmp_path, run)

    assert blamed(result) == (["torch.Tensor.repeat_interleave"], ["torch.Tensor.repeat"])
    assert why(result).startswith(
        "key and value of scaled_dot_product_attention: repeat_interleave(repeats=2, dim=1) on"
    )


@SIDES
def test_grouped_queries_beside_keys_in_another_order(tmp_path: Path, side_alone: int) -> None:
    run = attention(
        lambda side, x: x.repeat(1, 2, 1, 1) if side == side_alone else x, enable_gqa=lambda side: side != side_alone
    )

    result = compared(tmp_path, run)

    texts = ["enable_gqa=True on the left, tile(dims=(1, 2, 1, 1)) on the right"]
    texts.append("tile(dims=(1, 2, 1, 1)) on the left, enable_gqa=True on the right")
    assert blamed(result) == alone(side_alone, "torch.Tensor.repeat")
    assert why(result).startswith(f"key and value of scaled_dot_product_attention: {texts[1 - side_alone]}; with")


# --- recurrent layers ---------------------------------------------------------------------------------------------------


def test_layers_with_other_numbers_of_directions_are_compared(tmp_path: Path) -> None:
    """A setting is tried with the other side's parameters, of which there are too few: PyTorch's kernel does not check that."""

    def run(side: int, record: Any) -> None:
        net = nn.LSTM(8, 6, batch_first=True, bidirectional=bool(side))
        with record(net):
            net(rand(3, 5, 8))

    result = compared(tmp_path, run)

    assert result.code == 1
    assert blamed(result) == (["torch.lstm"], ["torch.lstm"])
