"""The verbs about weights.

map_weights(left, right)        which weight is which             -> WeightMap
convert_weights(source, target) carry them over: file or net      -> Conversion
compare_weights(left, right)    shapes and values side by side    -> WeightComparison
certify_weights(left, right)    proof that they arrived           -> Certificate
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..frameworks import registry
from ..frameworks.protocol import Weights
from ..model.errors import UsageError
from ..model.weights import WeightMap as PlainMap
from ..model.words import Progress
from ..store.arrays import STORAGE
from ..store.registry import open_trace
from ..weights.certificate import certify
from ..weights.checkpoints import FRAMEWORKS, format_of
from ..weights.comparison import by_name, compare
from ..weights.conversion import convert
from ..weights.mapfile import read_map
from ..weights.mapping import declare, map_states
from ..weights.prediction import predict
from ..weights.states import State, open_state
from ..weights.trial import run_both
from ..weights.uses import Uses
from .results import Certificate, Conversion, WeightComparison, WeightMap, made_of

_OTHER = {"torch": "mindspore", "mindspore": "torch"}
WeightSource = Any
"""A net, the path of a checkpoint, or a dict of tensors by name."""
Traces = tuple[str | os.PathLike[str], str | os.PathLike[str]] | None


def read_weight_map(path: str | os.PathLike[str]) -> WeightMap:
    """A map that was written with `write_weight_map`, and edited perhaps."""
    return made_of(WeightMap, read_map(path))


def map_weights(
    left: WeightSource,
    right: WeightSource = None,
    *,
    to: str | None = None,
    mint: bool = False,
    rename: Callable[[str], str] | None = None,
    traces: Traces = None,
    trust: bool = False,
    key: str | None = None,
) -> WeightMap:
    """Find which weight of `left` is which of `right`, how it gets there, how sure that is and why.

        found = tt.map_weights(torch_net, mindspore_net)
        print(found, found.guilty)

    Args:
        left: a net, a checkpoint's path, or a dict of tensors.
        right: the same of the other side. With both at hand names may differ in any way: structure, shapes, kinds of layers
            and, where they are equal, values tell. Without it, names are predicted.
        to: "mindspore" or "torch": for which framework to predict; the other one than that of `left`, if None.
        mint: predict the names of mindspore.mint.nn, not of mindspore.nn.
        rename: makes another name of each predicted one.
        traces: the paths of two traces, of left and right: where layers are alike, the order of their use decides.
        trust: let torch load a .pth that only its own code can rebuild; whatever is in it runs then.
        key: where in a .pth file the state dict is.

    Returns:
        The map: pairs with their transforms and reasons, weights without partner, ambiguous ones. True if it is complete.

    Raises:
        UsageError: `to` is no framework.
        CheckpointError: a file that cannot be read.
    """
    state = open_state(left, trust=trust, key=key)
    if right is not None:
        if to is not None or rename is not None or mint:
            raise UsageError("to, mint and rename are for predicting names; `right` is given, so nothing is predicted.")
        return made_of(WeightMap, map_states(state, open_state(right, trust=trust), _uses(traces)))
    target = _framework(to) or _OTHER.get(state.framework, "mindspore")
    return made_of(WeightMap, predict(state, target, mint=mint, rename=rename))


def convert_weights(
    source: WeightSource,
    target: WeightSource,
    *,
    map: PlainMap | str | os.PathLike[str] | None = None,
    like: WeightSource = None,
    to: str | None = None,
    mint: bool = False,
    partial: bool = False,
    force: bool = False,
    traces: Traces = None,
    trust: bool = False,
    key: str | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Carry weights over, into a file (completely or not at all) or into a net.

        tt.convert_weights("net.pth", "net.ckpt", like=mindspore_net)

    Args:
        source: a net, a checkpoint's path, or a dict of tensors.
        target: a file: .ckpt for MindSpore, .pth for PyTorch, .safetensors for either; or a net, which is then loaded.
        map: a WeightMap or the path of one; if None, it is found as `map_weights` does.
        like: the net, or a checkpoint of it, that a file is for: names are then found, not predicted.
        to: "mindspore" or "torch", where the target's name does not say it.
        mint: the target's layers are those of mindspore.mint.nn.
        partial: carry over as much as possible, although something stays behind.
        force: overwrite a file that is there already.
        traces: the paths of two traces, of left and right: where layers are alike, the order of their use decides.
        trust: let torch load a .pth that only its own code can rebuild; whatever is in it runs then.
        key: where in a .pth file the state dict is.
        progress: called with (task, done, total).

    Returns:
        The conversion: weights that were carried over, their transforms, and those that were not needed.

    Raises:
        WeightsError: something would stay behind, or shapes do not fit.
        CheckpointError: a file that cannot be read, or cannot hold a tensor.
        UsageError: the target is there already, or `to` is no framework.
    """
    state = open_state(source, trust=trust, key=key)
    into = open_state(target) if registry.weights_of(target) is not None else None
    framework = into.framework if into else _target_framework(target, to, state)
    if into is None and not force and Path(target).exists():
        raise UsageError(f"{target} is there already. Give another path, or force=True to overwrite it.")
    if map is None:
        if into is not None or like is not None:
            map = map_states(state, into or open_state(like, framework=framework), _uses(traces))
        elif framework == state.framework:
            map = by_name(state, state)
        else:
            map = predict(state, framework, mint=mint)
    elif not isinstance(map, PlainMap):
        map = read_map(map)
    done = convert(state, into or target, map, framework=framework, partial=partial, progress=progress)
    return replace(made_of(Conversion, done), map=made_of(WeightMap, done.map))


def compare_weights(
    left: WeightSource,
    right: WeightSource,
    *,
    map: PlainMap | str | os.PathLike[str] | None = None,
    values: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    relative_to: str = "left",
    trust: bool = False,
    progress: Progress | None = None,
) -> WeightComparison:
    """Two checkpoints, nets or dicts side by side: a row for every weight of either.

        print(tt.compare_weights("net.pth", "net.ckpt").worst(5))

    Args:
        left: a net, a checkpoint's path, or a dict of tensors.
        right: the same of the other side.
        map: a WeightMap or the path of one; if None, it is found as `map_weights` does.
        values: compare values, not names and shapes alone.
        rtol: elements may be apart by atol + rtol·|left|, or |right| with relative_to="right".
        atol: see `rtol`.
        equal_nan: NaN beside NaN is no difference.
        relative_to: "left" or "right": the side that `rtol` is relative to.
        trust: let torch load a .pth that only its own code can rebuild; whatever is in it runs then.
        progress: called with (task, done, total).

    Returns:
        The rows, and whether all of them agree.

    Raises:
        WeightsError: a map that does not fit.
        CheckpointError: a file that cannot be read.
    """
    if relative_to not in ("left", "right"):
        raise UsageError(f"relative_to: expected left or right, got {relative_to!r}.")
    states = open_state(left, trust=trust), open_state(right, trust=trust)
    comparison = compare(
        *states,
        _map_between(*states, map, named=True),
        values=values,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        relative_to=relative_to,
        progress=progress,
    )
    return made_of(WeightComparison, comparison)


def certify_weights(
    left: WeightSource,
    right: WeightSource,
    *,
    map: PlainMap | str | os.PathLike[str] | None = None,
    nets: tuple[Any, Any] | None = None,
    inputs: Sequence[Any] | None = None,
    traces: Traces = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> Certificate:
    """Prove that the weights of `left` arrived in `right`, or name the mistakes, in words.

        assert tt.certify_weights(torch_net, mindspore_net, inputs=[images])

    Args:
        left: a net, a checkpoint's path, or a dict of tensors.
        right: the same of the other side.
        map: the expected result of each weight; if None, it is found: by name, by equal values, then as `map_weights` does.
            A pair on which values and names disagree is not certified.
        nets: two nets for checkpoints: the weights are loaded into them (where `left` and `right` are nets, they are these).
        inputs: arrays: one forward and backward pass is made with them in each framework, and judged by what rounding can do.
        traces: the paths of two traces, of left and right: where layers are alike, the order of their use decides.
        trust: let torch load a .pth that only its own code can rebuild; whatever is in it runs then.
        progress: called with (task, done, total).

    Returns:
        The certificate. True if every weight arrived and, where inputs were given, results and gradients agree.

    Raises:
        WeightsError: a map that does not fit.
        CheckpointError: a file that cannot be read.
    """
    states = [open_state(side, trust=trust) for side in (left, right)]
    if nets is not None:
        states = [_loaded(net, state) for net, state in zip(nets, states, strict=True)]
    expected = _map_between(states[0], states[1], map, named=False, uses=_uses(traces))
    rows = []
    notes = []
    if inputs is not None:
        if any(state.net is None for state in states):
            raise UsageError(
                "inputs: the nets themselves are needed to run them: certify_weights(net, net, inputs=…) or nets=(…)."
            )
        rows = run_both(states[0], states[1], expected, inputs)
    elif all(state.net is not None for state in states):
        notes.append("no inputs were given, so the nets were not run")
    return made_of(Certificate, certify(states[0], states[1], expected, trial=rows, notes=notes, progress=progress))


def run_net(net: Any, inputs: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a net for these arrays, in evaluation: floating point numbers, as float64, by slot (`0`, `0.1`, `0.logits`)."""
    adapter = _owner(net)[1]
    arrays = [np.asarray(array) for array in inputs]
    return dict(adapter.run(net, arrays, lambda name, shape: np.zeros(shape)).outputs)


def describe_net(net: Any) -> str:
    """A net's architecture as its framework prints it."""
    return _owner(net)[1].describe(net)


def framework_of_net(net: Any) -> str:
    """The framework of a net: torch, mindspore."""
    return _owner(net)[0]


def weight_names(thing: WeightSource) -> tuple[str, ...]:
    """The names of the weights, in their order."""
    return tuple(open_state(thing).items)


def _owner(net: Any) -> tuple[str, Weights]:
    owner = registry.weights_of(net)
    if owner is None or not owner[1].is_net(net):
        raise UsageError(f"expected a net, got {type(net).__name__}.")
    return owner


def net_from(place: str, of: str | None = None) -> Any:
    """The net that `FILE.py:NAME` makes: NAME is a class or a function without arguments, or a net. Runs the file.

    With `of`, the names of its weights must be those in that checkpoint.
    """
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not name or path.suffix != ".py" or not path.is_file():
        raise UsageError(f"{place}: expected FILE.py:NAME, with a file that is there.")
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        names = runpy.run_path(str(path), run_name=path.stem)
    finally:
        sys.path.pop(0)
    if name not in names:
        raise UsageError(f"{place}: {path} defines no {name}.")
    net = names[name]
    net = net if registry.weights_of(net) is not None else net()
    if registry.weights_of(net) is None:
        raise UsageError(f"{place}: makes a {type(net).__name__}, expected a net.")
    if of is not None:
        here, there = set(weight_names(net)), set(weight_names(of))
        if here != there:
            raise UsageError(
                f"{of} is no checkpoint of {place}: names that only one has are {sorted(here ^ there)[:4]}."
            )
    return net


def random_input(text: str) -> Any:
    """An array for trying a net: `f32[2, 3, 8, 8]` of normal numbers; `i64[2, 5]<10` of whole ones from 0 to 9."""
    match = re.fullmatch(r"(f32|f64|f16|i32|i64)\[([\d,\s]*)\](?:<(\d+))?", text.strip())
    if match is None or (match[1][0] == "i") != (match[3] is not None):
        raise UsageError(f"{text}: expected an input such as f32[2,3,8,8], or i64[2,5]<10 for numbers from 0 to 9.")
    shape = tuple(int(size) for size in match[2].split(",") if size.strip())
    numbers = np.random.default_rng(0)
    if match[3] is not None:
        return numbers.integers(0, int(match[3]), shape).astype(STORAGE[match[1]])
    return numbers.standard_normal(shape).astype(STORAGE[match[1]])


def _uses(traces: Traces) -> Uses | None:
    return None if traces is None else Uses(open_trace(traces[0]), open_trace(traces[1]))


def _map_between(left: State, right: State, map: Any, *, named: bool, uses: Uses | None = None) -> PlainMap:
    if isinstance(map, PlainMap):
        return map
    if map is not None:
        return read_map(map)
    if left.framework == right.framework and (named or any(name in right for name in left.items)):
        return by_name(left, right)
    return map_states(left, right, uses) if named else declare(left, right, uses)


def _loaded(net: Any, state: State) -> State:
    """The net with the checkpoint's weights in it."""
    target = open_state(net, label=state.label)
    if state.net is not net:
        convert(state, target, by_name(state, target), framework=target.framework)
    return target


def _framework(name: str | None) -> str | None:
    if name is not None and name not in _OTHER:
        raise UsageError(f"to: expected 'torch' or 'mindspore', got {name!r}.")
    return name


def _target_framework(target: Any, to: str | None, source: State) -> str:
    if not isinstance(target, str | os.PathLike):
        raise UsageError(f"target: expected a file name or a net, got {type(target).__name__}.")
    told = FRAMEWORKS.get(format_of(target))
    if _framework(to) is not None and told is not None and told != to:
        raise UsageError(
            f"{os.fspath(target)}: is a file of {told}'s, but to={to!r}. Use another ending, or .safetensors."
        )
    return to or told or _OTHER.get(source.framework, "mindspore")
