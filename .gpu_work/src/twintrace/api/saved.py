"""One tensor in one file, as `torch.save(tensor, path)` writes it: dumps have thousands, and need nothing else of the weights.

read_tensor(path)            the array in its storage type, and its element type
write_tensor(file, spec, b)  where in the file the bytes begin
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import CheckpointError
from ..weights.pth import read_tensor as _read_tensor
from ..weights.pth import write_one as write_tensor

__all__ = ["read_tensor", "write_tensor"]


def read_tensor(path: str | os.PathLike[str]) -> tuple[np.ndarray[Any, Any], str]:
    """The one tensor that `torch.save(tensor, path)` wrote: the array in its storage type, and its element type.

    Without torch, and without running anything that is in the file. CheckpointError says what is wrong with it.
    """
    try:
        return _read_tensor(Path(path))
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)}: cannot be read ({error.strerror}).") from None
