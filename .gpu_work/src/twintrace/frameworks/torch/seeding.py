"""Seed torch, make it deterministic, take dropout out; each change with its undoing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_RAW_DROPOUTS = tuple(
    f"{family}dropout{end}" for family in ("", "feature_", "alpha_", "feature_alpha_") for end in ("", "_")
)
"""Torch's own, `torch.dropout(input, p, train)` and `torch.dropout_`, below those of nn.functional."""
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change torch's global state; the results undo it, to be called last first."""
    undo: list[Callable[[], None]] = []
    state = torch.get_rng_state()
    undo.append(lambda: torch.set_rng_state(state))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states = torch.cuda.get_rng_state_all()
        undo.append(lambda: torch.cuda.set_rng_state_all(states))
    torch.manual_seed(seed)
    if deterministic:
        undo.extend(_make_deterministic())
    if disable_dropout:
        undo.extend(without_dropout())
    return undo


def _make_deterministic() -> list[Callable[[], None]]:
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")

    def restore() -> None:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return [restore]


def without_dropout() -> list[Callable[[], None]]:
    """Every dropout becomes the identity: the functions, by whatever name they were imported, and the arguments of the fused ones.

    Of a function its code is replaced, not its name: `from torch.nn.functional import dropout` holds the function itself.
    """
    bodies = [(function, function.__code__) for function in (getattr(nn.functional, name) for name in _DROPOUTS)]
    attention = nn.functional.scaled_dot_product_attention
    raw = {name: getattr(torch, name) for name in _RAW_DROPOUTS}
    recurrent: Any = torch._VF
    cells = {name: vars(recurrent).get(name) for name in _RECURRENT}  # none is there: it looks them up elsewhere

    def attention_without(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *rest: Any, **more: Any
    ) -> Any:
        return attention(query, key, value, attn_mask, 0.0, *rest, **more)

    def recurrent_without(original: Any) -> Any:
        """The share that is dropped between layers is the only float among the arguments."""
        return lambda *args: original(*(0.0 if type(argument) is float else argument for argument in args))

    def restore() -> None:
        for function, body in bodies:
            function.__code__ = body
        nn.functional.scaled_dot_product_attention = attention
        for name, original in raw.items():
            setattr(torch, name, original)
        for name, before in cells.items():
            if before is None:
                delattr(recurrent, name)
            else:
                setattr(recurrent, name, before)

    for function, _ in bodies:
        function.__code__ = _identity.__code__
    nn.functional.scaled_dot_product_attention = attention_without
    for name in raw:
        setattr(torch, name, lambda input, p, train: input)
    for name in cells:
        setattr(recurrent, name, recurrent_without(getattr(recurrent, name)))
    return [restore]


def _identity(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return input
