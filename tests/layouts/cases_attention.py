"""Context parallel attention: each rank has some positions of the sequence, also inside the attention.

gathered   keys and values of all ranks are gathered; each rank's queries attend to them
ring       blocks of keys and values travel from rank to rank, and the softmax is put together of its parts as they come
"""

from __future__ import annotations

import math

import nets
import torch
import torch.distributed as dist
import torch.nn.functional as F
from registered import ALONE, case, plant
from torch import Tensor, nn

HEADS, WIDTH, LENGTH = 2, 8, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, [batch, heads, length, width of a head]."""
        return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(nets.VOCABULARY, WIDTH)
        self.attention = Attention()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, nets.VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.head(self.norm(x + self.attention(x)))


def whole() -> Model:
    torch.manual_seed(0)
    return Model()


def batches(steps: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    tokens, targets = torch.randint(nets.VOCABULARY, (2, steps, nets.BATCH, LENGTH), generator=generator)
    return list(zip(tokens, targets, strict=True))


def positions(mistake: str = "") -> list[tuple[Tensor, Tensor]]:
    """The rank's positions of the batches."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return [(tokens.chunk(world, 1)[rank], targets.chunk(world, 1)[rank]) for tokens, targets in batches()]


class Gathered(Attention):
    mistake = ""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        length, rank = query.shape[2], dist.get_rank()
        if self.mistake == "keys of the own positions alone":
            found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            return self.out(found.transpose(1, 2).flatten(2))
        key, value = (self.everywhere(part) for part in (key, value))
        start = 0 if self.mistake == "mask of the first rank everywhere" else rank * length
        own = torch.arange(start, start + length).unsqueeze(1)
        mask = torch.arange(key.shape[2]).unsqueeze(0) <= own
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(found.transpose(1, 2).flatten(2))

    def everywhere(self, part: Tensor) -> Tensor:
        """The positions of all ranks: gathered along the first axis, as collectives do it."""
        moved = part.permute(2, 0, 1, 3)
        take = nets.gathered_copies if self.mistake == "gradients of keys not added up" else nets.gathered
        return take(moved, None).permute(1, 2, 0, 3)


class _Ring(torch.autograd.Function):
    """Attention to blocks that come from the ranks before; backward the gradients travel with their blocks, once around."""

    @staticmethod
    def forward(ctx, query, key, value, mistake):
        rank, world = dist.get_rank(), dist.get_world_size()
        scale = 1 / math.sqrt(query.shape[-1])
        largest = torch.full((*query.shape[:-1], 1), -math.inf)
        total, found = torch.zeros_like(largest), torch.zeros_like(query)
        blocks = (key, value)
        for step in range(world):
            scores = query @ blocks[0].transpose(-1, -2) * scale
            scores = scores.masked_fill(~allowed(rank, (rank - step) % world, query.shape[2]), -math.inf)
            newest = torch.maximum(largest, scores.amax(-1, keepdim=True))
            weights = (scores - newest).exp().nan_to_num(0.0)
            shrink = (largest - newest).exp().nan_to_num(0.0)
            if mistake == "parts of the softmax not rescaled":
                shrink = torch.ones_like(shrink)
            total = total * shrink + weights.sum(-1, keepdim=True)
            found = found * shrink + weights @ blocks[1]
            largest = newest
            if step + 1 < world:
                blocks = passed_on(blocks)
        found = found / total
        ctx.save_for_backward(query, key, value, found, largest + total.log())
        return found

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, found, logsum = ctx.saved_tensors
        rank, world = dist.get_rank(), dist.get_world_size()
        scale = 1 / math.sqrt(query.shape[-1])
        delta = (gradient * found).sum(-1, keepdim=True)
        of_query = torch.zeros_like(query)
        travelling = [key, value, torch.zeros_like(key), torch.zeros_like(value)]
        for step in range(world):
            scores = query @ travelling[0].transpose(-1, -2) * scale
            scores = scores.masked_fill(~allowed(rank, (rank - step) % world, query.shape[2]), -math.inf)
            weights = (scores - logsum).exp()
            of_scores = weights * (gradient @ travelling[1].transpose(-1, -2) - delta) * scale
            of_query = of_query + of_scores @ travelling[0]
            travelling[2] = travelling[2] + of_scores.transpose(-1, -2) @ query
            travelling[3] = travelling[3] + weights.transpose(-1, -2) @ gradient
            travelling = list(passed_on(travelling))  # after the last step each is at home again
        return of_query, travelling[2], travelling[3], None


def allowed(rank: int, owner: int, length: int) -> Tensor:
    """Queries of a rank beside keys of the rank that a block comes from."""
    own = torch.arange(rank * length, (rank + 1) * length).unsqueeze(1)
    return torch.arange(owner * length, (owner + 1) * length).unsqueeze(0) <= own


def passed_on(blocks) -> list[Tensor]:
    """What the rank before has, for what this one has."""
    rank, world = dist.get_rank(), dist.get_world_size()
    came = [torch.empty(block.shape) for block in blocks]
    work = [dist.isend(block.contiguous(), (rank + 1) % world) for block in blocks]
    work += [dist.irecv(block, (rank - 1) % world) for block in came]
    for item in work:
        item.wait()
    return came


class Ring(Attention):
    mistake = ""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        found = _Ring.apply(query, key, value, self.mistake)
        return self.out(found.transpose(1, 2).flatten(2))


def _context(path: str, kind: type[Attention], mistake: str) -> None:
    """Each rank's loss is the mean over its positions; gradients are averaged over the ranks."""
    model, world = whole(), dist.get_world_size()
    own = kind()
    own.load_state_dict(model.attention.state_dict())
    own.mistake = mistake
    model.attention = own

    def after() -> None:
        for name, parameter in model.named_parameters():
            if mistake != "head not reduced over the positions" or name != "head.bias":
                dist.all_reduce(parameter.grad)
                parameter.grad /= world

    nets.train(model, positions(), path, after=after)


@case("context", 2, 4)
def context(path: str, rank: int, world: int, mistake: str = "") -> None:
    _context(path, Gathered, mistake)


@case("ring", 2, 4)
def ring(path: str, rank: int, world: int, mistake: str = "") -> None:
    _context(path, Ring, mistake)


plant(
    context,
    "mask of the first rank everywhere",
    "keys of the own positions alone",
    "gradients of keys not added up",
    "head not reduced over the positions",
)
plant(ring, "parts of the softmax not rescaled")
ALONE["attention"] = lambda path: nets.train(whole(), batches(), path)
