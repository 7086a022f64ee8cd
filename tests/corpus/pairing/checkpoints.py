"""Class 13: checkpoints of real architectures, whose weights two code bases call, cut and lay out differently.

    for outcome in outcomes_of(name, "bf16"):      there and back: rightly converted, then with two blocks exchanged

The architectures are those of tests/weights/renamings.txt, which says of every weight where it goes.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from twintrace.weights.certificate import certify
from twintrace.weights.conversion import value
from twintrace.weights.mapping import declare, map_states
from twintrace.weights.states import open_state

from .scoring import Outcome


def _renamings() -> ModuleType:
    """The tables of the tests of weights, which are no package."""
    path = Path(__file__).resolve().parents[2] / "weights" / "renamings.py"
    spec = importlib.util.spec_from_file_location("corpus_renamings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


renamings = _renamings()
NAMES = tuple(renamings.TABLES)


def outcomes_of(name: str, dtype: str) -> Iterator[Outcome]:
    """One architecture in one type."""
    there = _rounded(renamings.renaming(name), dtype)
    for direction, found in (("there", there), ("back", there.flipped())):
        left, right = _state(found.left), _state(found.right)
        yield _arrived(name, dtype, direction, found, left, right)
        exchanged = _exchanged(name, found, direction)
        if exchanged is not None:
            certificate = certify(left, _state(exchanged), declare(left, _state(exchanged)))
            moved = {key for key in exchanged if not np.array_equal(exchanged[key], found.right[key])}
            first = certificate.first or ""
            told = any(key in first for key in moved)
            yield Outcome(f"13-{name}, exchanged", "part", dtype, direction, certificate.code, first, told, True, 0)


def _arrived(name: str, dtype: str, direction: str, found: Any, left: Any, right: Any) -> Outcome:
    """Everything arrived; the target's own values, before they are overwritten, must lead to no wrong pair either."""
    declared = declare(left, right)
    wanted = set(found.right) - found.extra - found.lost
    paired = {pair.right for pair in declared.pairs}
    blank = _state({key: _other(key, array, found) for key, array in found.right.items()})
    wrong = [
        f"{' + '.join(pair.left)} = {pair.right} ({pair.because})"
        for made in (declared, map_states(left, blank))
        for pair in made.pairs
        if pair.right in found.lost or not np.array_equal(value(left, pair), found.right[pair.right])
    ]
    certificate = certify(left, right, declared)
    return Outcome(
        f"13-{name}",
        "part" if found.lost else "agree",
        dtype,
        direction,
        certificate.code,
        certificate.first or "",
        not found.lost or any(key in text for key in found.lost for text in certificate.guilty),
        True,
        len(wanted),
        tuple(sorted(wanted - paired)),
        tuple(wrong),
        str(certificate),
    )


def _rounded(found: Any, dtype: str) -> Any:
    """The same weights with no more digits than this type has."""
    keep = {"f32": lambda array: array, "f16": _as_f16, "bf16": _as_bf16}[dtype]

    def side(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key: keep(array) if array.dtype == np.float32 else array for key, array in arrays.items()}

    return replace(found, left=side(found.left), right=side(found.right))


def _as_f16(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # -1e9 is infinite here, as in real checkpoints
        return array.astype(np.float16)


def _as_bf16(array: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _other(key: str, array: np.ndarray, found: Any) -> np.ndarray:
    if key in found.extra or array.dtype not in (np.float32, np.float16):
        return array
    return np.random.default_rng([5, *key.encode()]).standard_normal(array.shape).astype(array.dtype)


def _exchanged(name: str, found: Any, direction: str) -> dict[str, np.ndarray] | None:
    """The right side with its first two blocks exchanged; None where nothing in the names tells blocks apart."""
    side = 1 if direction == "there" else 0
    patterns = []
    for line in renamings.TABLES[name]:
        text = line.rpartition(" [")[0].split(" = ")[side]
        patterns += [re.split(r"[\^(~]", part)[0] for part in text.split(" + ") if "{}" in part]
    swap = {
        pattern.replace("{}", one): pattern.replace("{}", two)
        for pattern in patterns
        for one, two in (("0", "1"), ("1", "0"))
    }
    if not any(key in found.right and other in found.right for key, other in swap.items()):
        return None
    return {key: found.right[swap.get(key, key)] for key in found.right}


def _state(arrays: dict[str, np.ndarray]) -> Any:
    mindspore = any(key.endswith((".beta", "embedding_table")) for key in arrays)
    return open_state(arrays, framework="mindspore" if mindspore else "torch")
