"""Parts of the nets, each with knobs: what a mistake sets otherwise, and what a rewrite writes otherwise.

    plan = Plan({("blocks.0.norm1", "eps"): 1e-2}, dtype="f32")
    net = NETS["gpt"].build(plan)          blocks.0.norm1 has that epsilon; everything else is as it should be
    plan.asked                             {("blocks.0.norm1", "eps"): 1e-5, …}: every knob that there is, with what is right

A knob has a site: the path of the module that it is in (`blocks.0.norm1`), or, of calls in a module, that path and a label
(`blocks.0#add1`). Paths are those of the nets' own names; kit.renamed_path gives what a recorder sees.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .kit import kit as k

Knobs = Mapping[tuple[str, str], Any]


class Plan:
    """Knobs that are set, those that were asked for, and the layers that have weights."""

    def __init__(self, knobs: Knobs, dtype: str) -> None:
        self.knobs, self.dtype = dict(knobs), dtype
        self.high = "f32" if dtype in ("bf16", "f16") else dtype
        self.asked: dict[tuple[str, str], Any] = {}
        self.layers: list[tuple[str, Any]] = []
        self.copies: list[tuple[Any, str]] = []
        """Layers that begin with another site's weight: what is tied where it is right."""

    def at(self, site: str, knob: str, right: Any) -> Any:
        """The value of a knob, where `right` is right."""
        self.asked[site, knob] = right
        return self.knobs.get((site, knob), right)

    def keep(self, site: str, layer: Any) -> Any:
        """Remember a layer that has weights."""
        self.layers.append((site, layer))
        return layer

    def load_weights(self, seed: int) -> None:
        """Give every layer its random weights: the same in every framework, by site and name."""
        shapes = {site: k.shapes_of(layer) for site, layer in self.layers}
        for site, layer in self.layers:
            values = {name: values_for(seed, site, name, shape) for name, shape in shapes[site].items()}
            how = self.at(site, "weights", "own")
            if how != "own":
                name = "weight" if "weight" in values else next(iter(values))
                values[name] = _wrong(how, values[name], seed, site, name, shapes)
            k.load(layer, values)
        for layer, site in self.copies:
            k.load(layer, {"weight": values_for(seed, site, "weight", shapes[site]["weight"])})


def values_for(seed: int, site: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of which no two layers have the same, and none is a bare one or zero."""
    noise = np.random.default_rng([seed, zlib.crc32(f"{site}.{name}".encode())]).standard_normal(shape)
    if name == "running_var":
        return 0.5 + np.abs(noise)
    if "bias" in name or name == "running_mean":
        return 0.3 * noise
    if len(shape) == 1 and "weight" in name:
        return 1 + 0.2 * noise
    if "tokens" in site or "places" in site:
        return 0.7 * noise
    return noise / np.sqrt(np.prod(shape[1:]))


def _wrong(how: str, value: np.ndarray, seed: int, site: str, name: str, shapes: Mapping[str, Any]) -> np.ndarray:
    """The weight as it was loaded by mistake."""
    if how == "transposed":
        return np.ascontiguousarray(value.T)
    if how == "other layer":
        other = next(place for place in shapes if place != site and shapes[place].get(name) == value.shape)
        return values_for(seed, other, name, value.shape)
    if how == "halves exchanged":
        return np.roll(value, len(value) // 2, axis=0)
    if how == "gates exchanged":
        i, f, g, o = np.split(value, 4)
        return np.concatenate([i, f, o, g])
    assert how == "one element", how
    changed = value.copy()
    changed.flat[value.size // 2] += 0.5
    return changed


# --- affine layers ----------------------------------------------------------------------------------------------------


class Affine(k.Module):
    """A linear layer written out, or one that does something else besides."""

    def __init__(self, inputs: int, outputs: int, bias: bool, form: str, gain: float, cast: str) -> None:
        super().__init__()
        self.form, self.gain, self.cast, self.biased = form, gain, cast, bias
        self.weight = k.parameter((outputs, inputs))
        if bias:
            self.bias = k.parameter((outputs,))

    def forward(self, x: Any) -> Any:
        weight, bias = self.weight, self.bias if self.biased else None
        if self.cast:
            like, x, weight = x, k.cast(x, self.cast), k.cast(weight, self.cast)
            bias = k.cast(bias, self.cast) if self.biased else None
        if self.form == "matmul":
            y = k.matmul(x, k.transpose(weight, 0, 1))
            y = y + bias if self.biased else y
        else:
            y = k.linear(x, weight, bias) if self.biased else k.linear(x, weight)
        if self.cast:
            y = k.cast_like(y, like)
        return y * self.gain if self.gain != 1.0 else y


def affine(plan: Plan, site: str, inputs: int, outputs: int, *, bias: bool = True) -> Any:
    """A linear layer."""
    biased = plan.at(site, "bias", bias)
    form = plan.at(site, "form", "module")
    gain = plan.at(site, "gain", 1.0)
    cast = plan.at(site, "cast", "")
    if inputs == outputs:
        plan.at(site, "square", True)
    if form == "module" and gain == 1.0 and not cast:
        return plan.keep(site, k.linear_layer(inputs, outputs, biased))
    return plan.keep(site, Affine(inputs, outputs, biased, form, gain, cast))


# --- norms ------------------------------------------------------------------------------------------------------------


class WrittenNorm(k.Module):
    """A layer norm by a function, or written out."""

    def __init__(self, plan: Plan, width: int, eps: float, form: str, unbiased: bool) -> None:
        super().__init__()
        self.width, self.eps, self.form, self.unbiased, self.high = width, eps, form, unbiased, plan.high
        self.weight, self.bias = k.parameter((width,)), k.parameter((width,))

    def forward(self, x: Any) -> Any:
        if self.form == "functional":
            return k.layer_norm(x, self.width, self.weight, self.bias, self.eps)
        y = k.cast(x, self.high)
        centred = y - k.mean(y, -1, True)
        spread = k.variance(y, -1, self.unbiased) if self.form == "var" else k.mean(centred * centred, -1, True)
        y = centred / k.sqrt(spread + self.eps)
        return k.cast_like(y, x) * self.weight + self.bias


def layer_norm(plan: Plan, site: str, width: int) -> Any:
    eps = plan.at(site, "eps", 1e-5)
    form = plan.at(site, "norm_form", "module")
    unbiased = plan.at(site, "unbiased", False)
    if unbiased:
        form = "var"
    if form == "module":
        return plan.keep(site, k.layer_norm_layer(width, eps))
    return plan.keep(site, WrittenNorm(plan, width, eps, form, unbiased))


class RootMeanSquareNorm(k.Module):
    """RMSNorm as Llama writes it: computed in float32, cast back, then scaled."""

    def __init__(self, plan: Plan, site: str, width: int) -> None:
        super().__init__()
        self.high = plan.high
        self.eps = plan.at(site, "eps", 1e-5)
        self.form = plan.at(site, "rms_form", "mean")
        self.centred = plan.at(site, "centred", False)
        self.offset = plan.at(site, "offset", 0.0)
        self.weight = k.parameter((width,))
        plan.keep(site, self)

    def forward(self, x: Any) -> Any:
        y = k.cast(x, self.high)
        if self.centred:
            y = y - k.mean(y, -1, True)
        if self.form == "mean":
            y = y * k.rsqrt(k.mean(y * y, -1, True) + self.eps)
        else:
            y = y / k.sqrt(k.total(y * y, -1, True) / y.shape[-1] + self.eps)
        weight = self.weight + self.offset if self.offset else self.weight
        return weight * k.cast_like(y, x)


def batch_norm(plan: Plan, site: str, channels: int) -> Any:
    eps = plan.at(site, "eps", 1e-5)
    momentum = plan.at(site, "momentum", 0.1)
    plan.at(site, "frozen", False)
    return plan.keep(site, k.batch_norm_layer(channels, eps, momentum))


def group_norm(plan: Plan, site: str, channels: int) -> Any:
    eps = plan.at(site, "eps", 1e-5)
    groups = plan.at(site, "groups", 4)
    return plan.keep(site, k.group_norm_layer(groups, channels, eps))


# --- functions with knobs ---------------------------------------------------------------------------------------------


def activation(plan: Plan, site: str, kind: str) -> Any:
    """A layer, or a function: `kind` is gelu, gelu_tanh, leaky, relu, relu6, silu."""
    form = plan.at(site, "act_form", "functional") if kind in ("gelu", "gelu_tanh", "leaky") else "functional"
    slope = plan.at(site, "slope", 0.1) if kind == "leaky" else 0.0
    kind = plan.at(site, "kind", kind)
    if form == "module" and kind in ("gelu", "gelu_tanh"):
        return k.gelu_layer("tanh" if kind == "gelu_tanh" else "none")
    if form == "module" and kind == "leaky":
        return k.leaky_layer(slope)
    functions: dict[str, Callable[[Any], Any]] = {
        "gelu": lambda x: k.gelu(x, "none"),
        "gelu_tanh": lambda x: k.gelu(x, "tanh"),
        "leaky": lambda x: k.leaky_relu(x, slope),
        "relu": lambda x: k.relu(x),
        "relu6": lambda x: k.relu6(x),
        "silu": lambda x: k.silu(x),
    }
    return functions[kind]


def add(plan: Plan, site: str, x: Any, y: Any) -> Any:
    """A residual connection, x + y."""
    how = plan.at(site, "residual", "x + y")
    if how == "x + y":
        return x + y
    if how == "y + x":
        return y + x
    if how == "in place":
        return k.add_in_place(y, x)
    if how == "detached":
        return k.detach(x) + y
    if how == "halved":
        return x + 0.5 * y
    assert how == "missing", how
    return y


def dropped(plan: Plan, site: str, x: Any) -> Any:
    """Dropout that is off, where it is right."""
    p = plan.at(site, "p", 0.0)
    return k.dropout(x, p) if p else x


def passed(plan: Plan, site: str, x: Any) -> Any:
    """A value on its way: cast, detached, asked about or looked at, where that is set."""
    how = plan.at(site, "way", "")
    if how == "detached":
        return k.detach(x)
    if how.startswith("cast "):
        return k.cast_like(k.cast(x, how[5:]), x)
    if how == "question":
        assert k.ask(x)
    if how == "dead end":
        k.tanh(x)
    return x


def averaged(plan: Plan, site: str, x: Any) -> Any:
    """The mean over the pixels of N, C, H, W."""
    if plan.at(site, "averaged", "at once") == "flat":
        return k.mean(k.reshape(x, (x.shape[0], x.shape[1], -1)), -1)
    return k.mean(x, (2, 3))


def joined(plan: Plan, site: str, parts: list[Any], axis: int) -> Any:
    how = plan.at(site, "joined", "at once")
    if how == "exchanged":
        return k.cat(parts[::-1], axis)
    if how == "one by one":
        made = parts[0]
        for part in parts[1:]:
            made = k.cat([made, part], axis)
        return made
    return k.cat(parts, axis)


def convolution(plan: Plan, site: str, inputs: int, outputs: int, *, stride: int = 1, bias: bool = True) -> Any:
    """A 3×3 convolution with padding 1."""
    mode = plan.at(site, "padding_mode", "zeros")
    dilation = plan.at(site, "dilation", 1)
    biased = plan.at(site, "bias", bias)
    if mode == "zeros":
        return plan.keep(site, k.conv_layer(inputs, outputs, 3, stride, dilation, dilation, biased))
    return PaddedConvolution(plan, site, inputs, outputs, stride, biased, mode)


class PaddedConvolution(k.Module):
    """A convolution that pads in a call of its own: right ("apart"), by reflection, or on one side ("late")."""

    def __init__(self, plan: Plan, site: str, inputs: int, outputs: int, stride: int, bias: bool, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.sizes = (0, 2, 0, 2) if mode == "late" else (1, 1, 1, 1)
        self.inner = plan.keep(site, k.conv_layer(inputs, outputs, 3, stride, 0, 1, bias))

    def forward(self, x: Any) -> Any:
        return self.inner(k.pad(x, self.sizes, "reflect" if self.mode == "reflect" else "constant"))


# --- attention --------------------------------------------------------------------------------------------------------


class Attention(k.Module):
    """Self-attention: causal or not, grouped keys, rotary positions, window, soft cap."""

    def __init__(
        self,
        plan: Plan,
        site: str,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        rotary: bool = False,
        window: int | None = None,
        cap: float | None = None,
        together: bool = False,
        bias: bool = True,
        masked: bool = True,
    ) -> None:
        super().__init__()
        self.plan, self.site, self.high = plan, site, plan.high
        self.heads, self.groups, self.size = heads, groups or heads, width // heads
        self.together = together
        if together:
            self.qkv = affine(plan, f"{site}.qkv", width, 3 * width, bias=bias)
        else:
            self.q = affine(plan, f"{site}.q", width, width, bias=bias)
            self.k = affine(plan, f"{site}.k", width, self.groups * self.size, bias=bias)
            self.v = affine(plan, f"{site}.v", width, self.groups * self.size, bias=bias)
        self.o = affine(plan, f"{site}.o", width, width, bias=bias)
        right = self.size**-0.5
        self.scale = right * plan.at(site, "scale", 1.0)
        self.axis = plan.at(site, "axis", -1)
        self.mask = plan.at(site, "mask", "right") if masked else "none"
        self.exchange = plan.at(site, "exchange", False) if self.groups == heads else False
        self.form = plan.at(site, "attention", "plain")
        self.layout = plan.at(site, "layout", "apart")
        self.fill = plan.at(site, "fill", "-inf") if masked else ""
        self.fill_form = plan.at(site, "fill_form", "masked_fill") if masked else ""
        self.projected = plan.at(site, "projected", "split") if together else ""
        self.repeat = plan.at(site, "repeat", "each") if self.groups != heads else ""
        self.window = plan.at(site, "window", window) if window else None
        self.cap = plan.at(site, "cap", cap) if cap else None
        # A fused kernel knows no soft cap: only who forgets the cap can use it.
        self.fused = self.cap == "fused" if cap else plan.at(site, "fused", False)
        self.cap = None if self.fused else self.cap
        self.rotary = plan.at(site, "rotary", "half") if rotary else ""
        self.base = plan.at(site, "base", 10000.0) if rotary else 0.0

    def forward(self, x: Any, hidden: np.ndarray | None) -> Any:
        batch, length, width = x.shape
        q, key, v = self.project(x)
        if self.rotary:
            q, key = self.rotate(q), self.rotate(key)
        if self.exchange:
            q, key = key, q
        if self.repeat:
            again = k.repeat_each if self.repeat == "each" else k.repeat_whole
            key, v = (again(part, self.heads // self.groups, 1) for part in (key, v))
        if self.mask == "none":
            hidden = None
        if self.window and hidden is not None:
            places = np.arange(length)
            hidden = hidden | (places[:, None] - places[None, :] >= self.window)
        y = self.attend(q, key, v, hidden)
        return self.o(k.reshape(k.transpose(y, 1, 2), (batch, length, width)))

    def project(self, x: Any) -> tuple[Any, Any, Any]:
        batch, length, width = x.shape

        def apart(y: Any, heads: int) -> Any:
            return k.transpose(k.reshape(y, (batch, length, heads, self.size)), 1, 2)

        if not self.together:
            return apart(self.q(x), self.heads), apart(self.k(x), self.groups), apart(self.v(x), self.groups)
        y = self.qkv(x)
        if self.projected == "unbind":
            y = k.permute(k.reshape(y, (batch, length, 3, self.heads, self.size)), (2, 0, 3, 1, 4))
            q, key, v = k.unbind(y, 0)
            return q, key, v
        q, key, v = k.split(y, width, -1) if self.projected == "split" else k.chunk(y, 3, -1)
        return apart(q, self.heads), apart(key, self.heads), apart(v, self.heads)

    def rotate(self, x: Any) -> Any:
        length, half = x.shape[2], self.size // 2
        angles = np.arange(length)[:, None] * self.base ** -(np.arange(half) / half)[None]
        if self.rotary == "interleaved":
            angles = np.repeat(angles, 2, -1)
            pairs = k.reshape(x, (*x.shape[:3], half, 2))
            turned = k.reshape(k.stack([-pairs[..., 1], pairs[..., 0]], -1), tuple(x.shape))
        else:
            angles = np.concatenate([angles, angles], -1)
            first, second = x[..., :half], x[..., half:]
            turned = k.cat([second, first] if self.rotary == "sign lost" else [-second, first], -1)
        cos, sin = (k.constant(np.asarray(f(angles), np.float64).astype(np.float32), x) for f in (np.cos, np.sin))
        return x * cos + turned * sin

    def attend(self, q: Any, key: Any, v: Any, hidden: np.ndarray | None) -> Any:
        if self.fused:
            return k.fused_attention(q, key, v, None if hidden is None else k.constant(hidden), self.scale)
        shape = tuple(q.shape)
        if self.layout == "merged":  # heads beside batches, as a batched product of three axes has them
            merged = (shape[0] * shape[1], *shape[2:])
            q, key, v = (k.reshape(part, merged) for part in (q, key, v))
            if hidden is not None:
                hidden = np.broadcast_to(hidden, (*shape[:3], shape[2])).reshape(-1, shape[2], shape[2])
        if self.form == "prescaled":
            scores = k.matmul(q * self.scale, k.transpose(key, -2, -1))
        else:
            scores = k.matmul(q, k.transpose(key, -2, -1)) * self.scale
        if self.cap is not None:
            scores = k.tanh(scores / self.cap) * self.cap
        if hidden is not None:
            scores = self.hide(scores, hidden)
        weights = k.softmax(k.cast(scores, self.high), self.axis)
        y = k.matmul(k.cast_like(weights, v), v)
        return k.reshape(y, shape) if self.layout == "merged" else y

    def hide(self, scores: Any, hidden: np.ndarray) -> Any:
        value = {"-inf": float("-inf"), "-1e4": -1e4, "least": k.least_of(scores)}[self.fill]
        if self.fill_form == "add":
            return scores + k.constant(np.where(hidden, value, 0.0).astype(np.float32), scores)
        if self.fill_form == "where":
            return k.where(k.constant(hidden), scores, value)
        return k.masked_fill(scores, k.constant(hidden), value)
