"""The weights of a MindSpore cell: what they are called, whose they are, how values get in, one pass through the net.

conv.weight        own weight of a Conv1d, stored with an axis of one in it
norm.gamma         own gamma of a LayerNorm; a mint.LayerNorm says weight
rnn.weight_ih_l0   own weight_ih_l0 of a LSTM, though it lies in a tuple of parameters
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops
from mindspore._c_expression import TensorPy

from ..protocol import Run, Weight

_DTYPES = {
    "f64": ms.float64, "f32": ms.float32, "f16": ms.float16, "bf16": ms.bfloat16, "i8": ms.int8, "i16": ms.int16,
    "i32": ms.int32, "i64": ms.int64, "u8": ms.uint8, "u16": ms.uint16, "u32": ms.uint32, "u64": ms.uint64, "b8": ms.bool_,
    "c64": ms.complex64, "c128": ms.complex128,
}  # fmt: skip
_NAMES = {str(theirs): ours for ours, theirs in _DTYPES.items()}
_SCALARS = (bool, int, float, str, tuple, type(None))
# Asked by the object: mint.nn's LayerNorm is a LayerNormExt, and some of its layers live where mindspore.nn's do.
_MINT = {kind: f"mint.{name}" for name, kind in vars(mint.nn).items() if isinstance(kind, type)}
_FLOATS = (ms.float64, ms.float32, ms.float16, ms.bfloat16)


def is_net(value: object) -> bool:
    """Is this a MindSpore cell?"""
    return isinstance(value, nn.Cell)


def weights_of(net: Any) -> Iterator[Weight]:
    """Everything that a checkpoint of the net holds, in its order."""
    cells = dict(net.cells_and_names())
    seen: dict[int, str] = {}
    for path, parameter in net.parameters_and_names():
        owner, own = _owner(path, cells)
        cell = cells[owner]
        around = cells.get(owner.rpartition(".")[0]) if owner else None
        first = seen.setdefault(id(parameter), parameter.name)
        yield Weight(
            parameter.name,
            parameter,
            owner,
            own,
            tuple(_kinds(type(cell))),
            tuple(_kinds(type(around))) if around is not None else (),
            bool(parameter.requires_grad),
            first if first != parameter.name else None,
            {name: value for name, value in vars(cell).items() if name[:1] != "_" and isinstance(value, _SCALARS)},
        )


def _owner(path: str, cells: Mapping[str, Any]) -> tuple[str, str]:
    owner, _, own = path.rpartition(".")
    while owner and owner not in cells:
        owner, _, head = owner.rpartition(".")
        own = f"{head}.{own}"
    return owner, own


def _kinds(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        if each.__module__.startswith("mindspore."):
            yield _MINT.get(each, each.__name__)


def is_tensor(value: object) -> bool:
    """Is this a MindSpore tensor?"""
    return isinstance(value, ms.Tensor)


def spec_of(tensor: Any) -> tuple[str, tuple[int, ...]]:
    """Element type and shape."""
    return _NAMES[str(tensor.dtype)], tuple(tensor.shape)


def values_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The values on the host."""
    if tensor.dtype == ms.bfloat16:
        return np.frombuffer(tensor.get_bytes(), np.uint16).reshape(tensor.shape)
    return np.asarray(tensor.asnumpy(), order="C")


def load(net: Any, values: Mapping[str, tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Put values into the net, bit for bit."""
    targets = {parameter.name: parameter for _, parameter in net.parameters_and_names()}
    for name, (dtype, array) in values.items():
        tensor = TensorPy.convert_bytes_to_tensor(array.tobytes(), tuple(array.shape), _DTYPES[dtype])
        targets[name].set_data(ms.Tensor(tensor))


def describe(net: Any) -> str:
    """The cell as MindSpore prints it."""
    return str(net)


def run(
    net: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    weigh: Callable[[str, tuple[int, ...]], np.ndarray[Any, Any]],
    *,
    training: bool = False,
    double: bool = False,
) -> Run:
    """One pass forward and back. The net's training flag and statistics are put back as they were."""
    was_training = net.training
    kept = {
        id(parameter): parameter.asnumpy().copy() for parameter in net.get_parameters() if not parameter.requires_grad
    }
    net.set_train(training)
    try:
        return _run(net, inputs, weigh, double)
    finally:
        net.set_train(was_training)
        for parameter in net.get_parameters():
            if id(parameter) in kept:
                parameter.set_data(ms.Tensor(kept[id(parameter)], parameter.dtype))


def _run(
    net: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    weigh: Callable[[str, tuple[int, ...]], np.ndarray[Any, Any]],
    double: bool,
) -> Run:
    like = next((parameter.dtype for parameter in net.get_parameters() if parameter.dtype in _FLOATS), ms.float32)
    arguments = [
        ms.Tensor(array, (ms.float64 if double else like) if array.dtype.kind == "f" else None) for array in inputs
    ]
    slots: list[str] = []

    def loss(*given: Any) -> Any:
        outputs = list(_floats(net(*given), "0"))
        slots[:] = [slot for slot, _ in outputs]
        total = ms.Tensor(0.0, ms.float32)
        for slot, output in outputs:
            weighed = output * ms.Tensor(weigh(slot, tuple(output.shape)), output.dtype)
            total = total + weighed.sum().astype(ms.float32)
        return total, *(output for _, output in outputs)

    positions = tuple(number for number, array in enumerate(inputs) if array.dtype.kind == "f")
    weights = ms.ParameterTuple(net.trainable_params())
    if not positions and not weights:
        _, *outputs = loss(*arguments)
        return Run(dict(zip(slots, map(_array, outputs), strict=True)), {}, {})
    compute = ms.value_and_grad(loss, positions or None, weights or None, has_aux=True)
    (_, *outputs), gradients = compute(*arguments)
    of_inputs, of_weights = gradients if positions and weights else (gradients, ()) if positions else ((), gradients)
    if len(positions) == 1 and not isinstance(of_inputs, tuple):
        of_inputs = (of_inputs,)
    return Run(
        dict(zip(slots, map(_array, outputs), strict=True)),
        {str(number): _array(value) for number, value in zip(positions, of_inputs, strict=True)},
        {parameter.name: _array(value) for parameter, value in zip(weights, of_weights, strict=True)},
    )


def _floats(output: Any, slot: str) -> Iterator[tuple[str, Any]]:
    if isinstance(output, ms.Tensor):
        if output.dtype in _FLOATS:
            yield slot, output
    elif isinstance(output, Mapping):
        for key, item in output.items():
            yield from _floats(item, f"{slot}.{key}")
    elif isinstance(output, tuple | list):
        for number, item in enumerate(output):
            yield from _floats(item, f"{slot}.{number}")


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.dtype == ms.bfloat16:
        tensor = ops.cast(tensor, ms.float32)
    return np.asarray(tensor.asnumpy(), np.float64)


def accuracy() -> Iterator[tuple[float, str]]:
    """Errors of tanh, sigmoid and exp, between -4 and 4."""
    grid = np.linspace(-4, 4, 4001, dtype=np.float32)
    for name, exact in (("tanh", np.tanh), ("exp", np.exp), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))):
        true = exact(grid.astype(np.float64))
        results = getattr(ops, name)(ms.Tensor(grid)).asnumpy()
        error = np.abs(results - true)[true != 0] / np.abs(true[true != 0])
        yield float(error.max()), f"MindSpore's {name}"
