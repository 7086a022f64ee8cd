"""Modules: where in the network we are, what goes in and comes out, how it is configured.

    encoder.0.norm1 (LayerNorm)   eps=1e-05, normalized_shape=(8,), training=True   weight f32[8], bias f32[8]

MSAdapter's `nn.Module` has torch's names, and is no MindSpore Cell. Calls are seen where all modules are called, in
`nn.Module.__call__`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from ..mindspore.modules import Modules as MindsporeModules
from ..mindspore.modules import end_without_result, present_phase, walk
from ..protocol import ModuleView
from .tensors import is_tensor

__all__ = [
    "Modules",
    "configuration",
    "end_without_result",
    "named_buffers",
    "named_modules",
    "named_parameters",
    "present_phase",
    "view_of",
]

_SCALARS = (bool, int, float, str, tuple, type(None))

_OWN = ("torch.", "msadapter.", "mindtorch.")


def named_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """Every module once, with its path."""
    return walk(model, "_modules")


def named_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """Every parameter once, by the path of the module that has it."""
    yield from _named(model, "_parameters")


def named_buffers(model: Any) -> Iterator[tuple[str, Any]]:
    """Every buffer once, by the path of the module that has it."""
    yield from _named(model, "_buffers")


def _named(model: Any, table: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for path, module in named_modules(model):
        for name, tensor in getattr(module, table).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor


def view_of(path: str, module: Any) -> ModuleView:
    """Facts about a module that the sink may ask for."""
    return ModuleView(
        path,
        type(module).__name__,
        own_parameters=lambda: {name: p for name, p in module._parameters.items() if p is not None},
        own_buffers=lambda: {name: b for name, b in module._buffers.items() if b is not None},
        configuration=lambda: configuration(module),
        state=lambda: [value for value in vars(module).values() if type(value) in _SCALARS],
    )


def configuration(module: Any) -> Mapping[str, Any]:
    """Everything that the constructor left on the module, except parameters, submodules and torch's own bookkeeping."""
    settings = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not is_tensor(value) and not isinstance(value, nn.Module)
    }
    # A user's class may have the same name, and do something else.
    if type(module).__module__.startswith(("torch.", "msadapter.", "mindtorch.")):
        settings["msadapter_class"] = f"{type(module).__module__}.{type(module).__qualname__}"
    return {**settings, "training": module.training}


class Modules(MindsporeModules):
    """MindSpore's, on torch's modules."""

    _kind = nn.Module
    _named_modules = staticmethod(named_modules)
    _named_parameters = staticmethod(named_parameters)
    _view_of = staticmethod(view_of)

    def _keeps_state(self, module: Any) -> bool:
        return bool(module._buffers)  # moving averages
