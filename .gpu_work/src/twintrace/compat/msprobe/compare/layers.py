"""Layers by name, level by level: where a module of one model stands in the other.

    ParallelAttention:                     layers.5.attention.qkv_proj    (classes: …, ParallelAttention, …)
      qkv_proj: query_key_value    ──▶     layers.0.self_attention.query_key_value
    layers:
      '5': '0'

A name is looked up under the class of the layer that holds it; where that has no record of its own (a list of layers), under its
name. What no rule speaks of keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..dumps import Dump
from ..names import MODULES, parse
from .mappings import TOP

__all__ = ["pair_layers", "unknown_layers"]

_PIPELINED = ("ParallelTransformer", "layers")
"""MindSpore counts the layers of all stages of a pipeline, PyTorch those of its own stage."""


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


def unknown_layers(npu: Dump, bench: Dump, rules: Mapping[str, Mapping[str, str]]) -> list[tuple[str, int]]:
    """Names in the rules that no module of their side (0 the npu, 1 the bench) has, nor stands in the path of one."""
    classes = [_classes(dump) for dump in (npu, bench)]
    paths = ["".join(f".{path}.\n" for path in side) for side in classes]
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
    records = dict.fromkeys([*(item.record for item in dump.items), *dump.construct])
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
    """How many names a rule takes, and what they become: the longest rule that fits."""
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
