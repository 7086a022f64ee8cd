"""Open a weights file, whatever its format; write one, completely or not at all.

    open_checkpoint("net.pth")                          a state dict of PyTorch's
    open_checkpoint("net.ckpt")                         MindSpore's own
    open_checkpoint("model.safetensors")                either's
    open_checkpoint("model.safetensors.index.json")     in shards; a folder that has one such file will do

    with writing("out.ckpt", specs) as out:             the format follows the name; out.safetensors.index.json: in shards
        for name in specs: out.put(name, blocks)        in the order of `specs`

The first bytes of a file decide what it is; its name decides only how it is written. A file is written under another name
beside its place and takes its place when it is complete: whoever looks sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..model.errors import CheckpointError, UsageError
from ..model.tensors import Spec
from ..store.appending import replaced
from ..store.arrays import nbytes
from . import ckpt, pth, safetensors
from .extents import Checkpoint, Stored, copy_extent, read_extent

WRITABLE = {".ckpt": "ckpt", ".safetensors": "safetensors", ".pth": "pth", ".pt": "pth", ".bin": "pth"}
SHARD = 5 * 10**9
"""Bytes in one file of a checkpoint that is written in shards."""
INDEX = ".safetensors.index.json"
FRAMEWORKS = {"ckpt": "mindspore", "pth": "torch"}


def open_checkpoint(path: str | os.PathLike[str], *, key: str | None = None) -> Checkpoint:
    """The index of a checkpoint. Tensors are read when they are asked for."""
    where = Path(path)
    if where.is_dir():
        where = _in_folder(where)
    try:
        with where.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        raise CheckpointError(f"{where}: there is no such file.") from None
    except OSError as error:
        raise CheckpointError(f"{where}: cannot be read ({error.strerror}).") from None
    if not head:
        raise CheckpointError(f"{where}: is empty. Expected a .pth, .ckpt or .safetensors file.")
    if where.suffix == ".json":
        return _sharded(where)
    if pth.is_zip(head) or pth.is_legacy(head):
        return pth.read(where, key=key)
    if key is not None:
        raise UsageError(f"{where}: key={key!r} is for .pth files that hold several state dicts; this is none.")
    return safetensors.read(where) if safetensors.is_safetensors(head, where.suffix) else ckpt.read(where)


def _in_folder(folder: Path) -> Path:
    for pattern in ("*.index.json", "*.safetensors", "*.ckpt", "*.pth", "*.bin"):
        files = sorted(folder.glob(pattern))
        if len(files) == 1:
            return files[0]
        if files:
            raise CheckpointError(f"{folder}: has {len(files)} files {pattern}, first {files[0].name}. Name the one.")
    raise CheckpointError(f"{folder}: has no checkpoint in it (.index.json, .safetensors, .ckpt, .pth, .bin).")


def _sharded(path: Path) -> Checkpoint:
    try:
        where = json.loads(path.read_bytes())["weight_map"]
        shards = dict.fromkeys(where.values())
        if not all(
            isinstance(shard, str) and Path(shard).name == shard and not shard.endswith(".json") for shard in shards
        ):
            raise ValueError("a shard must be a checkpoint beside the index")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: is no index of shards ({type(error).__name__}: {error}).") from None
    opened = {shard: open_checkpoint(path.parent / shard) for shard in shards}
    stored: dict[str, Stored] = {}
    for name, shard in where.items():
        if name not in opened[shard].stored:
            raise CheckpointError(f"{path}: {name} should be in {shard}, and is not. A shard of another checkpoint?")
        stored[name] = opened[shard].stored[name]
    first = next(iter(opened.values()), None)
    extra = [name for shard in opened.values() for name in shard.stored if name not in stored]
    notes = [f"in a shard, but not in the index: {', '.join(extra[:4])}"] if extra else []
    metadata = first.metadata if first else {}
    return Checkpoint(
        str(path), first.format if first else "safetensors", stored, notes=tuple(notes), metadata=metadata
    )


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file of this name is written in."""
    suffix = Path(path).suffix.lower()
    if os.fspath(path).endswith(INDEX):
        return "shards"
    if suffix not in WRITABLE:
        raise UsageError(
            f"{os.fspath(path)}: expected a name that ends in {', '.join(WRITABLE)}, got {suffix or 'no ending'}."
        )
    return WRITABLE[suffix]


class Writing(Protocol):
    """A checkpoint on its way to disk."""

    def put(self, name: str, blocks: Iterable[Any]) -> None:
        """The bytes of the next tensor."""

    def copy(self, name: str, source: Checkpoint, of: str) -> None:
        """The next tensor is tensor `of` of another file, byte for byte. Its checksum, where it has one, is checked."""


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], specs: Mapping[str, Spec], *, framework: str = "") -> Iterator[Writing]:
    """Write a checkpoint of these tensors. It is there when the block has ended, and not at all if it raised.

    `framework` ("torch", "mindspore") is the origin that a .safetensors file states; the other formats are their own.
    """
    where = Path(path)
    kind = format_of(where)
    if where.is_dir():
        raise UsageError(f"{where}: is a directory; expected the name of a file.")
    if kind == "shards":
        with _shards(where, specs, framework) as shards:
            yield shards
        return
    with replacing(where) as file:
        if kind == "pth":
            writer: _Writer = _Pth(file, specs, where)
        elif kind == "ckpt":
            writer = _Plain(file, specs, where, ckpt.write(file, specs, where))
        else:
            origin = {"torch": "pt", "mindspore": "ms"}.get(framework)
            safetensors.write_header(file, specs, {"format": origin} if origin else {}, where)
            writer = _Plain(file, specs, where, (nbytes(spec) for spec in specs.values()))
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()


@contextlib.contextmanager
def _shards(path: Path, specs: Mapping[str, Spec], framework: str) -> Iterator[Writing]:
    """Files of at most SHARD bytes (or one tensor), and an index, which is written last: without it nothing is there."""
    parts: list[dict[str, Spec]] = [{}]
    size = 0
    for name, spec in specs.items():
        if parts[-1] and size + nbytes(spec) > SHARD:
            parts.append({})
            size = 0
        parts[-1][name] = spec
        size += nbytes(spec)
    stem = path.name.removesuffix(INDEX)
    files = [path.with_name(f"{stem}-{at + 1:05}-of-{len(parts):05}.safetensors") for at in range(len(parts))]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(writing(*item, framework=framework)) for item in zip(files, parts, strict=True)]
        yield _Shards({name: writer for part, writer in zip(parts, writers, strict=True) for name in part})
    weight_map = {name: file.name for file, part in zip(files, parts, strict=True) for name in part}
    total = sum(nbytes(spec) for spec in specs.values())
    with replacing(path) as file:
        file.write(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1).encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when the block has ended without an error; otherwise nothing has changed.

    It is not forced onto the disk (for a gigabyte that takes longer than everything else): it survives the process, as any file
    does, and a power failure as much as any other file does.
    """
    try:
        with replaced(path, mode=0o666) as file:
            yield file
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
            raise CheckpointError(f"{path}: there is no folder {path.parent}. Make it first.") from None
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error}). Nothing was changed.") from error


class _Shards:
    """Each tensor goes to its own file."""

    def __init__(self, writers: Mapping[str, Writing]) -> None:
        self._writers = writers

    def put(self, name: str, blocks: Iterable[Any]) -> None:
        self._writers[name].put(name, blocks)

    def copy(self, name: str, source: Checkpoint, of: str) -> None:
        self._writers[name].copy(name, source, of)


class _Writer:
    """Checks that tensors come as they were announced."""

    def __init__(self, specs: Mapping[str, Spec], path: Path) -> None:
        self._specs, self._path = specs, path
        self._due = iter(specs)

    def put(self, name: str, blocks: Iterable[Any]) -> None:
        self._begin(name)
        self._end(name, self._put(blocks))

    def copy(self, name: str, source: Checkpoint, of: str) -> None:
        self.put(name, source.blocks(of))

    def finish(self) -> None:
        missing = next(self._due, None)
        if missing is not None:
            raise UsageError(f"{self._path}: {missing} was announced and never put.")

    def close(self) -> None:
        """Let go of the file, complete or not."""

    def _begin(self, name: str) -> None:
        due = next(self._due, None)
        if due != name:
            raise UsageError(f"{self._path}: {name} is put where {due} is due.")

    def _end(self, name: str, count: int) -> None:
        if count != nbytes(self._specs[name]):
            raise CheckpointError(
                f"{self._path}: {name} is {self._specs[name]}, but {count} bytes came. Nothing was changed."
            )

    def _put(self, blocks: Iterable[Any]) -> int:
        raise NotImplementedError


class _Plain(_Writer):
    """A format in which a tensor's bytes stand in the file as they are: the system can copy them by itself.

    `rooms` writes the header of each stretch of bytes, and yields how many there is room for.
    """

    def __init__(self, file: BinaryIO, specs: Mapping[str, Spec], path: Path, rooms: Iterator[int]) -> None:
        super().__init__(specs, path)
        self._file, self._rooms = file, rooms

    def copy(self, name: str, source: Checkpoint, of: str) -> None:
        stored = source.stored[of]
        if stored.strides is not None or nbytes(self._specs[name]) > ckpt.SLICE:
            self.put(name, source.blocks(of))
            return
        self._begin(name)
        next(self._rooms, 0)
        # The checksum is computed while the system copies; neither holds the interpreter.
        with ThreadPoolExecutor(1) as beside:
            verified = beside.submit(source.verify, of)
            for extent in stored.extents:
                if not copy_extent(extent, self._file):
                    for block in read_extent(extent, of):
                        self._file.write(block)
            verified.result()
        self._end(name, sum(extent.nbytes for extent in stored.extents))

    def _put(self, blocks: Iterable[Any]) -> int:
        room, total = next(self._rooms, 0), 0
        for block in blocks:
            view = memoryview(block)
            while len(view):
                room = room or next(self._rooms, 0)
                if not room:
                    return total + len(view)  # more than was announced, which `put` will say
                taken = self._file.write(view[:room])
                total, room, view = total + taken, room - taken, view[taken:]
        return total


class _Pth(_Writer):
    def __init__(self, file: BinaryIO, specs: Mapping[str, Spec], path: Path) -> None:
        super().__init__(specs, path)
        self._order = pth.write(file, specs)

    def _put(self, blocks: Iterable[Any]) -> int:
        _, entry = next(self._order)
        return sum(entry.write(block) for block in blocks)

    def finish(self) -> None:
        super().finish()
        for _ in self._order:  # writes the archive's directory
            pass

    def close(self) -> None:
        self._order.close()
