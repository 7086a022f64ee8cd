"""Is a port correct? Both sides' step, run without a recorder, held against each other and against the truth.

    run_sides(["mlp"], folder)     each framework in a process of its own; (values of the left, values of the right) by pair
    faults(truth, left, right)     sentences; empty for a correct port with a complete truth

Two values are the same if no element differs by more than ROUNDING of the largest magnitude in the tensor.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from corpus.notation import Truth

Values = Mapping[str, np.ndarray]

ROUNDING = 1e-4
TESTS = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """For a process that runs one side: this checkout's code, one thread, quiet."""
    path = [str(TESTS), str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Two cores are all that a test may count on, and a GELU in half precision dies by an illegal instruction on some machines.
    fixed = {"OMP_NUM_THREADS": "1", "GLOG_v": "3", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    return os.environ | fixed | {"PYTHONPATH": os.pathsep.join(path)}


def run_side(framework: str, folder: Path, names: Sequence[str], *options: str) -> None:
    """`corpus.run_<framework>` in a process of its own."""
    command = [sys.executable, "-m", f"corpus.run_{framework}", str(folder), *names, *options]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[2:])} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


def run_once(names: Sequence[str], folder: Path, *options: str) -> None:
    """Both sides of those pairs that were not yet run in this folder; test processes that share it wait for each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        needed = [name for name in names if not (folder / name / "done").exists()]
        if needed:
            for framework in ("torch", "mindspore"):
                run_side(framework, folder, needed, *options)
            for name in needed:
                (folder / name / "done").touch()


def run_sides(names: Sequence[str], folder: Path) -> dict[str, tuple[Values, Values]]:
    """What came out of one step: (left, right) by name."""
    run_once(names, folder)
    return {
        name: (dict(np.load(folder / name / "torch.npz")), dict(np.load(folder / name / "mindspore.npz")))
        for name in names
    }


def same(left: np.ndarray, right: np.ndarray, rounding: float = ROUNDING, floor: float = 0.0) -> bool:
    """Equal but for rounding, element by element; shapes must agree. Magnitudes below `floor` count as it."""
    if left.shape != right.shape:
        return False
    if left.size == 0:
        return True
    one, two = left.astype(np.float64), right.astype(np.float64)
    scale = max(float(np.abs(one).max()), float(np.abs(two).max()), floor)
    return bool(np.abs(one - two).max() <= rounding * scale)


def same_values(left: np.ndarray, right: np.ndarray, rounding: float = ROUNDING) -> bool:
    """The same elements, in whatever order and shape."""
    return left.size == right.size and same(np.sort(left, axis=None), np.sort(right, axis=None), rounding)


def faults(truth: Truth, left: Values, right: Values, rounding: float = ROUNDING) -> list[str]:
    """What is wrong with a port or its truth."""
    found = [
        f"{key}: {left[key].ravel()[:3]} … on the left, {right[key].ravel()[:3]} … on the right"
        for key in _section(left, "output:") | {"loss": None}
        if key not in right or not same(left[key], right[key].reshape(left[key].shape), rounding)
    ]
    return found + _wrong_gradients(truth, left, right, rounding) + _wrong_modules(truth, left, right, rounding)


def _wrong_gradients(truth: Truth, left: Values, right: Values, rounding: float) -> list[str]:
    found = []
    names = ({key.removeprefix("grad:") for key in side if key.startswith("grad:")} for side in (left, right))
    for side_name, forgotten in zip(("left", "right"), truth.left_out(*names), strict=True):
        found += [f"parameter {name} of the {side_name} side is in no line" for name in sorted(forgotten)]
    names = ({key.removeprefix("grad:") for key in side if key.startswith("grad:")} for side in (left, right))
    # What vanishes in theory (a shift before a batch norm) is rounding noise on both sides.
    floor = 0.01 * max(
        (float(np.abs(value).max()) for key, value in left.items() if key.startswith("grad:")), default=0.0
    )
    for line in truth.parameters(*names):
        if f"grad:{line.left}" not in left or f"grad:{line.right}" not in right:
            continue
        value = right[f"grad:{line.right}"]
        carried = line.carry(left[f"grad:{line.left}"], value.shape)
        if not same(carried, value, rounding, floor):
            worst = np.abs(carried - value).max() / max(np.abs(carried).max(), 1e-300)
            found.append(f"gradient of {line.left} ~ {line.right}: off by {worst:.2g} of the largest")
    return found


def _wrong_modules(truth: Truth, left: Values, right: Values, rounding: float) -> list[str]:
    outputs = [_outputs(side) for side in (left, right)]
    told = [{path for item in truth.modules for path in paths(item)} for paths in _SIDES]
    found = []
    firm = [item for item in truth.modules if not item.loose]
    called = [{path for item in firm for path in paths(item)} for paths in _SIDES]
    for side_name, seen, lines, needed in zip(("left", "right"), outputs, told, called, strict=True):
        found += [
            f"module {path} of the {side_name} side is called and in no line" for path in seen if path not in lines
        ]
        found += [f"module {path} of the {side_name} side is in a line and never called" for path in needed - {*seen}]
    for path, partners in truth.partners.items():
        for partner in partners:
            calls = outputs[0].get(path, []), outputs[1].get(partner, [])
            if len(calls[0]) != len(calls[1]):
                found.append(f"{path} = {partner}: called {len(calls[0])} and {len(calls[1])} times")
            for number, (one, two) in enumerate(zip(*calls, strict=False)):
                if not any(same_values(value, other, rounding) for value in one for other in two):
                    found.append(f"{path} = {partner}: call {number} puts out other values")
    return found


_SIDES = (attrgetter("left"), attrgetter("right"))


def _outputs(side: Values) -> dict[str, list[list[np.ndarray]]]:
    """Module path -> for each call, what it put out."""
    found: dict[str, dict[int, list[np.ndarray]]] = {}
    for key, value in side.items():
        if key.startswith("module:"):
            path, _, rest = key.removeprefix("module:").rpartition("#")
            found.setdefault(path, {}).setdefault(int(rest.split(":")[0]), []).append(value)
    return {path: [calls[number] for number in sorted(calls)] for path, calls in found.items()}


def _section(side: Values, prefix: str) -> dict[str, None]:
    return {key: None for key in side if key.startswith(prefix)}


def main() -> None:
    """`python -m corpus.ports FOLDER [NAME …]`: check ports by hand."""
    from corpus.notation import pair_names, truth_of

    folder, names = Path(sys.argv[1]), sys.argv[2:] or pair_names()
    for name, sides in run_sides(names, folder).items():
        wrong = faults(truth_of(name), *sides)
        sys.stdout.write(f"{'ok  ' if not wrong else 'BAD '} {name}\n" + "".join(f"       {text}\n" for text in wrong))


if __name__ == "__main__":
    main()
