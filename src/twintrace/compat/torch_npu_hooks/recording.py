"""The one recording of this embassy: `torch_npu.hooks` is global by nature, so its state is here and nowhere else.

    register_acc_cmp_hook(a); register_acc_cmp_hook(b)      models are collected
    set_dump_path("cpu.pkl")                                recording begins
    set_dump_path("npu.pkl")                                the same recording goes on in another file
    register_acc_cmp_hook(c)                                a new recording, of three models, in the same file

A gradient that comes after a switch goes into the file that is open then.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from ... import api
from ...model.errors import TraceExistsError, UsageError
from ...model.sites import Kind, Phase, Site
from ..arguments import path_of
from . import layout
from .writer import LineWriter

# Functions that the old tool did not wrap: how a tensor is looked at and where it lies, not what is computed.
_UNSEEN = frozenset(
    f"torch.Tensor.{name}" for name in ("to", "cpu", "cuda", "npu", "contiguous", "view", "expand", "__getitem__")
)


class _Dump:
    """Models, file and recorder; its methods are the functions that the tool has, and two of ours."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._begun: set[Path] = set()
        self._path: Path | None = None
        self._writer: LineWriter | None = None
        self._recorder: api.Recorder | None = None

    def add(self, model: Any) -> None:
        """Record the leaf modules of `model`, forward and backward, besides all functions. May be called for several models."""
        if not callable(getattr(model, "named_modules", None)):
            raise UsageError(
                f"model: expected a torch.nn.Module, got {type(model).__module__}.{type(model).__qualname__}."
            )
        if any(known() is model for known in self._models):
            return
        self._models.append(weakref.ref(model))
        if self._path is not None:
            self._start(self._path)

    def set_path(self, path: str | os.PathLike[str]) -> None:
        """Record into this file from here on. A file of an earlier run is replaced; one of this run is continued."""
        where = path_of("set_dump_path", path)
        append = where in self._begun
        if not append:
            _check_free(where)
        if self._writer is not None and self._recorder is not None:
            self._writer.switch(where, append=append)
        else:
            self._start(where)
        self._path = where
        self._begun.add(where)

    def _start(self, path: Path) -> None:
        self.close()
        writer = LineWriter(path, append=path in self._begun)
        models = {str(number): model for number, known in enumerate(self._models) if (model := known()) is not None}
        leaves = {
            f"{number}.{name}" if name else number
            for number, model in models.items()
            for name, module in model.named_modules()
            if len(list(module.named_modules())) == 1
        }

        def wanted(site: Site) -> bool:
            if site.phase is Phase.UPDATE:
                return False
            return site.name in leaves if site.kind is Kind.MODULE else site.name not in _UNSEEN

        self._writer = writer
        self._recorder = api.record(
            path,
            models or None,
            level="mix" if models else "api",
            keep="tensor",
            predicate=wanted,
            framework="torch",
            writer=writer,
        )
        self._recorder.start()

    def flush(self) -> None:
        """Everything that is known by now is in the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """End the recording; the next `set_dump_path` begins another."""
        recorder, self._recorder, self._writer = self._recorder, None, None
        if recorder is not None:
            recorder.close()


def _check_free(path: Path) -> None:
    """An old dump is replaced; anything else is not ours to overwrite."""
    if path.exists() and not layout.is_line_dump(path):
        raise TraceExistsError(
            f"{path} exists and is no dump of this tool, so it is not overwritten. Choose another path."
        )


_DUMP = _Dump()
set_dump_path, register_acc_cmp_hook = _DUMP.set_path, _DUMP.add
flush, close = _DUMP.flush, _DUMP.close
