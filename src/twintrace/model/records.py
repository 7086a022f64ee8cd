"""Contents of a trace, folded from the journal's lines.

    Call      one call of a module, function or kernel: arguments, result, parameters, where from, gradients
    Gradient  one gradient that flowed through a call, or into a parameter
    Note      something that a reader must know: gaps, and their reasons
    Header    one journal: step, rank, framework, settings

Numbers in `order` are positions in the journal: earlier observations have lower numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from .pairs import Part
from .sites import Kind, Site
from .values import TensorRef, Value, leaves, tensor_slots
from .words import Word

NONFINITE, APART = "nonfinite: ", "apart: "
"""Beginnings of the names of values that the recorder itself saved, because something arose beside them."""


class Level(Word):
    """Depth of a recording."""

    MODULE = "module"
    API = "api"
    MIX = "mix"
    OP = "op"


class Keep(Word):
    """Parts of a tensor that are kept: seven numbers; the numbers and 128 bits; all of it."""

    STATISTICS = "statistics"
    FINGERPRINT = "fingerprint"
    TENSOR = "tensor"


class Role(Word):
    """Which end of a call a gradient belongs to. `parameter` gradients belong to a parameter, not to a call."""

    OUTPUT = "output"
    INPUT = "input"
    PARAMETER = "parameter"
    SAVED = "saved"


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the user's own source on the way to a call."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def place(self) -> str:
        """`model.py:21`."""
        return f"{PurePath(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place} in {self.function}" + (f": {self.code}" if self.code else "")


@dataclass(frozen=True, slots=True)
class Config:
    """A module's configuration: the scalars that its constructor set."""

    path: str
    type: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient: of output or input `slot` of call `of`, or of the parameter called `slot`.

    `count` numbers the backward passes that came through here (double backward, gradient accumulation).
    """

    role: Role
    slot: str
    tensor: int
    of: int | None = None
    count: int = 0
    order: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call. Arguments have the values from before the call; arguments that it wrote to (`mutates`) and did not return
    is in `after`, by slot.
    """

    id: int
    site: Site
    parent: int | None
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]
    output: Value
    parameters: Mapping[str, int] = field(default_factory=dict)
    buffers: Mapping[str, int] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()
    after: Mapping[str, int] = field(default_factory=dict)
    stack: tuple[Frame, ...] = ()
    config: Config | None = None
    gradients: tuple[Gradient, ...] = ()
    raised: str | None = None
    missing: tuple[str, ...] = ()
    precision: Mapping[str, object] = field(default_factory=dict)
    """Settings that decide precision, where they were others than the journal's."""
    order: int = 0
    tensors_only: bool = False
    """True if arguments that are no tensors were not recorded, as in dumps of some tools: their values are not known."""

    @property
    def returned(self) -> dict[str, int]:
        """Numbers of the tensors in its result, by slot."""
        return {slot: leaf.id for slot, leaf in leaves(self.output) if isinstance(leaf, TensorRef)}

    def tensors(self) -> Iterator[tuple[Part, str, int, int]]:
        """(part, slot, backward pass, number) of every tensor of the call: inputs, results, gradients."""
        for slot, number in tensor_slots(self.args, self.kwargs):
            yield Part.INPUT, slot, 0, number
        held = ((Part.PARAMETER, self.parameters), (Part.BUFFER, self.buffers))
        for part, named in (*held, (Part.OUTPUT, self.returned), (Part.AFTER, self.after)):
            for slot, number in named.items():
                yield part, slot, 0, number
        for gradient in self.gradients:
            part = Part.INPUT_GRADIENT if gradient.role is Role.INPUT else Part.OUTPUT_GRADIENT
            yield part, gradient.slot, gradient.count, gradient.tensor


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that belongs to a journal: a gap in the record, and its reason."""

    topic: str
    text: str
    order: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a journal."""

    step: int
    rank: int
    world: int
    framework: str
    settings: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[tuple[int, ...], ...] = ()
    precision: Mapping[str, object] = field(default_factory=dict)
    """Settings that decide in which precision the framework computes, as they were when the step began; a call may have others."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a trace that could not be read, and where."""

    file: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.where}: {self.text}"


def is_kept(call: Call) -> bool:
    """Is this a value that the recorder saved by itself? It is no part of the run: another run of the same program has none."""
    return call.site.kind is Kind.SAVE and call.site.name.startswith((NONFINITE, APART))
