"""Names that not every release of torch has: the newest's, and what older ones have instead.

    is_compiling()                is this line being compiled? torch.compiler.is_compiling, from 2.3 on
    gradient_edge(tensor)         (node, output number) of the graph: torch.autograd.graph.get_gradient_edge, from 2.2 on
    autocast_dtype(device)        type that autocast chooses there, None where it is off: torch.get_autocast_dtype, from 2.4 on
    autocast_devices()            kinds of devices that autocast knows
    wait_tensor(tensor)           result of a functional collective; the operator's home had another name before 2.2
    patch_engine(layer)           the engine's way in, through which every backward pass goes: a function from 2.2 on

The name is asked for, not the version: a vendor's build may have it earlier. What an older release simply lacks (`set_stance`,
`torch.accelerator`, unsigned integers) is asked for where it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .patches import Layer, patch


class _Regions(threading.local):
    """(frame or context that opened it, what to call at its exit) of each compiled region that this thread is inside of.

    Kept by compiled.py, for releases whose compiler runs parts of a region as they are without saying so.
    """

    def __init__(self) -> None:
        self.open: list[tuple[Any, list[Callable[[], None]]]] = []


REGIONS = _Regions()


def _is_compiling_or_inside() -> bool:
    return torch._utils.is_compiling() or bool(REGIONS.open)


# The object that torch has, where it has one: dynamo knows it by identity, and puts True in its place.
is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", _is_compiling_or_inside)


def gradient_edge(tensor: Tensor) -> tuple[Any, int, Any]:
    """Node and output number at which a tensor's gradient arrives; the third keeps the node alive, which a leaf does not."""
    ask = getattr(torch.autograd.graph, "get_gradient_edge", None)
    if ask is not None:
        edge = ask(tensor)
        return edge.node, edge.output_nr, edge
    node = tensor.grad_fn
    if node is not None and not isinstance(node, torch._C._FunctionBase):
        return node, tensor.output_nr, node
    with torch.enable_grad():  # the node of a view leads to that of a leaf, and holds one that is written in Python
        view: Any = tensor.view_as(tensor).grad_fn
    return view.next_functions[0][0], tensor.output_nr, view


def autocast_devices() -> list[str]:
    """Kinds of devices that autocast knows, by torch's own names."""
    ask = getattr(torch._C, "_autocast_supported_devices", None)
    return ["cpu", "cuda"] if ask is None else list(ask())


def _ask_each_device(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _ask_cpu_or_gpu(device: str) -> torch.dtype | None:
    on_cpu = device == "cpu"
    if not (torch.is_autocast_cpu_enabled() if on_cpu else torch.is_autocast_enabled()):
        return None
    return torch.get_autocast_cpu_dtype() if on_cpu else torch.get_autocast_gpu_dtype()


autocast_dtype = _ask_each_device if hasattr(torch, "get_autocast_dtype") else _ask_cpu_or_gpu


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor when the collective that fills it is done."""
    has_own_home = hasattr(torch.ops._c10d_functional, "wait_tensor")
    found: Tensor = (torch.ops._c10d_functional if has_own_home else torch.ops.c10d_functional).wait_tensor(tensor)
    return found


HOOKS: Any = getattr(torch.autograd.function, "_HookMixin", None)
"""Holder of `_register_hook`, which torch calls for each hook on a node; None where it has none."""
_IS_FUNCTION = hasattr(torch.autograd, "_engine_run_backward")
ENGINE: tuple[Any, str] = (
    (torch.autograd, "_engine_run_backward") if _IS_FUNCTION else (torch.autograd.Variable, "_execution_engine")
)
"""Holder and name of the function that runs the backward pass."""


def patch_engine(layer: Layer) -> Callable[[], None]:
    """Put `layer(run_backward)` in the place of `run_backward`; the result takes this layer out again."""
    return patch(*ENGINE, layer if _IS_FUNCTION else lambda engine: _Engine(engine, layer))


class _Engine:
    """torch's engine with another `run_backward`: its own is a method of C's, which cannot be replaced."""

    def __init__(self, engine: Any, layer: Layer) -> None:
        self._engine = engine
        self.run_backward = layer(engine.run_backward)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
