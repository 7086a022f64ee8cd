"""A small language model in several layouts, each as people write it, and the mistakes that they make.

    whole(seed)                    the model on one device
    Megatron(whole, group)         column and row parallel, vocabulary parallel embedding and cross entropy
    run(model, batch, path)        two recorded training steps

Weights of every layout are cut out of those of the model on one device, so that all of them are the same model.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import twintrace as tt

VOCABULARY, WIDTH, INNER, BATCH, LENGTH = 16, 8, 16, 4, 6


class Block(nn.Module):
    drop = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, INNER)
        self.down = nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found = self.down(F.gelu(self.up(self.norm(x))))
        return x + (F.dropout(found, self.drop) if self.drop else found)


class Model(nn.Module):
    """Embedding, two blocks, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(0, 1)  # positions first, as Megatron has them
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).transpose(0, 1)


def whole(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    model = Model()
    with torch.no_grad():  # biases and norms that can be told from zeros and ones
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) / 4)
    return model


def batches(steps: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    shape = (2, steps, BATCH, LENGTH)
    tokens, targets = torch.randint(VOCABULARY, shape, generator=generator)
    return list(zip(tokens, targets, strict=True))


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# --- tensor parallel, as Megatron has it ------------------------------------------------------------------------------


class _Moved(torch.autograd.Function):
    """One collective forward, another one backward: each a function of a tensor and a group."""

    @staticmethod
    def forward(ctx, x, group, there, back):
        ctx.group, ctx.back = group, back
        return there(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.back(gradient, ctx.group), None, None, None


def _same(x: Tensor, group) -> Tensor:
    return x


def _add_up(x: Tensor, group) -> Tensor:
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x


def _own_piece(x: Tensor, group, dim: int = 0) -> Tensor:
    return x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


def _all_pieces(x: Tensor, group) -> Tensor:
    whole = torch.empty(x.shape[0] * dist.get_world_size(group), *x.shape[1:])
    all_gather_single(whole, x.contiguous(), group=group)
    return whole


def _own_piece_of_sum(x: Tensor, group) -> Tensor:
    part = torch.empty(x.shape[0] // dist.get_world_size(group), *x.shape[1:])
    reduce_scatter_single(part, x.contiguous(), group=group)
    return part


# torch 2.13 renamed these two; the old names warn, the new ones are not there before
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def copied(x: Tensor, group) -> Tensor:
    """Identity forward; the gradients of the ranks are added up."""
    return _Moved.apply(x, group, _same, _add_up)


def reduced(x: Tensor, group) -> Tensor:
    """Sum over the ranks forward; identity backward."""
    return _Moved.apply(x, group, _add_up, _same)


def averaged(x: Tensor, group) -> Tensor:
    """Mean over the ranks forward; backward the mean of what comes back to them, as the adjoint has it."""
    return _Moved.apply(x / dist.get_world_size(group), group, _add_up, _add_up)


def gathered(x: Tensor, group) -> Tensor:
    """All positions forward; backward the gradients are added up and each rank keeps its positions."""
    return _Moved.apply(x, group, _all_pieces, _own_piece_of_sum)


def scattered(x: Tensor, group) -> Tensor:
    """Adds up the ranks and keeps the own positions; backward gathers."""
    return _Moved.apply(x, group, _own_piece_of_sum, _all_pieces)


def cut(x: Tensor, group) -> Tensor:
    """Keeps the own positions of what all ranks have; backward gathers."""
    return _Moved.apply(x, group, _own_piece, _all_pieces)


def gathered_copies(x: Tensor, group) -> Tensor:
    """All positions forward, of which every rank then computes the same; backward each rank keeps its positions."""
    return _Moved.apply(x, group, _all_pieces, _own_piece)


class ColumnParallel(nn.Module):
    sequence = False
    """True if each rank comes with some positions."""

    def __init__(self, linear: nn.Linear, group, mistake: str = "") -> None:
        super().__init__()
        rank, count = dist.get_rank(group), dist.get_world_size(group)
        if mistake == "swapped shards":
            rank = count - 1 - rank
        self.weight = nn.Parameter(linear.weight.detach().chunk(count)[rank].clone())
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().chunk(count)[rank].clone())
        self.group, self.mistake = group, mistake

    def forward(self, x: Tensor) -> Tensor:
        if self.sequence:
            x = gathered(x, self.group)
        elif self.mistake != "no reduction of the gradient":
            x = copied(x, self.group)
        if self.mistake == "gradient reduced twice":
            x = copied(x, self.group)
        return F.linear(x, self.weight, self.bias)


class RowParallel(nn.Module):
    sequence = False
    """True if each rank leaves with some positions."""

    def __init__(self, linear: nn.Linear, group, mistake: str = "") -> None:
        super().__init__()
        rank, count = dist.get_rank(group), dist.get_world_size(group)
        if mistake == "swapped rows":
            rank = count - 1 - rank
        self.weight = nn.Parameter(linear.weight.detach().chunk(count, dim=1)[rank].clone())
        self.bias = nn.Parameter(linear.bias.detach().clone())
        self.group, self.mistake = group, mistake

    def forward(self, x: Tensor) -> Tensor:
        if self.mistake == "bias on every rank":
            return reduced(F.linear(x, self.weight, self.bias), self.group)
        x = F.linear(x, self.weight)
        if self.mistake == "positions kept and not added up":
            x = cut(x, self.group)
        elif self.sequence:
            x = scattered(x, self.group)
        elif self.mistake != "no reduction":
            x = reduced(x, self.group)
        if self.mistake == "reduced twice":
            x = reduced(x, self.group)
        if self.mistake == "divided by the ranks":
            x = x / dist.get_world_size(self.group)
        return x + self.bias


def megatron(model: Model, group=None, mistake: str = "") -> Model:
    """Column and row parallel layers in the blocks."""
    last = model.blocks[-1]
    for block in model.blocks:
        told = mistake if block is last else ""
        block.up = ColumnParallel(block.up, group, told)
        block.down = RowParallel(block.down, group, told)
    return model


def train(
    model: nn.Module,
    data,
    path: str,
    *,
    optimizer=None,
    loss=loss_of,
    after=lambda: None,
    micro: int = 1,
    scale=None,
    between=lambda: None,
) -> None:
    """Two recorded steps, each of so many micro-batches, whose losses are divided by their number or by `scale`."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with tt.record(path, model, level="mix", keep="tensor", overwrite=True) as recorder:
        for tokens, targets in data:
            for own, wanted in zip(tokens.chunk(micro), targets.chunk(micro), strict=True):
                found = loss(model(own), wanted)
                (found / (scale or micro) if micro > 1 else found).backward()
                between()
            after()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()


# --- pipelines --------------------------------------------------------------------------------------------------------


class Stage(nn.Module):
    """A part of the model: of two stages the first has the embedding and a block, of four each has one thing."""

    def __init__(self, model: Model, stage: int, stages: int) -> None:
        super().__init__()
        layers = ("embedding", "0", "1", "head")
        count = len(layers) // stages
        own = layers[stage * count : (stage + 1) * count]
        self.embedding = model.embedding if "embedding" in own else None
        self.blocks = nn.ModuleDict({name: model.blocks[int(name)] for name in ("0", "1") if name in own})
        self.norm, self.head = (model.norm, model.head) if "head" in own else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x).transpose(0, 1)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x)).transpose(0, 1)


def train_pipeline(
    stage: nn.Module, data, path: str, micro: int, *, stages=None, after=lambda: None, mistake: str = "", width=WIDTH
) -> None:
    """Two recorded steps of a pipeline: all micro-batches forward, then all backward, the last first."""
    stages = stages or list(range(dist.get_world_size()))
    place = stages.index(dist.get_rank())
    before = stages[place - 1] if place else None
    behind = stages[place + 1] if place + 1 < len(stages) else None
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    with tt.record(path, stage, level="mix", keep="tensor", overwrite=True) as recorder:
        for tokens, targets in data:
            taken, made = [], []
            pieces = list(zip(tokens.chunk(micro), targets.chunk(micro), strict=True))
            if mistake == "micro-batches in another order" and before is not None:
                pieces.reverse()
            for own, wanted in pieces:
                x = own
                if before is not None:
                    x = torch.empty(LENGTH, own.shape[0], width)
                    dist.recv(x, before)
                    x.requires_grad_()
                y = stage(x)
                if behind is not None:
                    sent = y.detach().contiguous()
                    dist.send(sent * 1.01 if mistake == "scaled on the way" else sent, behind)
                else:
                    y = loss_of(y, wanted)
                    y = y if mistake == "micro-batches added" else y / micro
                taken.append(x)
                made.append(y)
            for x, y in reversed(list(zip(taken, made, strict=True))):
                gradient = None
                if behind is not None:
                    gradient = torch.empty(y.shape)
                    dist.recv(gradient, behind)
                if mistake == "gradient of a micro-batch lost" and behind is not None and x is taken[0]:
                    continue
                y.backward(gradient)
                if before is not None:
                    dist.send((x.grad / micro if mistake == "divided again" else x.grad).contiguous(), before)
            after()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()


# --- vocabulary and sequence parallel ---------------------------------------------------------------------------------


class VocabularyParallelEmbedding(nn.Module):
    """Each rank has some rows; of the others it gives zeros, and the ranks are added up."""

    def __init__(self, embedding: nn.Embedding, group, mistake: str = "") -> None:
        super().__init__()
        rank, count = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(embedding.weight.detach().chunk(count)[rank].clone())
        self.start = rank * self.weight.shape[0] + (mistake == "first row of a rank off by one" and rank == 1)
        self.group, self.mistake = group, mistake

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.weight.shape[0]
        elsewhere = (tokens < self.start) | (tokens >= self.start + rows)
        local = (tokens - self.start).masked_fill(elsewhere, 0).clamp(max=rows - 1)
        found = F.embedding(local, self.weight)
        if self.mistake != "rows of others not masked":
            found = found.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return reduced(found, self.group)


class _LogitsOfVocabulary(torch.autograd.Function):
    """Cross entropy of logits of which each rank has some columns."""

    @staticmethod
    def forward(ctx, logits, targets, group, mistake):
        rank, columns = dist.get_rank(group), logits.shape[-1]
        largest = logits.amax(-1)
        if mistake != "largest logit not reduced":
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(-1)
        start = rank * columns
        elsewhere = (targets < start) | (targets >= start + columns)
        local = (targets - start).masked_fill(elsewhere, 0)
        picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
        if mistake != "targets of others not masked":
            picked = picked.masked_fill(elsewhere, 0.0)
        dist.all_reduce(picked, group=group)
        total = shifted.exp().sum(-1)
        if mistake != "denominator not reduced":
            dist.all_reduce(total, group=group)
        softmax = shifted.exp() / total.unsqueeze(-1)
        ctx.save_for_backward(softmax, local, elsewhere)
        return total.log() - picked

    @staticmethod
    def backward(ctx, gradient):
        softmax, local, elsewhere = ctx.saved_tensors
        hits = F.one_hot(local, softmax.shape[-1]).to(softmax.dtype) * (~elsewhere).unsqueeze(-1)
        return (softmax - hits) * gradient.unsqueeze(-1), None, None, None


def vocabulary_loss(group=None, mistake: str = ""):
    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return _LogitsOfVocabulary.apply(logits.flatten(0, 1), targets.flatten(), group, mistake).mean()

    return loss


def vocabulary_parallel(model: Model, group=None, mistake: str = "") -> Model:
    """Column and row parallel layers, and the vocabulary spread over the ranks at both ends."""
    model = megatron(model, group)
    model.embedding = VocabularyParallelEmbedding(model.embedding, group, mistake)
    model.head = ColumnParallel(model.head, group)
    return model


class SequenceModel(nn.Module):
    """The model with the positions of the residual stream spread over the ranks: norms see some of them, layers all."""

    def __init__(self, model: Model, group=None, mistake: str = "") -> None:
        super().__init__()
        model = megatron(model, group, mistake)
        for block in model.blocks:
            block.up.sequence = block.down.sequence = True
        self.embedding, self.blocks, self.norm, self.head = model.embedding, model.blocks, model.norm, model.head
        self.group = group

    def forward(self, tokens: Tensor) -> Tensor:
        x = cut(self.embedding(tokens).transpose(0, 1), self.group)
        for block in self.blocks:
            x = block(x)
        return self.head(gathered_copies(self.norm(x), self.group)).transpose(0, 1)


# --- experts ----------------------------------------------------------------------------------------------------------

EXPERTS = 4


class Experts(nn.Module):
    """Each position goes to the one of four experts that a router chooses; their weights lie in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / 2)

    def chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.router(x).softmax(-1)
        choice = scores.argmax(-1)
        return choice, scores.gather(-1, choice.unsqueeze(-1))

    def run(self, x: Tensor, choice: Tensor, first: int = 0) -> Tensor:
        found = torch.zeros_like(x)
        for number in range(self.weight.shape[0]):
            rows = (choice == first + number).nonzero().squeeze(-1)
            found = found.index_add(0, rows, F.gelu(x[rows] @ self.weight[number]))
        return found

    def forward(self, x: Tensor) -> Tensor:
        choice, score = self.chosen(x)
        return self.run(x, choice) * score


class ExpertParallel(Experts):
    """Some of the experts on each rank; positions travel to theirs and back."""

    def __init__(self, experts: Experts, group=None, mistake: str = "") -> None:
        nn.Module.__init__(self)
        rank, count = dist.get_rank(group), dist.get_world_size(group)
        self.router = experts.router
        self.weight = nn.Parameter(experts.weight.detach().chunk(count)[rank].clone())
        self.group, self.mistake = group, mistake
        self.first = rank * self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        choice, score = self.chosen(x)
        order = choice.argsort(stable=True)
        ranks = dist.get_world_size(self.group)
        here = torch.bincount(choice // self.weight.shape[0], minlength=ranks)
        there = torch.empty_like(here)
        dist.all_to_all_single(there, here, group=self.group)
        give, get = here.tolist(), there.tolist()
        numbers = torch.empty(sum(get), dtype=choice.dtype)
        dist.all_to_all_single(numbers, choice[order], get, give, group=self.group)
        came = exchanged(x[order], give, get, self.group)
        if self.mistake == "experts of another rank":
            numbers = (numbers + self.weight.shape[0]) % EXPERTS
            done = self.run(came, numbers, self.first)
        else:
            done = self.run(came, numbers, self.first)
        back = exchanged(done, get, give, self.group)
        if self.mistake == "not put back in order":
            return back * score
        found = torch.zeros_like(x).index_copy(0, order, back)
        return found * score * score if self.mistake == "score twice" else found * score


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, give, get, group):
        ctx.sizes, ctx.group = (give, get), group
        found = torch.empty(sum(get), *x.shape[1:])
        dist.all_to_all_single(found, x.contiguous(), get, give, group=group)
        return found

    @staticmethod
    def backward(ctx, gradient):
        give, get = ctx.sizes
        found = torch.empty(sum(give), *gradient.shape[1:])
        dist.all_to_all_single(found, gradient.contiguous(), give, get, group=ctx.group)
        return found, None, None, None


def exchanged(x: Tensor, give: list[int], get: list[int], group) -> Tensor:
    """Rows for the other ranks, and theirs for this one; backward the other way."""
    return _Exchanged.apply(x, give, get, group)


class ExpertModel(nn.Module):
    """Embedding, experts, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.experts = Experts()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.experts(x.flatten(0, 1)).view_as(x)
        return self.head(x)


def with_experts(seed: int = 0) -> ExpertModel:
    torch.manual_seed(seed)
    return ExpertModel()
