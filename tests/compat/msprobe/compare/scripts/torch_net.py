"""A step of a small net of PyTorch, recorded with the debugger: `torch_net.py FOLDER good:tensor:mix bad:tensor:L0:broken …`.

mindspore_net.py is the same net with the same weights. `--ranks 2` runs it on two ranks over gloo, each with data of its own.
"""

from __future__ import annotations

import argparse
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from twintrace.compat.msprobe.debugger import close
from twintrace.compat.msprobe.pytorch import PrecisionDebugger


class ParallelMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense_h_to_4h, self.dense_4h_to_h = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense_4h_to_h(torch.tanh(self.dense_h_to_4h(x)))


class Net(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.embed, self.fc1, self.norm, self.mlp = (
            nn.Embedding(10, 8),
            nn.Linear(8, 16),
            nn.LayerNorm(16, eps=eps),
            ParallelMLP(),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.norm(torch.relu(self.fc1(self.embed(tokens)))))


class Model(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.net = Net(eps)

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.net(tokens), target)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("dumps", nargs="+", metavar="NAME:TASK:LEVEL[:broken]")
    parser.add_argument("--ranks", type=int, default=1)
    args = parser.parse_args()
    if args.ranks == 1:
        train_all(0, args)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        args.port = free.getsockname()[1]
    torch.multiprocessing.spawn(rank, (args,), nprocs=args.ranks)


def rank(number: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{args.port}"
    dist.init_process_group("gloo", init_method=address, rank=number, world_size=args.ranks)
    train_all(number, args)
    dist.destroy_process_group()


def train_all(number: int, args: argparse.Namespace) -> None:
    for text in args.dumps:
        name, task, level, *broken = text.split(":")
        train(number, f"{args.folder}/{name}", task, level, bool(broken) and number == args.ranks - 1)


def train(number: int, dump: str, task: str, level: str, broken: bool) -> None:
    random = np.random.default_rng(0)
    model = Model(50.0 if broken else 1e-5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(random.normal(size=parameter.shape).astype(np.float32)))
    data = np.random.default_rng(number + 1)
    tokens = torch.from_numpy(data.integers(0, 10, (3, 5)))
    target = torch.from_numpy(data.normal(size=(3, 5, 4)).astype(np.float32))
    debugger = PrecisionDebugger(dump_path=dump, task=task, level=level)
    debugger.start(model)
    loss = model(tokens, target)
    if dist.is_initialized():
        dist.all_reduce(loss.detach().clone())
    loss.backward()
    debugger.stop()
    debugger.step()
    close()


if __name__ == "__main__":
    main()
