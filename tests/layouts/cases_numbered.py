"""Modules that each rank numbers from nought: stages of a pipeline, experts; and pipelines of `torch.distributed.pipelining`."""

from __future__ import annotations

import nets
import torch
import torch.distributed as dist
import torch.nn.functional as F
from registered import ALONE, case, plant
from torch import Tensor, nn

import twintrace as tt

# --- stages -----------------------------------------------------------------------------------------------------------


class NumberedStage(nn.Module):
    """A stage whose blocks count from nought: of two stages each has one, `blocks.0`."""

    def __init__(self, model: nets.Model, stage: int, stages: int) -> None:
        super().__init__()
        self.embedding = model.embedding if stage == 0 else None
        self.blocks = nn.ModuleList([model.blocks[stage]])
        self.norm, self.head = (model.norm, model.head) if stage == stages - 1 else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x).transpose(0, 1)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x)).transpose(0, 1)


@case("numbered stages")
def numbered_stages(path: str, rank: int, world: int, mistake: str = "") -> None:
    model = nets.whole()
    if mistake == "a block twice":
        model.blocks[1] = model.blocks[0]
    nets.train_pipeline(NumberedStage(model, rank, world), nets.batches(), path, 2)


plant(numbered_stages, "a block twice")


# --- torch.distributed.pipelining -------------------------------------------------------------------------------------


def _scheduled(path: str, schedule: str, mistake: str = "", micro: int = 4) -> None:
    from torch.distributed import pipelining

    rank, world = dist.get_rank(), dist.get_world_size()
    module = nets.Stage(nets.whole(), rank, world)
    stage = pipelining.PipelineStage(module, rank, world, torch.device("cpu"))
    kind = getattr(pipelining, schedule)
    plan = kind(stage, micro, loss_fn=nets.loss_of, scale_grads=mistake != "gradients not scaled")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with tt.record(path, module, level="mix", keep="tensor", overwrite=True) as recorder:
        for tokens, targets in nets.batches():
            if rank == 0:
                plan.step(tokens)
            elif rank == world - 1:
                plan.step(target=targets)
            else:
                plan.step()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()


@case("gpipe", 2, 4)
def gpipe(path: str, rank: int, world: int, mistake: str = "") -> None:
    _scheduled(path, "ScheduleGPipe", mistake)


@case("one forward one backward", 2, 4)
def one_forward_one_backward(path: str, rank: int, world: int) -> None:
    _scheduled(path, "Schedule1F1B")


plant(gpipe, "gradients not scaled")


# --- experts as modules -----------------------------------------------------------------------------------------------


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(nets.WIDTH, nets.INNER), nn.Linear(nets.INNER, nets.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Mixture(nn.Module):
    """Each position goes to one of four experts, which are modules."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(nets.WIDTH, nets.EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(nets.EXPERTS)])
        self.first = 0

    def run(self, x: Tensor, choice: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (choice == self.first + number).nonzero().squeeze(-1)
            found = found.index_add(0, rows, expert(x[rows]))
        return found

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        choice = scores.argmax(-1)
        return self.run(x, choice) * scores.gather(-1, choice.unsqueeze(-1))


class Spread(Mixture):
    """Some of the experts on each rank, numbered from nought."""

    def __init__(self, mixture: Mixture, mistake: str = "") -> None:
        nn.Module.__init__(self)
        rank, count = dist.get_rank(), nets.EXPERTS // dist.get_world_size()
        self.router, self.first = mixture.router, rank * count
        held = 0 if mistake == "the first experts on every rank" else self.first
        self.experts = nn.ModuleList(list(mixture.experts)[held : held + count])

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        choice = scores.argmax(-1)
        order = choice.argsort(stable=True)
        here = torch.bincount(choice // len(self.experts), minlength=dist.get_world_size())
        there = torch.empty_like(here)
        dist.all_to_all_single(there, here)
        give, get = here.tolist(), there.tolist()
        numbers = torch.empty(sum(get), dtype=choice.dtype)
        dist.all_to_all_single(numbers, choice[order], get, give)
        done = self.run(nets.exchanged(x[order], give, get, None), numbers)
        found = torch.zeros_like(x).index_copy(0, order, nets.exchanged(done, get, give, None))
        return found * scores.gather(-1, choice.unsqueeze(-1))


class MixtureModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(nets.VOCABULARY, nets.WIDTH)
        self.mixture = Mixture()
        self.head = nn.Linear(nets.WIDTH, nets.VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.head(x + self.mixture(x.flatten(0, 1)).view_as(x))


def _mixture() -> MixtureModel:
    torch.manual_seed(0)
    return MixtureModel()


@case("numbered experts", 2, 4)
def numbered_experts(path: str, rank: int, world: int, mistake: str = "") -> None:
    model = _mixture()
    model.mixture = Spread(model.mixture, mistake)

    def after() -> None:
        for name, parameter in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(parameter.grad)
            parameter.grad /= world

    data = [(tokens.chunk(world)[rank], targets.chunk(world)[rank]) for tokens, targets in nets.batches()]
    nets.train(model, data, path, after=after)


plant(numbered_experts, "the first experts on every rank")
ALONE["mixture"] = lambda path: nets.train(_mixture(), nets.batches(), path)
