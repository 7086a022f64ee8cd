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
from ...store.npy import Npy


def read_values(folder: Path, name: str, meant: str | None = None) -> tuple[np.ndarray[Any, Any], str]:
    """The array in its storage type, and the name of its element type. TraceError says what is wrong with the file.

    `meant` is what the dump says of the elements: bf16 lies as float32 in a .npy file.
    """
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise TraceFormatError(f"{folder}: {name!r} is not the name of a file in it.")
    path = folder / name
    if not path.is_file():
        raise TraceNotFoundError(f"{path}: the dump names this file, but it is not there.")
    if path.suffix == ".npy":
        file = Npy.of(path, meant)
        return file.values(), file.spec.dtype
    try:
        return api.read_tensor(path)
    except CheckpointError as error:
        raise TraceFormatError(str(error)) from None
