"""Nets in training whose steps repeat, or do not quite: what plans of steps are tested with, here and on a GPU."""

import contextlib
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import twintrace as tt

STEPS = 6

# --- nets and steps -------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = 2

    def forward(self, x):
        q = x.view(*x.shape[:-1], self.heads, -1).transpose(0, 1)
        x = x + F.softmax(q @ q.transpose(-1, -2), -1).matmul(q).transpose(0, 1).reshape(x.shape)
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Conv(nn.Module):
    """Buffers that are written to, writes in place, several uses of one tensor."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 8)

    def forward(self, x):
        x = self.norm(self.conv(x))
        x += 1
        x = self.relu(x)
        a, b = x.split(2, 1)
        return self.head(torch.cat([a, b, a * b], 1).mean((2, 3))[:, :4])


class Run:
    """A net in training; `branch`, `size` and so on are what steps differ in."""

    def __init__(self, kind, device="cpu"):
        torch.manual_seed(0)
        self.kind, self.device = kind, device
        self.net, self.spare = [
            (nn.Sequential(Conv()) if kind == "conv" else nn.Sequential(Block(8), Block(8))).to(device)
            for _ in range(2)
        ]
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.branch = 0

    def batch(self, size=3):
        shape = (size, 2, 4, 4) if self.kind == "conv" else (size, 4, 8)
        return torch.randn(shape).to(self.device)

    def loss(self, size=3, scale=1.0):
        out = self.net(self.batch(size)) * scale
        return out.float().pow(2).mean()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def plain(run, i, rec):
    run.loss().backward()
    run.update()


def scheduled(run, i, rec):
    """A learning rate and a setting that are others in each step, and a number that is read."""
    for group in run.optimizer.param_groups:
        group["lr"] = 1e-2 / (i + 1)
    loss = run.loss(scale=1.0 + i)
    loss.item()
    loss.backward()
    run.update()


def branches(run, i, rec):
    out = run.net(run.batch())
    out = torch.relu(out) if i == 3 else torch.sigmoid(out)
    out.sum().backward()
    run.update()


def shapes(run, i, rec):
    run.loss(size=5 if i == 4 else 3).backward()
    run.update()


def extra(run, i, rec):
    loss = run.loss()
    if i in (3, 5):
        loss = loss + 1.0
    loss.backward()
    run.update()


def fewer(run, i, rec):
    loss = run.loss()
    if i != 3:
        loss = loss * 2.0
    loss.backward()
    run.update()


def raises(run, i, rec):
    if i == 3:
        with contextlib.suppress(RuntimeError):
            run.net(torch.ones(3, 5).to(run.device))
    run.loss().backward()
    run.update()


def raises_inside(run, i, rec):
    if i == 3:
        undo = run.net[0].register_forward_hook(lambda *_: 1 / 0)
        with contextlib.suppress(ZeroDivisionError):
            run.loss()
        undo.remove()
    run.loss().backward()
    run.update()


def _keep_no_weight(tensor):
    """What is saved for the backward pass, but for the weight of a linear layer, whose call fails."""
    if tensor.shape in ((8, 16), (16, 8)):
        raise RuntimeError("out of memory")
    return tensor


def breaks(run, i, rec):
    """A layer is entered as planned, and its call raises."""
    keeping = torch.autograd.graph.saved_tensors_hooks(_keep_no_weight, lambda tensor: tensor)
    with contextlib.suppress(RuntimeError), keeping if i == 3 else contextlib.nullcontext():
        run.loss().backward()
        run.update()


def graphless(run, i, rec):
    """A layer is entered as planned, and its call does not end so: no graph is made."""
    with torch.set_grad_enabled(i != 3):
        loss = run.loss()
    if i != 3:
        loss.backward()
        run.update()


def accumulates(run, i, rec):
    (run.loss() / 2).backward()
    if i % 2:
        run.update()


def swapped(run, i, rec):
    if i == 3:
        run.net[-1] = run.spare[-1]
    run.loss().backward()
    run.update()


def rebound(run, i, rec):
    """Weights that are others, first as values, then as parameters, then as memory."""
    if i == 3:
        run.net.load_state_dict({name: value * 0.5 for name, value in run.net.state_dict().items()})
    if i == 4:
        parameter = next(run.net.parameters())
        parameter.data = parameter.data.clone()
    run.loss().backward()
    run.update()


def aliases(run, i, rec):
    """The same function, of the same shapes, of other tensors."""
    x = run.batch()
    y = x if i in (3, 4) else run.batch()
    torch.add(x, y).sum()
    run.net(x if i == 5 else y).sum().backward()
    run.update()


def written(run, i, rec):
    x = run.batch()
    before = x * 1
    if i == 4:
        x.data.add_(1)
    else:
        x.add_(1)
    run.net(x).sum().backward()
    (before + x).sum()
    run.update()


def evaluates(run, i, rec):
    run.loss().backward()
    run.update()
    if i % 3 == 2:
        run.net.eval()
        with torch.no_grad():
            run.loss()
        run.net.train()


def twice(run, i, rec):
    loss = run.loss()
    loss.backward(retain_graph=True)
    if i != 4:
        loss.backward()
    run.update()


def saves(run, i, rec):
    loss = run.loss()
    if i == 3:
        rec.save("loss", loss)
    loss.backward()
    run.update()


def thawed(run, i, rec):
    parameter = next(run.net.parameters())
    parameter.requires_grad_(i != 3)
    run.loss().backward()
    run.update()


def precise(run, i, rec):
    with torch.autocast(run.device, torch.bfloat16, enabled=i in (3, 4)):
        loss = run.loss()
    loss.backward()
    run.update()


def elsewhere(run, i, rec):
    """Called from another place in the source."""
    if i == 3:
        run.loss().backward()
    else:
        run.loss().backward()
    run.update()


def mixed(run, i, rec):
    """Tensors on the host among those on the device."""
    weight = torch.full((3,), 2.0 + i, dtype=torch.float64)
    weight.mul_(2)
    (run.loss() * weight.sum().float().to(run.device)).backward()
    run.update()


def strange(run, i, rec):
    """Values that have no place among the numbers of a plan: nothing finite, in some steps."""
    torch.full((4,), float("nan") if i == 3 else 1.0 + i).to(run.device) * 2
    torch.full((4,), float("nan")).to(run.device) * 2
    torch.empty(0).to(run.device) * 2
    run.loss().backward()
    run.update()


def _stir(tensor):
    tensor.data.add_(1.0)


def stirred(run, i, rec):
    """Buffers that are written to, by a view that counts its own versions, before their module is called."""
    if i == 0:
        run.net[0].register_forward_pre_hook(lambda module, args: _stir(module.norm.running_mean))
    run.loss().backward()
    run.update()


def shifted(run, i, rec):
    """A weight that is written to in the same way: it was there when the step began, and is another when it is used."""
    if i == 0:
        run.net[0].register_forward_pre_hook(lambda module, args: _stir(module.conv.weight))
        with torch.no_grad():
            for _ in range(20):  # else the version of the view is, in some steps, that of the weight
                run.net[0].conv.weight.mul_(1.0)
    run.loss().backward()
    run.update()


def hooked(run, i, rec):
    """A hook of the user's on one of torch's layers, which writes to its argument."""
    if i == 0:
        run.net[0].down.register_forward_pre_hook(lambda module, args: _stir(args[0]))
    run.loss().backward()
    run.update()


def freed(run, i, rec):
    """A tensor whose memory was given away before it is looked at."""
    kept = run.batch()
    if i == 4:
        kept.untyped_storage().resize_(0)
    kept.view(-1)
    run.loss().backward()
    run.update()


SCENARIOS = [
    plain, scheduled, branches, shapes, extra, fewer, raises, breaks, raises_inside, accumulates, graphless, swapped, rebound,
    aliases, written, evaluates, twice, saves, thawed, precise, elsewhere, mixed, stirred, strange, shifted, hooked, freed,
]  # fmt: skip


def kind_of(scenario):
    return "conv" if scenario.__name__[0] in "aesw" else "block"


def record(path, scenario, *, level, keep, device="cpu", strict=True):
    """The weights that come out of a recorded training."""
    run = Run(kind_of(scenario), device)
    with tt.record(path, run.net, level=level, keep=keep, strict=strict) as rec:
        for i in range(STEPS):
            scenario(run, i, rec)
            rec.step()
    return [*run.net.parameters(), *run.net.buffers()]


def lines(path: Path) -> list[list[bytes]]:
    """The lines of each step, whatever their order: a tensor's may come later than its call."""
    trace = tt.open(path)
    return [sorted(trace.journal(step).whole().splitlines()[1:]) for step in trace.steps]
