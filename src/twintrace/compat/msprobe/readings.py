"""Elements of dump.json into what a trace has: tensors with numbers, and values as they were written in the call.

    {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "Max": 3.0, …}     TensorRef(7)
    {"type": "int", "value": 2}                                                            2
    {"type": "slice", "value": [0, 2, null]}                                               Token("slice", "0:2")
    [a, [b, null]], {"mask": m}                                                            Nest

A dump does not say that the result of one call is the argument of the next. Elements of one type and shape with the same statistics
and, where it is there, the same checksum are taken for one tensor: that is how the flow of data gets into the trace. Constants are
not, they are everywhere. Where values were kept, a look into the two files decides.
What has no place in a tensor's record (the names of its elements, the tool's own dtype, checksum, placements …) is in its `facts`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...model.dtypes import short_name
from ...model.tensors import CRC, DTYPES, Location, Spec, Statistics, Tensor
from ...model.values import Nest, TensorRef, Token, Value
from .values import sample

# Fields that have a place of their own in a trace.
_KNOWN = frozenset(("type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad", "md5", "data_name"))
_PLAIN = ("torch.Tensor", "mindspore.Tensor")
_TOKENS = ("dtype", "device", "layout", "memory_format")
_TEXT, _FLAG = (str, type(None)), (bool, type(None))
_SCALARS = {"int": int, "float": (int, float), "str": str, "bool": bool}
_MAX_DEPTH = 60  # a value of a trace has 64
_MAX_RANK = 64
_MAX_NAMES = 5000  # a line of a trace has 4 MB


class Readings:
    """Gives tensors their numbers. `problems` are (name of the element, what is wrong with it)."""

    def __init__(self, framework: str, folder: Path, files: frozenset[str]) -> None:
        self.tensors: list[Tensor] = []
        self.problems: list[tuple[str, str]] = []
        self.files: dict[int, str] = {}
        self._framework, self._folder, self._there = framework, folder, files
        self._specs: dict[tuple[str, tuple[int, ...]], Spec | None] = {}
        self._seen: dict[tuple[object, ...], list[int]] = {}
        self._facts: list[dict[str, Any]] = []
        self._samples: dict[str, bytes | None] = {}

    def value(self, entry: Any, name: str, depth: int = 0) -> Value:
        """Value that an entry stands for."""
        if entry is None:
            return None
        if type(entry) is dict:
            kind = entry.get("type")
            if type(kind) is str:
                if "shape" in entry or "dtype" in entry:
                    return self.tensor(entry, name)
                return self._plain(entry, kind, name)
            if entry.get("class_type") == "torch.distributed.P2POp":
                rest = {key: value for key, value in entry.items() if key not in ("class_type", "tensor")}
                items = [("tensor", self.value(entry.get("tensor"), name, depth + 1))]
                items += [(key, value if isinstance(value, str | int) else str(value)) for key, value in rest.items()]
                return Nest("P2POp", tuple(items))
        elif type(entry) is not list:
            return self._bad(name, f"expected an object, a list or null, got {json.dumps(entry)[:60]}")
        if depth >= _MAX_DEPTH:
            return self._bad(name, f"nested more than {_MAX_DEPTH} deep")
        if type(entry) is list:
            return Nest(
                "list", tuple([(str(i), self.value(item, f"{name}.{i}", depth + 1)) for i, item in enumerate(entry)])
            )
        return Nest(
            "dict", tuple([(str(key), self.value(item, f"{name}.{key}", depth + 1)) for key, item in entry.items()])
        )

    def tensor(self, entry: Mapping[str, Any], name: str) -> TensorRef | Token:
        """The number of a tensor: that of an earlier element if it is the same."""
        shape, dtype = entry.get("shape"), entry.get("dtype")
        if (
            type(shape) is not list
            or not {*map(type, shape)} <= {int}
            or (shape and not 0 <= min(shape) <= max(shape) < 1 << 48)
            or len(shape) > _MAX_RANK
        ):
            return self._bad(name, f"its shape is {json.dumps(shape)[:60]}, not a list of sizes")
        sizes = tuple(shape)
        spec = self._spec(dtype, sizes)
        numbers = [entry.get("Max"), entry.get("Min"), entry.get("Mean"), entry.get("Norm")]
        if not {*map(type, numbers)} <= {float}:
            numbers = [_number(number) for number in numbers]
        data_name, grad, md5 = entry.get("data_name"), entry.get("requires_grad"), entry.get("md5")
        file = data_name if type(data_name) is str and data_name not in ("", "-1") else None
        if file is not None:
            name = file.rpartition(".")[0]
        key = None
        plain = type(dtype) is str and type(md5) in _TEXT and type(grad) in _FLAG
        if plain and (md5 is not None or numbers[2] is not None) and numbers[0] != numbers[1]:
            key = (dtype, sizes, *numbers, grad, md5)
            for known in self._seen.get(key, ()):
                if file is None or self._same(known, file):
                    self._name(known, name)
                    return TensorRef(known)
        facts: dict[str, Any] = {"item": name, "dtype": str(dtype)}
        identity = len(self.tensors)
        made = Tensor(
            identity,
            spec or Spec("u8", sizes),
            requires_grad=grad is True,
            statistics=_statistics(numbers, spec, facts),
            fingerprint=self._fingerprint(md5, file, spec),
            payload=self._payload(file, spec),
            missing=self._missing(file, dtype, spec),
            facts=facts,
        )
        self._note(entry, facts, grad, md5)
        if file is not None:
            self.files[identity] = file
        self.tensors.append(made)
        self._facts.append(facts)
        if key is not None:
            self._seen.setdefault(key, []).append(identity)
        return TensorRef(identity)

    def _name(self, known: int, name: str) -> None:
        """Another element that is the same tensor."""
        facts = self._facts[known]
        also = facts.setdefault("also", [])
        if len(also) < _MAX_NAMES:
            also.append(name)
        else:
            facts["more"] = facts.get("more", 0) + 1

    # --- parts of a tensor --------------------------------------------------------------------------------------

    def _spec(self, dtype: object, shape: tuple[int, ...]) -> Spec | None:
        key = str(dtype), shape
        if key not in self._specs:
            short = short_name(dtype) if isinstance(dtype, str) else None
            self._specs[key] = Spec(short, shape) if short else None
        return self._specs[key]

    def _same(self, known: int, file: str) -> bool:
        """True if two files hold the same values. Statistics do not tell a square matrix from its transpose."""
        other = self.files.get(known)
        if other is None or (file in self._there) != (other in self._there):
            return False
        if file not in self._there:
            return True  # nothing tells more than the statistics
        for name in (file, other):
            if name not in self._samples:
                self._samples[name] = sample(self._folder, name)
        return self._samples[other] == self._samples[file] is not None

    def _fingerprint(self, md5: object, file: str | None, spec: Spec | None) -> str | None:
        """A CRC-32 is a fingerprint among others of its kind. Of bf16 MindSpore takes it from the widened values."""
        widened = self._framework != "pytorch" and spec is not None and spec.dtype == "bf16"
        if file is not None or widened or not isinstance(md5, str) or len(md5) != 8:
            return None
        return CRC + md5 if set(md5) <= set("0123456789abcdef") else None

    def _payload(self, file: str | None, spec: Spec | None) -> Location | None:
        if file is None or spec is None or file not in self._there:
            return None
        return Location(0, DTYPES[spec.dtype] * math.prod(spec.shape))

    def _missing(self, file: str | None, dtype: object, spec: Spec | None) -> str | None:
        if spec is None:
            return f"elements of type {str(dtype)[:60]}, which is not known here"
        if file is not None and file not in self._there:
            return f"{file} is not among the dump's files"
        return None

    def _note(self, entry: Mapping[str, Any], facts: dict[str, object], grad: object, md5: object) -> None:
        if md5 is not None:
            facts["md5"] = str(md5)
        if grad is None and self._framework == "pytorch":
            facts["requires_grad"] = "not said"
        if entry["type"] not in _PLAIN:
            facts["class"] = entry["type"]
        for key in entry.keys() - _KNOWN:
            facts[key] = json.dumps(entry[key])

    # --- what is no tensor --------------------------------------------------------------------------------------

    def _plain(self, entry: Mapping[str, Any], kind: str, name: str) -> Value:
        value = entry.get("value")
        expected: Any = _SCALARS.get(kind)
        if expected is not None:
            if isinstance(value, expected) and (kind == "bool") == isinstance(value, bool):
                return float(value) if kind == "float" else value
            return self._bad(name, f"said to be of type {kind}, but its value is {json.dumps(value)[:60]}")
        if kind == "slice" and isinstance(value, list) and len(value) == 3:
            parts = value[: 2 if value[2] is None else 3]
            return Token("slice", ":".join("" if part is None else str(part) for part in parts))
        if kind == "ellipsis":
            return Token("ellipsis", "...")
        if kind == "torch.Size" and isinstance(value, list) and all(type(size) is int for size in value):
            return Nest("tuple", tuple((str(i), size) for i, size in enumerate(value)))
        if kind.partition(".")[2] in _TOKENS and isinstance(value, str):
            return Token(kind.partition(".")[2], value.removeprefix("torch."))
        if kind == "complex":
            with contextlib.suppress(ValueError, TypeError):
                return complex(value)  # type: ignore[arg-type]
        if isinstance(value, bool | int | float | str) and entry.keys() == {"type", "value"}:
            return value if short_name(kind) else Token(kind, str(value))
        return Token(kind, json.dumps({key: item for key, item in entry.items() if key != "type"}))

    def _bad(self, name: str, problem: str) -> Token:
        self.problems.append((name, problem))
        return Token("unrecorded", problem)


def _number(number: object) -> float | int | None:
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, float) or (isinstance(number, int) and abs(number) < 1 << 64):
        return number
    return float(number) if isinstance(number, str) and number.lower() in ("nan", "inf", "-inf") else None


def _statistics(numbers: list[float | int | None], spec: Spec | None, facts: dict[str, object]) -> Statistics | None:
    """The four numbers; how many elements are not finite the tool does not count, so 1 stands for some.

    Of integers PyTorch's dumps have the ends alone. MindSpore's go through float32, which has integers up to 2**24.
    """
    if all(number is None for number in numbers):
        return None
    facts["statistics"] = "of msprobe: in the precision of the elements, nothing counted"
    high, low, mean, norm = numbers
    odd = [number for number in numbers if number is not None and not math.isfinite(number)]
    nan = any(number != number for number in odd)
    if spec is not None and spec.dtype[0] in "iu":
        high, low = (int(n) if isinstance(n, float) and abs(n) <= 1 << 24 else n for n in (high, low))
        high, low = (n if isinstance(n, int) else None for n in (high, low))
        mean = norm = None
    high, low, mean, norm = (None if n is None or not math.isfinite(n) else n for n in (high, low, mean, norm))
    norm = None if norm is None else abs(norm)  # of a tensor without dimensions the tool takes the value for the norm
    if numbers != [high, low, mean, norm]:
        told = zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)
        facts["statistics"] = "of msprobe: " + ", ".join(
            f"{key} {number}" for key, number in told if number is not None
        )
    infinite = [0 if nan else int(number == end) for number, end in ((numbers[0], math.inf), (numbers[1], -math.inf))]
    mean, norm = (None if n is None else float(n) for n in (mean, norm))
    return Statistics(low, high, mean, norm, int(nan), infinite[0], infinite[1], 0)
