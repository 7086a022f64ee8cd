"""What corresponds in a pair of networks, as its truth.py writes it down: one line for each module, left = right.

    .                      = .                        the networks themselves
    layers.{0,2}           = hidden.{first,second}    two lines in one: the first with the first, the second with the second
    encoder.norm           = enc.ln                   modules, and with them their own parameters (weight is called gamma there)
    block                  = wrapper | wrapper.body   either is right: the two have the same arguments and results
    outer | outer.net      = block                    the same on the left; one of the two is to be matched
    layer                  ? unit                     related, but not one to one: to match them is neither asked nor wrong
    dropout                = -                        only left
    -                      = to_float                 only right
    qkv.weight[0:16]       ~ attn.q.weight            a parameter, or some rows of one, that no module line implies
    head.weight            ~ head.kernel (1 0)        its axes, to be brought into this order, are the right one's

A right parameter of the same size in another shape is the left one, reshaped. Lines that start with `#`
are remarks. test_ports.py proves that no called module and no parameter is left out, that the weights carried over by these lines
give the same outputs, loss and gradients on both sides, and that modules which are said to correspond put out the same values.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

PAIRS = Path(__file__).parent / "pairs"

# What a parameter is called in the two frameworks' own layers.
RENAMED = {
    "weight": ("weight", "gamma", "embedding_table"),
    "bias": ("bias", "beta"),
    "running_mean": ("moving_mean",),
    "running_var": ("moving_variance",),
}

NOTHING = "-"
ROOT = "."


@dataclass(frozen=True)
class Modules:
    """One line with `=`: () for a side that has nothing, several paths where each is right. `loose` with `?`."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    loose: bool = False


@dataclass(frozen=True)
class Parameter:
    """One right parameter, and which part of which left one it is."""

    left: str
    right: str
    rows: tuple[int, int] | None = None
    axes: tuple[int, ...] | None = None

    def carry(self, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The left value as the right side has it."""
        part = value if self.rows is None else value[self.rows[0] : self.rows[1]]
        laid = part if self.axes is None else part.transpose(self.axes)
        return np.ascontiguousarray(laid).reshape(shape)


@dataclass(frozen=True)
class Truth:
    """A pair: its declared correspondences and its batch. The map of parameters is complete only with both sides' names."""

    name: str
    about: str
    modules: tuple[Modules, ...]
    declared: tuple[Parameter, ...]
    batch: Mapping[str, np.ndarray]

    @property
    def partners(self) -> dict[str, tuple[str, ...]]:
        """Left path -> the right paths that are right for it; empty for what is only left."""
        return {path: line.right for line in self.modules if not line.loose for path in line.left}

    def instead_of(self, path: str) -> tuple[str, ...]:
        """The left paths of which one is to be matched, this one among them."""
        return next((line.left for line in self.modules if path in line.left), (path,))

    @property
    def loose(self) -> set[tuple[str, str]]:
        """Paths that may be matched and need not be."""
        return {(one, two) for line in self.modules if line.loose for one in line.left for two in line.right}

    def parameters(self, left: set[str], right: set[str]) -> tuple[Parameter, ...]:
        """The whole map, given the names of all parameters and buffers of both sides."""
        told_left = {line.left for line in self.declared}
        told_right = {line.right for line in self.declared}
        found = list(self.declared)
        for line in self.modules:
            for name in sorted(left - told_left):
                path, _, own = name.rpartition(".")
                if path not in map(_path, line.left):
                    continue
                for where in line.right:
                    candidates = (_join(_path(where), other) for other in (own, *RENAMED.get(own, ())))
                    partner = next((item for item in candidates if item in right - told_right), None)
                    if partner is not None:
                        found.append(Parameter(name, partner))
                        told_right.add(partner)
                        break
        return tuple(found)

    def left_out(self, left: set[str], right: set[str]) -> tuple[set[str], set[str]]:
        """Parameters that no line speaks of. None, in a good truth."""
        found = self.parameters(left, right)
        return left - {line.left for line in found}, right - {line.right for line in found}


def pair_names() -> list[str]:
    return sorted(path.parent.name for path in PAIRS.glob("*/truth.py"))


def side(name: str, framework: str) -> ModuleType:
    """A pair's in_torch.py or in_mindspore.py."""
    return importlib.import_module(f"corpus.pairs.{name}.in_{framework}")


def seed_of(name: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(name)) % 2**32


def truth_of(name: str) -> Truth:
    written = importlib.import_module(f"corpus.pairs.{name}.truth")
    make: Callable[[np.random.Generator], dict[str, np.ndarray]] = written.batch
    modules, declared = parse(written.MAP)
    return Truth(name, (written.__doc__ or "").strip(), modules, declared, make(np.random.default_rng(seed_of(name))))


def parse(text: str) -> tuple[tuple[Modules, ...], tuple[Parameter, ...]]:
    """The lines of a truth. What cannot be read, or says a thing twice, raises ValueError with the line."""
    modules: list[Modules] = []
    parameters: list[Parameter] = []
    for line in text.splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        for one in _expand(line.strip()):
            if " ~ " in one:
                parameters.append(_parameter(one))
            elif " = " in one or " ? " in one:
                modules.append(_modules(one))
            else:
                raise ValueError(f"{line.strip()!r}: none of ` = `, ` ? ` (modules) and ` ~ ` (parameters)")
    for side_name, paths in (
        ("left", [path for item in modules for path in item.left]),
        ("right", [path for item in modules for path in item.right if not item.loose]),
    ):
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise ValueError(f"said twice of the {side_name} side: {', '.join(twice)}")
    return tuple(modules), tuple(parameters)


def _expand(line: str) -> Iterator[str]:
    """`a.{0,1} = b{x,y}` is `a.0 = bx` and `a.1 = by`; `{0..3}` is `{0,1,2,3}`. Braces of one line have equally many items."""
    groups = [_items(inner) for inner in re.findall(r"\{([^}]*)\}", line)]
    if not groups:
        yield line
        return
    if len({len(items) for items in groups}) != 1:
        raise ValueError(f"{line!r}: braces of different lengths")
    for number in range(len(groups[0])):
        items = iter([group[number] for group in groups])
        yield re.sub(r"\{[^}]*\}", lambda _, items=items: next(items), line)


def _items(inner: str) -> list[str]:
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inner)
    return [str(n) for n in range(int(span[1]), int(span[2]) + 1)] if span else inner.split(",")


def _modules(line: str) -> Modules:
    loose = " ? " in line
    left, right = (part.strip() for part in line.split(" ? " if loose else " = "))
    sides = [() if side == NOTHING else tuple(path.strip() for path in side.split("|")) for side in (left, right)]
    if not any(sides) or not all(path for paths in sides for path in paths):
        raise ValueError(f"{line!r}: a side is empty")
    return Modules(*sides, loose)


def _parameter(line: str) -> Parameter:
    found = re.fullmatch(r"([\w.]+)(?:\[(\d+):(\d+)\])? +~ +([\w.]+)(?: +\(([\d ]+)\))?", line)
    if found is None:
        raise ValueError(f"{line!r}: expected left.name[from:to] ~ right.name (axes)")
    left, start, stop, right, axes = found.groups()
    return Parameter(
        left,
        right,
        None if start is None else (int(start), int(stop)),
        None if axes is None else tuple(int(axis) for axis in axes.split()),
    )


def _path(path: str) -> str:
    return "" if path == ROOT else path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
