"""Cases by their number of ranks and their names."""

from __future__ import annotations

import functools
from collections.abc import Callable

import nets
import torch

Run = Callable[..., None]
CASES: dict[int, dict[str, Run]] = {2: {}, 4: {}, 8: {}}


def case(name: str, *worlds: int) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        for world in worlds or (2,):
            CASES[world][f"{name} {world}"] = run
        return run

    return add


def plant(run: Callable[..., None], *mistakes: str, world: int = 2) -> None:
    """Cases with mistakes, each of which is said to the run by its name."""
    for mistake in mistakes:
        case(mistake, world)(functools.partial(run, mistake=mistake))


def part(rank: int, world: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The rank's part of the batches."""
    return [(tokens.chunk(world)[rank], targets.chunk(world)[rank]) for tokens, targets in nets.batches()]


ALONE: dict[str, Callable[[str], None]] = {}
"""Runs on one rank."""
