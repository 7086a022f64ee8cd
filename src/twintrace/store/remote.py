"""Traces where they lie: paths of other file systems, through fsspec, as far as a reader or an upload asks for them.

    root = remote_path("s3://bucket/runs/a")
    (root / "manifest.json").read_bytes()       whole; what was cut off is asked for again
    (root / "payload.bin").piece(4096, 1024)    one range request: of tensors no more is read than is needed
    (root / "payload.bin").put(file, sent)      a local file is sent there, once: whoever sends knows when to try again

fsspec is imported when such a path is asked for, and not before; so is the package that it needs for the protocol.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar

from ..model.errors import MissingPackageError, TraceNotFoundError, UsageError

Value = TypeVar("Value")

ATTEMPTS = 4
"""Times that a request is made whose connection is cut."""
PAUSE = 0.1
"""Seconds before the second attempt; each pause is twice as long as the one before."""


def is_remote(path: object) -> bool:
    """True for the address of a place that fsspec is asked for: `s3://bucket/runs/a`."""
    return isinstance(path, str) and "://" in path


def remote_path(url: str) -> RemotePath:
    """The place of an address.

    Raises:
        MissingPackageError: fsspec, or the package that it needs for the protocol, is not installed.
        UsageError: nobody knows the protocol.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingPackageError(
            f"{url}: it is reached through fsspec, which is not installed. Run: pip install 'twintrace[remote]'"
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(
            f"{url}: fsspec needs another package for it ({error}). Run: pip install 'twintrace[remote]'"
        ) from error
    except ValueError as error:
        raise UsageError(f"{url}: {error}. Give a path, or an address that fsspec knows.") from None
    return RemotePath(system, path.rstrip("/"), url.rstrip("/"))


class RemotePath:
    """A path of a file system of fsspec, with what a reader asks of one."""

    def __init__(self, system: Any, path: str, url: str) -> None:
        self._system, self._path, self._url = system, path, url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self._system, f"{self._path}/{name}", f"{self._url}/{name}")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"<RemotePath {self._url}>"

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self._system, self._path.rpartition("/")[0], self._url.rpartition("/")[0])

    def exists(self) -> bool:
        return bool(self._asked(self._system.exists))

    def is_file(self) -> bool:
        return bool(self._asked(self._system.isfile))

    def stat(self) -> SimpleNamespace:
        """The size, as `os.stat` says it."""
        return SimpleNamespace(st_size=int(self._asked(self._system.info)["size"] or 0))

    def files(self) -> list[str]:
        """All files below, relative to here: one request, or a few, not one for each folder."""
        names = self._asked(self._system.find)
        return [path.removeprefix(self._path.lstrip("/")).lstrip("/") for path in (item.lstrip("/") for item in names)]

    def open(self, mode: str) -> IO[bytes]:
        opened: IO[bytes] = self._asked(lambda path: self._system.open(path, mode))
        return opened

    def read_bytes(self) -> bytes:
        data: bytes = self._asked(self._system.cat_file)
        return data

    def piece(self, offset: int, length: int) -> bytes:
        """A stretch of the file, by a range request; shorter where the file is."""
        ask = functools.partial(self._system.cat_file, start=offset, end=offset + length)
        data: bytes = self._asked(ask)
        return data

    def put(self, file: Path, sent: Callable[[int], None]) -> None:
        """Send a local file here. Whatever the file system raises is raised.

        Args:
            file: the local file.
            sent: told the number of bytes that have left, after each piece.
        """
        from fsspec.callbacks import Callback

        told = Callback(hooks={"sent": lambda size, value, **options: sent(value)})
        try:
            self._system.put_file(str(file), self._path, callback=told)
        except FileNotFoundError:
            # Some have folders, and want them made first. A bucket is not asked about without need: that may be forbidden.
            self._system.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            self._system.put_file(str(file), self._path, callback=told)
        self.refresh()

    def remove(self) -> None:
        """Remove the file."""
        self._asked(self._system.rm_file)
        self.refresh()

    def refresh(self) -> None:
        """Forget what was listed here: others write as well."""
        self._system.invalidate_cache(self._path.rpartition("/")[0])

    def _asked(self, function: Callable[[str], Value]) -> Value:
        """The answer to a request. Asked again where the connection is cut; what is not there stays so."""
        for pause in _pauses():
            try:
                return function(self._path)
            except (FileNotFoundError, PermissionError, NotImplementedError):
                raise
            except Exception as error:
                if pause is None:
                    raise TraceNotFoundError(
                        f"{self._url} cannot be read ({type(error).__name__}: {error})."
                    ) from error
                time.sleep(pause)
        raise AssertionError("unreachable")


def _pauses() -> Iterator[float | None]:
    """Seconds to wait after each attempt; None after the last."""
    for number in range(ATTEMPTS - 1):
        yield PAUSE * 2**number
    yield None
