"""What tests ask of a dump's files, read as any JSON reader would: no code of ours between the test and the bytes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def document(directory: Path, name: str = "dump.json") -> Any:
    """A file's JSON; a name that occurs twice is a fault."""
    return json.loads((directory / name).read_text(), object_pairs_hook=_once)


def data(directory: Path) -> dict[str, Any]:
    """The records of dump.json."""
    return document(directory)["data"]


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, element) of every tensor in a record or a part of one."""
    if isinstance(value, dict) and "shape" in value:
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors(item, f"{path}.{key}" if path else str(key))


def array(directory: Path, element: dict[str, Any]) -> np.ndarray:
    """The values of an element's file; `.pt` is read by torch itself."""
    file = directory / "dump_tensor_data" / element["data_name"]
    if file.suffix == ".npy":
        return np.load(file, allow_pickle=False)
    import torch

    return torch.load(file, weights_only=True)


def listing(directory: Path) -> set[str]:
    """The names in a directory."""
    return {path.name for path in directory.iterdir()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"said twice: {sorted({name for name in names if names.count(name) > 1})}"
    return dict(pairs)
