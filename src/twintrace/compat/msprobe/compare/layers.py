"""Layers by name, level by level: where a module of one model stands in the other.

    ParallelAttention:                     layers.5.attention.qkv_proj    (classes: …, ParallelAttention, …)
      qkv_proj: query_key_value    ──▶     layers.0.self_attention.query_key_value
    layers:
      '5': '0'

A name is looked up under the class of the layer that holds it; where that has no record of its own (a list of layers), under its
name. A layer that no rule speaks of keeps its name.

The last name may be that of an API, inside the layer that calls it:

    ParallelAttention:
      flash_attention_score: core_attention_flash.npu_fusion_attention

Where a function of the framework calls an API, as the stack shows, that function's name stands between the layer's and the API's.
Of several calls of one API in one place the first stands beside the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ....model.sites import Kind
from ..dumps import Dump
from ..names import MODULES, RecordName, parse
from .mappings import TOP

_PIPELINED = ("ParallelTransformer", "layers")
"""MindSpore counts the layers of all stages of a pipeline, PyTorch those of its own stage."""
# The lines of a stack that count: from behind the tool's own wrapper to the layer's function, as the tool reads them.
_WRAPPER = "Template"
_LAYER_FUNCTIONS = {"mindspore": re.compile("construct")}
_FORWARD = re.compile(r"in (for|back)ward,")
_FRAMEWORK_FILES = ("site-packages/torch", "package/torch", "site-packages/mindspore", "package/mindspore")
_OTHER_FILES = ("msprobe", "MindSpeed")
_NO_NAMES = ("construct", "__call__")
_WITHOUT_STACK = ("Primitive", "Jit")


def pair_layers(npu: Dump, bench: Dump, rules: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Paths of modules that both dumps have: npu -> bench."""
    classes = [_classes(dump) for dump in (npu, bench)]
    shift = _first_layer(classes[1]) - _first_layer(classes[0])
    found: dict[str, str] = {}
    for path in classes[0]:
        other = _translated(path.split("."), classes[0], rules, shift)
        if other in classes[1]:
            found[path] = other
    return found


def pair_apis(npu: Dump, bench: Dump, rules: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, bool]]:
    """Records of APIs that stand in the same place of their layers: npu's, bench's, and whether a rule says so."""
    classes = [_classes(dump) for dump in (npu, bench)]
    shift = _first_layer(classes[1]) - _first_layer(classes[0])
    theirs = {(place, what, turn): record for record, place, what, turn in _placed(bench)}
    found: list[tuple[str, str, bool]] = []
    for record, place, what, turn in _placed(npu):
        translated = _translated(place.split("."), classes[0], rules, shift)
        other = theirs.get((translated, what, turn))
        if other is not None:
            layer, _, own = place.rpartition(".")
            moved = _translated(layer.split("."), classes[0], rules, shift) if layer else ""
            found.append((record, other, translated != ".".join(filter(None, (moved, own)))))
    return found


def _placed(dump: Dump) -> list[tuple[str, str, str, int]]:
    """(record, place, direction, turn) of each API: how many there were before it in the same place and direction."""
    records = list(dict.fromkeys(item.record for item in dump.items))
    turns: dict[tuple[str, str], int] = {}
    places: dict[str, str] = {}
    found = []
    for record in records:
        name = parse(record)
        if name is None or name.kind is not Kind.API:
            continue
        forward = record.removesuffix(".backward") + ".forward" if name.what == "backward" else record
        place = places.get(forward) or _place_of(dump, forward, name)
        places[record] = place
        turn = turns.get((place, name.what), 0)
        turns[place, name.what] = turn + 1
        found.append((record, place, name.what, turn))
    return found


def _place_of(dump: Dump, record: str, name: RecordName) -> str:
    """The layer's path, the framework's function that makes the call if there is one, and the API's own name."""
    around = parse(dump.construct.get(record) or "")
    layer = around.name if around is not None and around.prefix in MODULES else ""
    function = "" if name.prefix in _WITHOUT_STACK else _framework_function(dump.stacks.get(record, ()), dump.framework)
    return ".".join(filter(None, (layer, function, _own_name(name))))


def _own_name(name: RecordName) -> str:
    """`RmsNorm` of `Primitive.norm.RmsNorm`: the last of the names."""
    return (name.type or name.name).rpartition(".")[2]


def _framework_function(lines: Sequence[str], framework: str) -> str:
    """The function of the framework through which the user's code makes a call; nothing where the user calls it directly."""
    start = next((number for number, line in enumerate(lines) if _WRAPPER in line), None)
    if start is not None:
        ends = _LAYER_FUNCTIONS.get(framework, _FORWARD)
        # The last wrapper before the layer counts, and the layer's line is not looked at itself.
        end = len(lines)
        for number, line in enumerate(lines):
            if _WRAPPER in line:
                start = number
            elif number > start and ends.search(line):
                end = number
                break
        lines = lines[start + 1 : end]
    entrance = ""
    for line in lines:
        if not any(part in line.partition(",")[0] for part in _FRAMEWORK_FILES):
            break
        entrance = line
    parts = entrance.split(",")
    if len(parts) < 3 or any(part in parts[0] for part in _OTHER_FILES) or any(word in parts[2] for word in _NO_NAMES):
        return ""
    return parts[2].split()[-1] if parts[2].split() else ""


def unknown_layers(npu: Dump, bench: Dump, rules: Mapping[str, Mapping[str, str]]) -> list[tuple[str, int]]:
    """Names in the rules that no module of their side (0 the npu, 1 the bench) has, nor stands in the path of one."""
    classes = [_classes(dump) for dump in (npu, bench)]
    apis = [[place for _, place, _, _ in _placed(dump)] for dump in (npu, bench)]
    paths = ["".join(f".{path}.\n" for path in (*side, *inside)) for side, inside in zip(classes, apis, strict=True)]
    kinds = {TOP, *classes[0].values()}
    found: dict[tuple[str, int], None] = {}
    for owner, names in rules.items():
        if owner not in kinds and f".{owner}." not in paths[0]:
            found[owner, 0] = None
            continue
        for pair in names.items():
            found |= {(name, which): None for which, name in enumerate(pair) if f".{name}." not in paths[which]}
    return list(found)


def _classes(dump: Dump) -> dict[str, str]:
    """The class of each module that has a record, by its path."""
    around = (parent for parent in dump.construct.values() if parent)
    records = dict.fromkeys([*(item.record for item in dump.items), *dump.construct, *around])
    names = (parse(record) for record in records)
    return {name.name: name.type for name in names if name is not None and name.prefix in MODULES}


def _translated(
    parts: Sequence[str], classes: Mapping[str, str], rules: Mapping[str, Mapping[str, str]], shift: int
) -> str:
    done: list[str] = []
    at = 0
    while at < len(parts):
        owner = classes.get(".".join(parts[:at]), "") if at else TOP
        name = parts[at - 1] if at else TOP
        step, target = _step(parts[at:], [rules.get(owner, {}), rules.get(name, {})])
        in_pipeline = at > 1 and (classes.get(".".join(parts[: at - 1])), name) == _PIPELINED
        if not target and in_pipeline and parts[at].isdecimal():
            target = str(int(parts[at]) + shift)
        done.append(target or parts[at])
        at += step
    return ".".join(done)


def _step(rest: Sequence[str], tables: Iterable[Mapping[str, str]]) -> tuple[int, str]:
    """Number of names that a rule takes, and what they become: the longest rule that fits."""
    for table in tables:
        for count in range(len(rest), 0, -1):
            target = table.get(".".join(rest[:count]))
            if target is not None:
                return count, target
    return 1, ""


def _first_layer(classes: Mapping[str, str]) -> int:
    """The lowest number among the layers of a pipelined transformer; 0 if there is none."""
    lists = [f"{path}.{_PIPELINED[1]}" for path, name in classes.items() if name == _PIPELINED[0]]
    numbers = [
        int(match[1])
        for inside in lists
        for path in classes
        if (match := re.match(rf"{re.escape(inside)}\.(\d+)(?:\.|$)", path))
    ]
    return min(numbers, default=0)
