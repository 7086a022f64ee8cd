"""The optimizer's step: one call, with all that went into it and all that came out.

    update/api:mindspore.nn.Adam#0
        in    parameters, gradients, state (moment1, moment2, beta1_power …), settings (learning rate, weight decay …)
        out   parameters and state afterwards

A MindSpore optimizer is a Cell and is called with the gradients. Its inside is not recorded (a compiled graph, mostly). An
optimizer that is not MindSpore's is the user's code, and its calls are recorded one by one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn
from mindspore.experimental.optim.optimizer import Optimizer as ExperimentalOptimizer

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .gradients import is_quiet, unseen
from .patches import patch
from .tensors import asnumpy, dtype_of, shape_of, wrote

_OPTIMIZERS = (nn.Optimizer, ExperimentalOptimizer)
_SETTINGS = (bool, int, float, str)
_FLOATS = (ms.float64, ms.float32, ms.float16)
_KEPT = ("learning_rate", "momentum")  # set by the user, kept as parameters
# One for each parameter, where the optimizer has groups.
_PER_PARAMETER = ("decay_flags", "weight_decay", "grad_centralization_flags")
_FEW = 4  # betas are two; a list as long as the parameters is no setting


def is_optimizer(cell: Any) -> bool:
    """Is this Cell an optimizer?"""
    return isinstance(cell, _OPTIMIZERS)


class Updates:
    """Knows whether an optimizer is at work, and reports its steps where a sink is given."""

    _is_graph = True
    """True for optimizers whose steps are compiled graphs."""

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self.running = False
        self.own = False
        """Is what is called now MindSpore's own, inside one of its optimizers?"""

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        for kind in _OPTIMIZERS:
            yield patch(kind, "__call__", self._layer)
        yield self._forget

    def _forget(self) -> None:
        self.running = self.own = False

    def _layer(self, original: Any) -> Any:
        def __call__(optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
            if is_quiet() or self.running:
                return original(optimizer, *args, **kwargs)
            return self._step(original, optimizer, args, kwargs)

        return __call__

    def _step(self, original: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
        self.running, self.own = True, self._is_own(type(optimizer))
        call = self._enter(optimizer, args, kwargs) if self.own else None
        try:
            with _compiled_as_ever() if self.own and self._is_graph else nullcontext():
                output = original(optimizer, *args, **kwargs)
        except BaseException as error:
            if call is not None and self._sink is not None:
                self._sink.fail(call, error)
            raise
        finally:
            self._forget()
            wrote()
        if call is not None and self._sink is not None:
            with unseen():
                parameters, state = self._held(optimizer)
                self._sink.leave(call, {"parameters": parameters, "state": state})
        return output

    def _enter(self, optimizer: Any, args: Any, kwargs: Any) -> Open | None:
        if self._sink is None:
            return None
        with unseen():
            parameters, state = self._held(optimizer)
            gradients, settings = self._given(optimizer, parameters, args, kwargs)
            named = {"gradients": gradients, "state": state, **settings}
            name = self._name(type(optimizer))
            return self._sink.enter(Kind.API, name, (parameters,), named, phase=Phase.UPDATE, mutates=("0", "kw.state"))

    # What an optimizer is and has: MSAdapter's are others.

    def _is_own(self, kind: type) -> bool:
        """True for an optimizer of the framework."""
        return kind.__module__.startswith("mindspore.")

    def _name(self, kind: type) -> str:
        """`mindspore.nn.Adam`, `mindspore.mint.optim.AdamW`: where the user finds it."""
        homes = ("mindspore.mint.optim", "mindspore.experimental.optim")
        return f"{next(filter(kind.__module__.startswith, homes), 'mindspore.nn')}.{kind.__name__}"

    def _held(self, optimizer: Any) -> tuple[list[Any], dict[str, Any]]:
        """Parameters and state."""
        return list(optimizer.parameters), _state(optimizer)

    def _given(self, optimizer: Any, parameters: list[Any], args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Gradients and, by the name of the argument that they are recorded as, settings."""
        gradients = args[0] if args else kwargs.get("gradients", kwargs.get("grads"))
        return gradients, {"settings": _settings(optimizer)}


@contextmanager
def _compiled_as_ever() -> Iterator[None]:
    """A step of MindSpore's own optimizers stays the graph that it is, also where the user's parts run eagerly."""
    switch = os.environ.pop("MS_JIT", None)
    try:
        yield
    finally:
        if switch is not None:
            os.environ["MS_JIT"] = switch


def _state(optimizer: Any) -> dict[str, Any]:
    """State of the optimizer, by attribute: moments, powers, the global step."""
    own = {id(parameter) for parameter in optimizer.parameters}
    state: dict[str, Any] = {}
    for name, value in vars(optimizer).items():
        if name in ("parameters", "_params", "params", "_parameters", "group_params"):
            continue
        if isinstance(value, Parameter) and id(value) not in own:
            state[name] = value
        elif isinstance(value, tuple | list) and value and all(isinstance(item, Parameter) for item in value):
            items = [item for item in value if id(item) not in own]
            if items:
                state[name] = items
    state.update({name: p for name, p in optimizer._params.items() if p is not None and id(p) not in own})
    return state


def _settings(optimizer: Any) -> dict[str, Any]:
    """Learning rate and the rest, as numbers; by group where the optimizer has groups as torch's have them."""
    settings: dict[str, Any] = {
        name: _plain(value) for name, value in vars(optimizer).items() if name[0] != "_" and _is_setting(value)
    }
    settings |= {
        name: _number(value) for name, value in optimizer._params.items() if name in _KEPT and _is_number(value)
    }
    settings |= {
        name: _plain(value) for name in _PER_PARAMETER if (value := vars(optimizer).get(name)) and type(value) is tuple
    }
    if getattr(optimizer, "dynamic_lr", False) and not getattr(optimizer, "is_group_lr", False):
        with suppress(Exception):  # a schedule is the user's code; without it, the record has no rate
            settings["learning_rate"] = _number(optimizer.learning_rate(optimizer.global_step).reshape(()))
    groups = getattr(optimizer, "param_groups", None)
    if groups:
        settings["groups"] = [_group(group) for group in groups]
    return settings


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: _plain(value) for name, value in group.items() if _is_setting(value) or _is_number(value)}
    return {**settings, "parameters": len(group.get("params", ()))}


def _is_setting(value: Any) -> bool:
    """True of a setting: as the user gave it, as a tensor of one element, or as a pair of numbers."""
    if type(value) is tuple:
        return 0 < len(value) <= _FEW and all(isinstance(item, float) or _is_number(item) for item in value)
    return isinstance(value, _SETTINGS) or (_is_number(value) and not isinstance(value, Parameter))


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and math.prod(shape_of(value)) == 1 and dtype_of(value) in _FLOATS


def _plain(value: Any) -> Any:
    return (
        [_plain(item) for item in value] if isinstance(value, tuple) else _number(value) if _is_number(value) else value
    )


def _number(value: Tensor) -> float:
    """The number that was written: 1e-06, of which f32 makes 9.99999997e-07."""
    return float(str(asnumpy(value).reshape(())[()]))
