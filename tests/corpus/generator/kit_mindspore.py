"""The kit in MindSpore: the same names as kit_torch, what a person who ports would call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

FRAMEWORK = "mindspore"
ADAPTER = False
DTYPES = {"f64": ms.float64, "f32": ms.float32, "bf16": ms.bfloat16, "f16": ms.float16}
RENAMES: dict[str, str] = {}
SHOWN = ("eps", "heads", "size", "width")


class Module(nn.Cell):
    """As in kit_torch: children by other names, settings where no recorder looks."""

    def __init__(self) -> None:
        super().__init__()
        self._built = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Cell | Tensor):
            name = RENAMES.get(name, name)
        elif "_built" in vars(self) and name[0] != "_" and name not in vars(self) and name not in SHOWN:
            name = f"_own_{name}"
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        own = f"_own_{name}"
        if own in vars(self):
            return vars(self)[own]
        return super().__getattr__(RENAMES.get(name, name))

    def construct(self, *arguments: Any) -> Any:
        return self.forward(*arguments)


def module_list(modules: Sequence[nn.Cell]) -> nn.CellList:
    return nn.CellList(list(modules))


# --- layers -----------------------------------------------------------------------------------------------------------


def linear_layer(inputs: int, outputs: int, bias: bool) -> nn.Cell:
    return nn.Dense(inputs, outputs, has_bias=bias)


def layer_norm_layer(width: int, eps: float) -> nn.Cell:
    return nn.LayerNorm((width,), epsilon=eps)


def batch_norm_layer(channels: int, eps: float, momentum: float) -> nn.Cell:
    return nn.BatchNorm2d(channels, eps=eps, momentum=1 - momentum)


def group_norm_layer(groups: int, channels: int, eps: float) -> nn.Cell:
    return nn.GroupNorm(groups, channels, eps=eps)


def conv_layer(
    inputs: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int, bias: bool, groups: int = 1
) -> nn.Cell:
    return nn.Conv2d(
        inputs,
        outputs,
        kernel,
        stride,
        pad_mode="pad",
        padding=padding,
        dilation=dilation,
        group=groups,
        has_bias=bias,
    )


def transposed_conv_layer(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Cell:
    return nn.Conv2dTranspose(inputs, outputs, kernel, stride, pad_mode="valid", has_bias=True)


def embedding_layer(count: int, width: int) -> nn.Cell:
    return nn.Embedding(count, width)


def lstm_layer(inputs: int, hidden: int) -> nn.Cell:
    return nn.LSTM(inputs, hidden, batch_first=True)


def gru_layer(inputs: int, hidden: int) -> nn.Cell:
    return nn.GRU(inputs, hidden, batch_first=True)


def gelu_layer(approximate: str) -> nn.Cell:
    return nn.GELU(approximate=approximate == "tanh")


def leaky_layer(slope: float) -> nn.Cell:
    return nn.LeakyReLU(slope)


def max_pool_layer(kernel: int, stride: int, padding: int, ceil_mode: bool) -> nn.Cell:
    return nn.MaxPool2d(kernel, stride, pad_mode="pad", padding=padding, ceil_mode=ceil_mode)


def parameter(shape: tuple[int, ...]) -> Any:
    return ms.Parameter(Tensor(np.ones(shape, np.float32)), name="weight")


_NAMES = {
    nn.LayerNorm: {"gamma": "weight", "beta": "bias"},
    nn.GroupNorm: {"gamma": "weight", "beta": "bias"},
    nn.BatchNorm2d: {
        "gamma": "weight",
        "beta": "bias",
        "moving_mean": "running_mean",
        "moving_variance": "running_var",
    },
    nn.Embedding: {"embedding_table": "weight"},
}


def _parameters(layer: nn.Cell) -> Iterator[tuple[str, ms.Parameter]]:
    names = next((table for kind, table in _NAMES.items() if isinstance(layer, kind)), {})
    for own, value in layer.parameters_and_names():
        name = own.rpartition(".")[2]
        yield names.get(name, name), value


def shapes_of(layer: nn.Cell) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in _parameters(layer)}


def load(layer: nn.Cell, values: Mapping[str, np.ndarray]) -> None:
    for name, own in _parameters(layer):
        if name in values:
            own.set_data(Tensor(values[name].astype(np.float32).reshape(own.shape)).astype(own.dtype))


def held(layer: nn.Cell, name: str) -> Tensor:
    return dict(_parameters(layer))[name]


# --- functions --------------------------------------------------------------------------------------------------------

relu = ops.relu
tanh = ops.tanh
sigmoid = ops.sigmoid
sqrt = ops.sqrt
rsqrt = ops.rsqrt
matmul = ops.matmul
silu = ops.silu


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.dense(x, weight, bias)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return ops.gelu(x, approximate=approximate)


def leaky_relu(x: Tensor, slope: float) -> Tensor:
    return ops.leaky_relu(x, slope)


def relu6(x: Tensor) -> Tensor:
    return ops.relu6(x)


def softmax(x: Tensor, axis: int) -> Tensor:
    return ops.softmax(x, axis)


def layer_norm(x: Tensor, width: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)(x, weight, bias)[0]


def mean(x: Tensor, axis: int | tuple[int, ...], keep: bool = False) -> Tensor:
    return x.mean(axis, keep_dims=keep)


def total(x: Tensor, axis: int, keep: bool = False) -> Tensor:
    return x.sum(axis, keepdims=keep)


def variance(x: Tensor, axis: int, unbiased: bool) -> Tensor:
    return ops.var(x, axis, int(unbiased), True)


def cat(parts: Sequence[Tensor], axis: int) -> Tensor:
    return ops.cat(tuple(parts), axis)


def stack(parts: Sequence[Tensor], axis: int) -> Tensor:
    return ops.stack(tuple(parts), axis)


def split(x: Tensor, size: int, axis: int) -> Sequence[Tensor]:
    return ops.split(x, size, axis)


def chunk(x: Tensor, count: int, axis: int) -> Sequence[Tensor]:
    return ops.chunk(x, count, axis)


def unbind(x: Tensor, axis: int) -> Sequence[Tensor]:
    return ops.unbind(x, axis)


def transpose(x: Tensor, one: int, two: int) -> Tensor:
    return x.swapaxes(one, two)


def permute(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return ops.transpose(x, axes)


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return ops.reshape(x, shape)


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    return ops.masked_fill(x, mask, Tensor(value, x.dtype))


def where(mask: Tensor, x: Tensor, value: float) -> Tensor:
    return ops.where(mask, Tensor(value, x.dtype), x)


def repeat_each(x: Tensor, times: int, axis: int) -> Tensor:
    return ops.repeat_interleave(x, times, axis)


def repeat_whole(x: Tensor, times: int, axis: int) -> Tensor:
    return ops.cat((x,) * times, axis)


def max_pool(x: Tensor, kernel: int, stride: int, padding: int, ceil_mode: bool) -> Tensor:
    return ops.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)


def avg_pool(x: Tensor, kernel: int, stride: int, padding: int, count_include_pad: bool) -> Tensor:
    return ops.avg_pool2d(x, kernel, stride, padding, count_include_pad=count_include_pad)


def pad(x: Tensor, sizes: tuple[int, int, int, int], mode: str = "constant") -> Tensor:
    return ops.pad(x, sizes, mode)


def upsample(x: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    return ops.interpolate(x, size=size, mode=mode)


def dropout(x: Tensor, p: float) -> Tensor:
    return ops.dropout(x, p, True)


def top_k(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return ops.topk(x, count)


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    return ops.gather(weight, ids, 0)


def at_least(x: Tensor, least: float) -> Tensor:
    return ops.clamp(x, least)


def detach(x: Tensor) -> Tensor:
    return ops.stop_gradient(x)


def cast(x: Tensor, dtype: str) -> Tensor:
    return ops.cast(x, DTYPES[dtype])


def cast_like(x: Tensor, other: Tensor) -> Tensor:
    return ops.cast(x, other.dtype)


def least_of(x: Tensor) -> float:
    return float(np.finfo(np.float16 if x.dtype == ms.float16 else np.float32).min)


def ask(x: Tensor) -> bool:
    return bool((x == x).all())


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    return ops.cross_entropy(logits, labels, reduction=reduction, label_smoothing=smoothing)


def mse(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return ops.mse_loss(x, target, reduction=reduction)


def constant(value: np.ndarray, like: Tensor | None = None) -> Tensor:
    if value.dtype == np.int64:
        value = value.astype(np.int32)
    made = Tensor(np.ascontiguousarray(value))
    return made if like is None else made.astype(like.dtype)


# --- running ----------------------------------------------------------------------------------------------------------


def prepare() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    ms.runtime.launch_blocking()  # a tenth of the time for small operators that are read one by one
    ms.set_seed(0)


def to_dtype(net: nn.Cell, dtype: str) -> None:
    if dtype != "f32":
        for value in net.get_parameters():
            value.set_dtype(DTYPES[dtype])


def train_mode(net: nn.Cell, training: bool) -> None:
    net.set_train(training)


def to_tensor(value: np.ndarray, dtype: str) -> Tensor:
    if value.dtype.kind == "f":
        return Tensor(value.astype(np.float32)).astype(DTYPES[dtype])
    return Tensor(value.astype(np.int32) if value.dtype == np.int64 else value)


def to_numpy(value: Tensor) -> np.ndarray:
    return value.asnumpy().astype(np.float64)


def forward_only(function: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return function()


def with_gradients(
    net: nn.Cell, function: Callable[[], tuple[Tensor, Tensor]], before_backward: Callable[[], None]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    named = {name: value for name, value in net.parameters_and_names() if value.requires_grad}
    (loss, output), gradients = ms.value_and_grad(function, None, list(named.values()), has_aux=True)()
    return loss, output, dict(zip(named, gradients, strict=True))


def optimizer(kind: str, net: nn.Cell, settings: Mapping[str, Any], form: str) -> Callable[[Any], None]:
    from mindspore.experimental import optim

    made = {"sgd": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW}[kind]
    own = made([value for _, value in net.parameters_and_names() if value.requires_grad], **settings)
    return lambda gradients: own(tuple(gradients.values()))


def named_state(net: nn.Cell) -> Iterator[tuple[str, Tensor]]:
    yield from net.parameters_and_names()
