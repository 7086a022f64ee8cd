"""Begin a recording: options are checked and handed to `collect`.

record("runs/a", net, level="mix")     -> Recorder
modules_of(net)                        whose model it is, and its modules by the paths that a record gives them
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..collect import selfcheck as _selfcheck
from ..collect.models import framework_for, named_models
from ..collect.selection import Selection
from ..collect.selfcheck import choose
from ..collect.session import Session
from ..collect.watching import NonfiniteWatch
from ..frameworks.protocol import Capability
from ..model.errors import UsageError
from ..model.records import Keep, Level
from ..model.sites import Site
from ..model.words import KeepName, LevelName, dotted
from ..model.zoom import Zoom
from ..store.remote import is_remote
from ..store.trace import Trace
from ..store.uploading import Uploader, local_root
from ..store.writer import Writer
from .diagnosing import judge_steps
from .lockstep import lockstep_with
from .zooming import read_zoom

Recorder = Session
"""Class of the result of `record`."""


def record(
    path: str | os.PathLike[str],
    model: Any = None,
    *,
    level: LevelName = "mix",
    keep: KeepName = "fingerprint",
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    names: Sequence[str] | None = None,
    between: tuple[str, str] | None = None,
    forward_only: bool = False,
    inputs_only: bool = False,
    flow_only: bool = False,
    first: int | None = None,
    predicate: Callable[[Site], bool] | None = None,
    framework: str | None = None,
    buffer: int | str = "64 MB",
    device_buffer: int | str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    eager: bool = False,
    writer: Writer | None = None,
    kernels: bool = False,
    stop_on_nonfinite: bool | str = False,
    zoom: str | os.PathLike[str] | Zoom | None = None,
    against: Trace | str | os.PathLike[str] | None = None,
    on_difference: str = "stop",
    local: str | os.PathLike[str] | None = None,
) -> Recorder:
    """Begin the recording of a run, into the directory `path`.

        with tt.record("runs/a", net, keep="tensor") as rec:
            for batch in data:
                train(batch)
                rec.step()

    Args:
        path: directory of the trace. It must not hold another one, unless `overwrite` or `resume` says what to do with it. An
            address that fsspec knows (`s3://bucket/runs/a`) is written to a local directory first, and uploaded behind the run.
        model: a module, a list of modules, or a dict of them by name; may be left out at the levels api and op, and be {}
            where modules are named while it records (`Recorder.rename`).
        level: "module"; "api": functions, methods, operators, collectives, optimizer steps; "mix": both; "op": the kernels below.
        keep: "statistics": seven numbers of each tensor; "fingerprint": those and 128 bits of its bytes; "tensor": every
            value as well.
        steps: numbers of the steps to record; all if None.
        ranks: numbers of the ranks to record; all if None.
        names: only calls that fit one of these: glob patterns, or regular expressions after "re:".
        between: (from, to): only a range of module paths.
        forward_only: no gradients.
        inputs_only: no results.
        flow_only: arguments, results and the gradients of results; no parameters, no other gradients.
        first: only the first so many calls of each name.
        predicate: decides for each `Site` whether it is recorded.
        framework: "torch", "mindspore" or "msadapter"; needed only if no model is given and several are imported.
        buffer: bytes that may be on their way to disk before the recorder waits: a number, or a text such as "64 MB".
        device_buffer: memory of a device that may be held for tensors which wait to be read; None: 1 GiB or 2 % of the
            device's, whichever is more; 0: each is read at once.
        strict: raise errors of the recorder. Otherwise each is warned about once, noted in the trace, and training goes on.
        overwrite: replace an old trace at `path`.
        resume: go on in the trace at `path`, if there is one of the same kind: its steps stay, and the first new one is the
            one after the last, or `rec.step(n)`.
        eager: run compiled code (torch.compile; MindSpore's @jit, GRAPH_MODE) call by call while recording.
        writer: writes the record in another tool's format, to a file of its own; nothing is written to `path` then.
        kernels: have the framework dump the kernels of compiled graphs, and take them into the trace (MindSpore).
        stop_on_nonfinite: watch for NaN and infinities: keep the values around the place where they arise, tell, and stop
            recording with the step; "raise": raise NonfiniteError at its end. Masks of -inf and what else has no effect do
            not count.
        zoom: a file of `twintrace zoom`, or the result of `tt.zoom`: its steps, ranks, level and calls, with every value,
            whatever is said here of level, keep, steps, ranks, names, between, first and predicate.
        against: the trace of another run, recorded alike: each call is compared with it by fingerprint while this one runs.
            At the first difference that has an effect it is told, and the values around it are kept.
        on_difference: "stop": recording ends with the step that differs, and the run goes on; "raise": DifferenceError at its end.
        local: where a trace is written that is uploaded: it stays there. If None, below ~/.local/state/twintrace/uploads, and
            removed when all of it has arrived.

    Returns:
        A recorder: use it with `with`, or call its `start`, `step`, `stop` and `close` yourself.

    Raises:
        UsageError: options that contradict each other, an unknown level or keep, or something that the framework cannot do.
        TraceExistsError: there is something at `path` already.
        TraceWriteError: nothing can be written there.
        MissingPackageError: the framework is not installed.
    """
    url = path if isinstance(path, str) and is_remote(path) else None
    where = None if url is not None and local is None else _place(path if local is None else local)
    if url is None and local is not None:
        raise UsageError(f"local={os.fspath(local)!r}: {path!r} is local already. Leave it out, or give an address.")
    if url is not None and writer is not None:
        raise UsageError("writer writes a local file of its own: leave it out, or give a local path.")
    close_up = zoom if zoom is None or isinstance(zoom, Zoom) else read_zoom(zoom)
    if close_up is not None:
        whose = framework_for(named_models(model), framework).name
        chosen_level, keep, steps, ranks = Level(close_up.level(whose)), "tensor", close_up.steps, close_up.ranks
        names, between, first, predicate = None, None, None, functools.partial(close_up.wants, whose)
    else:
        chosen_level = choose(Level, "level", level)
    chosen_keep = choose(Keep, "keep", keep)
    selection = Selection(
        steps=steps, ranks=ranks, names=names, between=between, forward_only=forward_only, inputs_only=inputs_only,
        flow_only=flow_only, first=first, predicate=predicate,
    )  # fmt: skip
    if resume and (overwrite or writer is not None):
        raise UsageError(
            "resume=True goes on in the trace that is there: leave out "
            + ("overwrite=True, which removes it." if overwrite else "writer, which writes another tool's file.")
        )
    if stop_on_nonfinite not in (False, True, "raise"):
        raise UsageError(f"stop_on_nonfinite: expected True, False or 'raise', got {stop_on_nonfinite!r}.")
    for option, given in (("stop_on_nonfinite", stop_on_nonfinite), ("against", against is not None)):
        if given and writer is not None:
            raise UsageError(f"{option} reads the trace while it is written: leave out writer.")
    models = named_models(model)
    adapter = framework_for(models, framework)
    rank, world = adapter.rank()
    if where is None:
        assert url is not None
        where = local_root(url, rank)
    if not models and not isinstance(model, Mapping) and chosen_level in (Level.MODULE, Level.MIX):
        raise UsageError(
            f"level={str(chosen_level)!r} records modules, but no model was given. "
            "Give it: tt.record(path, model), or use level='api'."
        )
    for option, wanted, capability in (("eager", eager, Capability.EAGER), ("kernels", kernels, Capability.KERNELS)):
        if wanted and capability not in adapter.capabilities():
            raise UsageError(
                f"{option}=True: {adapter.name} does not offer it, "
                + (
                    "as what MindSpore compiles beside it does not run uncompiled. kernels=True shows a graph's kernels."
                    if Capability.KERNELS in adapter.capabilities()
                    else "it is for MindSpore's graphs and torch.compile (2.6 on). Leave it out, and record the model before "
                    "it is compiled."
                )
            )
    options: dict[str, Any] = {
        "level": chosen_level,
        "keep": chosen_keep,
        "selection": selection,
        "strict": strict,
        "buffer": _bytes(buffer),
        "room": _bytes(device_buffer, "device_buffer") if device_buffer else device_buffer,
        "overwrite": overwrite,
        "resume": resume,
        "eager": eager,
        "kernels": kernels,
        "zoom": "" if close_up is None else close_up.because,
        "nonfinite": NonfiniteWatch(judge_steps, raises=stop_on_nonfinite == "raise") if stop_on_nonfinite else None,
    }
    if against is not None:
        options["lockstep"] = lockstep_with(
            against, where, framework=adapter.name, level=chosen_level, keep=chosen_keep, on_difference=on_difference
        )
    override = _selfcheck.OVERRIDE.get()
    if override is not None:
        redirected: Recorder = override(adapter, models, options)
        return redirected
    uploader = None
    if url is not None and selection.wants_rank(rank):
        uploader = Uploader(
            where, url, rank=rank, world=world, overwrite=overwrite, resume=resume, keep=local is not None
        )
    return Recorder(where, adapter, models, **options, writer=writer, uploader=uploader)


def modules_of(model: Any) -> tuple[str, dict[str, Any]]:
    """The framework of a model, and each of its modules by the path that a record gives it."""
    models = named_models(model)
    adapter = framework_for(models)
    modules = {
        dotted(prefix, path): module for prefix, item in models.items() for path, module in adapter.named_modules(item)
    }
    return adapter.name, modules


def _place(path: Any) -> Path:
    """Where the trace goes, whatever directory the process changes to later."""
    try:
        if "\0" in os.fsdecode(path) or not os.fsdecode(path):
            raise ValueError("no file system has such a name")
        if is_remote(os.fsdecode(path)):
            raise ValueError("this is an address; what is uploaded is written to a local directory first")
        return Path(os.fsdecode(path)).absolute()
    except (TypeError, ValueError) as error:
        raise UsageError(f"path: expected the name of a directory, got {path!r} ({error}).") from None


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _bytes(size: int | str, option: str = "buffer") -> int:
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B?)\s*", size.upper())
        if match and match[2] in _UNITS:
            size = int(float(match[1]) * _UNITS[match[2]])
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise UsageError(
            f"{option}: expected a number of bytes or a text such as '64 MB' (units B, KB, MB, GB), got {size!r}."
        )
    return size
