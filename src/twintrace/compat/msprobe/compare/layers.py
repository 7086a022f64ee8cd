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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ....model.sites import Kind
from ..dumps import Dump
from ..names import MODULES, parse
from .mappings import TOP
from .pairing import missing_names

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


class Layers:
    """The layers of two dumps, and the rules of a file: class or name of a layer -> name inside it -> name on the other side."""

    def __init__(self, npu: Dump, bench: Dump, rules: Mapping[str, Mapping[str, str]]) -> None:
        self._rules = rules
        self._classes = _classes(npu), _classes(bench)
        self._shift = _first_layer(self._classes[1]) - _first_layer(self._classes[0])
        self._apis = [*_placed_apis(npu)], [*_placed_apis(bench)]

    def modules(self) -> dict[str, str]:
        """Paths of modules that both dumps have: npu -> bench."""
        translated = {path: self._translated(path) for path in self._classes[0]}
        return {path: other for path, other in translated.items() if other in self._classes[1]}

    def apis(self) -> list[tuple[str, str, bool]]:
        """Records of APIs that stand in the same place of their layers: npu's, bench's, and whether a rule says so."""
        theirs = {(place, what, turn): record for record, place, what, turn in self._apis[1]}
        pairs: list[tuple[str, str, bool]] = []
        for record, place, what, turn in self._apis[0]:
            translated = self._translated(place)
            other = theirs.get((translated, what, turn))
            if other is not None:
                layer, _, own = place.rpartition(".")
                unruled = f"{self._translated(layer)}.{own}" if layer else own
                pairs.append((record, other, translated != unruled))
        return pairs

    def unknown(self) -> list[tuple[str, int]]:
        """Names in the rules that no module of their side (0 the npu, 1 the bench) has, nor stands in the path of one."""
        paths = [
            "".join(f".{path}.\n" for path in (*classes, *(place for _, place, _, _ in apis)))
            for classes, apis in zip(self._classes, self._apis, strict=True)
        ]
        kinds = {TOP, *self._classes[0].values()}
        names_unknown: dict[tuple[str, int], None] = {}
        for owner, names in self._rules.items():
            if owner not in kinds and f".{owner}." not in paths[0]:
                names_unknown[owner, 0] = None
                continue
            names_unknown |= dict.fromkeys(missing_names(names.items(), paths))
        return list(names_unknown)

    def _translated(self, path: str) -> str:
        """A path on the other side: at each level the longest rule that fits."""
        parts, done, at = path.split("."), list[str](), 0
        classes = self._classes[0]
        while at < len(parts):
            owner, name = (classes.get(".".join(parts[:at]), ""), parts[at - 1]) if at else (TOP, TOP)
            tables = (self._rules.get(owner, {}), self._rules.get(name, {}))
            ends = range(len(parts), at, -1)
            end, target = next(
                ((end, table[rule]) for table in tables for end in ends if (rule := ".".join(parts[at:end])) in table),
                (at + 1, ""),
            )
            in_pipeline = at > 1 and (classes.get(".".join(parts[: at - 1])), name) == _PIPELINED
            if not target and in_pipeline and parts[at].isdecimal():
                target = str(int(parts[at]) + self._shift)
            done.append(target or parts[at])
            at = end
        return ".".join(done)


def _classes(dump: Dump) -> dict[str, str]:
    """The class of each module that has a record, by its path."""
    around = (parent for parent in dump.construct.values() if parent)
    records = dict.fromkeys([*(item.record for item in dump.items), *dump.construct, *around])
    names = (parse(record) for record in records)
    return {name.name: name.type for name in names if name is not None and name.prefix in MODULES}


def _first_layer(classes: Mapping[str, str]) -> int:
    """The lowest number among the layers of a pipelined transformer; 0 if there is none."""
    lists = "|".join(re.escape(f"{path}.{_PIPELINED[1]}.") for path, name in classes.items() if name == _PIPELINED[0])
    numbers = (re.match(rf"(?:{lists})(\d+)(?:\.|$)", path) for path in classes) if lists else ()
    return min((int(match[1]) for match in numbers if match), default=0)


def _placed_apis(dump: Dump) -> Iterator[tuple[str, str, str, int]]:
    """(record, place, direction, turn) of each API: how many there were before it in the same place and direction.

    A place is the layer's path, the framework's function that makes the call if there is one, and the API's own name.
    """
    turns: Counter[tuple[str, str]] = Counter()
    places: dict[str, str] = {}
    for record in dict.fromkeys(item.record for item in dump.items):
        name = parse(record)
        if name is None or name.kind is not Kind.API:
            continue
        forward = record.removesuffix(".backward") + ".forward" if name.what == "backward" else record
        place = places.get(forward)
        if place is None:
            around = parse(dump.construct.get(forward) or "")
            layer = around.name if around is not None and around.prefix in MODULES else ""
            stack = () if name.prefix in _WITHOUT_STACK else dump.stacks.get(forward, ())
            own = (name.type or name.name).rpartition(".")[2]  # `RmsNorm` of `Primitive.norm.RmsNorm`
            place = ".".join(filter(None, (layer, _framework_function(stack, dump.framework), own)))
        places[record] = place
        yield record, place, name.what, turns[place, name.what]
        turns[place, name.what] += 1


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
