"""A trace on its way to another file system: written here first, and finished steps sent behind the run.

    uploader = Uploader(Path("…/uploads/a-0f3c…/rank0"), "s3://bucket/runs/a", rank=0)
    uploader.offer(3)              step 3 is whole on the local disk; a thread sends it
    left = uploader.finish()       waits for what is on its way; tells what could not be sent
    upload_trace(root)             sends what an ended, or killed, process has left

    …/rank0/rank0.uploads          one line for each file that has arrived; the first says where to

Of a step the journal is sent last: a reader there finds a step whole or not at all. Steps go in their order, because a folded
one refers to an earlier one. What fails is tried again, later and later, as long as the run goes on; nothing is removed here
before all of it has arrived.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.choices import Progress
from ..model.errors import SessionError, TraceExistsError, TraceNotFoundError, TraceWriteError, UsageError
from ..model.words import bytes_text, counted, error_text
from . import layout
from .lines import MAX_MANIFEST
from .manifests import document_of, remove_trace, shared, taken, unlike
from .recovery import recover
from .remote import RemotePath, remote_path

PATIENCE = 60.0
"""Seconds without a byte sent after which a recorder that is being closed waits no longer."""
PAUSE = 0.5
"""Seconds before the second attempt; each pause is twice as long as the one before, up to `LONGEST`."""
LONGEST = 60.0


@dataclass(frozen=True, slots=True)
class Remainder:
    """Files of a trace that have not arrived."""

    root: Path
    url: str
    files: int
    nbytes: int
    because: str = ""
    """The error of the last attempt."""

    def __str__(self) -> str:
        count = counted(self.files, "file")
        why = f" ({self.because})" if self.because else ""
        return (
            f"{count} of this run, {bytes_text(self.nbytes)}, could not be uploaded to {self.url}{why}. Nothing is lost: the trace "
            f"is in {self.root}. Send the rest with: twintrace upload {self.root}"
        )


def default_home() -> Path:
    """Folder of traces on their way, where the user names none. Not a cache: what lies here is nowhere else."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "twintrace" / "uploads"


def local_root(url: str, rank: int) -> Path:
    """Local folder of a rank's part of a trace that goes to `url`. Ranks are apart: each removes its own when it has arrived."""
    url = url.rstrip("/")
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in url.rpartition("/")[2])
    return default_home() / f"{name}-{digest}" / f"rank{rank}"


def waiting_traces() -> list[Path]:
    """Traces below the default folder that have files left to send."""
    home = default_home()
    roots = sorted(path.parent for path in home.glob(f"*/rank*/{layout.MANIFEST}")) if home.is_dir() else []
    return [root for root in roots if any(root.glob(f"rank*{layout.UPLOADS}"))]


class _Log:
    """The record of what has arrived: one file for each rank, locked while somebody sends."""

    def __init__(self, root: Path, rank: int) -> None:
        self.path = layout.uploads_path(root, rank)
        self.url = ""
        self.claimed = self.replaces = False
        self._arrived: dict[str, tuple[int, int]] = {}
        self._file: int | None = None
        with contextlib.suppress(FileNotFoundError):
            for line in self.path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):  # the last may be torn
                    self._take(json.loads(line))

    def open(self, url: str, *, replaces: bool = False) -> None:
        """Make it this process's own.

        Raises:
            SessionError: another process sends this trace.
            UsageError: it was on its way to somewhere else.
        """
        if self.url and self.url != url:
            raise UsageError(
                f"{self.path.parent} is on its way to {self.url}, not to {url}. Upload it there, or remove {self.path.name} first."
            )
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise SessionError(
                f"{self.path.parent} is being recorded or uploaded by another process. Wait for it to end."
            ) from None
        if not self.url:
            self._add({"to": url, "replaces": replaces})

    def claim(self) -> None:
        self._add({"claimed": True})

    def has(self, root: Path, name: str) -> bool:
        """True if the file has arrived, and has not been touched since."""
        return self._arrived.get(name) == _stamp(root / name)

    def arrived(self, name: str, stamp: tuple[int, int]) -> None:
        self._add({"file": name, "size": stamp[0], "time": stamp[1]})

    def steps(self) -> set[int]:
        """Steps whose journals have arrived."""
        return {step for name in self._arrived if (step := layout.step_of(name)) is not None}

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _add(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        os.write(self._file, json.dumps(line).encode() + b"\n")
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        self.url = line.get("to", self.url)
        self.replaces = line.get("replaces", self.replaces)
        self.claimed = line.get("claimed", self.claimed)
        if "file" in line:
            self._arrived[line["file"]] = line["size"], line["time"]


class Uploader:
    """Sends the finished steps of one rank behind its recorder.

    Raises:
        TraceExistsError: another trace is there already.
        MissingPackageError, UsageError: nobody here can reach such an address.
    """

    def __init__(
        self,
        root: Path,
        url: str,
        *,
        rank: int,
        world: int,
        overwrite: bool = False,
        resume: bool = False,
        keep: bool = True,
    ) -> None:
        self.root, self.url = root, url.rstrip("/")
        self._rank, self._world = rank, world
        self._keep, self._resume = keep, resume
        self._replaces = overwrite and world == 1  # of several ranks none may remove what another has just sent
        self._there = remote_path(url)
        self.steps_there: frozenset[int] = frozenset(_Log(root, rank).steps())
        """Steps that this rank has at the address already, as far as is known."""
        self.trouble: str = ""
        """Why nothing arrives at present."""
        self._log: _Log | None = None
        self._queue: deque[str] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = self._given_up = False
        self._refused: TraceExistsError | None = None
        self._progress = time.monotonic()
        self._look()

    def _look(self) -> None:
        """Refuse a place that is taken, before anything is written here. One that does not answer is looked at again later."""
        if not self._keep and not self._resume and (self.root / layout.MANIFEST).exists():
            if not self._replaces:
                raise TraceExistsError(
                    f"{self.root} holds what an earlier run has not uploaded to {self.url}. Send it with `twintrace upload "
                    f"{self.root}`, go on in it with resume=True, or choose another address."
                )
            remove_trace(self.root)
        try:
            manifest = _manifest_of(self._there)
            steps = _steps_of(self._there, self._rank) if manifest is not None else frozenset()
        except TraceNotFoundError as error:
            self.trouble = str(error)
            return
        if manifest is None:
            return
        if self._resume:
            self.steps_there |= steps
            if not (self.root / layout.MANIFEST).exists():  # recorded so far by another machine
                self.root.mkdir(parents=True, exist_ok=True)
                (self.root / layout.MANIFEST).write_bytes(manifest)
        elif not self._replaces and (self._world == 1 or steps):
            raise taken(self.url, self._world)

    def start(self) -> None:
        """Begin, once the local trace is there. Steps that are whole in it, from a run that is resumed, go first."""
        self._log = _Log(self.root, self._rank)
        self._log.open(self.url, replaces=self._replaces)
        self._offer(self._left())

    def offer(self, step: int) -> None:
        """Send a step that is whole on the local disk."""
        self._offer(_files_of(self.root, step, self._rank))

    def _offer(self, names: Collection[str]) -> None:
        with self._changed:
            self._queue.extend(names)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="twintrace-upload", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, patience: float | None = None) -> Remainder | None:
        """Wait for what is on its way, as long as something arrives; the rest, or None where all of it is there.

        Where the local folder was not the user's choice it is removed then.

        Args:
            patience: seconds without progress after which no more is waited for; `PATIENCE` if None.
        """
        wait = PATIENCE if patience is None else patience
        with self._changed:
            thread = self._thread
            self._closing, self._progress = True, time.monotonic()
            self._changed.notify_all()
            try:
                while thread is not None and thread.is_alive() and time.monotonic() - self._progress <= wait:
                    self._changed.wait(0.1)
            finally:
                self._given_up = True
                self._changed.notify_all()
        if thread is not None:
            thread.join(timeout=1.0)  # it may hang in a request; what it still sends is in the log
        return self._settle()

    def abandon(self) -> None:
        """In a forked child: the parent sends."""
        self._changed, self._thread, self._given_up = threading.Condition(), None, True
        self._queue.clear()
        if self._log is not None:
            self._log.close()

    def _settle(self) -> Remainder | None:
        assert self._log is not None
        left, rest = self._left(), None
        if left or self._refused is not None:
            nbytes = sum((self.root / name).stat().st_size for name in left)
            rest = Remainder(self.root, self.url, len(left), nbytes, str(self._refused or self.trouble))
        if self._thread is None or not self._thread.is_alive():
            self._log.close()
        if rest is None and not self._keep:
            _remove(self.root)
        return rest

    def _left(self) -> list[str]:
        assert self._log is not None
        return [name for name in _all_files(self.root, self._rank) if not self._log.has(self.root, name)]

    def _run(self) -> None:
        try:
            self._send_all()
        finally:
            with self._changed:
                if self._given_up and self._log is not None:  # nobody waits for this thread any more
                    self._log.close()

    def _send_all(self) -> None:
        failures = 0
        while (name := self._next()) is not None:
            try:
                self._send(name)
            except TraceExistsError as error:
                self._refused, self.trouble = error, str(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever a file system raises: it is tried again, and the run goes on
                self.trouble = error_text(error)
                self._pause(min(PAUSE * 2**failures, LONGEST))
                failures += 1
            else:
                failures, self.trouble = 0, ""
                with self._changed:
                    self._queue.popleft()
                    self._changed.notify_all()

    def _next(self) -> str | None:
        """The next file; None where no more come, or nobody waits any longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            return None if self._given_up or not self._queue else self._queue[0]

    def _pause(self, seconds: float) -> None:
        with self._changed:
            # The recorder is being closed: it has its own patience, which long pauses would use up.
            seconds = min(seconds, 1.0) if self._closing else seconds
            closing = self._closing
            self._changed.wait_for(lambda: self._given_up or self._closing is not closing, timeout=seconds)

    def _send(self, name: str) -> None:
        assert self._log is not None
        if not self._log.claimed:
            # Steps that could not be seen when the recorder began may have the numbers of those that it has recorded since.
            known = self.steps_there if self._resume else None
            _claim(self._there, self.root, self._log, rank=self._rank, known=known)
        _send(self._there, self.root, name, self._log, self._sent)

    def _sent(self, nbytes: int) -> None:
        self._progress = time.monotonic()


def upload_trace(
    root: Path, url: str | None = None, *, resume: bool = False, tell: Progress | None = None
) -> Remainder | None:
    """Send what has not arrived yet of a trace that nobody records any more.

    Args:
        root: its folder.
        url: where to; may be left out where that was said when it was recorded.
        resume: there may be earlier steps of this run there.
        tell: told of each file.

    Returns:
        What could not be sent; None where all of it is there.

    Raises:
        TraceNotFoundError: no trace of ours at `root`.
        UsageError: nobody said where to.
        TraceExistsError: another trace is there.
        SessionError: it is still being recorded.
    """
    if _manifest_of(root) is None:
        raise TraceNotFoundError(f"{root} is not a trace: it has no {layout.MANIFEST}. Give the folder that holds it.")
    ranks = sorted({rank for _, rank in layout.journals(root)} | set(_ranks_on_the_way(root)))
    names = {rank: _all_files(root, rank) for rank in ranks}
    done, total = 0, sum(map(len, names.values()))
    for number, rank in enumerate(ranks):
        log = _Log(root, rank)
        where = (url or log.url).rstrip("/")
        if not where:
            raise UsageError(f"{root}: nothing says where to. Give the address: twintrace upload {root} s3://bucket/…")
        there = remote_path(where)
        log.open(where)
        try:
            recover(root, rank)
            names[rank] = _all_files(root, rank)
            if not log.claimed:
                own = {step for step, other in layout.journals(root) if other == rank}
                _claim(there, root, log, rank=rank, known=_steps_of(there, rank) - own if resume else None)
            for name in names[rank]:
                if tell is not None:
                    tell(name, done, total)
                if not log.has(root, name):
                    _send_again(there, root, name, log)
                done += 1
        except (TraceWriteError, TraceNotFoundError) as error:
            left = [(r, n) for r in ranks[number:] for n in names[r] if not _Log(root, r).has(root, n)]
            nbytes = sum((root / name).stat().st_size for _, name in left)
            return Remainder(root, where, len(left), nbytes, str(error))
        finally:
            log.close()
    if tell is not None:
        tell("", total, total)
    if root.is_relative_to(default_home()):
        _remove(root)
    return None


def _send_again(there: RemotePath, root: Path, name: str, log: _Log) -> None:
    """Send a file, several times where the connection is cut."""
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE, None):
        try:
            return _send(there, root, name, log, lambda nbytes: None)
        except Exception as error:
            if pause is None:
                raise TraceWriteError(f"{there}/{name}: {error_text(error)}") from error
            time.sleep(pause)


def _send(there: RemotePath, root: Path, name: str, log: _Log, sent: Callable[[int], None]) -> None:
    file = root / name
    stamp = _stamp(file)
    target = there
    for part in name.split("/"):
        target = target / part
    target.put(file, sent)
    size = target.stat().st_size
    if size != stamp[0]:
        raise OSError(f"{target} has {size} bytes after {stamp[0]} were sent")
    sent(0)
    log.arrived(name, stamp)


def _claim(there: RemotePath, root: Path, log: _Log, *, rank: int, known: frozenset[int] | None) -> None:
    """Make a place this trace's own, or join the ranks that are there.

    Args:
        there: the place.
        root: the local trace.
        log: of what has arrived.
        rank: whose part of the trace it is.
        known: steps of this rank that may be there already, because the run is resumed; None if it is not.

    Raises:
        TraceExistsError: another trace is there.
    """
    mine = _manifest_of(root)
    assert mine is not None
    other = _manifest_of(there)
    if other is not None and log.replaces:
        # Remove an old trace, and only a trace; its manifest last, so that what is left by a cut is still one.
        names = there.files()
        strangers = [name for name in names if not layout.is_ours(tuple(name.split("/")), is_folder=False)]
        if strangers:
            raise shared(there, strangers)
        for name in sorted(names, key=lambda name: name == layout.MANIFEST):
            (there / name).remove()
        other = None
    if other is not None and other != mine:
        ours = document_of(mine)
        world = ours.get("world", 1)
        unknown = _steps_of(there, rank) - log.steps() - (known or frozenset())
        if unknown or unlike(ours, document_of(other)) or (world == 1 and known is None):
            raise taken(there, world)
        log.arrived(layout.MANIFEST, _stamp(root / layout.MANIFEST))  # the first that came has written it
    log.claim()


def _remove(root: Path) -> None:
    """Remove the local copy of what has arrived, and the folder of its run where no other rank's is left."""
    with contextlib.suppress(OSError, TraceExistsError):
        remove_trace(root)
        root.rmdir()
        root.parent.rmdir()


def _manifest_of(root: Path | RemotePath) -> bytes | None:
    if isinstance(root, RemotePath):
        root.refresh()
    file = root / layout.MANIFEST
    if not file.is_file():
        return None
    try:
        return file.read_bytes()[: MAX_MANIFEST + 1]
    except FileNotFoundError:
        return None


def _steps_of(there: RemotePath, rank: int) -> frozenset[int]:
    return frozenset(step for step, own in layout.journals(there) if own == rank)


def _ranks_on_the_way(root: Path) -> Iterator[int]:
    """Ranks that had begun, and have no journal yet; rank 0 where nobody had."""
    ranks = [
        int(path.name.removeprefix("rank").removesuffix(layout.UPLOADS)) for path in root.glob(f"rank*{layout.UPLOADS}")
    ]
    yield from ranks or ([] if layout.journals(root) else [0])


def _files_of(root: Path, step: int, rank: int) -> list[str]:
    """Files of a step, the journal last."""
    folder = layout.journal_dir(root, step, rank)
    names = (layout.NUMBERS, layout.PAYLOAD, layout.JOURNAL)
    return [(folder / name).relative_to(root).as_posix() for name in names if (folder / name).is_file()]


def _all_files(root: Path, rank: int) -> list[str]:
    steps = [step for step, own in layout.journals(root) if own == rank]
    return [layout.MANIFEST, *(name for step in steps for name in _files_of(root, step, rank))]


def _stamp(file: Path) -> tuple[int, int]:
    facts = file.stat()
    return facts.st_size, facts.st_mtime_ns
