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
first_nonfinite(trace)     where the NaN comes from              -> NonfiniteReport
doctor()                   what can be recorded here             -> list of Finding
known_operations()         what can be recomputed                -> list of KnownOperation
map_weights, convert_weights, compare_weights, certify_weights   -> api/weights.py
compare_arrays                                                   -> api/arrays.py

What only other tools' embassies (`compat`) need is lent to them, and no part of this list: `_LENT`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from ..model import versions

# Where the verbs live. A room is entered when one of its names is asked for: whoever compares two tables of numbers waits neither
# for numpy nor for what a recording needs.
_HOMES = {
    "..collect.scripts": ("selfcheck_script",),
    "..collect.seeding": ("seed_all",),
    "..collect.selfcheck": ("Run", "SelfCheck", "selfcheck"),
    "..model.listings": ("Finding", "Listing"),
    "..report.curves": ("curves_json", "curves_text"),
    "..report.delimited": ("write_csv",),
    "..report.document": ("comparison_json", "write_json"),
    "..report.growth": ("growth_text",),
    "..report.findings": (
        "findings_json", "nonfinite_json", "nonfinite_text", "operations_json", "operations_text", "repetition_text",
    ),
    "..report.pairs": ("print_pairs", "print_verdict"),
    "..report.progress": ("progress_bar",),
    "..report.text": ("verdict",),
    "..report.tree": ("listing_json", "print_table", "print_tree"),
    "..report.weights": ("certificate_text", "conversion_text", "map_text", "weight_comparison_text"),
    "..report.workbook": ("write_xlsx",),
    "..store.registry": ("exporters",),
    "..weights.mapfile": ("write_weight_map",),
    ".accepting": ("accept", "read_accepted", "write_accepted"),
    ".arrays": ("compare_arrays",),
    ".bundling": ("write_bundle",),
    ".comparing": ("compare", "write_mapping"),
    ".converting": ("conversion_line", "convert_trace", "damage_of", "not_carried"),
    ".diagnosing": ("compared_curves", "curves_of", "first_nonfinite"),
    ".environment": ("callback_class", "doctor", "known_operations"),
    ".opening": ("listing", "open"),
    ".recording": ("Recorder", "record"),
    ".repeating": ("run_twice",),
    ".reporting": ("read_report", "write_html"),
    ".results": ("Certificate", "Comparison", "Conversion", "WeightComparison", "WeightMap"),
    ".traces": ("Trace",),
    ".uploading": ("upload", "waiting_uploads"),
    ".viewing": ("view",),
    ".weights": (
        "certify_weights", "compare_weights", "convert_weights", "map_weights", "net_from", "random_input", "read_weight_map",
    ),
    ".zooming": ("read_zoom", "zoom"),
}  # fmt: skip
_LENT = {
    "..collect.seeding": ("Seeded", "without_dropout"),
    "..engine.local": ("Local",),
    "..measure.values": ("measure",),
    "..weights.mapfile": ("from_troubleshooter", "to_troubleshooter", "write_troubleshooter"),
    "..weights.pth": ("read_tensor", "write_tensor"),
    ".arrays": ("array_shapes", "measure_arrays", "pair_arrays"),
    ".comparing": ("pair_up",),
    ".environment": ("imported_frameworks", "is_operation", "parameter_role", "same_operation", "stand_in"),
    ".recording": ("modules_of",),
    ".reporting": ("write_table", "write_text"),
    ".tensors": ("array_of", "framework_of", "graph_tap", "rank_and_world", "tap"),
    ".weights": ("describe_net", "framework_of_net", "run_net", "weight_names"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)

if TYPE_CHECKING:  # everything that the homes define, for type checkers; what is there in fact is `__all__`
    from ..collect.scripts import *
    from ..collect.seeding import *
    from ..collect.selfcheck import *
    from ..engine.local import *
    from ..measure.values import *
    from ..model.listings import *
    from ..report.curves import *
    from ..report.delimited import *
    from ..report.document import *
    from ..report.findings import *
    from ..report.growth import *
    from ..report.pairs import *
    from ..report.progress import *
    from ..report.text import *
    from ..report.tree import *
    from ..report.weights import *
    from ..report.workbook import *
    from ..store.registry import *
    from ..weights.mapfile import *
    from ..weights.pth import *
    from .accepting import *
    from .arrays import *
    from .bundling import *
    from .comparing import *
    from .converting import *
    from .diagnosing import *
    from .environment import *
    from .opening import *
    from .recording import *
    from .repeating import *
    from .reporting import *
    from .results import *
    from .tensors import *
    from .traces import *
    from .uploading import *
    from .viewing import *
    from .weights import *
    from .zooming import *
else:

    def __getattr__(name: str) -> Any:
        homes = (*_HOMES.items(), *_LENT.items())
        home = next((home for home, names in homes if name in names), None)
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
