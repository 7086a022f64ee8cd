"""All that is ever asked of a framework.

    adapter = registry.framework_of(model)              whose object is this?
    watch = adapter.watch({"": model}, Level.MIX, sink)
    watch.start()                                        hooks are in place; the sink hears of every call
    watch.stop()                                         nothing that was installed remains

A framework tells the sink what happens; what to keep of it is the sink's affair. The sink's side (`collect`) never learns
which framework it talks to.

    framework calls                     sink answers
    enter(kind, name, args, …)          an Open call, or None: not wanted, do not come back
    leave(open, output)                 -
    fail(open, error)                   -
    gradient(open, role, slot, tensor)  -
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..model.records import Level, Role
from ..model.sites import Kind, Phase
from ..model.words import Word
from .runs import Runs


class Capability(Word):
    """Abilities of a framework's adapter, here and now. Asked for by name; versions are never parsed."""

    MODULE = "module"
    API = "api"
    OP = "op"
    BACKWARD = "backward"
    COLLECTIVES = "collectives"
    EAGER = "eager"
    KERNELS = "kernels"


class Unreadable(Exception):
    """A tensor has no values (meta, not initialised yet). The text says so; it becomes the record's `missing`."""


class Lost(Unreadable):
    """It has values, and they cannot be had (no memory for a copy, freed, inside vmap). The user is told as well."""


@dataclass(slots=True)
class Look:
    """A tensor at first sight, without its values. Alike tensors may share one Look: it is not changed once it is given."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    requires_grad: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Tensors that together make up this one (indices and values of a sparse tensor); then `host` is not asked."""
    elsewhere: bool = False
    """Do the values lie on a device? Then they wait for the framework's `Digests`, and `host` is asked only to keep them."""
    _text: str | None = None

    @property
    def text(self) -> str:
        """The same as fields of a journal's line; made once."""
        if self._text is None:
            shape = ",".join(map(str, self.shape))
            grad = "true" if self.requires_grad else "false"
            self._text = f'"dtype":"{self.dtype}","shape":[{shape}],"device":"{self.device}","grad":{grad}'
        return self._text


Glance: TypeAlias = "tuple[Any, Any, Any, Look, Any, int, int, bool | None, Runs | None]"
"""Recognises a tensor again, and tells where its bytes lie on the host.

storage, seat, version    equal means unchanged: the memory, the view (no other has the same seat), the state of its contents
look                      as `look` says it
stretch                   equal means the same elements in the same order, whatever the shape; None: not known
address, nbytes           some of its elements, or all: 0 where they are not on the host, or not to be had cheaply
order                     True: all of them, in order. False: all, without gaps, in another order. None: not all
runs                      how they are walked where they are not in order; None: not known
"""


@dataclass(slots=True)
class Open:
    """A call between enter and leave. `inputs` and `outputs` are the tensors found, each with its slot."""

    id: int
    kind: Kind
    name: str
    phase: Phase
    inputs: list[tuple[str, Any]]
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    wants_gradients: bool = True
    state: Any = None
    """The sink's own notes."""


class Sink(Protocol):
    """Receiver of the calls. Nothing that it does may raise into the training, unless the user asked for that."""

    @property
    def busy(self) -> bool:
        """True while this thread is inside the sink: what the recorder itself calls is not to be reported."""

    def enter(
        self,
        kind: Kind,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        phase: Phase = Phase.FORWARD,
        module: ModuleView | None = None,
        mutates: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Open | None:
        """A call begins. `settings`: what was set on the function itself before the call (a MindSpore primitive's attributes)."""

    def leave(self, call: Open, output: Any, *, missing: Sequence[str] = ()) -> None: ...
    def fail(self, call: Open, error: BaseException) -> None: ...
    def gradient(self, call: Open, role: Role, slot: str, tensor: Any, count: int = 0) -> None: ...
    def parameter_gradient(self, name: str, tensor: Any) -> None: ...
    def forget(self, tensors: Sequence[Any]) -> None:
        """These tensors were written to in a way that their version does not show."""

    def remember(self, tensors: Sequence[Any], witness: Any) -> None:
        """These are the framework's own book-keeping (an optimizer's state), and change only when the witness does (its count of
        steps): what is known of them lasts beyond the step.
        """

    @property
    def waits(self) -> bool:
        """Are there tensors on a device that wait to be read? Only then the next two are of any use."""

    def before_write(self, tensors: Iterable[Any]) -> None:
        """These, or some of them, are about to be written to."""

    def before_unseen(self) -> None:
        """Called before something that may write to anything: an optimizer's step, a graph's replay, memory that is given back."""

    def unseen(self) -> AbstractContextManager[None]:
        """Keeps the work of this thread out of the record: what a framework does to prepare itself is no part of the run."""

    def forget_everything(self) -> None:
        """Any tensor may have been written to, in a way that its version does not show."""

    def take_kernels(self, folder: Path) -> None:
        """A compiled graph has run, and the framework has left files of its kernels here: they are part of the record."""

    def stranger(self, kind: str) -> None:
        """A module of this class was called that is none of the model's."""

    def note(self, topic: str, text: str, *, quiet: bool = False) -> None:
        """Say something once: in the journal and, for the user, as a warning. `quiet`: in the journal alone, as it is always so."""


@dataclass(frozen=True, slots=True)
class ModuleView:
    """Facts about a module that the sink may want: asked for only when it is needed."""

    path: str
    type: str
    own_parameters: Callable[[], Mapping[str, Any]]
    own_buffers: Callable[[], Mapping[str, Any]]
    configuration: Callable[[], Mapping[str, Any]]
    state: Callable[[], Any]
    """Changes when the configuration may have changed (the training flag)."""


class Watch(Protocol):
    """Hooks on a run. May be started and stopped any number of times."""

    def start(self) -> None: ...
    def stop(self, *, keep_gradients: bool = False) -> None:
        """Remove everything that was installed, last in first out; with `keep_gradients` all but hooks on recorded graphs."""

    def rename(self, module: Any, path: str) -> Callable[[], None]:
        """Report this one module's calls as `path`, until the result is called or the watch is stopped."""

    def awaits_gradients(self) -> bool:
        """Is there a graph of a recorded call that is hooked, and through which gradients may still come?"""

    def end_step(self) -> None:
        """Drop what belongs to the step's graph."""


class Undo(Protocol):
    """Result of `seed_all`: calling it, or leaving its `with` block, restores what was before."""

    def __call__(self) -> None: ...
    def __enter__(self) -> Undo: ...
    def __exit__(self, *exc: object) -> None: ...


class Keeper(Protocol):
    """Keeps the values of tensors on a device; told of each when it has been read there."""

    def wants(self, ticket: int, sums: np.ndarray[Any, Any], dtype: str, nbytes: int) -> bool:
        """True if the value with these sums (a row of `Digests.collect`) is not kept yet: its bytes are to be stored."""

    def store(self, ticket: int, pieces: Iterable[np.ndarray[Any, Any]], nbytes: int) -> None:
        """The bytes of such a value, one uint8 array after the other; each is read before the next is asked for."""


class Digests(Protocol):
    """Reads tensors where they lie, on a device, in batches: nobody waits for the device before `collect`."""

    @property
    def waiting(self) -> int:
        """Number of tensors that are held until they are read."""

    def submit(self, tensor: Any) -> int:
        """The ticket of a tensor's present value: 0 for the first since `collect`, then one more each. Unreadable if it
        has none.
        """

    def holds(self, tensors: Iterable[Any]) -> bool:
        """Does something wait in the memory of one of these?"""

    def before_write(self, tensors: Iterable[Any]) -> None:
        """These are about to be written to: what waits in their memory is read, or copied on the device, before."""

    def flush(self) -> None:
        """Have everything read that waits; the device is told to, and nobody waits for it."""

    def collect(self) -> list[tuple[str, int, np.ndarray[Any, Any] | str | None]]:
        """For each ticket: element type, bytes, and a row of sums (store/device_sums.py), or why there is none; None: there are no
        elements.
        """

    def drop(self) -> None:
        """Let go of everything, unread."""


class Framework(Protocol):
    """One adapter."""

    name: str

    def capabilities(self) -> frozenset[Capability]: ...
    def is_tensor(self, value: object) -> bool: ...
    def is_module(self, value: object) -> bool: ...
    def look(self, tensor: Any) -> Look: ...
    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The values as a C-contiguous array in their storage type; a view where that is possible. Unreadable if not."""

    def glance(self, tensor: Any) -> Glance | None:
        """Everything that is asked of every tensor, at once. None: this one cannot be recognised again."""

    def storage(self, tensor: Any) -> Any:
        """The first part of a glance, alone; None where there is none."""

    def hold(self, tensor: Any) -> Any:
        """A weak hold on the tensor's storage: while it is held, the storage's identity is not given to another."""

    def released(self, hold: Any) -> bool:
        """Has the storage gone?"""

    def release(self, hold: Any) -> None: ...
    def token(self, value: Any) -> tuple[str, str] | None:
        """(kind, text) of a value that only this framework knows: a dtype, a device, a process group."""

    def named_modules(self, model: Any) -> Iterator[tuple[str, Any]]: ...
    def named_parameters(self, model: Any) -> Iterator[tuple[str, Any]]: ...
    def watch(
        self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool = False, kernels: bool = False
    ) -> Watch:
        """Hooks for a recording. `eager`: run compiled parts call by call meanwhile; `kernels`: have the framework dump the kernels
        of compiled parts, for the sink to take. Both are asked only of those that offer them.
        """

    def digests(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Keeper | None = None
    ) -> Digests | None:
        """Reader of tensors whose look says `elsewhere`; None where all are read on the host.

        `room`: bytes of device memory that may be held for tensors that wait; None: the framework's own default.
        `tell(topic, text)`: a sentence for the user.
        """

    def plans(self) -> Any:
        """Classes `Draft` and `Follower`, with which a step is held against one that was recorded in full (collect/plans.py); None
        where there are none, or nothing to be gained.
        """

    def on_gradient(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call back with the tensor's gradient when it is known; the result removes the hook."""

    def tap(self, tensor: Any, callback: Callable[[Any], None]) -> Any:
        """The tensor to go on with, itself or an alias: its gradient is told whenever a backward pass comes by, also of a leaf."""

    def rank(self) -> tuple[int, int]:
        """(rank, world size)."""

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The process groups that this rank knows, as lists of ranks."""

    def environment(self) -> Mapping[str, Any]:
        """Versions, threads, determinism: what a reader of the trace will ask first."""

    def precision(self) -> Mapping[str, Any]:
        """Settings that decide in which precision this thread computes now (FORMAT.md, `precision`). Asked before every call:
        quick, never raises, and equal settings are the same object.
        """

    def internal_paths(self) -> tuple[str, ...]:
        """Directories whose frames are the framework's own, not the user's."""

    def seed_all(self, seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
        """Seed this framework's generators; what to call to undo each change."""

    def without_dropout(self) -> list[Callable[[], None]]:
        """Dropout passes its input through, wherever it is; what to call to undo each change, last first."""

    def snapshot(self, model: Any) -> Mapping[str, Any]:
        """Parameters, buffers and gradients by name, copied: what a self-check compares."""


# Weights: each adapter's `weights.py` ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter or a buffer of a net, as its checkpoint names it, and the layer that owns it."""

    name: str
    tensor: Any
    layer: str
    """The path of the owning module."""
    own: str
    """Its name within that module: `weight`; `weight.g` and `weight.v` of a weight that is kept as length and direction."""
    kinds: tuple[str, ...] = ()
    """The framework's own classes that the module is one of, most special first: ("Conv1d", "Module"), ("mint.Linear", …)."""
    within: tuple[str, ...] = ()
    """The same of the module around it."""
    learned: bool = True
    same_as: str | None = None
    """The name of the weight whose memory this one shares: a tied parameter's first name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Facts that the layout depends on: sizes, groups, number of gates' units, the dimension of a weight norm."""


@dataclass(frozen=True, slots=True)
class Run:
    """One forward and backward pass: the outputs, and the gradients of inputs and parameters, as float64 arrays."""

    outputs: Mapping[str, np.ndarray[Any, Any]]
    inputs: Mapping[str, np.ndarray[Any, Any]]
    parameters: Mapping[str, np.ndarray[Any, Any]]


class Weights(Protocol):
    """Work on a net's weights: the functions of its module `weights`."""

    def is_net(self, value: object) -> bool: ...
    def is_tensor(self, value: object) -> bool: ...
    def weights_of(self, net: Any) -> Iterator[Weight]:
        """Every parameter and buffer that a checkpoint of the net holds, in its order."""

    def spec_of(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        """(element type, shape) of one tensor."""

    def values_of(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The values of one tensor, C-contiguous, in its storage type."""

    def load(self, net: Any, values: Mapping[str, tuple[str, np.ndarray[Any, Any]]]) -> None:
        """Put values into the net: (element type, array in its storage type) by name. Shapes and types must be the net's."""

    def describe(self, net: Any) -> str:
        """The net's architecture as its framework prints it."""

    def run(
        self,
        net: Any,
        inputs: Sequence[np.ndarray[Any, Any]],
        weigh: Callable[[str, tuple[int, ...]], np.ndarray[Any, Any]],
        *,
        training: bool = False,
        double: bool = False,
    ) -> Run:
        """One pass forward and back. `weigh(name, shape)` gives the gradient of each output; `double` computes in float64."""

    def accuracy(self) -> Iterator[tuple[float, str]]:
        """(largest relative error, "whose function") of the framework's elementary functions, measured here and now."""
