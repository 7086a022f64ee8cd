"""Small networks of PyTorch, recorded on both sides and compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import twintrace as tt
from twintrace.collect.observer import Observer
from twintrace.model.results import Comparison, Mistake


class Net(nn.Module):
    def __init__(self, forward: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def rand(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@contextlib.contextmanager
def numbered_from(first: int) -> Iterator[None]:
    """Tensors of a journal are counted from `first` on: equal numbers on both sides would hide that one is taken for the other."""
    begin = Observer.begin

    def started(self: Observer, journal: Any) -> None:
        begin(self, journal)
        self._next = first

    with mock.patch.object(Observer, "begin", started):
        yield


def compared(tmp_path: Path, run: Callable[[int, Callable[..., Any]], None], **options: Any) -> Comparison:
    """Both sides of a program recorded and compared; `run(side, record)` runs one."""
    settings = {"level": "mix", "keep": "tensor", **options}
    for side, name in enumerate(("left", "right")):
        torch.manual_seed(0)
        with numbered_from(10_000 * side):
            run(side, lambda model, name=name: tt.record(str(tmp_path / name), model, **settings))
    return tt.compare(str(tmp_path / "left"), str(tmp_path / "right"))


def only_mistake(result: Comparison) -> Mistake:
    [mistake] = [mistake for item in result.results for mistake in item.mistakes if mistake.effective]
    return mistake
