"""Tensors that are made of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .registry import TYPES, Result, kernel, tensor_of


@kernel("zeros")
def _zeros(size: Sequence[int], dtype: str) -> Result:
    return torch.zeros(tuple(size), dtype=TYPES[dtype])


@kernel("ones")
def _ones(size: Sequence[int], dtype: str) -> Result:
    return torch.ones(tuple(size), dtype=TYPES[dtype])


@kernel("full")
def _full(size: Sequence[int], fill_value: Any, dtype: str) -> Result:
    return tensor_of(fill_value).to(TYPES[dtype]).expand(tuple(size)).clone()


@kernel("arange")
def _arange(start: Any, end: Any, step: Any, dtype: str) -> Result:
    return torch.arange(start, end, step, dtype=TYPES[dtype])


@kernel("linspace")
def _linspace(start: Any, end: Any, steps: int, dtype: str) -> Result:
    return torch.linspace(start, end, steps, dtype=TYPES[dtype])


@kernel("eye")
def _eye(n: int, m: int, dtype: str) -> Result:
    return torch.eye(n, m, dtype=TYPES[dtype])


@kernel("tensor")
def _tensor(data: Any, dtype: str) -> Result:
    return torch.tensor(data, dtype=TYPES[dtype])
