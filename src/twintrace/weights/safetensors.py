"""safetensors files: one file, or shards with an index. PyTorch's and MindSpore's alike.

    8 bytes   n, little-endian
    n bytes   {"fc.weight": {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 24]}, …, "__metadata__": {"format": "pt"}}
    the rest  the tensors

The package of that name hands bf16 and fp8 out through torch only, or as types that numpy does not have; here bytes stay
bytes. The header is checked as the format's own rules say: no holes, no overlaps, nothing outside the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..model.errors import CheckpointError
from ..model.tensors import Spec
from ..store.arrays import nbytes
from .extents import Checkpoint, Extent, Stored, check

NAMES = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "C64": "c64",
    "F8_E4M3": "f8e4m3fn", "F8_E4M3FNUZ": "f8e4m3fnuz", "F8_E5M2": "f8e5m2", "F8_E5M2FNUZ": "f8e5m2fnuz",
    "F8_E8M0": "f8e8m0fnu", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64", "U8": "u8", "U16": "u16", "U32": "u32",
    "U64": "u64", "BOOL": "b8",
}  # fmt: skip
CODES = {ours: theirs for theirs, ours in NAMES.items()}
LONGEST_HEADER = 100_000_000  # the format's own limit


def is_safetensors(head: bytes, suffix: str) -> bool:
    """True if its first nine bytes look like it. A file that is called so is taken for one, unless it begins as a .ckpt does."""
    brace = head[8:9] == b"{"
    if suffix == ".safetensors" and (brace or head[:1] != b"\n"):
        return True
    return brace and 2 <= struct.unpack("<Q", head[:8])[0] <= LONGEST_HEADER


def read(path: Path) -> Checkpoint:
    """The index of one file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise CheckpointError(
                f"{path}: has {size} bytes; a .safetensors file begins with the 8 of its header's length."
            )
        length = struct.unpack("<Q", head)[0]
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise CheckpointError(
                f"{path}: by its bytes 0 to 7 the header has {length:,} bytes; expected 2 to {LONGEST_HEADER:,}, and no more than "
                f"the {size - 8:,} that follow. The file is damaged, or is no .safetensors file: get it again."
            )
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: the header is not JSON ({error}). The file is damaged.") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is not a JSON object. The file is damaged.")
    metadata = header.pop("__metadata__", None) or {}
    stored: dict[str, Stored] = {}
    sizes = {path: size}
    for name, entry in header.items():
        spec, (start, end) = _entry(path, name, entry)
        stored[name] = Stored(spec, (Extent(path, 8 + length + start, end - start),))
        check(path, name, stored[name], sizes)
    at = 8 + length
    for name, item in sorted(stored.items(), key=lambda pair: (pair[1].extents[0].offset, pair[1].extents[0].nbytes)):
        if item.extents[0].offset != at:
            raise CheckpointError(
                f"{path}: {name} begins at byte {item.extents[0].offset}, expected {at}. It is damaged."
            )
        at += item.extents[0].nbytes
    if at != size:
        raise CheckpointError(f"{path}: the tensors end at byte {at}, the file at {size}. It is damaged; get it again.")
    return Checkpoint(str(path), "safetensors", stored, metadata={str(k): str(v) for k, v in metadata.items()})


def _entry(path: Path, name: str, entry: Any) -> tuple[Spec, tuple[int, int]]:
    try:
        dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, start, end)):
            raise TypeError("a size that is none")
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the entry of {name} cannot be understood ({error}). It is damaged.") from None
    if dtype not in NAMES:
        raise CheckpointError(f"{path}: {name} has element type {dtype!r}; known are {', '.join(NAMES)}.")
    return Spec(NAMES[dtype], shape), (start, end)


def write_header(file: BinaryIO, specs: Mapping[str, Spec], metadata: Mapping[str, str], path: Path) -> None:
    """Write all but the tensors, whose bytes follow in the order of `specs`."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, spec in specs.items():
        if spec.dtype not in CODES:
            raise CheckpointError(
                f"{path}: safetensors has no element type {spec.dtype} ({name}: {spec}). Write a .pth file."
            )
        header[name] = {"dtype": CODES[spec.dtype], "shape": list(spec.shape), "data_offsets": [at, at + nbytes(spec)]}
        at += nbytes(spec)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
