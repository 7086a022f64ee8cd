"""`ts.migrator.api_dump_init`, `api_dump_start`, `api_dump_stop`: the one recording of this embassy, which is global by nature.

    api_dump_init(net, output_path="torch_dump", retain_backward=True)
    api_dump_start()            hooks are in place, dropout is out
    …                           rows and files, while the run goes on
    api_dump_stop()             everything as it was, but for hooks on the graphs of recorded calls: gradients may come later

A region is what lies between start and stop. A start in a running region ends it and begins another, with other settings; a stop
where none runs does nothing. Numbers of calls go on from one region to the next; the first region of an `api_dump_init` replaces
an old dump in the same folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from .... import api
from ....model.errors import SessionError, UsageError
from ....model.sites import Kind, Phase, Site
from ...arguments import flags, made_folder, one_of
from ..layers import called_by_a_layer, layers, paths_within
from ..names import STEMS, Labels, operation_name
from ..tables import attention
from ..writer import Content, DumpFiles, DumpWriter

StrPath = str | os.PathLike[str]
_MODES = ("all", "list", "range", "api_list")
_TYPES = ("all", "npy", "statistics", "stack")
_CATEGORIES = ("max", "min", "avg", "md5", "l2norm")
_Address = tuple[str, str, int]
_MAX_WAITING = 256
"""Regions whose gradients are waited for. More only come together where graphs are kept and never run backward."""


class _Scope:
    """`mode` and `scope` at work."""

    def __init__(self, mode: Any, scope: Any) -> None:
        one_of("mode", mode, _MODES)
        if mode == "all":
            if scope:
                raise UsageError(
                    f"scope: expected None with mode='all', got {scope!r}. Say mode='list' to choose APIs."
                )
        elif not isinstance(scope, list | tuple) or not scope or not all(isinstance(item, str) for item in scope):
            raise UsageError(f"scope: expected a list of names with mode={mode!r}, got {scope!r}.")
        self._mode, self._names = mode, tuple(scope or ())
        if mode == "range" and len(self._names) != 2:
            raise UsageError(f"scope: expected [start, end] with mode='range', got {scope!r}.")
        wrong = [name for name in self._names if mode in ("list", "range") and not re.search(r"_\d+$", name)]
        if wrong:
            raise UsageError(
                f"scope: expected names such as NN_Conv2d_0 (type, name, number) with mode={mode!r}, got {wrong[0]!r}."
            )
        self._parts = tuple(name.lower() for name in self._names)
        self._begun = self._ended = False

    def wants(self, label: str) -> bool:
        """True if this call is to be recorded. Asked once for each, in order."""
        if self._mode == "all":
            return True
        if self._mode == "list":
            return label in self._names
        if self._mode == "api_list":
            return any(part in label.lower() for part in self._parts)
        self._begun = self._begun or label == self._names[0]
        inside = self._begun and not self._ended
        self._ended = self._ended or (self._begun and label == self._names[1])
        return inside


class _Region:
    """Region between a start and a stop: its recorder, its writer, and what its calls are called."""

    def __init__(self, number: int, settings: tuple[_Scope, Content]) -> None:
        self.number, self.settings = number, settings
        self.labelled: dict[_Address, str] = {}
        self.recorder: api.Recorder
        self.writer: DumpWriter
        self.undo: Callable[[], None]

    def close(self) -> None:
        """End the recording. That a region is empty is said by `api_dump_stop`, and is no matter where another start followed."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="twintrace: nothing was recorded")
            self.recorder.close()

    def label(self, record: Any) -> str | None:
        """The name of a call that has been recorded."""
        return self.labelled.pop((record["kind"], record["name"], record["n"]), None)


class _Dump:
    """One `api_dump_init`: a network, a folder, how far calls were counted."""

    def __init__(self, net: Any, root: Path, retain_backward: bool) -> None:
        self.root, self.retain_backward = root, retain_backward
        self.framework = _framework(net)
        self._net = net
        self._labels = Labels()
        self._files = DumpFiles(root, self.framework)
        self._number = 0
        """Of the step, as the rows have it. Another one begins where gradients have come, or none are asked for."""
        self._region: _Region | None = None
        self._waiting: list[_Region] = []
        """Regions that have been stopped, and through whose graphs gradients may still come."""
        self._last: tuple[int, int] = 0, 0  # rows and gradients of the present number, in regions that are done
        self._said_compiled = False

    @property
    def settings(self) -> tuple[_Scope, Content] | None:
        """Of the region that is recorded."""
        return self._region.settings if self._region is not None else None

    def start(self, scope: _Scope, content: Content) -> None:
        """Record until `stop`; a region that is being recorded ends here."""
        if self._region is not None:
            self._end_region()
        self._forget_done()
        self._next_number()
        modules = api.modules_of(self._net)[1]
        own = layers(modules)
        within = paths_within(modules, own)

        def wanted(site: Site) -> bool:
            if site.phase is not Phase.FORWARD:
                return False
            if site.kind is Kind.MODULE:
                if site.name not in own:
                    return False
            elif site.kind is not Kind.API or site.path in within or called_by_a_layer():
                return False
            label = self._labels.next(operation_name(self.framework, site.kind, site.name, own.get(site.name, "")))
            if not scope.wants(label):
                return False
            region.labelled[site.kind, site.name, site.call] = label
            return True

        region = _Region(self._number, (scope, content))
        writer = DumpWriter(self._files, self.framework, region.label, content, region=self._number)
        keeps_values = content.npy or (content.statistics and "md5" in content.categories)
        recorder = api.record(
            self.root,
            self._net,
            level="mix",
            keep="tensor" if keeps_values else "statistics",
            forward_only=not self.retain_backward,
            flow_only=True,
            predicate=wanted,
            eager=self.framework == "mindspore",
            writer=writer,
        )
        undo = api.without_dropout(self.framework)
        try:
            recorder.start()
        except BaseException:
            undo()
            raise
        region.recorder, region.writer, region.undo = recorder, writer, undo
        self._region = region
        attention(f"API dump has started. Dump data will be saved to {self.root}.")
        if writer.environment.get("mode") == "graph":
            attention(
                "The network is in GRAPH_MODE: it runs call by call (PYNATIVE_MODE) until api_dump_stop, so that APIs are seen."
            )
        elif self.framework == "mindspore" and not self._said_compiled:
            self._said_compiled = True
            attention(
                "Functions that are compiled by @jit run call by call until api_dump_stop, so that APIs are seen."
            )

    def stop(self) -> None:
        """Record no more; gradients of what was recorded are still taken."""
        if self._region is None:
            return
        writer = self._region.writer
        self._end_region()
        if writer.rows:
            attention(f"API dump has been stopped. Dump data has been saved to {self.root}.")
        else:
            attention("API dump has been stopped, but no data has been saved. Please check the dump scope!")

    def close(self) -> None:
        """Everything is written, and nothing is waited for."""
        try:
            if self._region is not None:
                self.stop()
            for region in self._waiting:
                region.close()
        finally:
            self._waiting.clear()
            self._files.close()

    def _end_region(self) -> None:
        region, self._region = self._region, None
        assert region is not None
        try:
            if self.retain_backward:
                region.recorder.stop(keep_gradients=True)
                region.writer.release()
                self._waiting.append(region)
            else:
                region.close()
                self._count(region)
        finally:
            region.undo()

    def _forget_done(self) -> None:
        """Close the regions whose graphs are gone."""
        over = len(self._waiting) - _MAX_WAITING
        kept = [
            region for number, region in enumerate(self._waiting) if number >= over and region.recorder.awaits_gradients
        ]
        for region in self._waiting:
            if region not in kept:
                region.close()
                self._count(region)
        self._waiting = kept

    def _count(self, region: _Region) -> None:
        if region.number == self._number:
            rows, gradients = self._last
            self._last = rows + region.writer.rows, gradients + region.writer.gradients

    def _next_number(self) -> None:
        """A region that continues a step has its number: the last one was empty, or its gradients have not come yet."""
        rows, gradients = self._last
        waiting = [region.writer for region in self._waiting if region.number == self._number]
        rows += sum(writer.rows for writer in waiting)
        gradients += sum(writer.gradients for writer in waiting)
        if self._number == 0 or (rows and (gradients or not self.retain_backward)):
            self._number += 1
            self._last = 0, 0


_DUMP: _Dump | None = None


def api_dump_init(
    net: Any,
    output_path: StrPath | None = None,
    *,
    retain_backward: bool = False,
    compare_statedict: bool = False,
) -> None:
    """Say which network is dumped, and where to (`ts_api_dump` in the current folder if not said). Nothing is recorded yet.

    net                 a torch.nn.Module, a mindspore.nn.Cell or a module of MSAdapter
    retain_backward     gradients of results too; no gradient is changed by that
    compare_statedict   write the network's weights beside the dump (`pt_net.pth`), for api_dump_compare to compare
    """
    global _DUMP
    flags(retain_backward=retain_backward, compare_statedict=compare_statedict)
    _framework(net)  # before anything is on disk
    folder = made_folder("output_path", "ts_api_dump" if output_path is None else output_path, mode=0o700)
    dump = _Dump(net, folder, retain_backward)
    if compare_statedict:
        _write_weights(net, dump)
    settings = _DUMP.settings if _DUMP is not None else None
    close()
    _DUMP = dump
    attention("For precision comparison, dropout passes its input through between api_dump_start and api_dump_stop.")
    attention("Please disable the shuffle function of the dataset before running the program.")
    if settings is not None:  # as the real tool, whose switch an init leaves as it is
        attention(
            "A dump was running: it has ended, and goes on with this network and the settings of its api_dump_start."
        )
        dump.start(*settings)


def api_dump_start(
    mode: str = "all",
    scope: Sequence[str] | None = None,
    dump_type: str = "all",
    filter_data: bool = True,
    filter_stack: bool = True,
    overflow_check: bool = False,
    statistic_category: Collection[str] | None = ("max", "min", "l2norm"),
) -> None:
    """Record from here on; where a dump is running, from here on with these settings instead.

    mode, scope         all | list (these names: NN_Conv2d_0) | range ([first, last], both included) | api_list (parts of names)
    dump_type           all | npy | statistics | stack; rows and stacks are always written
    filter_data         leave out tensors without dimensions or elements, all but floating point numbers, and Python's numbers
    filter_stack        leave out frames of the framework
    overflow_check      only APIs whose result has an element that is not finite
    statistic_category  of max, min, avg, md5, l2norm
    """
    if _DUMP is None:
        raise SessionError(
            "api_dump_start before api_dump_init: it is not known which network. Call api_dump_init first."
        )
    chosen = _Scope(mode, scope)
    one_of("dump_type", dump_type, _TYPES)
    flags(filter_data=filter_data, filter_stack=filter_stack, overflow_check=overflow_check)
    content = Content(
        npy=dump_type in ("all", "npy"),
        statistics=dump_type in ("all", "statistics"),
        filter_data=filter_data,
        filter_stack=filter_stack,
        overflow=overflow_check,
        categories=_categories(statistic_category),
    )
    _DUMP.start(chosen, content)


def api_dump_stop() -> None:
    """Record no longer: nothing of the framework is replaced any more, dropout is back, the dump can be read.

    Gradients of what was recorded are taken when they come, also after this, until another `api_dump_init`. Where no dump runs this
    does nothing.
    """
    if _DUMP is None:
        raise SessionError(
            "api_dump_stop before api_dump_init: there is no dump. Call api_dump_init and api_dump_start first."
        )
    _DUMP.stop()


def close() -> None:
    """End the recording, whatever state it is in; the next `api_dump_init` begins another."""
    global _DUMP
    dump, _DUMP = _DUMP, None
    if dump is not None:
        dump.close()


def _categories(chosen: Any) -> frozenset[str]:
    if chosen is None:
        return frozenset()
    if isinstance(chosen, str) or not isinstance(chosen, Collection):
        raise UsageError(f"statistic_category: expected a list out of {', '.join(_CATEGORIES)}, got {chosen!r}.")
    wrong = [item for item in chosen if item not in _CATEGORIES]
    if wrong:
        raise UsageError(f"statistic_category: expected some of {', '.join(_CATEGORIES)}, got {wrong[0]!r}.")
    return frozenset(chosen)


def _framework(net: Any) -> str:
    framework = None
    if net is not None and not isinstance(net, list | tuple | dict):
        with contextlib.suppress(UsageError):
            framework = api.modules_of(net)[0]
    if framework not in STEMS:
        raise UsageError(
            f"net: expected a torch.nn.Module, a mindspore.nn.Cell or a module of MSAdapter, got {type(net).__name__}."
        )
    return framework


def _write_weights(net: Any, dump: _Dump) -> None:
    if dump.framework != "torch":
        raise UsageError(
            f"compare_statedict=True: weights are written for PyTorch's networks only, and this is one of {dump.framework}. "
            f"Leave it out, and compare checkpoints with compare_pth_and_ckpt or compare_ms_ckpt."
        )
    rank = dump.root / "rank0"
    rank.mkdir(mode=0o700, exist_ok=True)
    api.convert_weights(net, rank / "pt_net.pth", to="torch", force=True)
