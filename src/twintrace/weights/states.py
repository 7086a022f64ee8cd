"""Anything that holds weights, seen alike: a net, a checkpoint file, a dict of tensors.

    open_state(net)               names, shapes, and of each weight its layer's class
    open_state("net.ckpt")        names and shapes; the kinds of layers are inferred from them
    open_state({"w": tensor})     the same

A State is a list of Items. An Item's `path` and `role` are what torch would call its layer and itself, so that two states of
different frameworks can be laid side by side; `layout` are the steps from torch's layout to its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..frameworks import registry
from ..frameworks.protocol import Weight, Weights
from ..model.errors import CheckpointError, UsageError, WeightsError
from ..model.tensors import Spec
from ..model.words import dotted
from ..store.arrays import STORAGE
from . import pth
from .checkpoints import FRAMEWORKS, open_checkpoint
from .extents import Checkpoint, pieces
from .layers import COUNTERS, UNKNOWN, Layer, infer, layer_of
from .transforms import inverse, result


@dataclass(frozen=True, slots=True)
class Item:
    """One weight. `kind` is the class of its layer in its framework, "" where it is not known."""

    name: str
    spec: Spec
    path: str
    role: str
    kind: str = ""
    outer: str = ""
    """The class of the layer around it."""
    rule: Layer = UNKNOWN
    learned: bool = True
    same_as: str | None = None
    norm: int | str | None = None
    """The dimension of a weight norm, where this is its length (`weight.g`) or direction (`weight.v`): "None" for all."""
    sure: float = 1.0
    hint: str = ""
    """Confidence in the layer's class, and the reason, where it had to be inferred."""
    turned: bool = False
    """Is it a matrix whose bias is as long as its second axis: kept transposed, by a class that is not known?"""

    @property
    def layout(self) -> tuple[str, ...]:
        """The steps from torch's layout to this one."""
        return tuple(self.rule.layout.get(self.role, ()))

    @property
    def plain(self) -> Spec:
        """The spec in torch's layout."""
        if self.turned:
            return Spec(self.spec.dtype, self.spec.shape[::-1])
        undo = inverse(self.layout)
        try:
            return result(undo, [self.spec]) if undo else self.spec
        except WeightsError:  # inferred wrongly
            return self.spec

    @property
    def counter(self) -> bool:
        """True for a count of batches, which only some frameworks keep."""
        return self.role in COUNTERS


@dataclass(frozen=True)
class State:
    """The weights of a net or a checkpoint. `live` when the layers' classes are known and not inferred."""

    label: str
    framework: str
    items: Mapping[str, Item]
    live: bool = False
    net: Any = None
    source: Checkpoint | None = None
    tensors: Mapping[str, Any] = field(default_factory=dict)
    adapter: Weights | None = None
    notes: tuple[str, ...] = ()

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The values of one weight, C-contiguous, in its storage type."""
        if self.source is not None:
            return self.source.read(name)
        tensor = self.tensors[name]
        if self.adapter is not None and self.adapter.is_tensor(tensor):
            return self.adapter.values_of(tensor)
        return np.asarray(tensor, order="C")

    def blocks(self, name: str) -> Iterator[Any]:
        """The same as bytes, in pieces."""
        return self.source.blocks(name) if self.source is not None else pieces(self.read(name))

    def __contains__(self, name: object) -> bool:
        return name in self.items


TRUST = "TWINTRACE_TRUST"
"""Environment variable that stands for `trust=True`, for scripts that are run unchanged."""


def open_state(
    thing: Any, *, framework: str | None = None, trust: bool = False, key: str | None = None, label: str | None = None
) -> State:
    """See `thing` (a net, a path, a dict of tensors, a State) as a State.

    framework   whose names they are, where a .safetensors file or a dict does not tell
    trust       let torch load a .pth file that cannot be read without running code out of it; also `TWINTRACE_TRUST=1`
    key         where in a .pth file the state dict is: "model.ema"
    """
    if isinstance(thing, State):
        return thing
    if isinstance(thing, str | os.PathLike):
        return _of_file(Path(thing), framework, trust, key)
    owner = registry.weights_of(thing)
    if owner is not None and owner[1].is_net(thing):
        return _of_net(thing, *owner, label)
    if isinstance(thing, Mapping):
        return _of_dict(thing, framework, label or "the given dict")
    raise UsageError(f"expected a net, the path of a checkpoint or a dict of tensors, got {type(thing).__name__}.")


def _of_net(net: Any, framework: str, adapter: Weights, label: str | None) -> State:
    items, tensors = {}, {}
    for weight in adapter.weights_of(net):
        tensors[weight.name] = weight.tensor
        items[weight.name] = _live(weight, framework, adapter)
    if not items:
        raise WeightsError(f"{type(net).__name__} has no parameters and no buffers.")
    name = label or f"the {framework} net {type(net).__name__}"
    return State(name, framework, items, live=True, net=net, tensors=tensors, adapter=adapter)


def _live(weight: Weight, framework: str, adapter: Weights) -> Item:
    kind, rule = layer_of(framework, weight.kinds)
    outside, outer = layer_of(framework, weight.within)
    path = weight.layer
    head, _, last = path.rpartition(".")
    if last in outer.children:
        path = dotted(head, outer.children[last])
    norm = weight.settings.get("weight_norm", ...)
    norm = None if norm is ... else "None" if norm is None else norm
    spec, role = Spec(*adapter.spec_of(weight.tensor)), rule.roles.get(weight.own, weight.own)
    return Item(weight.name, spec, path, role, kind, outside, rule, weight.learned, weight.same_as, norm)


def _of_file(path: Path, framework: str | None, trust: bool, key: str | None) -> State:
    try:
        checkpoint = open_checkpoint(path, key=key)
    except CheckpointError:
        trust = trust or os.environ.get(TRUST, "").lower() in ("1", "true", "yes")
        if not trust or path.is_dir() or not path.is_file():
            raise
        with path.open("rb") as file:
            head = file.read(4)
        if not (pth.is_zip(head) or pth.is_legacy(head)):
            raise
        return _unpickled(path, key)
    framework = framework or FRAMEWORKS.get(checkpoint.format) or _guess(checkpoint)
    training = _of_the_optimizer(checkpoint.specs) if framework == "mindspore" else []
    specs = {name: spec for name, spec in checkpoint.specs.items() if name not in training}
    notes = [f"{len(training)} of the optimizer's, left out: {', '.join(training[:3])} …"] if training else []
    items = _inferred(specs, framework, checkpoint.aliases)
    return State(str(path), framework, items, source=checkpoint, notes=(*checkpoint.notes, *notes))


def _of_the_optimizer(specs: Mapping[str, Spec]) -> list[str]:
    """Values that MindSpore saves beside the weights when it is given a training cell: moments, powers, counters."""
    loose = re.compile(
        r"global_step|learning_rate|epoch_num|step_num|beta[12]_power|momentum|loss_scale|\w+_iterator_step"
    )
    slots = re.compile(r"(moments?\d?|accum|stat|adam_[mv]|ms_?|velocity)\.(.+)")
    slots_of = []
    for name in specs:
        slot = slots.fullmatch(name)
        if loose.fullmatch(name) or (slot and slot[2] in specs):
            slots_of.append(name)
    return slots_of


def _unpickled(path: Path, key: str | None) -> State:
    adapter: Any = registry.weights_by_name("torch")
    try:
        loaded = adapter.unpickle(path, key)
    except Exception as error:
        raise CheckpointError(f"{path}: torch cannot load it either: {type(error).__name__}: {error}") from error
    note = ("the file was unpickled by torch, because it is trusted",)
    if adapter.is_net(loaded):
        return replace(_of_net(loaded, "torch", adapter, str(path)), notes=note)
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"{path}: holds a {type(loaded).__name__}, expected a module or a state dict.")
    return replace(_of_dict(loaded, "torch", str(path)), notes=note)


def _guess(checkpoint: Checkpoint) -> str:
    told = {"pt": "torch", "ms": "mindspore", "mindspore": "mindspore"}.get(checkpoint.metadata.get("format", ""))
    if told:
        return told
    owns = {name.rpartition(".")[2] for name in checkpoint.stored}
    if owns & {"gamma", "beta", "moving_mean", "moving_variance", "embedding_table"}:
        return "mindspore"
    return "torch"


def _of_dict(given: Mapping[Any, Any], framework: str | None, label: str) -> State:
    shop = None
    specs: dict[str, Spec] = {}
    tensors: dict[str, Any] = {}
    codes = {dtype: name for name, dtype in reversed(STORAGE.items())}
    for name, tensor in given.items():
        if not isinstance(name, str):
            raise UsageError(f"{label}: expected names as keys, got {name!r:.60}.")
        if isinstance(tensor, np.ndarray):
            if tensor.dtype not in codes:
                raise UsageError(
                    f"{label}: {name} is an array of {tensor.dtype}, which is no element type of a weight."
                )
            specs[name], tensors[name] = Spec(codes[tensor.dtype], tensor.shape), tensor
            continue
        owner = shop if shop and shop[1].is_tensor(tensor) else registry.weights_of(tensor)
        if owner is None:
            raise UsageError(f"{label}: {name} is a {type(tensor).__name__}, expected a tensor or a numpy array.")
        shop = owner
        specs[name], tensors[name] = Spec(*owner[1].spec_of(tensor)), tensor
    if not specs:
        raise WeightsError(f"{label} is empty.")
    framework = framework or (shop[0] if shop else "torch")
    return State(label, framework, _inferred(specs, framework, {}), tensors=tensors, adapter=shop[1] if shop else None)


def _inferred(specs: Mapping[str, Spec], framework: str, aliases: Mapping[str, str]) -> dict[str, Item]:
    layers: dict[str, dict[str, Spec]] = {}
    for name, spec in specs.items():
        path, _, own = _split(name)
        layers.setdefault(path, {})[own] = spec
    guesses = {path: infer(framework, owns, path) for path, owns in layers.items()}
    items = {}
    for name, spec in specs.items():
        path, norm, own = _split(name)
        kind, rule, sure, hint = guesses[path]
        role = rule.roles.get(own, own)
        learned = role not in ("running_mean", "running_var", *COUNTERS)
        seen = _path(framework, path, layers)
        outer = _outer(path, layers) if framework == "torch" else ""
        turned = role == "weight" and _turned(spec, layers[path].get("bias"))
        items[name] = Item(
            name, spec, seen, role, kind, outer, rule, learned, aliases.get(name), norm, sure, hint, turned
        )
    return items


def _turned(weight: Spec, bias: Spec | None) -> bool:
    square = len(weight.shape) != 2 or weight.shape[0] == weight.shape[1]
    return not square and bias is not None and bias.shape == weight.shape[1:]


def _split(name: str) -> tuple[str, int | str | None, str]:
    """(layer, dimension of a weight norm, own name) by the look of a name; `weight.g` and `weight.v` of a weight norm."""
    path, _, own = name.rpartition(".")
    if path.endswith("parametrizations.weight") and own in ("original0", "original1"):
        return (
            path.removesuffix("parametrizations.weight").rstrip("."),
            0,
            "weight.g" if own == "original0" else "weight.v",
        )
    if own in ("weight_g", "weight_v"):
        return path, 0, f"weight.{own[-1]}"
    return path, None, own


def _outer(path: str, layers: Mapping[str, Any]) -> str:
    """The class of the layer around this one, where it can be recognised by its contents."""
    head, _, last = path.rpartition(".")
    beside = {f"{head}.{name}" for name in ("self_attn", "linear1", "linear2", "norm1", "norm2")}
    return "TransformerEncoderLayer" if last in ("linear1", "linear2") and beside <= set(layers) else ""


def _path(framework: str, path: str, layers: Mapping[str, Any]) -> str:
    """The layer's path as torch has it."""
    head, _, last = path.rpartition(".")
    if framework == "mindspore":
        if last == "bn2d":
            return head
        if last in ("dense1", "dense2") and f"{head}.self_attn" in layers and f"{head}.norm1" in layers:
            return f"{head}.linear{last[-1]}"
    return path
