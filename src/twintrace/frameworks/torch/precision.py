"""Settings that decide in which precision torch computes.

    precision()    {"autocast": {"cpu": "bf16"}, "float32_matmul": "highest", "reduced_f32": [], "deterministic": False, …}

Asked before every call, so only those that can act here are asked, and equal settings give the same object: whoever compares them
compares identities. The names of the entries are in the trace format's document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .releases import autocast_devices, autocast_dtype
from .tensors import NAMES

_SETTINGS: dict[Any, Mapping[str, Any]] = {}
_LATEST: list[Any] = [None, None]  # the latest answers, and what they are called
_Question = tuple[Callable[..., Any], str]
"""A function of torch's, and the source of its arguments."""
_MAX_SETTINGS = 1024  # combinations that are kept; a run has two or three


def precision() -> Mapping[str, Any]:
    """The settings of this thread now."""
    try:
        key = _ask()
    except RuntimeError:  # see `float32_matmul`
        key = _ask_carefully()
    latest: Mapping[str, Any]
    if key == _LATEST[0]:
        latest = _LATEST[1]
        return latest
    known = _SETTINGS.get(key)
    if known is None:
        if len(_SETTINGS) >= _MAX_SETTINGS:
            _SETTINGS.clear()
        described = _describe(key[0], dict(zip(_NAMES, key[1:], strict=True)))
        # torch has several words for one setting: `none` and `ieee`.
        known = _SETTINGS[key] = next((other for other in _SETTINGS.values() if other == described), described)
    _LATEST[:] = key, known
    return known


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    """(device type, element type) of each kind of device for which autocast is on."""
    if not _is_any_autocast_enabled():
        return ()
    asked = ((device, autocast_dtype(device)) for device in _DEVICES)
    return tuple((device, dtype) for device, dtype in asked if dtype is not None)


def _describe(autocast: tuple[tuple[str, torch.dtype], ...], answers: Mapping[str, Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"autocast": {device: NAMES.get(dtype, str(dtype)) for device, dtype in autocast}}
    found |= {name: answers[name] for name in ("float32_matmul", "deterministic") if name in answers}
    for name, prefix in (
        ("reduced_f32", "f32_"),
        ("reduced_sums", "sums_"),
        ("cudnn", "cudnn_"),
        ("onednn", "onednn_"),
        ("attention", "sdp_"),
    ):
        asked = {key.removeprefix(prefix): answer for key, answer in answers.items() if key.startswith(prefix)}
        if asked:
            found[name] = sorted(key for key, answer in asked.items() if _is_on(answer))
    return found


def _question(name: str) -> _Question | None:
    """A function of torch's own that costs no more than a look; None where this torch has none."""
    found: Callable[..., Any] | None = getattr(torch._C, name, None)
    return None if found is None else (found, "")


def _fp32(backend: str, operation: str) -> _Question | None:
    """Asks in how many bits products of f32 are computed there, in the newer of torch's two vocabularies."""
    found: Callable[..., Any] | None = getattr(torch._C, "_get_fp32_precision_getter", None)
    return None if found is None else (found, f"{backend!r}, {operation!r}")


def float32_matmul() -> str | None:
    """torch's `float32_matmul_precision`. None: its newer switches (`fp32_precision`) contradict it, torch refuses to answer."""
    try:
        return _ask_float32_matmul()
    except RuntimeError:
        return None


def _is_on(answer: Any) -> bool:
    """Of a flag, of (allowed, also by splitting the sum), of `ieee`, `tf32`, `bf16` or `none`."""
    if isinstance(answer, str):
        return answer in ("tf32", "bf16")
    return bool(answer[0] if isinstance(answer, tuple) else answer)


def _questions() -> dict[str, _Question]:
    """Name of an entry to the question that answers it. What only a GPU listens to is asked where there is one."""
    found: dict[str, _Question | None] = {
        "float32_matmul": (_ask_float32_matmul, ""),
        "deterministic": _question("_get_deterministic_algorithms"),
        "sums_cpu_f16": _question("_get_cpu_allow_fp16_reduced_precision_reduction"),
        "onednn_enabled": _question("_get_mkldnn_enabled"),
        "f32_onednn_matmul": _fp32("mkldnn", "matmul"),
        "f32_onednn_convolution": _fp32("mkldnn", "conv"),
        "sdp_flash": _question("_get_flash_sdp_enabled"),
        "sdp_math": _question("_get_math_sdp_enabled"),
        "sdp_math_reduced_sums": _question("_get_math_sdp_allow_fp16_bf16_reduction"),
    }
    if torch.cuda.is_available():
        found |= {
            "f32_matmul": _fp32("cuda", "matmul") or _question("_get_cublas_allow_tf32"),
            "f32_convolution": _fp32("cuda", "conv") or _question("_get_cudnn_allow_tf32"),
            "f32_rnn": _fp32("cuda", "rnn"),
            "sums_f16": _question("_get_cublas_allow_fp16_reduced_precision_reduction"),
            "sums_bf16": _question("_get_cublas_allow_bf16_reduced_precision_reduction"),
            "sums_f16_accumulation": _question("_get_cublas_allow_fp16_accumulation"),
            "cudnn_enabled": _question("_get_cudnn_enabled"),
            "cudnn_benchmark": _question("_get_cudnn_benchmark"),
            "cudnn_deterministic": _question("_get_cudnn_deterministic"),
            "sdp_efficient": _question("_get_mem_efficient_sdp_enabled"),
            "sdp_cudnn": _question("_get_cudnn_sdp_enabled"),
        }
    return {name: ask for name, ask in found.items() if ask is not None}


def _devices() -> tuple[str, ...]:
    """The kinds of devices that are asked, among them another vendor's (`npu`), by the name that its package has given itself."""
    own = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone")()
    named = [own if device == "privateuseone" else device for device in autocast_devices()]
    return tuple(device for device in named if device == "cpu" or hasattr(torch, device))


_ask_float32_matmul: Callable[[], str] = torch._C._get_float32_matmul_precision
_is_any_autocast_enabled: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_DEVICES = _devices()
_ASKED = _questions()
_NAMES = tuple(_ASKED)


def _asking(instead: Mapping[Any, Any]) -> Callable[[], tuple[Any, ...]]:
    """One function that asks all: written out, so that nothing is looked up or looped over between the answers.

    `instead`: functions that are asked in the place of others.
    """
    given: dict[str, Any] = {f"ask{i}": instead.get(ask, ask) for i, (ask, _) in enumerate(_ASKED.values())}
    asked = ", ".join(f"{name}({words})" for name, (_, words) in zip(given, _ASKED.values(), strict=True))
    given |= {"_autocast": _autocast, "is_any": _is_any_autocast_enabled}
    found: Callable[[], tuple[Any, ...]] = eval(f"lambda: (_autocast() if is_any() else (), {asked})", given)
    return found


_ask = _asking({})
_ask_carefully = _asking({_ask_float32_matmul: float32_matmul})
