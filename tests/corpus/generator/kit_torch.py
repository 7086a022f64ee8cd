"""The kit in PyTorch; under MSAdapter the same file runs on the `torch` that MSAdapter provides.

Differences between the two are in this file alone: MSAdapter has no `backward()`, no fused attention on a CPU, no optimizers.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ADAPTER = hasattr(torch.Tensor, "asnumpy")
FRAMEWORK = "msadapter" if ADAPTER else "torch"
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
Tensor = torch.Tensor
RENAMES: dict[str, str] = {}
"""Names of children in the nets, and those that stand for them in this build (kit.use_names)."""
SHOWN = ("eps", "heads", "size", "width")


class Module(nn.Module):
    """A module whose children may be stored under other names than the nets use, and whose settings are nobody's business.

    Settings are kept where a recorder does not look: `exchange=True` in a module's configuration would tell the mistake. What real
    modules have is shown (SHOWN).
    """

    def __init__(self) -> None:
        super().__init__()
        self._built = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module | torch.Tensor):
            name = RENAMES.get(name, name)
        elif "_built" in vars(self) and name[0] != "_" and name not in vars(self) and name not in SHOWN:
            name = f"_own_{name}"
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        own = f"_own_{name}"
        if own in vars(self):
            return vars(self)[own]
        return super().__getattr__(RENAMES.get(name, name))


def module_list(modules: Sequence[nn.Module]) -> nn.ModuleList:
    return nn.ModuleList(modules)


# --- layers -----------------------------------------------------------------------------------------------------------


def linear_layer(inputs: int, outputs: int, bias: bool) -> nn.Module:
    return nn.Linear(inputs, outputs, bias=bias)


def layer_norm_layer(width: int, eps: float) -> nn.Module:
    return nn.LayerNorm(width, eps=eps)


def batch_norm_layer(channels: int, eps: float, momentum: float) -> nn.Module:
    """`momentum` in PyTorch's convention: the share of the new batch."""
    return nn.BatchNorm2d(channels, eps=eps, momentum=momentum)


def group_norm_layer(groups: int, channels: int, eps: float) -> nn.Module:
    return nn.GroupNorm(groups, channels, eps=eps)


def conv_layer(
    inputs: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int, bias: bool, groups: int = 1
) -> nn.Module:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups=groups, bias=bias)


def transposed_conv_layer(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, kernel, stride)


def embedding_layer(count: int, width: int) -> nn.Module:
    return nn.Embedding(count, width)


def lstm_layer(inputs: int, hidden: int) -> nn.Module:
    return nn.LSTM(inputs, hidden, batch_first=True)


def gru_layer(inputs: int, hidden: int) -> nn.Module:
    return nn.GRU(inputs, hidden, batch_first=True)


def gelu_layer(approximate: str) -> nn.Module:
    return nn.GELU(approximate=approximate)


def leaky_layer(slope: float) -> nn.Module:
    return nn.LeakyReLU(slope)


def max_pool_layer(kernel: int, stride: int, padding: int, ceil_mode: bool) -> nn.Module:
    return nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)


def parameter(shape: tuple[int, ...]) -> Any:
    return nn.Parameter(torch.ones(shape))


def shapes_of(layer: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of what a layer holds, by PyTorch's names; counters are not values."""
    held = [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]
    return {name: tuple(value.shape) for name, value in held if name != "num_batches_tracked"}


def load(layer: nn.Module, values: Mapping[str, np.ndarray]) -> None:
    """Set what a layer holds, by PyTorch's names."""
    with torch.no_grad():
        held = [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]
        for name, own in held:
            if name in values:
                own.copy_(torch.from_numpy(values[name]).to(own.dtype))


def held(layer: nn.Module, name: str) -> Tensor:
    return getattr(layer, name)


# --- functions --------------------------------------------------------------------------------------------------------

linear = F.linear
relu = F.relu
silu = F.silu
tanh = torch.tanh
sigmoid = torch.sigmoid
sqrt = torch.sqrt
rsqrt = torch.rsqrt
matmul = torch.matmul


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


def leaky_relu(x: Tensor, slope: float) -> Tensor:
    return F.leaky_relu(x, slope)


def relu6(x: Tensor) -> Tensor:
    return F.relu6(x)


def softmax(x: Tensor, axis: int) -> Tensor:
    return F.softmax(x, dim=axis)


def layer_norm(x: Tensor, width: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, (width,), weight, bias, eps)


def mean(x: Tensor, axis: int | tuple[int, ...], keep: bool = False) -> Tensor:
    return x.mean(axis, keepdim=keep)


def total(x: Tensor, axis: int, keep: bool = False) -> Tensor:
    return x.sum(axis, keepdim=keep)


def variance(x: Tensor, axis: int, unbiased: bool) -> Tensor:
    return x.var(axis, unbiased=unbiased, keepdim=True)


def cat(parts: Sequence[Tensor], axis: int) -> Tensor:
    return torch.cat(list(parts), dim=axis)


def stack(parts: Sequence[Tensor], axis: int) -> Tensor:
    return torch.stack(list(parts), dim=axis)


def split(x: Tensor, size: int, axis: int) -> Sequence[Tensor]:
    return torch.split(x, size, dim=axis)


def chunk(x: Tensor, count: int, axis: int) -> Sequence[Tensor]:
    return torch.chunk(x, count, dim=axis)


def unbind(x: Tensor, axis: int) -> Sequence[Tensor]:
    return torch.unbind(x, axis)


def transpose(x: Tensor, one: int, two: int) -> Tensor:
    return x.transpose(one, two)


def permute(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.permute(*axes)


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.reshape(shape)


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    return x.masked_fill(mask, value)


def where(mask: Tensor, x: Tensor, value: float) -> Tensor:
    """`x` where the mask is False, the value where it is True."""
    return torch.where(mask, torch.full((), value, dtype=x.dtype), x)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, None if hidden is None else ~hidden, scale=scale)


def repeat_each(x: Tensor, times: int, axis: int) -> Tensor:
    """1 1 2 2."""
    return torch.repeat_interleave(x, times, dim=axis)


def repeat_whole(x: Tensor, times: int, axis: int) -> Tensor:
    """1 2 1 2."""
    return torch.cat([x] * times, dim=axis)


def max_pool(x: Tensor, kernel: int, stride: int, padding: int, ceil_mode: bool) -> Tensor:
    return F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)


def avg_pool(x: Tensor, kernel: int, stride: int, padding: int, count_include_pad: bool) -> Tensor:
    return F.avg_pool2d(x, kernel, stride, padding, count_include_pad=count_include_pad)


def pad(x: Tensor, sizes: tuple[int, int, int, int], mode: str = "constant") -> Tensor:
    return F.pad(x, sizes, mode=mode)


def upsample(x: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    return F.interpolate(x, size=size, mode=mode)


def dropout(x: Tensor, p: float) -> Tensor:
    return F.dropout(x, p, training=True)


def top_k(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return torch.topk(x, count, dim=-1)


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    return F.embedding(ids, weight)


def at_least(x: Tensor, least: float) -> Tensor:
    return torch.clamp(x, min=least)


def detach(x: Tensor) -> Tensor:
    return x.detach()


def add_in_place(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y)


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.to(DTYPES[dtype])


def cast_like(x: Tensor, other: Tensor) -> Tensor:
    return x.to(other.dtype)


def least_of(x: Tensor) -> float:
    return float(torch.finfo(x.dtype).min)


def ask(x: Tensor) -> bool:
    """A question to Python: no result depends on it."""
    return bool((x == x).all())


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(logits, labels, reduction=reduction, label_smoothing=smoothing)


def mse(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    return F.mse_loss(x, target, reduction=reduction)


def checkpoint(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint as again

    return again(function, *arguments, use_reentrant=False)


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    made = torch.compile(function, backend="eager")

    def call(*arguments: Tensor) -> Tensor:
        with warnings.catch_warnings():  # where warnings are errors, the compiler's own looks at tensors stop it
            warnings.simplefilter("ignore")
            return made(*arguments)

    return call


def constant(value: np.ndarray, like: Tensor | None = None) -> Tensor:
    made = torch.from_numpy(np.ascontiguousarray(value))
    return made if like is None else made.to(like.dtype)


# --- running ----------------------------------------------------------------------------------------------------------


def prepare() -> None:
    if ADAPTER:
        import mindspore as ms

        ms.set_context(mode=ms.PYNATIVE_MODE)
        ms.runtime.launch_blocking()
        # Gradients that MindSpore made have no device of mindtorch's, and its functions refuse such tensors.
        here = torch.device("cpu")
        ms.Tensor.device = property(lambda tensor: getattr(tensor, "_device", here))
    else:
        torch.set_num_threads(1)
        torch.manual_seed(0)


def to_dtype(net: nn.Module, dtype: str) -> None:
    net.to(DTYPES[dtype])


def train_mode(net: nn.Module, training: bool) -> None:
    net.train(training)


def to_tensor(value: np.ndarray, dtype: str) -> Tensor:
    made = torch.from_numpy(np.ascontiguousarray(value))
    return made.to(DTYPES[dtype]) if value.dtype.kind == "f" else made


def to_numpy(value: Tensor) -> np.ndarray:
    """In float64, so that bf16 has values, too."""
    if ADAPTER:
        return value.float().asnumpy().astype(np.float64)
    return value.detach().to(torch.float64).numpy().copy()


def forward_only(function: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(loss, output) without gradients."""
    with contextlib.nullcontext() if ADAPTER else torch.no_grad():
        return function()


def with_gradients(
    net: nn.Module, function: Callable[[], tuple[Tensor, Tensor]], before_backward: Callable[[], None]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """(loss, output, gradients by the parameter's name)."""
    named = dict(net.named_parameters())
    if ADAPTER:
        import mindspore as ms

        (loss, output), gradients = ms.value_and_grad(
            function, grad_position=None, weights=list(named.values()), has_aux=True
        )()
        return loss, output, dict(zip(named, gradients, strict=True))
    loss, output = function()
    before_backward()
    loss.backward()
    return loss, output, {name: value.grad for name, value in named.items() if value.grad is not None}


def optimizer(kind: str, net: nn.Module, settings: Mapping[str, Any], form: str) -> Callable[[Any], None]:
    """A function that applies the gradients of `with_gradients`. `form`: "" or "foreach", "fused", "single"."""
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    how = {"foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}}.get(form, {})
    own = made(net.parameters(), **settings, **how)

    def apply(_: Any) -> None:
        own.step()
        own.zero_grad()

    return apply


def named_state(net: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers."""
    yield from net.named_parameters()
    yield from ((name, value) for name, value in net.named_buffers() if "num_batches" not in name)
