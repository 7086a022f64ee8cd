"""The verbs.

record(path, model)        record a run                          -> Recorder
open(path)                 a recorded run                        -> Trace
listing(path)              a recorded run, for people            -> Listing
compare(left, right)       where two runs part                   -> Comparison
verdict(comparison)        the same as text, at most 15 lines    -> str
write_html(comparison, p)  the same as one file to look at
convert_trace(a, b, to=…)  a copy in another tool's layout       -> Trace
view(path)                 a report or a trace in the browser    -> Server
selfcheck(step)            does recording change the run?        -> SelfCheck
seed_all(seed)             the same random numbers every time    -> Undo
stand_in(alias)            a device that is not here             -> what undoes it
doctor()                   what can be recorded here             -> list of Finding
map_weights, convert_weights, compare_weights, certify_weights   -> api/weights.py
pair_arrays, compare_arrays                                      -> api/arrays.py
framework_of, array_of, tap (single tensors)                     -> api/tensors.py
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..collect import selfcheck as _selfcheck
from ..collect.models import framework_for, named_models
from ..collect.scripts import selfcheck_script
from ..collect.seeding import Seeded, seed_all, without_dropout
from ..collect.selection import Selection
from ..collect.selfcheck import Run, SelfCheck, choose, selfcheck
from ..collect.session import Session as Recorder
from ..engine.local import Local
from ..frameworks import registry
from ..frameworks.protocol import Capability
from ..measure.ratios import ratios
from ..measure.values import measure
from ..model.errors import MissingPackageError, TraceNotFoundError, UsageError
from ..model.records import Call, Keep, Level, Role
from ..model.results import Comparison, Finding, Listing, Row
from ..model.sites import Site
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves, tensor_slots
from ..report.text import verdict
from ..store import digest
from ..store.registry import layouts, open_trace
from ..store.trace import Journal, Trace
from ..store.writer import Writer
from .converting import conversion_line, convert_trace, damage_of, exporters
from .reporting import (
    listing_json,
    print_pairs,
    print_table,
    print_tree,
    progress_bar,
    read_report,
    view,
    write_csv,
    write_html,
    write_json,
    write_table,
    write_text,
    write_xlsx,
)
from .tensors import array_of, framework_of, tap

if TYPE_CHECKING:  # fetched when one of them is asked for: see `__getattr__`
    from ..report.weights import certificate_text, conversion_text, map_text, weight_comparison_text
    from .arrays import array_shapes, compare_arrays, measure_arrays, pair_arrays
    from .comparing import compare, pair_up, parameter_role, same_operation, write_mapping
    from .weights import (
        certify_weights,
        compare_weights,
        convert_weights,
        describe_net,
        framework_of_net,
        from_troubleshooter,
        map_weights,
        net_from,
        random_input,
        read_tensor,
        read_weight_map,
        run_net,
        to_troubleshooter,
        weight_names,
        write_tensor,
        write_troubleshooter,
        write_weight_map,
    )

__all__ = [
    "Comparison",
    "Finding",
    "Listing",
    "Local",
    "Recorder",
    "Run",
    "Seeded",
    "SelfCheck",
    "Trace",
    "array_of",
    "array_shapes",
    "certificate_text",
    "certify_weights",
    "compare",
    "compare_arrays",
    "compare_weights",
    "conversion_line",
    "conversion_text",
    "convert_trace",
    "convert_weights",
    "damage_of",
    "describe_net",
    "doctor",
    "exporters",
    "framework_of",
    "framework_of_net",
    "from_troubleshooter",
    "imported_frameworks",
    "is_operation",
    "listing",
    "listing_json",
    "map_text",
    "map_weights",
    "measure",
    "measure_arrays",
    "modules_of",
    "net_from",
    "open",
    "pair_arrays",
    "pair_up",
    "parameter_role",
    "print_pairs",
    "print_table",
    "print_tree",
    "progress_bar",
    "random_input",
    "ratios",
    "read_report",
    "read_tensor",
    "read_weight_map",
    "record",
    "run_net",
    "same_operation",
    "seed_all",
    "selfcheck",
    "selfcheck_script",
    "stand_in",
    "tap",
    "to_troubleshooter",
    "verdict",
    "view",
    "weight_comparison_text",
    "weight_names",
    "without_dropout",
    "write_csv",
    "write_html",
    "write_json",
    "write_mapping",
    "write_table",
    "write_tensor",
    "write_text",
    "write_troubleshooter",
    "write_weight_map",
    "write_xlsx",
]


def __getattr__(name: str) -> Any:
    """Verbs that most commands do without, and whose rooms take a while to enter: comparing, and all about weights."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import comparing

    if hasattr(comparing, name):
        return getattr(comparing, name)
    from ..report import weights as texts
    from . import arrays, weights

    return next(getattr(home, name) for home in (arrays, weights, texts) if hasattr(home, name))


def record(
    path: str | os.PathLike[str],
    model: Any = None,
    *,
    level: str = "mix",
    keep: str = "fingerprint",
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
    strict: bool = False,
    overwrite: bool = False,
    eager: bool = False,
    writer: Writer | None = None,
    kernels: bool = False,
) -> Recorder:
    """A recorder that writes to the directory `path`. Use it with `with`, or call `start`, `step`, `stop`, `close` yourself.

    model         a module, a list of modules, or a dict of them by name; may be left out at level api and op
    level         module | api (functions, methods, operators, collectives) | mix (both) | op (kernels)
    keep          statistics (seven numbers) | fingerprint (those and 128 bits of the bytes) | tensor (every value as well)
    steps, ranks  numbers of the steps and ranks to record                      first     only the first N calls of each name
    names         glob patterns, or regular expressions after "re:"             between   (from, to): a range of module paths
    forward_only  no gradients                  inputs_only  no results         predicate decides for each Site
    flow_only     what flows through calls: arguments, results and the gradients of results; no parameters, no other gradients
    framework     needed only when no model is given and several frameworks are imported
    buffer        how much may be on its way to disk before the recorder waits  overwrite replaces an old trace at `path`
    eager         run what was compiled (MindSpore's @jit and GRAPH_MODE) call by call while recording, so that it is seen
    writer        writes what is recorded in another tool's format, to a file of its own; nothing is written to `path` then
    kernels       have the framework dump the kernels of what was compiled, and take them into the trace (MindSpore)
    strict        raise what goes wrong in the recorder; otherwise it is warned about once, noted in the trace, and training goes on
    """
    where = _place(path)
    chosen_level = choose(Level, "level", level)
    chosen_keep = choose(Keep, "keep", keep)
    selection = Selection(
        steps=steps,
        ranks=ranks,
        names=names,
        between=between,
        forward_only=forward_only,
        inputs_only=inputs_only,
        flow_only=flow_only,
        first=first,
        predicate=predicate,
    )
    models = named_models(model)
    workshop = framework_for(models, framework)
    if not models and chosen_level in (Level.MODULE, Level.MIX):
        raise UsageError(
            f"level={level!r} records modules, but no model was given. Give it: tt.record(path, model), or use level='api'."
        )
    for option, wanted, capability in (("eager", eager, Capability.EAGER), ("kernels", kernels, Capability.KERNELS)):
        if wanted and capability not in workshop.capabilities():
            raise UsageError(
                f"{option}=True: {workshop.name} does not offer it, "
                + (
                    "as what MindSpore compiles beside it does not run uncompiled. kernels=True shows a graph's kernels."
                    if Capability.KERNELS in workshop.capabilities()
                    else "it is for MindSpore's graphs. Leave it out, and record the model before it is compiled."
                )
            )
    options: dict[str, Any] = {
        "level": chosen_level,
        "keep": chosen_keep,
        "selection": selection,
        "strict": strict,
        "buffer": _bytes(buffer),
        "overwrite": overwrite,
        "eager": eager,
        "kernels": kernels,
    }
    override = _selfcheck.OVERRIDE.get()
    if override is not None:
        redirected: Recorder = override(workshop, models, options)
        return redirected
    return Recorder(where, workshop, models, **options, writer=writer)


def modules_of(model: Any) -> tuple[str, dict[str, Any]]:
    """Whose model it is, and each of its modules by the path that a record gives it."""
    models = named_models(model)
    workshop = framework_for(models)
    found = {
        ".".join(filter(None, (prefix, path))): module
        for prefix, item in models.items()
        for path, module in workshop.named_modules(item)
    }
    return workshop.name, found


def is_operation(name: str) -> bool:
    """Is a function or a class of this name one operation, known to all frameworks (`Conv2d`, `torch.relu`)?"""
    from ..align.equivalents import is_known

    return is_known(name)


def open(path: str | os.PathLike[str], *, tolerant: bool = False) -> Trace:
    """Open a trace. `tolerant=True` skips damaged records and lists them, instead of raising when one is reached."""
    return open_trace(path, tolerant=tolerant)


def listing(
    path: str | os.PathLike[str], *, step: int | None = None, rank: int | None = None, limit: int | None = None
) -> Listing:
    """A trace for people: one row for each call, indented by the modules around it."""
    trace = open_trace(path, tolerant=True)
    for name, wanted, there in (("step", step, trace.steps), ("rank", rank, trace.ranks)):
        if wanted is not None and wanted not in there:
            raise TraceNotFoundError(
                f"{trace.path} has no {name} {wanted}: it has {', '.join(map(str, there)) or 'none'}."
            )
    rows: list[Row] = []
    calls = tensors = 0
    notes: list[str] = []
    damage: list[str] = []
    for place in trace.places:
        if step not in (None, place[0]) or rank not in (None, place[1]):
            continue
        journal = trace.journal(*place)
        found = list(journal.calls()) if limit is None or len(rows) < limit else []
        rows.extend(_rows(journal, found))
        calls += len(journal)
        tensors += sum(1 for _ in journal.tensors())
        notes += [f"{note.topic}: {note.text}" for note in journal.notes()]
        if not journal.complete:
            damage.append(
                f"step {place[0]}, rank {place[1]}: the process ended before the step was closed; what it wrote is here"
            )
        damage += [str(item) for item in journal.damage]
    shown = tuple(rows if limit is None else rows[:limit])
    settings = trace.manifest.get("settings")
    return Listing(
        trace.path,
        trace.layout,
        trace.framework,
        trace.steps,
        trace.ranks,
        settings if isinstance(settings, Mapping) else {},
        calls,
        tensors,
        shown,
        calls - len(shown),
        tuple(dict.fromkeys(notes)),
        tuple(damage),
    )


def stand_in(alias: str, device: str | None = None, *, framework: str, remedy: str = "") -> Callable[[], None]:
    """Let `device` (or the best one here) play a device called `alias` that is not here; calling the result ends that.

    Said once in a warning, when it is first used; `remedy` ends it. Something of that name that is here already stays as it is.
    """
    undo: Callable[[], None] = registry.peculiar(framework, "devices").stand_in(alias, device, remedy)
    return undo


def imported_frameworks() -> tuple[str, ...]:
    """The frameworks that a program of this process may mean: imported, and not what another one of them runs on."""
    return tuple(workshop.name for workshop in registry.foremost())


def doctor() -> list[Finding]:
    """What is installed, what can be recorded, what is missing and how to get it."""
    import numpy

    findings = [
        Finding("python", True, platform.python_version()),
        Finding("numpy", True, numpy.__version__),
        Finding(
            "layouts", True, f"that can be opened: {', '.join(layouts())}; and exported to: {', '.join(exporters())}"
        ),
    ]
    fast = digest.backend() == "numba"
    findings.append(
        Finding(
            "fast digest",
            fast,
            "numba" if fast else "numpy only: recording works, and is slower",
            "pip install 'twintrace[fast]'",
        )
    )
    for name in registry.names():
        if name == registry.REFERENCE:
            continue
        try:
            workshop = registry.by_name(name)
        except MissingPackageError as error:
            findings.append(Finding(name, False, "not installed", str(error).rpartition("Get it with: ")[2]))
            continue
        except Exception as error:  # noqa: BLE001 - an installed framework may fail to import in any way; say so and go on
            findings.append(Finding(name, False, f"installed, but it does not import: {type(error).__name__}: {error}"))
            continue
        version = workshop.environment().get(name, "")
        findings.append(Finding(name, True, f"{version}: records {', '.join(sorted(workshop.capabilities()))}"))
    return findings


def _tensors(call: Call) -> Iterator[tuple[tuple[str, str], int]]:
    for slot, identity in tensor_slots(call.args, call.kwargs):
        yield ("input", slot), identity
    for name, identity in (*call.parameters.items(), *call.buffers.items()):
        yield ("parameter", name), identity
    for slot, leaf in leaves(call.output):
        if isinstance(leaf, TensorRef):
            yield ("output", slot), leaf.id
    for slot, identity in call.after.items():
        yield ("output", slot), identity
    for gradient in call.gradients:
        role = "gradient of the output" if gradient.role is not Role.INPUT else "gradient of the input"
        yield (f"{role} (pass {gradient.count})" if gradient.count else role, gradient.slot), gradient.tensor


def _rows(journal: Journal, calls: list[Call]) -> Iterator[Row]:
    """Calls in the order in which they began: a module before what it called, although its line comes after."""
    depths: dict[int, int] = {}

    def specs(pairs: Iterator[tuple[tuple[str, str], int]], wanted: str) -> tuple[str, ...]:
        return tuple(_spec(journal.tensor(identity)) for (role, _), identity in pairs if role == wanted)

    for call in sorted(calls, key=lambda call: call.id):  # a module has a lower number than what it calls
        depths[call.id] = depths.get(call.parent, -1) + 1 if call.parent is not None else 0
        site = call.site
        name = f"{site.name or '(model)'}#{site.call}" if site.call or site.kind != "module" else site.name or "(model)"
        frame = f"{Path(call.stack[0].file).name}:{call.stack[0].line}" if call.stack else ""
        remark = call.raised or "; ".join(call.missing)
        phase = "" if site.phase == "forward" else f"{site.phase}/"
        yield Row(
            journal.header.step,
            journal.header.rank,
            depths[call.id],
            phase + name,
            str(site.kind),
            site.type,
            specs(_tensors(call), "input"),
            specs(_tensors(call), "output"),
            len(call.gradients),
            frame,
            remark,
        )


def _spec(tensor: Tensor) -> str:
    return str(tensor.spec) + (
        " (missing)" if tensor.missing and tensor.payload is None and not tensor.statistics else ""
    )


def _place(path: Any) -> Path:
    """Where the trace goes, whatever directory the process changes to later."""
    try:
        return Path(os.fsdecode(path)).absolute()
    except (TypeError, ValueError) as error:
        raise UsageError(f"path: expected the name of a directory, got {path!r} ({error}).") from None


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _bytes(size: int | str) -> int:
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B?)\s*", size.upper())
        if match and match[2] in _UNITS:
            size = int(float(match[1]) * _UNITS[match[2]])
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise UsageError(f"buffer: expected a number of bytes or a text such as '64 MB', got {size!r}.")
    return size
