"""Steps of optimizers: one meaning for all parameters, each framework's own way of adding epsilon and correcting averages.

    torch.optim.Adam.step       adam(parameters, gradients, exp_avg, …, eps_added="after correction")
    mindspore.nn.Adam           adam(…, eps_added="before correction"): sqrt(v) + eps, and the rate is corrected instead
    mindspore.nn.Momentum       sgd(…, dampening=0)

Arguments that belong to a parameter are tuples in the order of the parameters; a rate or decay that is the same for all is one
number. Results have the keys `parameters.0`, `exp_avg.3`, `step.0`: the name of the argument, and the parameter's number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..model.records import Call
from ..model.values import Nest, TensorRef, Value
from .meanings import Meaning, Operand
from .reading import argument_of
from .rows import NotTold

AFTER, BEFORE = "after correction", "before correction"
KINDS = {
    "torch.optim.SGD.step": "sgd", "torch.optim.Adam.step": "adam", "torch.optim.AdamW.step": "adam",
    "torch.optim.NAdam.step": "nadam", "torch.optim.RAdam.step": "radam", "torch.optim.Adamax.step": "adamax",
    "torch.optim.Adadelta.step": "adadelta", "torch.optim.RMSprop.step": "rmsprop", "torch.optim.Adagrad.step": "adagrad",
    "mindspore.nn.SGD": "sgd", "mindspore.nn.Momentum": "sgd", "mindspore.nn.Adam": "adam",
    "mindspore.nn.AdamWeightDecay": "adam", "mindspore.nn.RMSProp": "rmsprop", "mindspore.nn.Adagrad": "adagrad",
    "mindspore.nn.Lamb": "lamb",
    "mindspore.experimental.optim.SGD": "sgd", "mindspore.experimental.optim.Adam": "adam",
    "mindspore.experimental.optim.AdamW": "adam", "mindspore.experimental.optim.RMSprop": "rmsprop",
    "mindspore.experimental.optim.Adagrad": "adagrad",
}  # fmt: skip
"""Optimizers by their recorded names. Those of `mindspore.mint` are not read: on a CPU their count of steps does not go on."""
_STATES = {
    "moment1": "exp_avg", "moments1": "exp_avg", "moment2": "exp_avg_sq", "moments2": "exp_avg_sq", "vhat": "max_exp_avg_sq",
    "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "max_exp_avg_sq": "max_exp_avg_sq", "moments": "momentum_buffer",
    "momentum_buf": "momentum_buffer", "momentum_buffer": "momentum_buffer", "stat": "stat", "ms": "square_avg",
    "mean_square": "square_avg", "square_avg": "square_avg", "mg": "grad_avg", "mean_grad": "grad_avg", "grad_avg": "grad_avg",
    "mu_product": "mu_product", "exp_inf": "exp_inf", "acc_delta": "acc_delta",
    "moment": "momentum_buffer", "sum": "sum", "step": "step", "state_step": "step", "step_t": "step",
    "beta1_power": "beta1_power", "beta2_power": "beta2_power", "group_lr": "group_lr", "global_step": "global_step",
}  # fmt: skip
"""Frameworks' names of an optimizer's state, by its name here; `accum` is what its optimizer uses it for."""

SHARED = frozenset(("beta1_power", "beta2_power"))
"""State that all parameters have in common."""
RESULTS: Mapping[str, frozenset[str]] = {
    "sgd": frozenset(("momentum_buffer",)),
    "adam": frozenset(("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step", "beta1_power", "beta2_power")),
    "nadam": frozenset(("exp_avg", "exp_avg_sq", "mu_product", "step")),
    "radam": frozenset(("exp_avg", "exp_avg_sq", "step")),
    "adamax": frozenset(("exp_avg", "exp_inf", "step")),
    "adadelta": frozenset(("square_avg", "acc_delta", "step")),
    "rmsprop": frozenset(("square_avg", "grad_avg", "momentum_buffer")),
    "adagrad": frozenset(("sum", "step")),
    "lamb": frozenset(("exp_avg", "exp_avg_sq")),
}
"""State that a step makes anew."""
_TAKEN = {kind: sorted(names - SHARED) for kind, names in RESULTS.items()}
_TAKEN["sgd"].append("stat")
_TAKEN["lamb"].append("step")
"""State of each parameter that a step takes."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "nadam": {"betas": None, "eps": 1e-8, "momentum_decay": 4e-3}, "radam": {"betas": None, "eps": 1e-8},
    "adamax": {"betas": None, "eps": 1e-8}, "adadelta": {"rho": 0.9, "eps": 1e-6},
}  # fmt: skip
"""Settings of optimizers that PyTorch alone has."""

_ADAM = "parameters", "gradients", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"
_FUSED = {
    "_fused_sgd": ("sgd", ("parameters", "gradients", "momentum_buffer")),
    "_fused_adam": ("adam", _ADAM), "_fused_adamw": ("adam", _ADAM),
    "_fused_adagrad": ("adagrad", ("parameters", "gradients", "sum", "step")),
}  # fmt: skip
"""PyTorch's kernels of whole steps: what they compute, and the lists that they take."""


def is_fused(call: Call) -> bool:
    """Is this one of PyTorch's kernels of a whole step?"""
    name = call.site.name
    return name.startswith("aten._fused_") and name.split(".")[1].rstrip("_") in _FUSED


def is_step(call: Call) -> bool:
    """Is this the step of an optimizer, recorded as one call?"""
    return call.site.name in KINDS and "gradients" in call.kwargs


def written_by(kind: str) -> tuple[str, ...]:
    """Arguments that the step of an optimizer writes to: the parameters, and its state."""
    return ("parameters", *sorted(RESULTS[kind]))


def read_step(call: Call) -> Meaning:
    """Meaning of an optimizer's step."""
    return _Step(call).meaning()


def read_fused(call: Call) -> Meaning:
    """Meaning of one of PyTorch's kernels of a whole step, `aten._fused_adam_`, for lists of parameters, gradients and state."""
    kind, lists = _FUSED[call.site.name.split(".")[1].rstrip("_")]
    given = {name: argument_of(value) for name, value in call.kwargs.items()}
    if given.pop("grad_scale", None) is not None or given.pop("found_inf", None) is not None:
        raise NotTold("gradients that the kernel unscales")
    arguments: dict[str, Any] = {name: argument_of(value) for name, value in zip(lists, call.args, strict=True)}
    count = len(arguments["parameters"])
    arguments |= {name: arguments[name] or (None,) * count for name in lists}
    if kind == "sgd":
        arguments["stat"] = (None,) * count
        if given.pop("is_first_step"):
            arguments["momentum_buffer"] = (None,) * count
    elif kind == "adam":
        arguments |= dict.fromkeys(("beta1_power", "beta2_power"))
        arguments |= {"eps_added": AFTER, "bias_correction": True, "nesterov": False}
        arguments["decoupled"] = call.site.name.split(".")[1] == "_fused_adamw_"
    if "step" in lists:  # the optimizer counts before it calls the kernel
        arguments["counted"] = True
    results: dict[int, int | str] = {}
    for slot, number in call.after.items():
        place, _, item = slot.partition(".")
        if place.isdigit() and int(place) < len(lists) and lists[int(place)] in written_by(kind):
            results.setdefault(number, f"{lists[int(place)]}.{item}")
    return Meaning(kind, {**arguments, **given, "grad_scale": 1.0}, results, call.site.name)


def of_one_parameter(meaning: Meaning, result: int) -> Meaning:
    """A step of an optimizer for the one parameter that a result belongs to; any other meaning as it is."""
    key = meaning.results.get(result)
    if meaning.operation not in RESULTS or not isinstance(key, str):
        return meaning
    name, _, number = key.partition(".")
    return _of_parameter(meaning, int(number or 0), {result: f"{name}.0" if number else name})


def is_updated(meaning: Meaning, result: int) -> bool:
    """Does the step have a gradient for the parameter that a result belongs to? Without one the optimizer passes it over."""
    gradients = of_one_parameter(meaning, result).arguments.get("gradients")
    return gradients != (None,)


def of_each_parameter(meaning: Meaning) -> Iterator[Meaning]:
    """A step of an optimizer as one for each parameter, what all share with the first; any other meaning as it is."""
    parameters = meaning.arguments.get("parameters")
    if meaning.operation not in RESULTS or not isinstance(parameters, tuple):
        yield meaning
        return
    results: list[dict[int, int | str]] = [{} for _ in parameters]
    for result, key in meaning.results.items():
        name, _, number = str(key).partition(".")
        results[int(number or 0)][result] = f"{name}.0" if number else key
    for place, own in enumerate(results):
        yield _of_parameter(meaning, place, own)


def _of_parameter(meaning: Meaning, place: int, results: Mapping[int, int | str]) -> Meaning:
    arguments = {
        name: (value[place],) if isinstance(value, tuple) else value for name, value in meaning.arguments.items()
    }
    return replace(meaning, arguments=arguments, results=results)


class _Step:
    """One recorded step, taken apart: parameters, gradients, state by name and number, settings by parameter."""

    def __init__(self, call: Call) -> None:
        self.call, self.name = call, call.site.name
        self.kind = KINDS[self.name]
        self.own = self.name.startswith("mindspore.nn.")
        self.parameters = argument_of(call.args[0])
        self.count = len(self.parameters)
        gradients = argument_of(call.kwargs["gradients"])
        self.gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(self.gradients) != self.count:
            raise NotTold("as many gradients as parameters were expected")
        self.state = self._states(call.kwargs.get("state"))
        self.settings = _dictionary(call.kwargs.get("settings"))
        flags = self.settings.get("grad_centralization_flags", self.settings.get("grad_centralization"))
        if any(flags) if isinstance(flags, tuple) else flags:
            raise NotTold("gradients that are centred before the step")
        self.groups = self._by_parameter()

    def meaning(self) -> Meaning:
        """The step as one operation."""
        readers: Mapping[str, Callable[[], dict[str, Any]]] = {
            "sgd": self._sgd, "adam": self._adam, "rmsprop": self._rmsprop, "adagrad": self._adagrad, "lamb": self._lamb,
        }  # fmt: skip
        arguments = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "lr": self._rate(),
            "weight_decay": self._decay(),
            "maximize": bool(self._setting("maximize", False)),
            "grad_scale": float(self.settings.get("reciprocal_scale", 1.0)),
            **{name: self._steps() if name == "step" else self._of(name) for name in _TAKEN[self.kind]},
            **readers.get(self.kind, self._plain)(),
        }
        if self.name.startswith("mindspore."):
            arguments = {name: _as_held(value) for name, value in arguments.items()}
        return Meaning(self.kind, arguments, self._results(), self.name)

    def _states(self, value: Value) -> dict[str, dict[int, Any]]:
        """State by its name here, then by the number of the parameter; what all share has the number 0."""
        found: dict[str, dict[int, Any]] = {}
        for name, item in value.items if isinstance(value, Nest) else ():
            if name.isdigit():  # PyTorch: by parameter, then by name
                for own, tensor in item.items if isinstance(item, Nest) else ():
                    found.setdefault(self._state_name(own), {})[int(name)] = argument_of(tensor)
            elif isinstance(item, Nest):
                for number, (_, tensor) in enumerate(item.items):
                    found.setdefault(self._state_name(name), {})[number] = argument_of(tensor)
            elif isinstance(item, TensorRef) and name in _STATES:
                found.setdefault(_STATES[name], {}).setdefault(0, Operand(item.id))
        return found

    def _state_name(self, name: str) -> str:
        if name == "accum":
            return "sum" if self.kind == "adagrad" else "momentum_buffer"
        return _STATES.get(name, name)

    def _of(self, name: str) -> tuple[Any, ...]:
        """A state for every parameter; None where there is none yet."""
        known = self.state.get(name, {})
        return tuple(known.get(number) for number in range(self.count))

    def _by_parameter(self) -> list[Mapping[str, Any]]:
        """The group of each parameter, where the optimizer has groups."""
        value = self.call.kwargs.get("groups")
        if value is None:
            value = next((item for name, item in _items(self.call.kwargs.get("settings")) if name == "groups"), None)
        found: list[Mapping[str, Any]] = []
        for _, group in _items(value):
            settings = _dictionary(group)
            found += [settings] * int(settings.get("parameters", 0))
        if found and len(found) != self.count:
            raise NotTold("groups of other parameters")
        return found

    def _setting(self, name: str, default: Any = None) -> Any:
        """A setting: one value where it is the same for all parameters, else one for each."""
        if not self.groups:
            return self.settings.get(name, default)
        values = tuple(group.get(name, default) for group in self.groups)
        return values[0] if all(value == values[0] for value in values) else values

    def _rate(self) -> Any:
        if not self.own:
            return self._setting("lr")
        each = self.state.get("group_lr")
        if each:
            return self._of("group_lr")
        if "learning_rate" not in self.settings:
            raise NotTold("the learning rate of this step was not recorded")
        return self.settings["learning_rate"]

    def _decay(self) -> Any:
        if not self.own:
            return self._setting("weight_decay", 0)
        if self.settings.get("dynamic_weight_decay"):
            raise NotTold("the weight decay of this step was not recorded")
        decay = self.settings.get("weight_decay", 0.0)
        flags = self.settings.get("decay_flags")
        if not self.settings.get("exec_weight_decay", decay):
            return 0.0
        if flags is None:
            raise NotTold("which parameters are decayed was not recorded")
        each = decay if isinstance(decay, tuple) else (decay,) * self.count
        values = tuple(value if flag else 0.0 for value, flag in zip(each, flags, strict=True))
        return values[0] if all(value == values[0] for value in values) else values

    def _sgd(self) -> dict[str, Any]:
        return {
            "momentum": self._setting("momentum", 0),
            "dampening": self._setting("dampening", 0),
            "nesterov": bool(self._setting("nesterov", False)) or bool(self.settings.get("use_nesterov", False)),
        }

    def _adam(self) -> dict[str, Any]:
        """MindSpore's kernel adds epsilon to the root of the average as it is, and corrects the rate. Its experimental Adam takes
        the argument `amsgrad` and does nothing with it; AdamWeightDecay corrects nothing.
        """
        betas = self._setting("betas")
        plain = self.name == "mindspore.nn.AdamWeightDecay"
        by_kernel = self.own or self.name == "mindspore.experimental.optim.Adam"
        amsgrad = bool(self._setting("amsgrad", False)) or bool(self.settings.get("use_amsgrad", False))
        decoupled = (
            plain or self.name.endswith(("AdamW", "AdamW.step")) or self._setting("decoupled_weight_decay", False)
        )
        if self.settings.get("use_lazy") or self.settings.get("use_offload"):
            raise NotTold("a lazy or offloaded step")
        shared = self.state.get("beta1_power", {}), self.state.get("beta2_power", {})
        return {
            "beta1_power": shared[0].get(0),
            "beta2_power": shared[1].get(0),
            "beta1": self.settings["beta1"] if betas is None else betas[0],
            "beta2": self.settings["beta2"] if betas is None else betas[1],
            "eps": self._setting("eps", 1e-8),
            "eps_added": BEFORE if by_kernel and not plain else AFTER,
            "bias_correction": not plain,
            "decoupled": bool(decoupled),
            "amsgrad": amsgrad and self.name != "mindspore.experimental.optim.Adam",
            "nesterov": bool(self.settings.get("use_nesterov", False)),
        }

    def _plain(self) -> dict[str, Any]:
        """Settings of an optimizer that PyTorch alone has."""
        found = {name: self._setting(name, default) for name, default in _DEFAULTS[self.kind].items()}
        betas = found.pop("betas", None)
        if betas is not None:
            found["beta1"], found["beta2"] = betas[0], betas[1]
        if self.kind in ("nadam", "radam"):
            found["decoupled"] = bool(self._setting("decoupled_weight_decay", False))
        return found

    def _rmsprop(self) -> dict[str, Any]:
        """MindSpore's kernel adds epsilon below the root, and has the rate inside its momentum."""
        inside = self.own
        return {
            "alpha": self.settings["decay"] if self.own else self._setting("alpha", 0.99),
            "eps": self.settings["epsilon"] if self.own else self._setting("eps", 1e-8),
            "eps_added": "below the root" if inside else "after the root",
            "momentum": self._setting("momentum", 0),
            "centered": bool(self._setting("centered", False)),
            "rate_in_momentum": inside,
        }

    def _adagrad(self) -> dict[str, Any]:
        """MindSpore's kernel has no epsilon: its sums begin above 0."""
        return {
            "lr_decay": 0.0 if self.own else self._setting("lr_decay", 0),
            "eps": 0.0 if self.own else self._setting("eps", 1e-10),
        }

    def _lamb(self) -> dict[str, Any]:
        """As MindSpore's kernel for GPUs computes it (`lamb_impl.cu`): a trust ratio of at most 10, and epsilon below the root in
        the norm of the update, after it in the update itself. There is no kernel for CPUs; Ascend's is composed otherwise.
        """
        if self.settings.get("device_ascend", True):
            raise NotTold("Lamb on a device other than a GPU")
        return {
            "beta1": self.settings["beta1"],
            "beta2": self.settings["beta2"],
            "eps": self.settings["eps"],
            "largest_trust": 10.0,
        }

    def _steps(self) -> tuple[Any, ...]:
        """Steps before this one, for every parameter."""
        known = self.state.get("global_step" if self.kind == "lamb" else "step", {})
        if self.name.startswith("mindspore."):
            return (known.get(0),) * self.count
        return tuple(known.get(number) for number in range(self.count))

    def _results(self) -> dict[int, int | str]:
        results: dict[int, int | str] = {}
        output = dict(_items(self.call.output))
        for number, (_, item) in enumerate(_items(output.get("parameters"))):
            if isinstance(item, TensorRef):
                results.setdefault(item.id, f"parameters.{number}")
        for name, each in self._states(output.get("state")).items():
            if name in RESULTS[self.kind]:
                for number, operand in each.items():
                    if isinstance(operand, Operand):
                        results.setdefault(operand.tensor, name if name in SHARED else f"{name}.{number}")
        return results


def _as_held(value: Any) -> Any:
    """A number as MindSpore holds it, in float32: 1 - 0.999 is another number then, by one part in 80,000."""
    if isinstance(value, float):
        return float(struct.unpack("f", struct.pack("f", value))[0])
    return tuple(_as_held(item) for item in value) if isinstance(value, tuple) else value


def _items(value: Value) -> tuple[tuple[str, Value], ...]:
    return value.items if isinstance(value, Nest) else ()


def _dictionary(value: Value) -> dict[str, Any]:
    """Settings of a dict, those that can be read."""
    found: dict[str, Any] = {}
    for name, item in _items(value):
        try:
            found[name] = argument_of(item)
        except NotTold:
            continue
    return found
