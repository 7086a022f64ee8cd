"""A simulated run of many ranks: the steps of one recorded run, on every rank, with numbers of the rank's own.

    base = record_base(folder / "base", records=10_000, steps=4)      a real recording, of a real training
    write_run(base, folder / "a", ranks=256)                          every rank has the base's structure
    write_run(base, folder / "b", ranks=256, fault=Fault(rank=37, step=2))

What the ranks have in common is their structure, as in a run of data parallel ranks; what they do not is every number: statistics
are scaled, fingerprints are others on each rank and in each step. With a fault, the values that one call of one rank makes are
others, with all that is made of them in the step; from there the mistake takes the way that it takes in a real run: the gradients
that all ranks reduce, and in the next step the weights of every rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twintrace.model.records import Call
from twintrace.model.sites import Phase
from twintrace.operations.sides import inputs_of, outputs_of
from twintrace.store.folding import Numbers, Outline
from twintrace.store.registry import open_trace
from twintrace.store.trace import Journal, Trace
from twintrace.store.writer import TraceWriter

WIDTH = 16
RECORDS_A_BLOCK = 95
"""Lines of a journal that a block of the network leaves in a step: calls, tensors, gradients."""
APART = 1.01
"""What the values of a faulty call are multiplied with."""
NOISE = 3e-8
"""Relative difference between two roundings of a result in f32, as its norm shows it."""


@dataclass(frozen=True)
class Fault:
    """A call of one rank gives something else in one step."""

    rank: int
    step: int
    share: float = 0.5
    """Place of the call among those of the forward pass."""


def record_base(path: Path, *, records: int, steps: int) -> Trace:
    """Train blocks of norm, linear, GELU and linear with AdamW; about `records` records in a step."""
    import torch
    from torch import nn

    import twintrace as tt

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.act = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU()
            self.down = nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = x + self.down(self.act(self.up(self.norm(x))))
            return result

    torch.manual_seed(0)
    net = nn.Sequential(*(Block() for _ in range(max(1, records // RECORDS_A_BLOCK))), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    with tt.record(path, net, level="mix", keep="fingerprint") as recorder:
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(torch.randn(8, WIDTH)), torch.randint(0, 10, (8,))).backward()
            optimizer.step()
            recorder.step()
    return open_trace(path)


def write_run(
    base: Trace, path: Path, *, ranks: int, fault: Fault | None = None, noise: bool = False, only: range | None = None
) -> None:
    """A run of so many ranks. `noise`: every result is rounded otherwise than in the run without it; `only`: these ranks alone."""
    templates = [_Template(base.journal(step)) for step in base.steps]
    manifest = {"framework": base.framework, "settings": base.manifest["settings"], "world": ranks}
    for rank in only or range(ranks):
        writer = TraceWriter.create(path, manifest, rank=rank, world=ranks, folds=True)
        for template in templates:
            writer.begin_step(template.step, {**template.head, "world": ranks})
            writer.end_step_as(template.outline.pattern, template.numbers(rank, fault, noise))
        writer.close()


class _Template:
    """One step of the base, of which every rank's is made."""

    def __init__(self, journal: Journal) -> None:
        header = journal.header
        self._journal, self.step = journal, header.step
        self.head: dict[str, Any] = {
            "framework": header.framework,
            "settings": dict(header.settings),
            "environment": dict(header.environment),
            "groups": [],
            "precision": dict(header.precision),
        }
        outline: Outline | None = journal.outline()  # type: ignore[attr-defined]  # every journal of our own has one
        assert outline is not None
        self.outline = outline

    def numbers(self, rank: int, fault: Fault | None, noise: bool) -> Numbers:
        factors = np.full(len(self.outline.numbers), 1.0 + rank / 1000)
        salt = np.zeros(len(factors), np.uint8)
        if noise:
            drawn = np.random.default_rng([rank, self.step]).normal(0.0, NOISE, len(factors))
            mixed = self._made if not self.step else self._made | self._held
            factors[mixed] *= 1.0 + drawn[mixed]
            salt[mixed] += 1
        if fault is not None:
            wrong = self._wrong(rank, fault)
            factors[wrong] *= APART
            salt[wrong] += 2
        return self._scaled(factors, salt, rank)

    def _scaled(self, factors: np.ndarray[Any, Any], salt: np.ndarray[Any, Any], rank: int) -> Numbers:
        numbers = self.outline.numbers
        own = np.frombuffer(hashlib.blake2b(f"{rank} {self.step}".encode(), digest_size=16).digest(), np.uint8)
        fingerprints = numbers.fingerprints ^ own
        fingerprints[:, 0] ^= salt
        # Numbers of the smallest tensors are left as they are: integers (labels), and counts.
        whole = np.array([mark & 0xC for mark in self.outline.pattern.marks], bool)
        scale = np.where(whole, 1.0, factors)
        ends = numbers.ends * scale.astype(numbers.ends.dtype)
        return Numbers(fingerprints, ends, numbers.means * scale, numbers.counts)

    def _wrong(self, rank: int, fault: Fault) -> np.ndarray[Any, Any]:
        """Values that the fault has reached."""
        if self.step < fault.step:
            return np.zeros(len(self.outline.numbers), bool)
        if self.step > fault.step:
            return self._made | self._held
        if rank != fault.rank:
            return self._reduced
        forward = [call for call in self._calls if call.site.phase is Phase.FORWARD and inputs_of(call)]
        first = forward[int(fault.share * (len(forward) - 1))]
        wrong = set(outputs_of(first).values())
        for call in forward:  # by the data flow: what is drawn later is as it was
            if call.id > first.id and not wrong.isdisjoint(inputs_of(call).values()):
                wrong.update(outputs_of(call).values())
        gradients = [gradient.tensor for call in self._calls for gradient in call.gradients]
        return self._places((*wrong, *gradients)) | self._reduced

    @cached_property
    def _calls(self) -> list[Call]:
        return sorted(self._journal.calls(), key=lambda call: call.id)

    @cached_property
    def _made(self) -> np.ndarray[Any, Any]:
        """Values that a call or the backward pass made; data is as it was."""
        drawn = {number for call in self._calls if not inputs_of(call) for number in outputs_of(call).values()}
        made = {tensor.id for tensor in self._journal.tensors() if tensor.producer is not None}
        gradients = [gradient for call in self._calls for gradient in call.gradients]
        made.update(item.tensor for item in (*gradients, *self._journal.parameter_gradients()))
        return self._places(made - drawn)

    @cached_property
    def _held(self) -> np.ndarray[Any, Any]:
        """Weights and state, which the step before has made."""
        taken = {number for call in self._updates for number in inputs_of(call).values()}
        return self._places(
            tensor.id for tensor in self._journal.tensors() if tensor.requires_grad or tensor.id in taken
        )

    @cached_property
    def _reduced(self) -> np.ndarray[Any, Any]:
        """Gradients that all ranks reduce, and what an optimizer makes of them."""
        taken = (number for call in self._updates for slot, number in inputs_of(call).items() if "gradients" in slot)
        made = (number for call in self._updates for number in outputs_of(call).values())
        return self._places((*taken, *made, *(item.tensor for item in self._journal.parameter_gradients())))

    @cached_property
    def _updates(self) -> list[Call]:
        return [call for call in self._calls if call.site.phase is Phase.UPDATE]

    def _places(self, tensors: Iterable[int]) -> np.ndarray[Any, Any]:
        found = np.zeros(len(self.outline.numbers), bool)
        where = self.outline.pattern.tensors
        found[[where[number] for number in tensors if number in where]] = True
        return found
