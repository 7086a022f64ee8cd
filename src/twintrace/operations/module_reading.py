"""Meanings of calls of modules and Cells, where the module is one operation of its framework's own."""

from __future__ import annotations

from typing import Any

from ..model.records import Call
from .meanings import Meaning, Operand, SpecOf
from .module_names import MINDSPORE, TORCH
from .reading import Recorded
from .rows import NotTold

_RECURRENT = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}


def read_module(call: Call, framework: str, spec: SpecOf) -> Meaning:
    """Meaning of a module's call. Raises NotTold for containers and for classes that are not the framework's."""
    if call.config is None or not is_own(call):
        raise NotTold("a class of the user's")
    recorded = Recorded(call, spec, call.site.type)
    kind = call.site.type
    if kind in _RECURRENT:
        return _recurrent(recorded, _RECURRENT[kind], framework)
    row = (MINDSPORE if framework == "mindspore" else TORCH).get(kind)
    if row is None:
        raise NotTold(f"{kind} is not one operation")
    return recorded.read(row)


def is_own(call: Call) -> bool:
    """Is the module's class one of the framework's own? Recorders say so; what an older one recorded is not known."""
    return call.config is not None and any(
        name in call.config.values for name in ("torch_class", "mindspore_class", "msadapter_class")
    )


def _recurrent(recorded: Recorded, operation: str, framework: str) -> Meaning:
    """LSTM, GRU and RNN: parameters layer by layer, both directions of a layer together."""
    more = recorded.more()
    layers, both = more["num_layers"], bool(more["bidirectional"])
    biased = bool(more.get("bias", more.get("has_bias")))
    if more.get("proj_size"):
        raise NotTold("projections")
    if len(recorded.args) < 1 or recorded.kwargs:
        raise NotTold("arguments by name")
    hidden = recorded.args[1] if len(recorded.args) > 1 else None  # none given: zeros
    if len(recorded.args) > 2 and recorded.args[2] is not None:
        raise NotTold("lengths of sequences")
    names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if biased else ()))
    params: list[Any] = [
        more[f"{name}_l{layer}{suffix}"]
        for layer in range(layers)
        for suffix in (("", "_reverse") if both else ("",))
        for name in names
    ]
    if not all(isinstance(item, Operand) for item in params):
        raise NotTold("parameters that were not recorded")
    arguments = {
        "input": recorded.args[0],
        "hx": hidden,
        "params": tuple(params),
        "has_biases": biased,
        "num_layers": layers,
        "dropout": float(more["dropout"]),
        "train": bool(more["training"]),
        "bidirectional": both,
        "batch_first": bool(more["batch_first"]),
        "nonlinearity": more.get("nonlinearity", "tanh"),
    }
    return recorded.meaning(operation, arguments)
