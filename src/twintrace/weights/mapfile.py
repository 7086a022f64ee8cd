"""A weight map as a file: written, edited by hand, given back.

    {"format": "twintrace weight map", "version": 1, "left": "torch", "right": "mindspore",
     "pairs": [{"left": ["conv.weight"], "right": "conv.weight", "steps": ["insert axis 2"],
                "confidence": 1.0, "because": "same path"}, …],
     "only_left": […], "only_right": […], "ambiguous": […]}

TroubleShooter's maps, a list of two dicts, are read too: names, and functions for the values that must change. The functions are
looked up in a table and never called by name.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.errors import WeightsError
from ..model.weights import Ambiguity, Pair, Unpaired, WeightMap
from .checkpoints import replacing
from .transforms import parse

FORMAT, VERSION = "twintrace weight map", 1
CONV1D = "troubleshooter.migrator.mapping_relation.weight_adapter.trans_conv1d_weight_value"
_OURS = "twintrace: "  # before steps for which TroubleShooter has no function


def write_weight_map(map: WeightMap, path: str | os.PathLike[str]) -> None:
    """Write a map, for reading and editing."""

    def told(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in fields if (name, value) != ("neutral", None)}

    _write({"format": FORMAT, "version": VERSION, **dataclasses.asdict(map, dict_factory=told)}, path)


def _write(content: Any, path: str | os.PathLike[str]) -> None:
    with replacing(Path(path)) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def read_map(path: str | os.PathLike[str]) -> WeightMap:
    """Read a map of either kind. WeightsError names the fault in it."""
    try:
        content = json.loads(Path(path).read_bytes(), object_pairs_hook=_no_twins)
    except FileNotFoundError:
        raise WeightsError(f"{path}: there is no such map.") from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: is not JSON ({error}).") from None
    if isinstance(content, list):
        if len(content) != 2:
            raise WeightsError(f"{path}: expected two dicts, names and functions, got a list of {len(content)}.")
        return from_troubleshooter(content[0], content[1], str(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WeightsError(
            f'{path}: is no weight map: expected {{"format": {FORMAT!r}, …}} or TroubleShooter\'s two dicts.'
        )
    if content.get("version") != VERSION:
        raise WeightsError(f"{path}: version {content.get('version')!r} of a weight map; this release reads {VERSION}.")
    where = str(path)
    known = {"format", "version", *(field.name for field in dataclasses.fields(WeightMap))}
    if not set(content) <= known:
        unknown = ", ".join(sorted(set(content) - known))
        raise WeightsError(f"{where}: unknown keys {unknown}; known are {', '.join(sorted(known))}.")
    ambiguous = [
        Ambiguity(tuple(_list(item, "left", where)), tuple(_list(item, "right", where)), _text(item, "because", where))
        for item in _list(content, "ambiguous", where)
    ]
    return checked(
        WeightMap(
            _text(content, "left", where),
            _text(content, "right", where),
            tuple(_read_pair(item, f"{where}: pairs[{n}]") for n, item in enumerate(_list(content, "pairs", where))),
            _read_alone(content, "only_left", where),
            _read_alone(content, "only_right", where),
            tuple(ambiguous),
            tuple(_list(content, "misfits", where)),
        ),
        where,
    )


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")
    return dict(pairs)


def _read_pair(item: Any, where: str) -> Pair:
    known = {field.name for field in dataclasses.fields(Pair)}
    if not isinstance(item, dict) or not set(item) <= known:
        unknown = sorted(set(item) - known) if isinstance(item, dict) else item
        raise WeightsError(f"{where}: expected left, right, steps, confidence and because, got {unknown}.")
    left = item.get("left")
    left = [left] if isinstance(left, str) else left
    steps = item.get("steps", [])
    confidence = item.get("confidence", 1.0)
    if not (isinstance(left, list) and left and all(isinstance(name, str) for name in left)):
        raise WeightsError(f"{where}: left: expected a name or a list of names, got {item.get('left')!r}.")
    if not (isinstance(steps, list) and all(isinstance(step, str) for step in steps)):
        raise WeightsError(f"{where}: steps: expected a list of transforms, got {steps!r}.")
    if not isinstance(confidence, int | float):
        raise WeightsError(f"{where}: confidence: expected a number, got {confidence!r}.")
    for step in steps:
        try:
            parse(step)
        except WeightsError as error:
            raise WeightsError(f"{where}: {error}") from None
    return Pair(tuple(left), _text(item, "right", where), tuple(steps), float(confidence), str(item.get("because", "")))


def _read_alone(content: Mapping[str, Any], key: str, where: str) -> tuple[Unpaired, ...]:
    alone = []
    for number, item in enumerate(_list(content, key, where)):
        here = f"{where}: {key}[{number}]"
        name, neutral = _text(item, "name", here), item.get("neutral")
        value = float(neutral) if isinstance(neutral, int | float) else None
        alone.append(Unpaired(name, str(item.get("because", "")), item.get("harmless") is True, value))
    return tuple(alone)


def _text(content: Any, key: str, where: str) -> str:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, str):
        raise WeightsError(f"{where}: {key}: expected a text, got {value!r}.")
    return value


def _list(content: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = content.get(key, [])
    if not isinstance(value, list):
        raise WeightsError(f"{where}: {key}: expected a list, got {value!r:.60}.")
    return value


def checked(map: WeightMap, where: str) -> WeightMap:
    """The map, if it does not contradict itself."""
    makers: dict[str, tuple[str, ...]] = {}
    for pair in map.pairs:
        if pair.right in makers:
            raise WeightsError(
                f"{where}: {' + '.join(makers[pair.right])} and {' + '.join(pair.left)} are both mapped to {pair.right}. "
                f"Each name on the right can be made once."
            )
        makers[pair.right] = pair.left
    if not map.pairs:
        raise WeightsError(f"{where}: maps nothing.")
    return map


# TroubleShooter's -----------------------------------------------------------------------------------------------------


def to_troubleshooter(map: WeightMap) -> tuple[dict[str, str | None], dict[str, str]]:
    """(names, functions) as TroubleShooter keeps them. A weight that is merged into another has no name of its own: None."""
    names: dict[str, str | None] = {}
    values: dict[str, str] = {}
    for pair in map.pairs:
        source = pair.left[-1]
        names |= dict.fromkeys(pair.left[:-1])
        names[source] = pair.right
        if pair.steps == ("insert axis 2",):
            values[source] = CONV1D
        elif pair.steps:
            values[source] = _OURS + "; ".join([*pair.left[:-1], *pair.steps])
    return names, values


def write_troubleshooter(
    names: Mapping[str, str | None], values: Mapping[str, str], path: str | os.PathLike[str]
) -> None:
    """Write `[names, functions]`."""
    _write([dict(names), dict(values)], path)


def from_troubleshooter(names: Any, values: Any, where: str = "weight_map") -> WeightMap:
    """The map that TroubleShooter's two dicts mean."""
    if not isinstance(names, Mapping) or not isinstance(values, Mapping | None):
        raise WeightsError(
            f"{where}: expected two dicts, names and functions, got {type(names).__name__}, {type(values).__name__}."
        )
    values = values or {}
    unknown = [name for name in values if name not in names]
    if unknown:
        raise WeightsError(f"{where}: functions for names that are not mapped: {', '.join(map(str, unknown[:4]))}.")
    pairs, alone = [], []
    for source, target in names.items():
        if target is None:
            alone.append(Unpaired(source, "made into another", harmless=True))
            continue
        if not isinstance(source, str) or not isinstance(target, str) or not target:
            raise WeightsError(f"{where}: {source!r} is mapped to {target!r}; expected a name.")
        left, steps = _function(values.get(source), source, where)
        pairs.append(Pair((*left, source), target, steps, 1.0, "as the map says"))
    return checked(WeightMap("torch", "mindspore", tuple(pairs), tuple(alone)), where)


def _function(name: Any, source: str, where: str) -> tuple[list[str], tuple[str, ...]]:
    if name is None:
        return [], ()
    if name == CONV1D:
        return [], ("insert axis 2",)
    if isinstance(name, str) and name.startswith(_OURS):
        parts = name.removeprefix(_OURS).split("; ")
        steps: list[str] = []
        while parts and _is_step(parts[-1]):
            steps.insert(0, parts.pop())
        if steps:
            return parts, tuple(steps)
    raise WeightsError(
        f"{where}: {source} is to be changed by {name!r}. Functions named in a file are not called; known is {CONV1D}."
    )


def _is_step(text: str) -> bool:
    try:
        parse(text)
    except WeightsError:
        return False
    return True
