"""Runs the two sides of a pair, with a recorder or without.

recorded(pair, folder, dtype)              paths of the left and of the right side
recorded(pair, folder, dtype, sound=True)  the same without the mistake
ends(pair, way, wrong)                     results and gradients of one run in float64, without a recorder
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twintrace as tt

from .cases import Net, Pair

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SEED = 7


def recorded(pair: Pair, folder: Path, dtype: torch.dtype, *, sound: bool = False) -> tuple[Path, Path]:
    """Paths of both traces."""
    paths = folder / "left", folder / "right"
    keep = "tensor" if sound else pair.keep
    for way, path in enumerate(paths):
        wrong = bool(way) and pair.differs and not sound
        _run(pair, dtype, way, wrong, lambda net, path=path: tt.record(path, net, level=pair.level, keep=keep))
    return paths


def ends(pair: Pair, way: int, wrong: bool) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Results of all steps, and gradients and values of the parameters at the end, by their names."""
    net, results = _run(pair, torch.float64, way, wrong, lambda net: contextlib.nullcontext())
    held = {}
    for name, parameter in net.named_parameters():
        held[name] = parameter.detach().numpy()
        if parameter.grad is not None:
            held[f"gradient of {name}"] = parameter.grad.numpy()
    return results, held


def _run(
    pair: Pair, dtype: torch.dtype, way: int, wrong: bool, recording: Callable[[Net], Any]
) -> tuple[Net, list[Any]]:
    torch.manual_seed(SEED)
    net = Net(pair.parts(way), nested=bool(way) and pair.nested).to(dtype)
    if pair.prepare is not None:
        pair.prepare(net, wrong)
    net.program = lambda s, *inputs: pair.run(s, *inputs, way=way, wrong=wrong)
    optimizer = pair.optimizer(net.parameters(), way, wrong) if pair.optimizer is not None else None
    results = []
    torch.manual_seed(SEED)
    with warnings.catch_warnings(), recording(net) as recorder:
        warnings.simplefilter("ignore")  # of prototypes in PyTorch
        for step in range(pair.steps):
            if optimizer is not None:
                optimizer.zero_grad()
            result = net(*(_moved(x, step, dtype) for x in pair.inputs))
            results.append(result.detach().numpy() if isinstance(result, torch.Tensor) and recorder is None else result)
            if pair.backward:
                (result if result.ndim == 0 else result.float().square().mean()).backward()
            if optimizer is not None:
                optimizer.step()
            if pair.steps > 1 and recorder is not None:
                recorder.step()
    return net, results


def _moved(x: Any, step: int, dtype: torch.dtype) -> Any:
    """An input of this step, in this type."""
    return x.roll(step, 0).to(dtype) if x.is_floating_point() else x
