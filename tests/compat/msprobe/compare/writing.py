"""Dumps written by hand: as little JSON as a test needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twintrace.compat.msprobe.dumps import Dump, open_dump


def tensor(*shape: int, seed: float = 1.0, dtype: str = "torch.float32") -> dict[str, Any]:
    """A tensor whose statistics are those of no tensor with another seed."""
    kind = "torch.Tensor" if dtype.startswith("torch") else "mindspore.Tensor"
    numbers = {"Max": 1.5 + seed, "Min": -0.25 - seed, "Mean": 0.125 * seed + 0.01, "Norm": 2.0 + math.sqrt(abs(seed))}
    return {"type": kind, "dtype": dtype, "shape": list(shape), **numbers}


def record(
    inputs: Sequence[Any], outputs: Sequence[Any], parameters: Mapping[str, Any] | None = None, **named: Any
) -> dict[str, Any]:
    """A forward record."""
    found: dict[str, Any] = {"input_args": list(inputs), "input_kwargs": named, "output": list(outputs)}
    return found if parameters is None else found | {"parameters": dict(parameters)}


def backward(inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """A backward record: gradients of the results, gradients of the arguments."""
    return {"input": list(inputs), "output": list(outputs)}


def write_dump(
    folder: Path,
    records: Mapping[str, Any],
    *,
    construct: Mapping[str, str | None] | None = None,
    framework: str = "pytorch",
    task: str = "statistics",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"task": task, "level": "mix", "framework": framework, "dump_data_dir": None, "data": dict(records)}
    (folder / "dump.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "construct.json").write_text(json.dumps(dict(construct or {})), encoding="utf-8")
    (folder / "stack.json").write_text(
        json.dumps({"0": [list(records), ["File net.py, line 3, in forward, \n y = f(x)"]]}), encoding="utf-8"
    )
    return folder / "dump.json"


def make_dump(folder: Path, records: Mapping[str, Any], **options: Any) -> Dump:
    return open_dump(write_dump(folder, records, **options))
