"""Two dumps of everything that a tensor can be, written file by file as the tool writes them.

    write_twins(folder, "pytorch", "tensor")        folder/npu/dump.json, folder/bench/dump.json

Each case is a record of its own: what went in is the same on both sides, what came out is the case.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RNG = np.random.default_rng(7)


class Case(NamedTuple):
    name: str
    npu: Any
    bench: Any
    bf16: bool = False


def noisy(kind: str, *shape: int, by: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    values = RNG.standard_normal(shape)
    return (values * (1 + by * RNG.standard_normal(shape))).astype(kind), values.astype(kind)


def with_values(places: dict[int, float], kind: str = "f4", size: int = 40) -> np.ndarray:
    values = np.linspace(-3, 3, size).astype(kind)
    for place, value in places.items():
        values[place] = value
    return values


@functools.cache
def cases() -> tuple[Case, ...]:
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    """Numbers in which the two tools are to agree; what they do not agree in, on purpose, is in SURFACE.md."""
    nan, inf = np.nan, np.inf
    for kind in ("f4", "f2", "f8"):
        for by in (1e-7, 1e-3, 0.3):
            yield Case(f"float_{kind}_{by:.0e}", *noisy(kind, 5, 700, by=by))
    yield Case("bfloat", *noisy("f4", 3, 400), bf16=True)
    yield Case("opposed", *(sign * RNG.random(90).astype("f4") for sign in (1, -1)))
    yield Case("long", RNG.integers(-99, 99, (4, 30)), RNG.integers(-99, 99, (4, 30)))
    yield Case("int", RNG.integers(-99, 99, 77).astype("i4"), RNG.integers(0, 3, 77).astype("i4"))
    yield Case("byte", RNG.integers(0, 255, 50).astype("u1"), RNG.integers(0, 255, 50).astype("u1"))
    yield Case("bool", RNG.random(64) > 0.5, RNG.random(64) > 0.5)
    yield Case("equal", *[np.linspace(0, 1, 60).astype("f4")] * 2)
    yield Case("squeezed", *noisy("f4", 1, 9, 1))
    yield Case("scalar", np.float32(9.389801), np.float32(9.389798))
    yield Case("far_scalar", np.float32(9.389801), np.float32(-123456.789))
    yield Case("half_scalar", np.float16(3.14), np.float16(-1000.5))
    yield Case("one", np.array([0.25], "f4"), np.array([0.5], "f4"))
    yield Case("one_int", np.array([[7]]), np.array([[9]]))
    yield Case("zeros", np.zeros(30, "f4"), np.zeros(30, "f4"))
    yield Case("zero_npu", np.zeros(30, "f4"), np.ones(30, "f4"))
    yield Case("zero_bench", np.ones(30, "f4"), np.zeros(30, "f4"))
    yield Case("some_zeros", with_values({3: 0.5, 4: 1e-12, 5: 0}), with_values({3: 0, 4: 0, 5: 0}))
    yield Case("some_zeros_f8", with_values({3: 0.5, 4: 1e-18}, "f8"), with_values({3: 0, 4: 0}, "f8"))
    yield Case("nan_alike", with_values({1: nan, 2: inf, 9: 1}), with_values({1: nan, 2: inf}))
    yield Case("all_nan", np.full(9, nan, "f4"), np.full(9, nan, "f4"))
    yield Case("nan_elsewhere", with_values({1: nan}), with_values({2: nan}))
    yield Case("inf_only_npu", with_values({1: inf}), with_values({}))
    yield Case("tiny", with_values({}) * np.float32(1e-30), with_values({0: 1}) * np.float32(1e-30))
    yield Case("huge", with_values({7: 1}) * np.float32(1e30), with_values({}) * np.float32(1e30))
    yield Case("shapes", np.ones((2, 3), "f4"), np.ones((3, 2), "f4"))
    yield Case("types", noisy("f4", 50)[0], noisy("f2", 50)[0])
    yield Case("empty", np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"))
    yield Case("number", 3, 4)
    yield Case("same_number", 2.5, 2.5)
    yield Case("text", "sum", "mean")
    yield Case("flag", True, False)
    yield Case("nothing", None, None)


def write_twins(folder: Path, framework: str, task: str) -> tuple[Path, Path]:
    """The two dump.json; `task` is statistics, md5 or tensor."""
    found = []
    for side in ("npu", "bench"):
        here = folder / side
        (here / "dump_tensor_data").mkdir(parents=True)
        data = {}
        made = _Writer(here, framework, task)
        for case in cases():
            record = f"Functional.{case.name}.0.forward"
            given = made(f"{record}.input.0", with_values({}), False)
            data[record] = {
                "input_args": [given, {"type": "int", "value": 1}],
                "input_kwargs": {},
                "output": [made(f"{record}.output.0", getattr(case, side), case.bf16)],
            }
        kind = "tensor" if task == "tensor" else "statistics"
        document = {"task": kind, "level": "L1", "framework": framework, "dump_data_dir": None, "data": data}
        (here / "dump.json").write_text(json.dumps(document), encoding="utf-8")
        (here / "stack.json").write_text(json.dumps({"0": [[*data], ["File net.py, line 3, in forward, \n y = f(x)"]]}))
        (here / "construct.json").write_text("{}", encoding="utf-8")
        found.append(here / "dump.json")
    return found[0], found[1]


class _Writer:
    def __init__(self, folder: Path, framework: str, task: str) -> None:
        self.folder, self.task = folder, task
        self.torch = framework == "pytorch"
        self.save: Callable[[Path, np.ndarray, bool], None] = _save_pt if self.torch else _save_npy

    def __call__(self, name: str, value: Any, bf16: bool) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, np.ndarray | np.generic):
            return {"type": type(value).__name__, "value": value}
        array = np.asarray(value)
        element = {
            "type": "torch.Tensor" if self.torch else "mindspore.Tensor",
            "dtype": self._dtype(array, bf16),
            "shape": list(array.shape),
            **statistics(array),
        }
        if self.torch:
            element["requires_grad"] = array.dtype.kind == "f" and name.endswith("output.0")
        if self.task == "md5":
            element["md5"] = f"{zlib.crc32(array.tobytes()):08x}"
        if self.task == "tensor" and array.size:
            element["data_name"] = f"{name}.{'pt' if self.torch else 'npy'}"
            self.save(self.folder / "dump_tensor_data" / element["data_name"], array, bf16)
        return element

    def _dtype(self, array: np.ndarray, bf16: bool) -> str:
        name = "bfloat16" if bf16 else array.dtype.name
        return f"torch.{name}" if self.torch else "BFloat16" if bf16 else name.capitalize().replace("Uint", "UInt")


def statistics(array: np.ndarray) -> dict[str, Any]:
    if not array.size:
        return dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    if array.dtype.kind == "b":
        return {"Max": bool(array.any()), "Min": bool(array.all()), "Mean": None, "Norm": None}
    found = {"Max": array.max().item(), "Min": array.min().item(), "Mean": None, "Norm": None}
    if array.dtype.kind == "f":
        wide = array.astype("f8")
        found |= {"Mean": float(array.dtype.type(wide.mean())), "Norm": float(np.linalg.norm(wide.reshape(-1)))}
    return found


def _save_pt(path: Path, array: np.ndarray, bf16: bool) -> None:
    import torch

    tensor = torch.from_numpy(array.copy())
    torch.save(tensor.to(torch.bfloat16) if bf16 else tensor, path)


def _save_npy(path: Path, array: np.ndarray, bf16: bool) -> None:
    if bf16:  # MindSpore writes them as float32
        array = (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    np.save(path, array)
