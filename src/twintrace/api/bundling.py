"""One mistake as a zip that needs no twintrace: inputs, both results, settings, versions and a script of at most 50 lines.

    write_bundle(left, right, comparison, "mistake.zip")

    mistake/case.json       both calls with their arguments, where they are, the verdict, versions
    mistake/left_0.npy …    tensors of the left call; bf16 and fp8 as float32, which holds them exactly
    mistake/right_0.npy …
    mistake/show.py         python show.py: inputs beside each other, results beside each other, each call in float64

The script calls a PyTorch function again on the recorded arguments; of another framework's call it shows the recorded arrays.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..model.errors import TwintraceError
from ..model.records import Call
from ..model.results import Comparison, Divergence
from ..model.sites import Kind
from ..model.values import Nest, TensorRef, Token, Value
from ..store.registry import open_trace
from ..store.trace import Journal, Trace
from .comparing import Source

SCRIPT = '''\
"""Shows one difference between two runs: python show.py. Needs numpy; with torch, PyTorch's calls are computed in float64."""
import functools, json, pathlib
import numpy as np

here = pathlib.Path(__file__).parent
case = json.loads((here / "case.json").read_text(encoding="utf-8"))
load = functools.cache(lambda name: np.load(here / name, allow_pickle=False))

def apart(one, two):
    if one.shape != two.shape and one.size != two.size:
        return f"shapes {one.shape} | {two.shape}"
    kind = complex if np.iscomplexobj(one) or np.iscomplexobj(two) else float
    one, two = one.astype(kind), two.astype(kind).reshape(one.shape)
    if np.array_equal(one, two, equal_nan=True):
        return "equal"
    gap = np.nan_to_num(np.abs(one - two), nan=np.inf)
    at = np.unravel_index(gap.argmax(), gap.shape)
    size = np.linalg.norm(np.nan_to_num(one)) or 1.0
    place = [int(index) for index in at]
    return f"relative error {np.linalg.norm(gap) / size:.2e}, worst at {place}: {one[at]:.9g} | {two[at]:.9g}"

def value(item):
    if isinstance(item, list):
        return [value(part) for part in item]
    if not isinstance(item, dict):
        return item
    (kind, content), = item.items()
    if kind == "tensor":
        found = torch.from_numpy(np.array(load(content)))
        return found.double() if found.is_floating_point() else found
    if kind == "dict":
        return {key: value(part) for key, part in content.items()}
    return {"tuple": lambda: tuple(map(value, content)), "float": lambda: float(content), "dtype": lambda: torch.float64}[kind]()

print(case["verdict"], "\\n")
for name, left, right in case["pairs"]:
    print(f"{name:24} {apart(load(left), load(right).transpose(case['axes'].get(name)))}")
for side in ("left", "right"):
    call = case[side]
    print(f"\\n{side}: {call['name']}({call['text']})")
    if not call["function"]:
        print("  recorded arrays only:", call["reason"])
        continue
    import torch
    function = functools.reduce(getattr, call["function"].split(".")[1:], torch)
    found = function(*map(value, call["args"]), **{key: value(part) for key, part in call["kwargs"].items()})
    found = [item for item in (found if isinstance(found, (tuple, list)) else [found]) if isinstance(item, torch.Tensor)]
    for recorded, computed in zip(call["results"], found):
        print("  recorded | computed in float64:", apart(load(recorded), computed.detach().numpy()))
'''
"""Runs without this package; at most 50 lines, so that it is read before it is run."""


class _Unwritable(Exception):
    """An argument that JSON and a script cannot hold; the message names it."""


def write_bundle(left: Source, right: Source, comparison: Comparison, path: str | os.PathLike[str]) -> bool:
    """Write the first mistake as a zip; False if there is none, or if it belongs to no call."""
    from ..report.files import placed

    parting = comparison.divergence
    if parting is None or not parting.result.match.left or not parting.result.match.right:
        return False
    traces: tuple[Trace, Trace] = (open_trace(left, tolerant=True), open_trace(right, tolerant=True))
    place = parting.result.step, parting.result.rank
    match = parting.result.match
    sides = [
        _Side("left", traces[0].journal(*place), match.left),
        _Side("right", traces[1].journal(*place), match.right),
    ]
    case = _case(comparison, parting, sides)
    with placed(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("mistake/show.py", SCRIPT)
        for side in sides:
            for name, array in side.arrays.items():
                bundle.writestr(f"mistake/{name}", array)
        bundle.writestr("mistake/case.json", json.dumps(case, indent=1, ensure_ascii=False))
    return True


class _Side:
    """Calls of one side with their tensors as npy files."""

    def __init__(self, name: str, journal: Journal, calls: tuple[Call, ...]) -> None:
        self.name, self.journal = name, journal
        self.calls = calls
        self.arrays: dict[str, bytes] = {}
        self._names: dict[int, str | None] = {}

    def file(self, number: int) -> str | None:
        """Name of the file with a tensor's values; None where they were not kept."""
        if number not in self._names:
            self._names[number] = None
            data = self._bytes(number)
            if data is not None:
                name = self._names[number] = f"{self.name}_{len(self.arrays)}.npy"
                self.arrays[name] = data
        return self._names[number]

    def _bytes(self, number: int) -> bytes | None:
        import numpy as np

        from ..store.arrays import as_float

        tensor = self.journal.tensor(number)
        if tensor.payload is None:
            return None
        try:
            array = as_float(self.journal.array(tensor), tensor.spec.dtype)
        except (TwintraceError, OSError):
            return None
        data = io.BytesIO()
        np.save(data, np.asarray(array), allow_pickle=False)
        return data.getvalue()

    def described(self) -> dict[str, Any]:
        """The call as the script takes it."""
        call = self.calls[-1]
        told: dict[str, Any] = {
            "name": call.site.name or call.site.type,
            "place": str(call.site),
            "text": ", ".join([*map(_text, call.args), *(f"{key}={_text(item)}" for key, item in call.kwargs.items())]),
            "source": [f"{frame.file}:{frame.line} in {frame.function}: {frame.code}" for frame in call.stack[:5]],
            "config": {} if call.config is None else {key: _text(item) for key, item in call.config.values.items()},
            "calls": [str(item.site) for item in self.calls],
            "function": "", "reason": "", "args": [], "kwargs": {}, "results": [],
        }  # fmt: skip
        results = list(call.returned.values())
        told["results"] = [name for number in results if (name := self.file(number)) is not None]
        try:
            if len(self.calls) > 1:
                raise _Unwritable("several calls belong together here")
            if self.journal.header.framework != "torch" or call.site.kind is not Kind.API:
                raise _Unwritable(f"{told['name']} is no function of PyTorch")
            if not call.site.name.startswith("torch.") or len(told["results"]) != len(results):
                raise _Unwritable("its values were not kept")
            told["args"] = [self._wire(item) for item in call.args]
            told["kwargs"] = {key: self._wire(item) for key, item in call.kwargs.items()}
            told["function"] = call.site.name
        except _Unwritable as error:
            told["reason"] = str(error)
        return told

    def _wire(self, value: Value) -> Any:
        if isinstance(value, TensorRef):
            name = self.file(value.id)
            if name is None:
                raise _Unwritable("the values of an argument were not kept")
            return {"tensor": name}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Nest) and value.kind in ("list", "tuple"):
            items = [self._wire(item) for _, item in value.items]
            return items if value.kind == "list" else {"tuple": items}
        if isinstance(value, Nest) and value.kind == "dict":
            return {"dict": {key: self._wire(item) for key, item in value.items}}
        if isinstance(value, Token) and value.kind == "dtype" and "float" in value.text:
            return {"dtype": value.text}
        raise _Unwritable(f"the argument {_text(value)} cannot be written into a script")


def _case(comparison: Comparison, parting: Divergence, sides: list[_Side]) -> Mapping[str, Any]:
    from ..report.text import verdict

    pairs, axes, mistake = [], {}, parting.mistake
    for item in parting.result.tensors:
        files = [side.file(number) for side, number in zip(sides, (item.pair.left, item.pair.right), strict=True)]
        if all(files) and not (parting.backward is False and item.pair.part.backward):
            name = f"{item.pair.part} {item.pair.left_slot}".strip()
            pairs.append([name, *files])
            axes[name] = list(item.pair.layout.axes or range(len(item.right.spec.shape)))
    return {
        "verdict": verdict(comparison),
        "mistake": mistake and {"kind": mistake.kind, "what": mistake.what, "why": mistake.why},
        "settings": {name: list(pair) for name, pair in parting.result.settings.items()},
        "pairs": pairs,
        "axes": axes,
        "left": sides[0].described(),
        "right": sides[1].described(),
        "versions": {
            "twintrace": __version__,
            "left": {str(key): str(item) for key, item in comparison.left.environment.items()},
            "right": {str(key): str(item) for key, item in comparison.right.environment.items()},
        },
    }  # fmt: skip


def _text(value: Value) -> str:
    if isinstance(value, TensorRef):
        return "…"
    if isinstance(value, Nest):
        return f"({', '.join(_text(item) for _, item in value.items)})"
    return value.text if isinstance(value, Token) else repr(value)
