"""The same input through both nets: do they compute the same, as far as rounding allows?

    output 0        off by 2.4e-07, at most 3.9e-06: torch itself rounds by 1.8e-07 here
    gradient w      off by 1.1e-06, at most 8.0e-06

How much rounding can do is not guessed. The net that can is run a second time in float64: what its own float32 run is off by is
the rounding of this net on this input. The other framework adds in another order, so it is granted a multiple of that, and a few
units in the last place of the largest value. Where that is not enough, the elementary functions of both frameworks are
measured (MindSpore's tanh on a CPU is good to 1.5e-05 only) and the bound is widened by the worse of them; that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
    if left.net is None or right.net is None or left.workshop is None or right.workshop is None:
        raise UsageError("a trial needs two nets, not checkpoints.")
    inputs = [np.asarray(array) for array in inputs]
    weigh = _Weigh(seed)
    runs = [_run(state, inputs, weigh) for state in (left, right)]
    exact, rounded, name = _exact(left, right, runs, inputs, weigh)
    eps = max(
        _EPS.get(item.spec.dtype, 0.0) for state in (left, right) for item in state.items.values() if item.learned
    )
    judge = _Judge(eps, name, left.workshop, right.workshop)
    return [*_forward(runs, exact, rounded, judge), *_backward(runs, exact, rounded, map, judge)]


def _run(state: State, inputs: Sequence[Array], weigh: _Weigh, double: bool = False) -> Run:
    assert state.workshop
    try:
        return state.workshop.run(state.net, inputs, weigh, double=double)
    except Exception as error:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        text = str(error).strip().splitlines()
        raise UsageError(
            f"{state.label} does not run with {shapes}: {type(error).__name__}: {text[0] if text else ''}"
        ) from error


class _Weigh:
    """The gradient of each output: random numbers, the same in both frameworks."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, name: str, shape: tuple[int, ...]) -> Array:
        numbers = np.random.default_rng([self._seed, *name.encode()])
        return numbers.standard_normal(shape).astype(np.float32)


def _exact(
    left: State, right: State, runs: Sequence[Run], inputs: Sequence[Array], weigh: _Weigh
) -> tuple[tuple[Run, int] | None, Run | None, str]:
    """((float64 run, which side), that side's own run, its framework), of the first side that can."""
    for side, state in enumerate((left, right)):
        if state.framework == "mindspore":
            continue  # many of its kernels have no float64 on a CPU
        try:
            return (_run(state, inputs, weigh, double=True), side), runs[side], state.framework
        except UsageError:
            continue
    return None, None, ""


class _Judge:
    def __init__(self, eps: float, name: str, *workshops: Weights) -> None:
        self.eps, self.name, self.workshops = eps, name, workshops
        self._accuracy: tuple[float, str] | None = None

    def row(self, what: str, name: str, one: Array, two: Array, rounding: float | None) -> TrialRow:
        if one.shape != two.shape:
            return TrialRow(what, name, math.inf, 0.0, f"shapes {list(one.shape)} and {list(two.shape)}")
        error = float(np.abs(one - two).max(initial=0))
        scale = max(float(np.abs(one).max(initial=0)), float(np.abs(two).max(initial=0)))
        bound = PLACES * self.eps * scale + TIMES * (rounding or 0.0)
        because = (
            f"{self.name} itself rounds by {rounding:.2g} here"
            if rounding is not None
            else "no float64 run was possible"
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
            self._accuracy = max((found for shop in self.workshops for found in shop.accuracy()), default=(0.0, ""))
        return self._accuracy


def _off(exact: Mapping[str, Array], rounded: Mapping[str, Array], name: str) -> float | None:
    if name not in exact or name not in rounded or exact[name].shape != rounded[name].shape:
        return None
    return float(np.abs(exact[name] - rounded[name]).max(initial=0))


def _forward(
    runs: Sequence[Run], exact: tuple[Run, int] | None, rounded: Run | None, judge: _Judge
) -> Iterator[TrialRow]:
    one, two = runs
    for what, ours, theirs in (("output", one.outputs, two.outputs), ("gradient of input", one.inputs, two.inputs)):
        for name in dict.fromkeys((*ours, *theirs)):
            if name not in ours or name not in theirs:
                yield TrialRow(
                    what, name, math.inf, 0.0, f"only the {'right' if name in theirs else 'left'} net has it"
                )
                continue
            off = None
            if exact is not None and rounded is not None:
                ends = [run.outputs if what == "output" else run.inputs for run in (exact[0], rounded)]
                off = _off(ends[0], ends[1], name)
            yield judge.row(what, name, ours[name], theirs[name], off)


def _backward(
    runs: Sequence[Run],
    exact: tuple[Run, int] | None,
    rounded: Run | None,
    map: WeightMap,
    judge: _Judge,
) -> Iterator[TrialRow]:
    one, two = runs
    for pair in map.pairs:
        source = pair.left[0]
        if (
            len(pair.left) > 1
            or not keeps_bytes(pair.steps)
            or source not in one.parameters
            or pair.right not in two.parameters
        ):
            continue
        off = None
        if exact is not None and rounded is not None:
            off = _off(exact[0].parameters, rounded.parameters, source if exact[1] == 0 else pair.right)
        theirs = two.parameters[pair.right].reshape(one.parameters[source].shape)
        yield judge.row("gradient of", pair.right, one.parameters[source], theirs, off)
