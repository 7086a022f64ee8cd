"""Records without values: what statistics say by themselves is used, and what they cannot tell is no accusation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Step = Callable[[torch.Tensor, int], torch.Tensor]
Loss = Callable[[torch.Tensor], torch.Tensor]
ABOVE = torch.ones(32, 32).triu(1).bool()


def run_of(step: Step, dtype: torch.dtype = torch.float32) -> Callable[..., None]:
    """A net with one step between two layers; what comes into it differs by rounding."""

    def forward(net: Any, x: torch.Tensor, side: int) -> torch.Tensor:
        x = net.i(x)
        return net.o(step(x * 3.0 / 3.0 if side else x, side))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: forward(net, x, side), i=nn.Linear(32, 32), o=nn.Linear(32, 32)).to(dtype)
        with record(net):
            net(rand(32, 32).to(dtype)).float().square().mean().backward()

    return run


def fill_with(left: Any, right: Any) -> Step:
    return lambda x, side: x.masked_fill(ABOVE, right if side else left)


@pytest.mark.parametrize("keep", ["fingerprint", "statistics"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(fill_with(0.25, torch.tensor(0.25)), id="number beside a tensor"),
        pytest.param(fill_with(0.1, torch.tensor(0.1)), id="number beside its rounding"),
        pytest.param(
            lambda x, side: x * (torch.full((32,), 0.125, dtype=x.dtype) if side else 0.125),
            id="number beside a vector",
        ),
        pytest.param(
            lambda x, side: x.masked_fill(ABOVE, -6e4 if side else float("-inf")).softmax(-1),
            id="masks before a softmax",
        ),
        pytest.param(
            lambda x, side: (
                torch.where(ABOVE, torch.tensor(-1e4, dtype=x.dtype), x).float().softmax(-1).to(x.dtype)
                if side
                else x.masked_fill(ABOVE, float("-inf")).softmax(-1)
            ),
            id="masks before a softmax in float32",
        ),
        pytest.param(lambda x, side: x.T.softmax(0).T if side else x.softmax(-1), id="axes of a transposed square"),
        pytest.param(
            lambda x, side: (
                (x.view(32, 4, 8).flatten(1).mean(1) if side else x.view(32, 4, 8).mean((1, 2)))[:, None] + x
            ),
            id="axes of another shape",
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_way_to_the_same_is_not_accused(tmp_path: Path, step: Step, keep: str, dtype: torch.dtype) -> None:
    assert compared(tmp_path, run_of(step, dtype), keep=keep).code == 3


@pytest.mark.parametrize("keep", ["fingerprint", "statistics"])
@pytest.mark.parametrize(
    ("left", "right", "why"),
    [
        (-0.25, torch.tensor(-0.5), "value: -0.25 | -0.5"),
        (torch.tensor(-0.5), -0.25, "value: -0.5 | -0.25"),
        (0.25, torch.tensor(0.250001), "value: 0.25 | 0.250001"),
    ],
)
def test_a_number_and_a_tensor_of_another_value_are_told(
    tmp_path: Path, left: Any, right: Any, why: str, keep: str
) -> None:
    found = compared(tmp_path, run_of(fill_with(left, right)), keep=keep)
    assert found.code == 1
    assert why in tt.verdict(found)


def test_another_axis_is_told_by_what_it_changes(tmp_path: Path) -> None:
    found = compared(tmp_path, run_of(lambda x, side: x.softmax(side)), keep="statistics")
    assert found.code == 1
    assert "softmax" in tt.verdict(found)


LABELS = torch.randint(0, 32, (32,), generator=torch.Generator().manual_seed(3))
PADDED = torch.where(torch.arange(32) % 5 == 0, -100, LABELS)


def smoothed_at_once(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, LABELS, label_smoothing=0.1)


def smoothed_later(x: torch.Tensor) -> torch.Tensor:
    return 0.9 * F.cross_entropy(x, LABELS) - 0.1 * x.log_softmax(-1).mean(-1).mean()


def mean_at_once(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, PADDED)


def mean_later(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, PADDED, reduction="none").sum() / (PADDED >= 0).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
@pytest.mark.parametrize(
    ("left", "right", "wrong"),
    [
        (smoothed_at_once, smoothed_later, False),
        (smoothed_later, smoothed_at_once, False),
        (mean_at_once, mean_later, False),
        (smoothed_at_once, mean_later, True),
        (smoothed_later, mean_at_once, True),
    ],
)
def test_what_a_later_call_makes_up_for_is_no_accusation(
    tmp_path: Path, left: Loss, right: Loss, wrong: bool, dtype: torch.dtype
) -> None:
    """The calls of the same name are set differently; the results of the run have the same statistics, or they have not."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: (left, right)[side](net.i(x)), i=nn.Linear(32, 32)).to(dtype)
        with record(net):
            net(rand(32, 32).to(dtype)).float().sum().backward()

    assert compared(tmp_path, run, keep="statistics").code in ((1, 3) if wrong else (0, 3))


def test_level_module_is_told_that_another_level_would_show_more(tmp_path: Path) -> None:
    found = compared(tmp_path, run_of(lambda x, side: x), level="module")
    assert found.code == 3
    assert "record both runs with level='mix'" in tt.verdict(found)
