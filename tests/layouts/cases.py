"""Recorded runs of one model on one rank and on several, right and with mistakes.

python cases.py OUT 4                 all cases of 4 ranks, one after the other in the same processes: OUT/<case>

OUT/one                               the run on one rank, which the others are compared with
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # AMX bf16 can die of SIGILL on virtual machines

import nets
import torch
import torch.distributed as dist
import torch.multiprocessing
from registered import ALONE, CASES, case, part, plant
from torch.nn.parallel import DistributedDataParallel

# --- tensor parallel --------------------------------------------------------------------------------------------------


@case("megatron", 2, 4, 8)
def megatron(path: str, rank: int, world: int, mistake: str = "") -> None:
    nets.train(nets.megatron(nets.whole(), mistake=mistake), nets.batches(), path)


plant(
    megatron,
    "bias on every rank",
    "no reduction",
    "no reduction of the gradient",
    "swapped shards",
    "swapped rows",
    "divided by the ranks",
    "reduced twice",
    "gradient reduced twice",
)


@case("dtensor", 2, 4)
def dtensor(path: str, rank: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nets.whole()
    plan = {f"blocks.{number}.up": ColwiseParallel() for number in (0, 1)}
    plan |= {f"blocks.{number}.down": RowwiseParallel() for number in (0, 1)}
    nets.train(parallelize_module(model, init_device_mesh("cpu", (world,)), plan), nets.batches(), path)


@case("vocabulary", 2, 4)
def vocabulary(path: str, rank: int, world: int, mistake: str = "") -> None:
    model = nets.vocabulary_parallel(nets.whole(), mistake=mistake)
    nets.train(model, nets.batches(), path, loss=nets.vocabulary_loss(mistake=mistake))


plant(
    vocabulary,
    "rows of others not masked",
    "first row of a rank off by one",
    "largest logit not reduced",
    "targets of others not masked",
    "denominator not reduced",
)


@case("sequence")
def sequence(path: str, rank: int, world: int, mistake: str = "") -> None:
    model = nets.SequenceModel(nets.whole(), mistake=mistake)

    def after() -> None:
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and ".up." not in name and mistake != "norms not reduced over the sequence":
                dist.all_reduce(parameter.grad)  # each rank has seen some positions

    nets.train(model, nets.batches(), path, after=after)


plant(sequence, "norms not reduced over the sequence", "positions kept and not added up")


# --- pipelines and micro-batches --------------------------------------------------------------------------------------


@case("pipeline", 2, 4)
def pipeline(path: str, rank: int, world: int, mistake: str = "", micro: int = 2) -> None:
    nets.train_pipeline(nets.Stage(nets.whole(), rank, world), nets.batches(), path, micro, mistake=mistake)


@case("pipeline of one batch")
def pipeline_of_one(path: str, rank: int, world: int) -> None:
    pipeline(path, rank, world, micro=1)


plant(
    pipeline,
    "micro-batches added",
    "scaled on the way",
    "divided again",
    "micro-batches in another order",
    "gradient of a micro-batch lost",
)


def _accumulated(path: str, **kwargs) -> None:
    nets.train(nets.whole(), nets.batches(), path, **kwargs)


def _experts(path: str) -> None:
    nets.train(nets.with_experts(), nets.batches(), path)


@case("expert parallel", 2, 4)
def experts(path: str, rank: int, world: int, mistake: str = "") -> None:
    """Data parallel, with some of the experts on each rank, whose gradients are those of all ranks' losses."""
    model = nets.with_experts()
    model.experts = nets.ExpertParallel(model.experts, mistake=mistake)

    def after() -> None:
        for name, parameter in model.named_parameters():
            if name == "experts.weight":
                if mistake != "experts' gradients added up":
                    parameter.grad /= world
            elif name != "experts.router.weight" or mistake != "router's gradient not reduced":
                dist.all_reduce(parameter.grad)
                parameter.grad /= world

    nets.train(model, part(rank, world), path, after=after)


plant(
    experts,
    "experts of another rank",
    "not put back in order",
    "score twice",
    "experts' gradients added up",
    "router's gradient not reduced",
)


def _updated_between(path: str, *, clears: bool = False) -> None:
    model = nets.whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = iter(range(1_000))

    def between() -> None:
        if clears and next(calls) % 2 == 0:
            optimizer.zero_grad()
        elif not clears and next(calls) % 2 == 0:
            optimizer.step()

    nets.train(model, nets.batches(), path, micro=2, optimizer=optimizer, between=between)


def _one_dropout(path: str) -> None:
    model = nets.whole()
    model.blocks[1].drop = 0.5
    nets.train(model, nets.batches(), path)


ALONE |= {
    "one dropout": _one_dropout,
    "experts": _experts,
    "tied": lambda path: nets.train(_tied(nets.whole()), nets.batches(), path),
    "one": _accumulated,
    "accumulated": functools.partial(_accumulated, micro=2),
    "accumulated four times": functools.partial(_accumulated, micro=4),
    "loss of each micro-batch": functools.partial(_accumulated, micro=2, scale=1),
    "updated after each micro-batch": functools.partial(_updated_between),
    "gradients cleared between micro-batches": functools.partial(_updated_between, clears=True),
}


# --- data parallel ----------------------------------------------------------------------------------------------------


@case("ddp", 2, 4)
def ddp(path: str, rank: int, world: int) -> None:
    nets.train(DistributedDataParallel(nets.whole()), part(rank, world), path)


def _data_parallel(path: str, rank: int, world: int, reduced: Callable[[torch.Tensor], None], model=None) -> None:
    model = model or nets.whole()

    def after() -> None:
        for parameter in model.parameters():
            reduced(parameter.grad)

    nets.train(model, part(rank, world), path, after=after)


@case("data", 2, 4)
def data(path: str, rank: int, world: int) -> None:
    def reduced(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient)
        gradient /= world

    _data_parallel(path, rank, world, reduced)


@case("gradients not reduced")
def not_reduced(path: str, rank: int, world: int) -> None:
    _data_parallel(path, rank, world, lambda gradient: None)


class _NoUpdate:
    """An optimizer that was forgotten."""

    def step(self) -> None: ...
    def zero_grad(self) -> None: ...


@case("no update")
def no_update(path: str, rank: int, world: int) -> None:
    nets.train(nets.whole(), part(rank, world)[:1], path, optimizer=_NoUpdate())


@case("averaged twice")
def averaged_twice(path: str, rank: int, world: int) -> None:
    def reduced(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient)
        gradient /= world
        gradient /= world

    _data_parallel(path, rank, world, reduced)


@case("summed, not averaged")
def summed(path: str, rank: int, world: int) -> None:
    _data_parallel(path, rank, world, lambda gradient: dist.all_reduce(gradient))


@case("other weights on rank 1")
def other_weights(path: str, rank: int, world: int) -> None:
    model = nets.whole()
    if rank == 1:
        with torch.no_grad():
            model.blocks[0].up.weight[0, 0] += 0.01

    def reduced(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient)
        gradient /= world

    _data_parallel(path, rank, world, reduced, model)


@case("other learning rate on rank 1")
def other_rate(path: str, rank: int, world: int) -> None:
    model = nets.whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + 0.01 * rank)

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world

    nets.train(model, part(rank, world), path, after=after, optimizer=optimizer)


@case("one gradient not reduced")
def one_not_reduced(path: str, rank: int, world: int) -> None:
    model = nets.whole()

    def after() -> None:
        for name, parameter in model.named_parameters():
            if name != "blocks.0.norm.bias":
                dist.all_reduce(parameter.grad)
                parameter.grad /= world

    nets.train(model, part(rank, world), path, after=after)


@case("ddp averaged again")
def ddp_again(path: str, rank: int, world: int) -> None:
    model = DistributedDataParallel(nets.whole())

    def after() -> None:
        for parameter in model.parameters():
            parameter.grad /= world

    nets.train(model, part(rank, world), path, after=after)


@case("ddp of sums")
def ddp_of_sums(path: str, rank: int, world: int) -> None:
    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    nets.train(DistributedDataParallel(nets.whole()), part(rank, world), path, loss=loss)


@case("ddp without a sampler")
def ddp_without_sampler(path: str, rank: int, world: int) -> None:
    nets.train(DistributedDataParallel(nets.whole()), part(0, world), path)


@case("copied bias added up")
def copied_bias(path: str, rank: int, world: int) -> None:
    model = nets.megatron(nets.whole())

    def after() -> None:
        for block in model.blocks:
            dist.all_reduce(block.down.bias.grad)

    nets.train(model, nets.batches(), path, after=after)


@case("other weights on rank 1 later")
def other_weights_later(path: str, rank: int, world: int) -> None:
    model = nets.whole()

    def data():
        for number, batch in enumerate(part(rank, world)):
            if number == 1 and rank == 1:
                model.head.weight.data[0, 0] += 0.01
            yield batch

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world

    nets.train(model, data(), path, after=after)


@case("pipelines and data", 4, 8)
def pipelines_and_data(path: str, rank: int, world: int) -> None:
    """Two pipelines, each with half of the batch; the gradients of a stage are averaged over both."""
    stages = world // 2
    pairs = {stage: dist.new_group([stage, stage + stages]) for stage in range(stages)}
    for start in (0, stages):
        dist.new_group(list(range(start, start + stages)))
    own, stage = divmod(rank, stages)
    model = nets.Stage(nets.whole(), stage, stages)

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=pairs[stage])
            parameter.grad /= 2

    line = list(range(own * stages, (own + 1) * stages))
    nets.train_pipeline(model, part(own, 2), path, 2, stages=line, after=after)


@case("tensor and data of eight", 8)
def eight(path: str, rank: int, world: int) -> None:
    rows = {start: dist.new_group(list(range(start, start + 4))) for start in (0, 4)}
    columns = {place: dist.new_group([place, place + 4]) for place in range(4)}
    model = nets.megatron(nets.whole(), rows[rank // 4 * 4])

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=columns[rank % 4])
            parameter.grad /= 2

    nets.train(model, part(rank // 4, 2), path, after=after)


@case("accumulated and data", 2)
def accumulated_and_data(path: str, rank: int, world: int) -> None:
    model = nets.whole()

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world

    nets.train(model, part(rank, world), path, after=after, micro=2)


@case("weights drift on rank 1")
def drift(path: str, rank: int, world: int) -> None:
    model = nets.whole()
    count = iter(range(100))

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        if rank == 1 and next(count) == 0:
            model.head.weight.grad.mul_(1.5)

    nets.train(model, part(rank, world), path, after=after)


@case("a batch ahead on rank 1")
def ahead(path: str, rank: int, world: int) -> None:
    data = nets.batches()
    nets.train(nets.megatron(nets.whole()), data if rank == 0 else data[1:] + data[:1], path)


@case("a collective of some ranks", 4)
def some_ranks(path: str, rank: int, world: int) -> None:
    group = dist.new_group([0, 1])
    model = nets.megatron(nets.whole())

    def after() -> None:
        if rank < 2:
            dist.all_reduce(model.head.weight.grad, group=group)

    nets.train(model, nets.batches(), path, after=after)


@case("reduced over the wrong group", 4)
def forward_wrong_group(path: str, rank: int, world: int) -> None:
    row, column = groups(rank)
    model = nets.megatron(nets.whole(), row)
    model.blocks[1].down.group = column

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=column)
            parameter.grad /= 2

    nets.train(model, part(rank // 2, 2), path, after=after)


def _dropout(path: str, rank: int, world: int, *, seed: int) -> None:
    """Data parallel with dropout in the last block."""
    model = nets.whole()
    model.blocks[1].drop = 0.5
    torch.manual_seed(seed)
    nets.train(DistributedDataParallel(model), part(rank, world) if world > 1 else nets.batches(), path)


@case("dropout")
def dropout(path: str, rank: int, world: int) -> None:
    _dropout(path, rank, world, seed=rank)


@case("dropout with one seed")
def dropout_with_one_seed(path: str, rank: int, world: int) -> None:
    _dropout(path, rank, world, seed=0)


def _tied(model: nets.Model) -> nets.Model:
    model.head.weight = model.embedding.weight
    return model


def _tied_pipeline(path: str, rank: int, world: int, *, reduce: bool) -> None:
    """The head is on the last rank, the embedding on the first; their gradients are added up."""
    stage = nets.Stage(_tied(nets.whole()), rank, world)
    ends = dist.new_group([0, world - 1])

    def after() -> None:
        if reduce and rank in (0, world - 1):
            dist.all_reduce((stage.head or stage.embedding).weight.grad, group=ends)

    nets.train_pipeline(stage, nets.batches(), path, 2, after=after)


@case("tied pipeline", 2, 4)
def tied_pipeline(path: str, rank: int, world: int) -> None:
    _tied_pipeline(path, rank, world, reduce=True)


@case("tied weights not reduced over the stages", 2, 4)
def tied_mistake(path: str, rank: int, world: int) -> None:
    _tied_pipeline(path, rank, world, reduce=False)


@case("other data on rank 1")
def other_data(path: str, rank: int, world: int) -> None:
    data = [(tokens.roll(rank), targets) for tokens, targets in nets.batches()]
    nets.train(nets.megatron(nets.whole()), data, path)


@case("one rank scales")
def one_scales(path: str, rank: int, world: int) -> None:
    model = nets.megatron(nets.whole())

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nets.loss_of(logits * 1.01 if rank == 1 else logits, targets)

    nets.train(model, nets.batches(), path, loss=loss)


def groups(rank: int) -> tuple[object, object]:
    """Group of the row and of the column of a rank in a mesh of 2 × 2."""
    made = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))}
    row = made[0, 1] if rank < 2 else made[2, 3]
    return row, made[0, 2] if rank % 2 == 0 else made[1, 3]


def _mesh(path: str, rank: int, *, wrong: bool) -> None:
    row, column = groups(rank)
    model = nets.megatron(nets.whole(), row)

    def after() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=row if wrong else column)
            parameter.grad /= 2

    nets.train(model, part(rank // 2, 2), path, after=after)


@case("tensor and data", 4)
def tensor_and_data(path: str, rank: int, world: int) -> None:
    _mesh(path, rank, wrong=False)


@case("gradients reduced over the wrong group", 4)
def wrong_group(path: str, rank: int, world: int) -> None:
    _mesh(path, rank, wrong=True)


def _fsdp(path: str, rank: int, world: int, *, again: bool = False, added: bool = False) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = nets.whole(), init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def after() -> None:
        for parameter in model.parameters():
            if again:
                parameter.grad /= world  # FSDP has averaged it
            if added:
                parameter.grad *= world

    nets.train(model, part(rank, world), path, after=after)


@case("fsdp")
def fsdp(path: str, rank: int, world: int) -> None:
    _fsdp(path, rank, world)


@case("fsdp averaged again")
def fsdp_again(path: str, rank: int, world: int) -> None:
    _fsdp(path, rank, world, again=True)


@case("fsdp added up")
def fsdp_added(path: str, rank: int, world: int) -> None:
    _fsdp(path, rank, world, added=True)


importlib.import_module("cases_attention")
importlib.import_module("cases_collectives")
importlib.import_module("cases_numbered")


def work(rank: int, world: int, port: int, out: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    try:
        for name, run in CASES[world].items():
            if (not names or name in names) and not Path(out, name).exists():
                dist.barrier()  # none begins before all have seen that it is not there
                run(str(Path(out, name)), rank, world)
    finally:
        dist.destroy_process_group()


def main(out: str, world: int, names: list[str]) -> None:
    torch.set_num_threads(1)
    for name, run in ALONE.items():
        if not Path(out, name).exists() and (name == "one" or name in names or not names):
            run(str(Path(out, name)))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    importlib.import_module("torch._dynamo")  # takes longer than all the steps, so it is done once, before the fork
    torch.multiprocessing.start_processes(work, args=(world, port, out, names), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
