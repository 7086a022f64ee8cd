"""Pairs as data: one program, written in two ways, and what a verdict has to say of the two.

@pairs(7, "large", "small", forgotten="part")
def bias(r, how):                                   # `r`: a random.Random for sizes and values
    def parts(way): return {"a": nn.Linear(4, 4)}   # modules of either way, with the same weights
    def run(s, x, way, wrong): …                    # one program; `wrong` is the mistake, if there is one
    return Pair(parts, run, (x,), place="linear")

draw(7, 20)                                         # twenty pairs of class 7: every way in turn, each with a seed of its own
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

Parts = Callable[[int], dict[str, nn.Module]]
Optimizer = Callable[[Any, int, bool], torch.optim.Optimizer]

CLASSES = {
    1: "left alone, and does not matter",
    2: "strays",
    3: "other shapes",
    4: "layouts by values",
    5: "order inside statistics",
    6: "regions between anchors",
    7: "the bias that stayed alone",
    8: "level op",
    9: "the only candidate",
    10: "runs that meet again",
    11: "arguments",
    12: "gradients",
    13: "weights",
    14: "without effect",
    15: "ties and cut gradients",
    16: "objects as settings",
}

WANTED = {"agree": (0,), "harmless": (0,), "remark": (0,), "part": (1,)}
"""Exit codes. harmless: values differ that have no effect; remark: the same, and it is told; part: a mistake."""


@dataclass(frozen=True)
class Pair:
    """Two runs, and the truth about them."""

    parts: Parts
    run: Callable[..., Any]
    """`run(net, *inputs, way=0 or 1, wrong=…)`: a loss, or a result of which the mean square is taken."""
    inputs: tuple[Any, ...]
    place: str = ""
    """Of a mistake: pattern for the calls that are named first, `torch.relu in blocks.0`, on each side that has any."""
    told: str = ""
    """Pattern for the verdict, without the source lines that it quotes."""
    level: str = "mix"
    keep: str = "tensor"
    optimizer: Optimizer | None = None
    steps: int = 1
    lone: bool = False
    """Of a mistake: a call that one side alone makes. It is enough if one of the places is told."""
    backward: bool = True
    prepare: Callable[[Any, bool], None] | None = None
    """`prepare(net, wrong)`: before anything is recorded."""
    number: int = 0
    name: str = ""
    want: str = "agree"
    """A word of WANTED."""
    nested: bool = False
    """The right side's modules are one level deeper."""

    @property
    def differs(self) -> bool:
        """Is something else computed on the right, with effect or without?"""
        return self.want != "agree"


Maker = Callable[[random.Random, str], Pair]
_MAKERS: dict[int, list[tuple[Maker, str, str]]] = {}


def pairs(number: int, *agreeing: str, **other: str) -> Callable[[Maker], Maker]:
    """Enter a maker of pairs: ways that agree, and others with what is wanted of them."""

    def enter(make: Maker) -> Maker:
        wanted = [(how, "agree") for how in agreeing] + list(other.items())
        _MAKERS.setdefault(number, []).extend((make, how, want) for how, want in wanted)
        return make

    return enter


def draw(number: int, count: int) -> Iterator[Pair]:
    """The first `count` pairs of a class. Every second round the right side's modules have other names."""
    entered = _MAKERS[number]
    for seed in range(count):
        make, how, want = entered[seed % len(entered)]
        made = make(random.Random(f"{number} {how} {seed}"), how)
        name = f"{number}-{make.__name__.replace('_', '-')}-{how.replace('_', '-')}-{seed}"
        nested = (seed // len(entered) + seed) % 2 == 1
        yield replace(made, number=number, name=name, want=want, nested=nested)


class Net(nn.Module):
    """A net of these parts. `nested`: they are one level deeper, and addressed as before."""

    def __init__(self, parts: dict[str, nn.Module], nested: bool) -> None:
        super().__init__()
        self.program: Callable[..., Any] | None = None
        if nested:
            self.core = nn.ModuleDict(parts)
        else:
            for name, part in parts.items():
                setattr(self, name, part)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__["_modules"]
        if name not in held and "core" in held and name in held["core"]:
            return held["core"][name]
        return super().__getattr__(name)

    def forward(self, *inputs: Any) -> Any:
        assert self.program is not None
        return self.program(self, *inputs)


def noise(r: random.Random, *shape: int) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(r.randrange(1 << 30)))


def whole(r: random.Random, top: int, *shape: int) -> torch.Tensor:
    """Whole numbers below `top`."""
    return torch.randint(top, shape, generator=torch.Generator().manual_seed(r.randrange(1 << 30)))
