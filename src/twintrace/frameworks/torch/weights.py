"""The weights of a torch module: what they are called, whose they are, how values get in, one pass through the net.

conv.weight   own weight of a Conv1d    settings of the layer: kernel_size, groups …
fc.weight     own weight.v of a Linear  kept as length and direction (weight_norm)
head.weight   same as embed.weight      tied
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList, type_before_parametrizations
from torch.nn.utils.weight_norm import WeightNorm

from ..protocol import Run, Weight
from .tensors import NAMES, host, look

_DTYPES = {ours: theirs for theirs, ours in NAMES.items() if not str(theirs).startswith(("torch.q", "torch.quint"))}
_NEARLY_TORCH = {"transformers.pytorch_utils.Conv1D"}  # a linear layer that keeps its weight transposed
_SCALARS = (bool, int, float, str, tuple, type(None))


def is_net(value: object) -> bool:
    """Is this a torch module?"""
    return isinstance(value, nn.Module)


def weights_of(net: nn.Module) -> Iterator[Weight]:
    """Everything that the state dict holds, in its order."""
    modules = dict(net.named_modules(remove_duplicate=False))
    seen: dict[Any, str] = {}
    for name, tensor in net.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            continue  # what `get_extra_state` returned
        path, _, own = name.rpartition(".")
        while path and path not in modules:  # a state-dict hook may have made up a name
            path, _, head = path.rpartition(".")
            own = f"{head}.{own}"
        module = modules.get(path, net)
        if isinstance(module, ParametrizationList):
            path, own, module, settings = _parametrized(path, own, module, modules)
        else:
            own, settings = _normed(module, own)
        around = modules.get(path.rpartition(".")[0]) if path else None
        first = seen.setdefault(_memory(tensor, name), name)
        yield Weight(
            name,
            tensor,
            path,
            own,
            _kinds(module),
            _kinds(around) if around is not None else (),
            isinstance(tensor, nn.Parameter),
            first if first != name else None,
            _settings(module) | settings,
        )


def _kinds(module: nn.Module) -> tuple[str, ...]:
    lineage = type_before_parametrizations(module).__mro__
    known = (kind for kind in lineage if kind.__module__.startswith("torch.") or _full(kind) in _NEARLY_TORCH)
    return tuple(kind.__name__ for kind in known)


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _settings(module: nn.Module) -> dict[str, Any]:
    return {
        name: value for name, value in vars(module).items() if not name.startswith("_") and isinstance(value, _SCALARS)
    }


def _memory(tensor: Tensor, name: str) -> Any:
    if tensor.device.type == "meta" or not tensor.numel():
        return name
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _parametrized(
    path: str, own: str, module: ParametrizationList, modules: Mapping[str, nn.Module]
) -> tuple[str, str, nn.Module, dict[str, Any]]:
    owner, _, weight = path.rpartition(".")
    owner = owner.removesuffix("parametrizations").removesuffix(".")
    parent = modules[owner]
    if len(module) == 1 and isinstance(module[0], parametrizations._WeightNorm) and own in ("original0", "original1"):
        return owner, f"{weight}.{'g' if own == 'original0' else 'v'}", parent, {"weight_norm": module[0].dim}
    return owner, f"parametrizations.{weight}.{own}", parent, {}


def _normed(module: nn.Module, own: str) -> tuple[str, dict[str, Any]]:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and own in (f"{hook.name}_g", f"{hook.name}_v"):
            return f"{hook.name}.{own[-1]}", {"weight_norm": hook.dim}
    return own, {}


def is_tensor(value: object) -> bool:
    """Is this a torch tensor?"""
    return isinstance(value, Tensor)


def spec_of(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Element type and shape."""
    found = look(tensor)
    return found.dtype, found.shape


def values_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values on the host."""
    return host(tensor.detach())


def load(net: nn.Module, values: Mapping[str, tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Put values into the net, bit for bit."""
    targets = net.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, (dtype, array) in values.items():
            if not array.size:
                continue
            flat = torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8))
            targets[name].copy_(flat.view(_DTYPES[dtype]).reshape(array.shape))


def describe(net: nn.Module) -> str:
    """The module as torch prints it."""
    return str(net)


def run(
    net: nn.Module,
    inputs: Sequence[np.ndarray[Any, Any]],
    weigh: Callable[[str, tuple[int, ...]], np.ndarray[Any, Any]],
    *,
    training: bool = False,
    double: bool = False,
) -> Run:
    """One pass forward and back, on a copy: the net's gradients and statistics stay as they are."""
    net = copy.deepcopy(net)
    net.train(training)
    net.requires_grad_(True)
    if double:
        net.double()
    arguments = [_argument(array, double, net) for array in inputs]
    outputs = dict(_floats(net(*arguments), "0"))
    total = sum(
        (output * torch.as_tensor(weigh(name, tuple(output.shape))).to(output)).sum()
        for name, output in outputs.items()
    )
    if isinstance(total, Tensor) and total.requires_grad:
        total.backward()
    parameters = {name: tensor.grad for name, tensor in net.named_parameters() if tensor.grad is not None}
    given = {str(number): tensor.grad for number, tensor in enumerate(arguments) if tensor.grad is not None}
    return Run(_arrays(outputs), _arrays(given), _arrays(parameters))


def _argument(array: np.ndarray[Any, Any], double: bool, net: nn.Module) -> Tensor:
    tensor = torch.as_tensor(array)
    if not tensor.is_floating_point():
        return tensor
    like = next((p for p in net.parameters() if p.is_floating_point()), tensor)
    return tensor.to(torch.float64 if double else like.dtype).requires_grad_(True)


def _floats(output: Any, slot: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield slot, output
    elif isinstance(output, Mapping):
        for key, item in output.items():
            yield from _floats(item, f"{slot}.{key}")
    elif isinstance(output, tuple | list):
        for number, item in enumerate(output):
            yield from _floats(item, f"{slot}.{number}")


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(tensor.detach().double().cpu()) for name, tensor in tensors.items()}


def unpickle(path: Path, key: str | None) -> Any:
    """Object that torch makes of a file when it may run the code in it: a module, or a state dict."""
    found = torch.load(path, map_location="cpu", weights_only=False)
    for part in key.split(".") if key else ():
        found = found[part]
    return found


def accuracy() -> Iterator[tuple[float, str]]:
    """Errors of tanh, sigmoid and exp, between -4 and 4."""
    grid = np.linspace(-4, 4, 4001, dtype=np.float32)
    for name, exact in (("tanh", np.tanh), ("exp", np.exp), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))):
        true = exact(grid.astype(np.float64))
        found = np.asarray(getattr(torch, name)(torch.as_tensor(grid)))
        error = np.abs(found - true)[true != 0] / np.abs(true[true != 0])
        yield float(error.max()), f"torch's {name}"
