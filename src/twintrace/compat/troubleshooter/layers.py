"""Modules that are the framework's own layers: a dump has one name for each, whatever it calls.

nn.Conv2d, a subclass of it       a layer, `Conv2d`: one record, whatever it calls inside
the user's Block, nn.Sequential   no layer: what it calls is recorded
nn.MSELoss outside the network    no record of it, and none of what it calls: the real tool does not look into layers
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

# They hold others, or run them: what they call is the user's affair.
CONTAINERS = frozenset((
    "Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "DataParallel",
    "DistributedDataParallel", "Cell", "SequentialCell", "CellList", "CellDict", "GraphCell", "LossBase", "WithLossCell",
    "WithGradCell", "WithEvalCell", "ForwardValueAndGrad", "TrainOneStepCell", "TrainOneStepWithLossScaleCell", "GetNextSingleOp",
    "MicroBatchInterleaved", "PipelineCell", "PipelineGradReducer", "GradAccumulationCell", "ParameterUpdate", "TimeDistributed",
))  # fmt: skip
_FRAMEWORKS = ("torch", "mindspore", "mindtorch", "msadapter")
_LAYER_CODE = re.compile(r"(torch|mindtorch|msadapter)\.nn\.modules\.|mindspore\.nn\.|mindspore\.mint\.nn\.layer\.")
_PACKAGES = re.compile(r"(twintrace|torch|mindspore|mindtorch|msadapter)(\.|$)")


def layers(modules: Mapping[str, Any]) -> dict[str, str]:
    """The framework's own class of each module that is a layer, by path."""
    classes = {path: own_class(type(module)) for path, module in modules.items()}
    return {path: kind for path, kind in classes.items() if kind is not None}


def own_class(kind: type) -> str | None:
    """The framework's own class that this one is, or is made of; None if it only holds others."""
    first = next((base for base in kind.__mro__ if base.__module__.partition(".")[0] in _FRAMEWORKS), None)
    return None if first is None or first.__name__ in CONTAINERS else first.__name__


def paths_within(modules: Mapping[str, Any], own: Mapping[str, str]) -> frozenset[str]:
    """The paths of layers, and of all modules inside them."""
    inside: set[str] = set()
    for path in modules:
        parts = path.split(".")
        if any(".".join(parts[:length]) in own for length in range(1, len(parts) + 1)) or "" in own:
            inside.add(path)
    return frozenset(inside)


def called_by_a_layer() -> bool:
    """True if the call that is being recorded is made by a layer's own code. Asked where the layer may not be the network's."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if _LAYER_CODE.match(name):
            return True
        if not _PACKAGES.match(name):
            return False
        frame = frame.f_back  # type: ignore[assignment]  # the last one's is None
    return False
