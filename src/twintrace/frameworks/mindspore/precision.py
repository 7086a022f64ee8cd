"""Settings that decide in which precision MindSpore computes.

    precision()      {"autocast": {"cpu": "f16"}, "deterministic": False, "reduced_f32": []}
    computing_in(t)  a Cell that was told `to_float(ms.float16)` is running: its operators get their arguments in that type

Asked before every call, and equal settings give the same object. MindSpore has two ways of casting the arguments of its operators:
a strategy that holds while a function runs (`amp.auto_mixed_precision(net, "auto")`), and a type that a Cell has (`to_float`).
Levels O1 to O3 of `auto_mixed_precision` are neither: they put Cells and casts into the network, recorded as what they are.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mindspore as ms

from .tensors import NAMES

try:
    from mindspore._c_expression.amp import get_curr_amp_strategy
except ImportError:  # before 2.4

    def get_curr_amp_strategy() -> Any:
        return None


_TYPES = {"FP16": "f16", "FP32": "f32", "BF16": "bf16"}
"""MindSpore's names of the types that a Cell may compute in, and ours."""
_SETTINGS: dict[Any, Mapping[str, Any]] = {}


class _Casting(threading.local):
    """The types of the Cells around this thread that have one, the innermost last."""

    def __init__(self) -> None:
        self.types: list[str] = []


_CASTING = _Casting()


def precision() -> Mapping[str, Any]:
    """The settings of this thread now. The device's own switches can be set only before it is first used, so they are read once."""
    strategy, around = get_curr_amp_strategy(), _CASTING.types
    level = "" if strategy is None else str(strategy.get_amp_level().name).removeprefix("Amp")
    if level and level != "O0":  # O0 is MindSpore's way of saying that the strategy around this one does not hold here
        dtype = strategy.get_amp_dtype()
        return _settings(NAMES.get(dtype, str(dtype)), level)
    return _settings(around[-1] if around else "", "")


@contextlib.contextmanager
def computing_in(kind: Any) -> Iterator[None]:
    """A Cell runs whose operators get their arguments in this type (MindSpore's `MixedPrecisionType`)."""
    _CASTING.types.append(_TYPES.get(kind.name, kind.name))
    try:
        yield
    finally:
        _CASTING.types.pop()


def _settings(dtype: str, level: str) -> Mapping[str, Any]:
    known = _SETTINGS.get((dtype, level))
    if known is None:
        device = ms.get_context("device_target")
        settings: dict[str, Any] = {"autocast": {device.lower(): dtype} if dtype else {}}
        if level:
            settings["autocast_level"] = level
        settings["deterministic"] = ms.get_context("deterministic") == "ON"
        settings["reduced_f32"] = sorted(_reduced(device))
        if device == "Ascend":
            settings["precision_mode"] = _ascend("precision_mode")
        known = _SETTINGS[dtype, level] = settings
    return known


def forget() -> None:
    """Read the device's switches again: a recording begins."""
    _SETTINGS.clear()


def _reduced(device: str) -> Iterator[str]:
    """The products of f32 that may be computed with fewer bits: TF32 on a GPU, HF32 on an NPU; by default, convolutions are."""
    if device == "GPU":
        config: Mapping[str, Any] = ms.get_context("gpu_config") or {}
        for ours, theirs, usual in (("matmul", "matmul_allow_tf32", False), ("convolution", "conv_allow_tf32", True)):
            if config.get(theirs, usual):
                yield ours
    elif device == "Ascend":
        for ours, theirs, default in (("matmul", "matmul_allow_hf32", "0"), ("convolution", "conv_allow_hf32", "1")):
            if (_ascend(theirs) or default) == "1":
                yield ours


def _ascend(name: str) -> str | None:
    """A switch of the NPU; None where MindSpore does not tell."""
    with contextlib.suppress(ImportError, AttributeError, RuntimeError):
        from mindspore._c_expression import AscendOpPrecisionConf  # only there with the NPU's library

        ask: Callable[[], str] = getattr(AscendOpPrecisionConf.get_instance(), name)
        return str(ask())
    return None
