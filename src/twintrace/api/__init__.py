"""The verbs.

record(path, model)        record a run (api/recording.py)       -> Recorder
open(path)                 a recorded run                        -> Trace
listing(path)              a recorded run, for people            -> Listing
compare(left, right)       where two runs part                   -> Comparison
zoom(left, right)          what to record in a second run        -> Zoom
verdict(comparison)        the same as text, at most 15 lines    -> str
write_html(comparison, p)  the same as one file to look at
convert_trace(a, b, to=…)  a copy in another tool's layout       -> Trace
upload(path, to)           a trace to another file system        -> Remainder, or None
view(path)                 a report or a trace in the browser    -> Server
selfcheck(step)            does recording change the run?        -> SelfCheck
run_twice(script)          does a run repeat itself?             -> Repetition
seed_all(seed)             the same random numbers every time    -> Undo
stand_in(alias)            a device that is not here             -> what undoes it
first_nonfinite(trace)     where the NaN comes from              -> NonfiniteReport
doctor()                   what can be recorded here             -> list of Finding
known_operations()         what can be recomputed                -> list of KnownOperation
map_weights, convert_weights, compare_weights, certify_weights   -> api/weights.py
pair_arrays, compare_arrays                                      -> api/arrays.py
read_tensor, write_tensor                                        -> api/saved.py
framework_of, array_of, tap, graph_tap, rank_and_world           -> api/tensors.py
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from ..model import versions

if TYPE_CHECKING:  # the names of `_HOMES`, for type checkers
    from ..engine.local import Local
    from ..measure.values import measure
    from ..model.results import Finding, Listing
    from ..report.text import verdict
    from ..report.weights import certificate_text, conversion_text, map_text, weight_comparison_text
    from .arrays import array_shapes, compare_arrays, measure_arrays, pair_arrays
    from .comparing import compare, is_operation, pair_up, parameter_role, same_operation, write_mapping
    from .converting import conversion_line, convert_trace, damage_of, exporters, not_carried
    from .diagnosing import (
        compared_curves,
        curves_json,
        curves_of,
        curves_text,
        first_nonfinite,
        nonfinite_json,
        nonfinite_text,
    )
    from .opening import listing, open
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
    from .repeating import repetition_text, run_twice
    from .reporting import (
        comparison_json,
        growth_text,
        listing_json,
        print_pairs,
        print_table,
        print_tree,
        print_verdict,
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
    from .results import Certificate, Comparison, Conversion, WeightComparison, WeightMap
    from .saved import read_tensor, write_tensor
    from .surroundings import (
        callback_class,
        doctor,
        findings_json,
        imported_frameworks,
        known_operations,
        operations_json,
        operations_text,
        stand_in,
    )
    from .traces import Trace
    from .uploading import upload, waiting_uploads
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
    from .zooming import read_zoom, zoom

# Where the verbs live. A room is entered when one of its names is asked for: whoever compares two tables of numbers waits neither
# for numpy nor for what a recording needs.
_HOMES = {
    "..engine.local": ("Local",),
    "..measure.values": ("measure",),
    "..model.results": ("Finding", "Listing"),
    "..report.text": ("verdict",),
    "..report.weights": ("certificate_text", "conversion_text", "map_text", "weight_comparison_text"),
    ".accepting": ("accept", "read_accepted", "write_accepted"),
    ".arrays": ("array_shapes", "compare_arrays", "measure_arrays", "pair_arrays"),
    ".bundling": ("write_bundle",),
    ".comparing": ("compare", "is_operation", "pair_up", "parameter_role", "same_operation", "write_mapping"),
    ".converting": ("conversion_line", "convert_trace", "damage_of", "exporters", "not_carried"),
    ".diagnosing": (
        "compared_curves", "curves_json", "curves_of", "curves_text", "first_nonfinite", "nonfinite_json",
        "nonfinite_text",
    ),
    ".opening": ("listing", "open"),
    ".recording": (
        "Recorder", "Run", "Seeded", "SelfCheck", "array_of", "framework_of", "graph_tap", "modules_of",
        "rank_and_world", "record", "seed_all", "selfcheck", "selfcheck_script", "tap", "without_dropout",
    ),
    ".reporting": (
        "comparison_json", "growth_text", "listing_json", "print_pairs", "print_table", "print_tree", "print_verdict",
        "progress_bar",
        "read_report", "view",
        "write_csv", "write_html", "write_json", "write_table", "write_text", "write_xlsx",
    ),
    ".repeating": ("repetition_text", "run_twice"),
    ".results": ("Certificate", "Comparison", "Conversion", "WeightComparison", "WeightMap"),
    ".saved": ("read_tensor", "write_tensor"),
    ".surroundings": (
        "callback_class", "doctor", "findings_json", "imported_frameworks", "known_operations", "operations_json",
        "operations_text", "stand_in",
    ),
    ".traces": ("Trace",),
    ".uploading": ("upload", "waiting_uploads"),
    ".weights": (
        "certify_weights", "compare_weights", "convert_weights", "describe_net", "framework_of_net",
        "from_troubleshooter", "map_weights", "net_from", "random_input", "read_weight_map", "run_net",
        "to_troubleshooter", "weight_names", "write_troubleshooter", "write_weight_map",
    ),
    ".zooming": ("read_zoom", "zoom"),
}  # fmt: skip

__all__ = [
    "Certificate",
    "Comparison",
    "Conversion",
    "Finding",
    "Listing",
    "Local",
    "Recorder",
    "Run",
    "Seeded",
    "SelfCheck",
    "Trace",
    "WeightComparison",
    "WeightMap",
    "accept",
    "array_of",
    "array_shapes",
    "callback_class",
    "certificate_text",
    "certify_weights",
    "compare",
    "compare_arrays",
    "compare_weights",
    "compared_curves",
    "comparison_json",
    "conversion_line",
    "conversion_text",
    "convert_trace",
    "convert_weights",
    "curves_json",
    "curves_of",
    "curves_text",
    "damage_of",
    "describe_net",
    "doctor",
    "exporters",
    "findings_json",
    "first_nonfinite",
    "framework_of",
    "framework_of_net",
    "from_troubleshooter",
    "graph_tap",
    "growth_text",
    "imported_frameworks",
    "is_operation",
    "known_operations",
    "listing",
    "listing_json",
    "map_text",
    "map_weights",
    "measure",
    "measure_arrays",
    "modules_of",
    "net_from",
    "nonfinite_json",
    "nonfinite_text",
    "not_carried",
    "open",
    "operations_json",
    "operations_text",
    "pair_arrays",
    "pair_up",
    "parameter_role",
    "print_pairs",
    "print_table",
    "print_tree",
    "print_verdict",
    "progress_bar",
    "random_input",
    "rank_and_world",
    "read_accepted",
    "read_report",
    "read_tensor",
    "read_weight_map",
    "read_zoom",
    "record",
    "repetition_text",
    "run_net",
    "run_twice",
    "same_operation",
    "seed_all",
    "selfcheck",
    "selfcheck_script",
    "stand_in",
    "tap",
    "to_troubleshooter",
    "upload",
    "verdict",
    "view",
    "waiting_uploads",
    "weight_comparison_text",
    "weight_names",
    "without_dropout",
    "write_accepted",
    "write_bundle",
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
    "zoom",
]


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _check_numpy()
    value = globals()[name] = getattr(importlib.import_module(home, __name__), name)
    return value


@functools.cache
def _check_numpy() -> None:
    """MissingPackageError if numpy is too old: behind most verbs there are arrays, and the error would be one of theirs.

    Read from its metadata: there are verbs that do without numpy, and must not import it.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions.require("numpy", importlib.metadata.version("numpy"))
