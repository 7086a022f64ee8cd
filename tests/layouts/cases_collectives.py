"""Collectives that are missing, additional or of the wrong group, and ranks that are a step behind or ahead of the others."""

from __future__ import annotations

import nets
import torch
import torch.distributed as dist
from registered import case, part, plant


def _groups(rank: int) -> tuple[object, object]:
    """Row and column of a rank in a mesh of 2 × 2."""
    made = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))}
    return made[(0, 1) if rank < 2 else (2, 3)], made[(0, 2) if rank % 2 == 0 else (1, 3)]


def _tensor_and_data(path: str, rank: int, world: int, mistake: str = "") -> None:
    """Tensor parallel along the rows, data parallel along the columns."""
    row, column = _groups(rank)
    model = nets.megatron(nets.whole(), row)
    if mistake == "a row without a reduction" and rank >= 2:
        model.blocks[1].down.mistake = "no reduction"
    if mistake == "backward over the wrong group":
        model.blocks[1].up.group = column

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=column)
            parameter.grad /= 2

    nets.train(model, part(rank // 2, 2), path, after=after)


plant(_tensor_and_data, "a row without a reduction", "backward over the wrong group", world=4)


def _data(path: str, rank: int, world: int, mistake: str = "") -> None:
    model = nets.whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = iter(range(10))

    class Steps:
        """An optimizer that some ranks call once too often, or not at all, in the first step."""

        def step(self) -> None:
            turn = next(steps)
            if mistake == "an update behind on rank 1" and rank == 1 and turn == 0:
                return
            optimizer.step()
            if mistake == "an update ahead on rank 1" and rank == 1 and turn == 0:
                optimizer.step()

        def zero_grad(self) -> None:
            optimizer.zero_grad()

    if mistake == "activations broadcast":
        model.blocks[1].register_forward_hook(lambda module, inputs, x: _broadcast(x))

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            if mistake != "an additional reduction of one gradient" or parameter is not model.norm.weight:
                parameter.grad /= world
            else:
                parameter.grad /= world
                dist.all_reduce(parameter.grad)

    nets.train(model, part(rank, world), path, after=after, optimizer=Steps())


def _broadcast(x: torch.Tensor) -> torch.Tensor:
    sent = x.detach().clone()
    dist.broadcast(sent, 0)
    return x + (sent - x.detach())


plant(
    _data,
    "activations broadcast",
    "an additional reduction of one gradient",
    "an update behind on rank 1",
    "an update ahead on rank 1",
)


@case("an additional reduction without effect")
def additional(path: str, rank: int, world: int) -> None:
    """Copies added up and divided again: another program, the same numbers."""
    model = nets.megatron(nets.whole())

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nets.loss_of(nets.averaged(logits, None), targets)

    nets.train(model, nets.batches(), path, loss=loss)
