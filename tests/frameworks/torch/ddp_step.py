"""Two processes train one model over gloo, and use every collective that gloo has; results go to a file per rank.

    python ddp_step.py OUT                          both ranks are forked from here, on a free port
    python ddp_step.py OUT --rank 0 --port 29511    one rank; start the other one yourself
    python ddp_step.py OUT --record DIR --level op  the same, recorded by twintrace

    OUT/rank0.npz, OUT/rank1.npz    parameter.*, buffer.*, grad.*@step, loss@step, <collective>@step

In DIR, `{rank}` stands for the number of the rank, should each rank want a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # AMX bf16 can die of SIGILL on virtual machines

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

# torch 2.13 renamed these two; the old names warn, the new ones are not there before
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def train(rank: int, args: argparse.Namespace) -> None:
    """One rank's whole life."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{args.port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=args.world_size)
    try:
        results = run_steps(rank, args)
        args.out.mkdir(parents=True, exist_ok=True)
        np.savez(args.out / f"rank{rank}.npz", **{name: tensor.numpy() for name, tensor in results.items()})
        dist.barrier()
    finally:
        dist.destroy_process_group()


def run_steps(rank: int, args: argparse.Namespace) -> dict[str, Tensor]:
    torch.manual_seed(20240229)  # the weights are the same on all ranks
    inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    model = DistributedDataParallel(inner, bucket_cap_mb=0.0001)  # several buckets, so several reductions in backward
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)  # the data is not

    results: dict[str, Tensor] = {}
    with recording(rank, args, model) as rec:
        for step in range(args.steps):
            found = training_step(model, optimizer) | collectives(rank, args.world_size)
            results |= {f"{name}@{step}": tensor for name, tensor in found.items()}
            if rec is not None:
                rec.step()
    results |= {f"parameter.{name}": parameter.detach().clone() for name, parameter in inner.named_parameters()}
    results |= {f"buffer.{name}": buffer.clone() for name, buffer in inner.named_buffers()}
    return results


@contextlib.contextmanager
def recording(rank: int, args: argparse.Namespace, model: nn.Module) -> Iterator[object | None]:
    """twintrace's record around the steps, or nothing at all: then twintrace is not even imported."""
    if args.record is None:
        yield None
        return
    import twintrace as tt

    options = {name: value for name in ("level", "keep") if (value := getattr(args, name)) is not None}
    with tt.record(args.record.replace("{rank}", str(rank)), model, **options) as rec:
        yield rec


def training_step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Two micro-batches, of which only the second one synchronises; then the optimizer."""
    with model.no_sync():
        model(torch.randn(5, 4)).square().mean().backward()
    loss = model(torch.randn(5, 4)).square().mean()
    loss.backward()
    found = {f"grad.{name}": parameter.grad.clone() for name, parameter in model.module.named_parameters()}
    optimizer.step()
    optimizer.zero_grad()
    return found | {"loss": loss.detach()}


def collectives(rank: int, world_size: int) -> dict[str, Tensor]:
    """Every collective on a fresh tensor of this rank: blocking, asynchronous, and in pairs."""
    found = {}

    summed = torch.randn(3)
    dist.all_reduce(summed)
    found["all_reduce"] = summed

    largest = torch.randn(3, 2)
    work = dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True)
    busy = torch.randn(4, 4) @ torch.randn(4, 4)  # what asynchronous is for
    work.wait()
    found |= {"all_reduce_async": largest, "between": busy}

    gathered = [torch.empty(2) for _ in range(world_size)]
    dist.all_gather(gathered, torch.randn(2))
    found["all_gather"] = torch.stack(gathered)

    flat = torch.empty(world_size * 2)
    all_gather_single(flat, torch.randn(2), async_op=True).wait()
    found["all_gather_single"] = flat

    sent = torch.randn(3)
    dist.broadcast(sent, src=1)
    found["broadcast"] = sent

    reduced = torch.randn(3)
    dist.reduce(reduced, dst=0)
    found["reduce"] = reduced if rank == 0 else torch.zeros(3)  # what is left on the others is not defined

    share = torch.empty(2)
    dist.scatter(share, [torch.randn(2) for _ in range(world_size)] if rank == 0 else None, src=0)
    found["scatter"] = share

    exchanged = torch.empty(world_size)
    dist.all_to_all_single(exchanged, torch.randn(world_size))
    found["all_to_all"] = exchanged

    found |= exchange(rank)
    found |= reduce_scatters(world_size)

    names: list[object] = [None] * world_size
    dist.all_gather_object(names, {"rank": rank})
    found["all_gather_object"] = torch.tensor([name["rank"] for name in names])
    dist.barrier()
    return found


def exchange(rank: int) -> dict[str, Tensor]:
    """Ranks 0 and 1 send to each other, first blocking, then both at once; other ranks look on."""
    received, mine = torch.zeros(3), torch.randn(3)
    if rank == 0:
        dist.send(mine, dst=1)
        dist.recv(received, src=1)
    elif rank == 1:
        dist.recv(received, src=0)
        dist.send(mine, dst=0)

    at_once = torch.zeros(3)
    if rank < 2:
        works = [dist.isend(mine * 2, dst=1 - rank), dist.irecv(at_once, src=1 - rank)]
        for work in works:
            work.wait()
    return {"recv": received, "irecv": at_once}


def reduce_scatters(world_size: int) -> dict[str, Tensor]:
    """reduce_scatter came late to gloo: where it is missing, so is the result."""
    found = {}
    parts, flat = [torch.randn(2) for _ in range(world_size)], torch.randn(world_size * 2)
    with contextlib.suppress(RuntimeError, NotImplementedError):
        output = torch.empty(2)
        dist.reduce_scatter(output, parts)
        found["reduce_scatter"] = output
    with contextlib.suppress(RuntimeError, NotImplementedError):
        output = torch.empty(2)
        reduce_scatter_single(output, flat)
        found["reduce_scatter_single"] = output
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for rank<n>.npz")
    parser.add_argument("--rank", type=int, help="be this rank; without it, all ranks are forked")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--port", type=int, help="on 127.0.0.1; needed with --rank, else a free one is taken")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--record", metavar="DIR", help="record the steps with twintrace")
    parser.add_argument("--level", help="handed to twintrace.record")
    parser.add_argument("--keep", help="handed to twintrace.record")
    args = parser.parse_args()
    if args.rank is not None:
        if args.port is None:
            parser.error("--rank needs --port: the ranks must meet somewhere")
        train(args.rank, args)
        return
    args.port = args.port or free_port()
    # Importing takes longer than all the steps, so it is done once, here: torch with what its optimizers import later.
    importlib.import_module("torch._dynamo")
    torch.multiprocessing.start_processes(train, args=(args,), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
