"""The values of one tensor: a .npy file, or a .pt file without torch and without running what is in it.

read_values(folder, "Functional.linear.0.forward.input.0.npy")     (array, "f32")
read_values(folder, "Functional.linear.0.forward.input.0.pt")      (array, "bf16"): held as uint16
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ... import api
from ...model.errors import CheckpointError, TraceFormatError, TraceNotFoundError
from ...store.arrays import STORAGE

_DTYPES = {
    np.dtype(code): name
    for name, code in STORAGE.items()
    if name in ("f64", "f32", "f16", "c64", "c128", "b8") or name[0] in "iu"
}


def read_values(folder: Path, name: str) -> tuple[np.ndarray[Any, Any], str]:
    """The array in its storage type, and the name of its element type. TraceError says what is wrong with the file."""
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise TraceFormatError(f"{folder}: {name!r} is not the name of a file in it.")
    path = folder / name
    if not path.is_file():
        raise TraceNotFoundError(f"{path}: the dump names this file, but it is not there.")
    if path.suffix == ".npy":
        return _npy(path)
    try:
        return api.read_tensor(path)
    except CheckpointError as error:
        raise TraceFormatError(str(error)) from None


def _npy(path: Path) -> tuple[np.ndarray[Any, Any], str]:
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # noqa: BLE001 - a hostile header may raise anything, and all of it means the same
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        found = "it is empty" if not path.stat().st_size else text
        raise TraceFormatError(f"{path}: not an array that can be read ({found}). Record again.") from None
    dtype = _DTYPES.get(array.dtype.newbyteorder("="))
    if dtype is None:
        raise TraceFormatError(f"{path}: expected numbers, got {array.dtype}.")
    return np.ascontiguousarray(array, STORAGE[dtype]).reshape(array.shape), dtype
