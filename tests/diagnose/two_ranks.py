"""Two ranks of one run; the second divides by zero, and both take part in a sum of it."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import twintrace as tt


def work(rank: int, path: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    with tt.record(path, net, level="mix", keep="statistics") as rec:
        for step in range(2):
            out = net(torch.ones(2, 4))
            if rank == 1 and step == 1:
                out = out / torch.zeros(())
            total = out.sum()
            dist.all_reduce(total)
            (total * 2).exp()
            rec.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    mp.spawn(work, args=(sys.argv[1], number), nprocs=2)
