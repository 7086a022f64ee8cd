"""`ts.migrator.NetDifferenceFinder`: the same weights and the same input in both networks.

NetDifferenceFinder(pt_net=net, ms_net=cell).compare(auto_inputs=(((1, 3, 8, 8), numpy.float32),))

| PyTorch out | MindSpore out | result of allclose | ratio of allclose | cosine similarity | mean & max diffs |
| step_0_out  |  step_0_out   |        True        |      100.00%      |      1.00000      | 0.00000, 0.00000 |
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .... import api
from ....model.errors import UsageError
from ....store.arrays import as_float
from ..tables import VALUE_FIELDS, boxed, say
from .arrays import cal_algorithm
from .weights import compare_nets

StrPath = str | os.PathLike[str]
Case = tuple[Any, ...]
_HEADS = ("PyTorch out", "MindSpore out", *VALUE_FIELDS)


class NetDifferenceFinder:
    """Converts weights, compares them, and runs both networks in evaluation.

    pt_params_path, ms_params_path   checkpoints that are loaded first
    auto_conv_ckpt                   1: the weights of the one go into the other, unless both checkpoints are given; 0: they do not
    compare_params                   a table of all weights                  fix_seed   for the inputs that are made up
    """

    def __init__(
        self,
        pt_net: Any,
        ms_net: Any,
        print_level: int = 1,
        *,
        pt_params_path: StrPath | None = None,
        ms_params_path: StrPath | None = None,
        auto_conv_ckpt: int = 1,
        compare_params: bool = True,
        fix_seed: int = 16,
    ) -> None:
        for name, net, framework in (("pt_net", pt_net, "torch"), ("ms_net", ms_net, "mindspore")):
            if api.framework_of(net) != framework:
                kind = "torch.nn.Module" if framework == "torch" else "mindspore.nn.Cell"
                raise UsageError(f"{name}: expected a {kind}, got {type(net).__name__}.")
        if auto_conv_ckpt not in (0, 1):
            raise UsageError(
                f"auto_conv_ckpt: expected 0 or 1, got {auto_conv_ckpt!r}. Networks of MSAdapter cannot be in one process with "
                f"PyTorch's: dump both and use api_dump_compare."
            )
        self._pt_net, self._ms_net, self._print_level = pt_net, ms_net, print_level
        self._paths = pt_params_path, ms_params_path
        self._converts, self._compare_params, self._seed = bool(auto_conv_ckpt), compare_params, fix_seed

    def compare(
        self,
        inputs: Case | Sequence[Case] | None = None,
        auto_inputs: tuple[Any, ...] | Mapping[str, Any] | None = None,
        rtol: float = 1e-4,
        atol: float = 1e-4,
        equal_nan: bool = False,
    ) -> str:
        """The table of the outputs, printed and returned.

        inputs        a tuple of arrays, tensors or names of .npy files; or a list of such tuples
        auto_inputs   made up: ((shape, element type), …), or {"input": that, "num": how many times}
        """
        cases = self._cases(inputs, auto_inputs)
        self._carry_over()
        if self._compare_params:
            compare_nets(self._pt_net, self._ms_net, print_level=1 if self._print_level else 0, rtol=rtol, atol=atol)
        rows = []
        for number, case in enumerate(cases):
            left, right = (_named(api.run_net(net, case)) for net in (self._pt_net, self._ms_net))
            left, right = ({name: _narrow(array) for name, array in side.items()} for side in (left, right))
            if len(left) != len(right):
                raise UsageError(
                    f"case {number}: pt_net puts out {len(left)} arrays, ms_net {len(right)}. They cannot be compared."
                )
            for (one, expected), (two, got) in zip(left.items(), right.items(), strict=True):
                score = cal_algorithm(got, expected, rtol, atol, equal_nan)
                rows.append((f"step_{number}_{one}", f"step_{number}_{two}", *score.cells))
        text = boxed("The comparison results of Net", _HEADS, rows)
        say(text)
        return text

    def _carry_over(self) -> None:
        """Checkpoints into their networks; then the weights of the network that is known better into the other."""
        for net, path in zip((self._pt_net, self._ms_net), self._paths, strict=True):
            if path is not None:
                api.convert_weights(path, net)
        if not self._converts or all(path is not None for path in self._paths):
            return
        only_right = self._paths[0] is None and self._paths[1] is not None
        pair = (self._ms_net, self._pt_net) if only_right else (self._pt_net, self._ms_net)
        api.convert_weights(*pair)

    def _cases(self, inputs: Any, auto_inputs: Any) -> list[list[np.ndarray[Any, Any]]]:
        if (inputs is None) == (auto_inputs is None):
            raise UsageError(f"expected inputs or auto_inputs, got {'neither' if inputs is None else 'both'}.")
        if auto_inputs is not None:
            return self._made_up(auto_inputs)
        cases = [inputs] if isinstance(inputs, tuple) else inputs
        if not isinstance(cases, list) or not cases or not all(isinstance(case, tuple) for case in cases):
            raise UsageError(
                f"inputs: expected a tuple of arrays, or a list of such tuples, got {type(inputs).__name__}."
            )
        return [[_array(item) for item in case] for case in cases]

    def _made_up(self, auto_inputs: Any) -> list[list[np.ndarray[Any, Any]]]:
        given, count = auto_inputs, 1
        if isinstance(auto_inputs, Mapping):
            given, count = auto_inputs.get("input"), auto_inputs.get("num", 0)
        numbers = np.random.default_rng(self._seed)
        try:
            if not isinstance(given, tuple) or not isinstance(count, int) or count < 1:
                raise TypeError
            return [[numbers.standard_normal(shape).astype(dtype) for shape, dtype in given] for _ in range(count)]
        except (TypeError, ValueError):
            raise UsageError(
                f'auto_inputs: expected ((shape, element type), …) or {{"input": that, "num": a number}}, got {auto_inputs!r}.'
            ) from None


def _array(item: Any) -> np.ndarray[Any, Any]:
    if isinstance(item, str | os.PathLike):
        try:
            return np.asarray(np.load(item, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(f"inputs: {os.fspath(item)} is no array that can be read ({error}).") from None
    if isinstance(item, np.ndarray):
        return item
    if api.framework_of(item) is not None:
        return as_float(*api.array_of(item))
    raise UsageError(f"inputs: expected an array, a tensor or the name of a .npy file, got {type(item).__name__}.")


def _narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As float32 where that holds every value: then it came from there, and is scored like that."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(narrow, array, equal_nan=True) else array


def _named(outputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """`out` for the only one, `out_0` and so on for several, and a dict's by their keys."""
    named = {}
    for slot, array in outputs.items():
        rest = slot.partition(".")[2]
        named["out" if not rest else f"out_{rest}" if rest.replace(".", "").isdigit() else rest] = array
    return named
