"""The same input through both nets: do they compute the same, as far as rounding allows?

    output 0        off by 2.4e-07, at most 3.9e-06: torch itself rounds by 1.8e-07 here
    gradient w      off by 1.1e-06, at most 8.0e-06

How much rounding can do is not guessed. The net that can is run a second time in float64: what its own float32 run is off by is
the rounding of this net on this input. The other framework adds in another order, so it is granted a multiple of that, and a few
units in the last place of the largest value. Where that is not enough, the elementary functions of both frameworks are
measured (MindSpore's tanh on a CPU is good to 1.5e-05 only) and the bound is widened by the worse of them; that is said.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frameworks.protocol import Run, Weights
from ..model.errors import UsageError
from ..model.weights import TrialRow, WeightMap
from .states import State
from .transforms import keeps_bytes

Array = np.ndarray[Any, Any]
TIMES = 16
"""Most times that the rounding of one framework may be the other's."""
PLACES = 32
"""And how many units in the last place of the largest value."""
_EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}


def run_both(left: State, right: State, map: WeightMap, inputs: Sequence[Array], *, seed: int = 0) -> list[TrialRow]:
    """One forward and backward pass in each framework."""
    if left.net is None or right.net is None or left.adapter is None or right.adapter is None:
        raise UsageError("a trial needs two nets, not checkpoints.")
    inputs = [np.asarray(array) for array in inputs]
    weigh = functools.partial(_weigh, seed)
    one, two = (_run(state, inputs, weigh) for state in (left, right))
    exact, rounded, which = None, one, 0
    for side, state, run in ((0, left, one), (1, right, two)):
        if exact is None and state.framework != "mindspore":  # many of its kernels have no float64 on a CPU
            with contextlib.suppress(UsageError):
                exact, rounded, which = _run(state, inputs, weigh, double=True), run, side
    learned = [item for state in (left, right) for item in state.items.values() if item.learned]
    eps = max(_EPS.get(item.spec.dtype, 0.0) for item in learned)
    judge = _Judge(eps, (left, right)[which].framework if exact else "", left.adapter, right.adapter)

    def off(part: str, name: str) -> float | None:
        """Rounding of the run that was made in float64 as well."""
        if exact is None:
            return None
        wide, narrow = getattr(exact, part).get(name), getattr(rounded, part).get(name)
        known = wide is not None and narrow is not None and wide.shape == narrow.shape
        return float(np.abs(wide - narrow).max(initial=0)) if known else None

    rows = []
    for what, part in (("output", "outputs"), ("gradient of input", "inputs")):
        ours, theirs = getattr(one, part), getattr(two, part)
        for name in dict.fromkeys((*ours, *theirs)):
            if name in ours and name in theirs:
                rows.append(judge.row(what, name, ours[name], theirs[name], off(part, name)))
            else:
                because = f"only the {'right' if name in theirs else 'left'} net has it"
                rows.append(TrialRow(what, name, math.inf, 0.0, because))
    for pair in map.pairs:
        mine, their = one.parameters.get(pair.left[0]), two.parameters.get(pair.right)
        if len(pair.left) == 1 and keeps_bytes(pair.steps) and mine is not None and their is not None:
            rounding = off("parameters", (pair.left[0], pair.right)[which])
            rows.append(judge.row("gradient of", pair.right, mine, their.reshape(mine.shape), rounding))
    return rows


def _weigh(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """The gradient of an output: random numbers, the same in both frameworks."""
    return np.random.default_rng([seed, *name.encode()]).standard_normal(shape).astype(np.float32)


def _run(
    state: State, inputs: Sequence[Array], weigh: Callable[[str, tuple[int, ...]], Array], double: bool = False
) -> Run:
    assert state.adapter
    try:
        return state.adapter.run(state.net, inputs, weigh, double=double)
    except Exception as error:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        text = str(error).strip().splitlines()
        raise UsageError(
            f"{state.label} does not run with {shapes}: {type(error).__name__}: {text[0] if text else ''}"
        ) from error


class _Judge:
    def __init__(self, eps: float, name: str, *adapters: Weights) -> None:
        self.eps, self.name, self.adapters = eps, name, adapters
        self._accuracy: tuple[float, str] | None = None

    def row(self, what: str, name: str, one: Array, two: Array, rounding: float | None) -> TrialRow:
        if one.shape != two.shape:
            return TrialRow(what, name, math.inf, 0.0, f"shapes {list(one.shape)} and {list(two.shape)}")
        error = float(np.abs(one - two).max(initial=0))
        scale = max(float(np.abs(one).max(initial=0)), float(np.abs(two).max(initial=0)))
        bound = PLACES * self.eps * scale + TIMES * (rounding or 0.0)
        because = (
            "no float64 run was possible" if rounding is None else f"{self.name} itself rounds by {rounding:.2g} here"
        )
        if error > bound:
            accuracy, function = self.accuracy()
            wider = bound * max(1.0, accuracy / self.eps)
            if error <= wider:
                return TrialRow(what, name, error, wider, f"{function} is accurate to {accuracy:.2g} only")
        return TrialRow(what, name, error if math.isfinite(error) else math.inf, bound, because)

    def accuracy(self) -> tuple[float, str]:
        """(largest relative error, which function of which framework) of the elementary functions."""
        if self._accuracy is None:
            self._accuracy = max((known for shop in self.adapters for known in shop.accuracy()), default=(0.0, ""))
        return self._accuracy
