"""The verbs.

record(path, model)        record a run (api/recording.py)       -> Recorder
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
read_tensor, write_tensor                                        -> api/saved.py
framework_of, array_of, tap, graph_tap, rank_and_world           -> api/tensors.py
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.forked import forked
from ..engine.local import Local
from ..frameworks import registry
from ..model.errors import MissingPackageError, TraceNotFoundError
from ..model.records import Call, Role
from ..model.results import Comparison, Finding, Listing, Row
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves, tensor_slots
from ..report.text import verdict
from ..store import digest
from ..store.registry import layouts, open_trace
from ..store.trace import Journal, Trace
from .converting import conversion_line, convert_trace, damage_of, exporters
from .reporting import (
    csv_text,
    listing_json,
    print_pairs,
    print_table,
    print_tree,
    progress_bar,
    read_report,
    view,
    write_csv,
    write_csv_texts,
    write_html,
    write_json,
    write_table,
    write_text,
    write_xlsx,
)

if TYPE_CHECKING:  # fetched when one of them is asked for: see `__getattr__`
    from ..measure.ratios import ratios
    from ..measure.values import measure
    from ..report.weights import certificate_text, conversion_text, map_text, weight_comparison_text
    from .arrays import array_shapes, compare_arrays, measure_arrays, pair_arrays
    from .comparing import compare, pair_up, parameter_role, same_operation, write_mapping
    from .recording import (
        Recorder,
        Run,
        Seeded,
        SelfCheck,
        array_of,
        framework_of,
        graph_tap,
        modules_of,
        rank_and_world,
        record,
        seed_all,
        selfcheck,
        selfcheck_script,
        tap,
        without_dropout,
    )
    from .saved import read_tensor, write_tensor
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
        read_weight_map,
        run_net,
        to_troubleshooter,
        weight_names,
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
    "csv_text",
    "damage_of",
    "describe_net",
    "doctor",
    "exporters",
    "forked",
    "framework_of",
    "framework_of_net",
    "from_troubleshooter",
    "graph_tap",
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
    "rank_and_world",
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
    "write_csv_texts",
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


_RECORDING = frozenset(
    (
        "Recorder", "Run", "Seeded", "SelfCheck", "array_of", "framework_of", "graph_tap", "modules_of",
        "rank_and_world", "record", "seed_all", "selfcheck", "selfcheck_script", "tap", "without_dropout",
    )
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Verbs that many do without, and whose rooms take a while to enter: recording, comparing, and all about weights."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _RECORDING:
        from . import recording

        return getattr(recording, name)
    if name in ("measure", "ratios"):
        from ..measure import ratios, values

        return getattr(values if name == "measure" else ratios, name)
    if name in ("read_tensor", "write_tensor"):
        from . import saved

        return getattr(saved, name)
    from . import comparing

    if hasattr(comparing, name):
        return getattr(comparing, name)
    from ..report import weights as texts
    from . import arrays, weights

    return next(getattr(home, name) for home in (arrays, weights, texts) if hasattr(home, name))


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


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
