"""Small training steps of every kind, to prove that recording changes nothing, bit by bit.

    built = CASES["mlp"].build()        seeds everything, so two builds are two identical runs
    built.step()                        one whole training step; returns the loss
    built.state()                       {"parameter.0.weight": f32[8, 4], "grad.0.weight@0": …, "loss@0": …}

    first_difference(plain, recorded)   None, or "grad.0.weight@0 f32[8, 4]: 1 of 32 elements differ, …"

A case is one function under `@case`; its docstring says what the case is there to catch. `name@n` in a state is what
was kept the n-th time: gradients from before `zero_grad`, outputs, losses. Besides what a case keeps itself, every
step keeps the loss and what the process can notice afterwards (random generators, grad mode, autocast, threads): a
recorder that draws one random number is found by every case. Finish with one build before you start the next: the
random generators are the process's own.
"""

from __future__ import annotations

import copy
import functools
import inspect
import io
import os
import random
import re
import threading
import warnings
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # AMX bf16 can die of SIGILL on virtual machines

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


# ------------------------------------------------------------------------------------------------ comparing states


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Same type, layout, shape and bytes: NaN equals the same NaN, 0.0 does not equal -0.0. Strides do not count."""
    if (a.dtype, a.layout, a.shape) != (b.dtype, b.layout, b.shape):
        return False
    if a.layout is torch.sparse_coo:
        return same_bits(a._indices(), b._indices()) and same_bits(a._values(), b._values())
    return torch.equal(_bytes_by_element(a), _bytes_by_element(b))


def first_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> str | None:
    """Name the first tensor in which two states differ, and how; None if they are the same bits."""
    for name in [*left, *(name for name in right if name not in left)]:
        if name not in right:
            return f"{name} {_spec(left[name])}: only left"
        if name not in left:
            return f"{name} {_spec(right[name])}: only right"
        if not same_bits(left[name], right[name]):
            return f"{name} {_spec(left[name])}: {_how_they_differ(left[name], right[name])}"
    return None


def _how_they_differ(a: Tensor, b: Tensor) -> str:
    if (a.dtype, a.layout, a.shape) != (b.dtype, b.layout, b.shape):
        return f"right is {_spec(b)}"
    if a.layout is torch.sparse_coo:
        return "sparse indices or values differ"
    differs = (_bytes_by_element(a) != _bytes_by_element(b)).any(dim=1)
    first = int(differs.nonzero()[0])
    values = f"{a.reshape(-1)[first].item()!r} != {b.reshape(-1)[first].item()!r}"
    return f"{int(differs.sum())} of {differs.numel()} elements differ, flat index {first}: {values}"


def _bytes_by_element(tensor: Tensor) -> Tensor:
    """u8[elements, bytes of an element]."""
    plain = _plain(tensor).resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8).reshape(plain.numel(), plain.element_size())


def _plain(tensor: Tensor) -> Tensor:
    """The same values without history and without subclass (as_subclass itself knows no sparse tensors)."""
    tensor = tensor.detach()
    return tensor if type(tensor) is Tensor else tensor.as_subclass(Tensor)


def _spec(tensor: Tensor) -> str:
    """`f32[8, 4]`."""
    letters = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bool": "b8"}
    kind, rest = re.fullmatch(r"([a-z]+)(.*)", str(tensor.dtype).removeprefix("torch.")).groups()
    return f"{letters.get(kind, kind)}{rest}{list(tensor.shape)}"


# ------------------------------------------------------------------------------------------------ cases and registry


@dataclass(frozen=True)
class Built:
    """A run that is ready to step. `state()` may be asked at any time, also after a step that raised."""

    model: nn.Module | list[nn.Module]
    step: Callable[[], Tensor | None]
    state: Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class Case:
    """One kind of training step. Where `raises` is set, every step raises it; `notes` says what the case catches.

    `needs` are names, or questions, of what older releases lack (the marker `offered`).
    """

    name: str
    build: Callable[[], Built]
    raises: type[BaseException] | None = None
    notes: str = ""
    needs: tuple[str | Callable[[], bool], ...] = ()


CASES: dict[str, Case] = {}


def case(
    build: Callable[[], Built] | None = None,
    *,
    raises: type[BaseException] | None = None,
    needs: str | Callable[[], bool] | None = None,
):
    """Register a build function under its own name, with its docstring as the notes."""
    if build is None:
        return functools.partial(case, raises=raises, needs=needs)
    notes = inspect.cleandoc(build.__doc__ or "")
    CASES[build.__name__] = Case(
        build.__name__, functools.partial(_build_seeded, build), raises, notes, (needs,) if needs else ()
    )
    return build


def fuses_on_the_host() -> bool:
    """a fused optimizer without a GPU"""
    try:
        torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True)
    except RuntimeError:
        return False
    return True


def _build_seeded(build: Callable[[], Built]) -> Built:
    torch.manual_seed(20240229)
    random.seed(20240229)
    np.random.seed(20240229)
    built = build()
    ledger = Ledger()

    def step() -> Tensor | None:
        try:
            loss = built.step()
            if loss is not None:
                ledger.keep("loss", loss)
            return loss
        finally:
            for name, tensor in _process_state().items():
                ledger.keep(f"process.{name}", tensor)

    return Built(built.model, step, lambda: built.state() | ledger.state())


def _process_state() -> dict[str, Tensor]:
    """What a recorder could leave behind in the process and a later step would notice."""
    _, words, position, *_ = np.random.get_state()
    flags = [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.ones(1, 1) @ torch.ones(1, 1)).dtype is torch.float32,  # no autocast
        torch.get_default_dtype() is torch.float32,
        torch.get_num_threads(),
    ]
    return {
        "torch_rng": torch.get_rng_state(),
        "python_rng": torch.tensor(random.getstate()[1]),
        "numpy_rng": torch.tensor([*words.tolist(), position]),
        "flags": torch.tensor(flags, dtype=torch.int64),
    }


class Ledger:
    """What a case wants compared: copies kept on the way, models and optimizers read when the state is asked for."""

    def __init__(self, models: Sequence[nn.Module] = (), optimizers: Sequence[torch.optim.Optimizer] = ()):
        self._models, self._optimizers = models, optimizers
        self._kept: dict[str, Tensor] = {}
        self._times: Counter[str] = Counter()

    def keep(self, name: str, tensor: Tensor) -> None:
        """Keep a copy as `name@0`, the next one as `name@1`, …"""
        self._kept[f"{name}@{self._times[name]}"] = _copy(tensor)
        self._times[name] += 1

    def keep_gradients(self) -> None:
        """Keep every gradient that there is; to be called before `zero_grad`."""
        for name, parameter in self._parameters():
            if parameter.grad is not None:
                self.keep(f"grad.{name}", parameter.grad)

    def state(self) -> dict[str, Tensor]:
        found = dict(self._kept)
        for name, parameter in self._parameters():
            found[f"parameter.{name}"] = _copy(parameter)
            if parameter.grad is not None:
                found[f"grad.{name}"] = _copy(parameter.grad)
        for prefix, model in self._named(self._models):
            for name, buffer in model.named_buffers():
                if not nn.parameter.is_lazy(buffer):
                    found[f"buffer.{prefix}{name}"] = _copy(buffer)
        for prefix, optimizer in self._named(self._optimizers):
            parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
            for number, parameter in enumerate(parameters):
                found |= dict(_leaves(f"optimizer.{prefix}{number}", optimizer.state.get(parameter, {})))
        return found

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for prefix, model in self._named(self._models):
            for name, parameter in model.named_parameters():
                if not nn.parameter.is_lazy(parameter):
                    yield f"{prefix}{name}", parameter

    @staticmethod
    def _named(things: Sequence) -> list[tuple[str, object]]:
        return [("" if len(things) == 1 else f"{number}.", thing) for number, thing in enumerate(things)]


def _copy(tensor: Tensor) -> Tensor:
    return _plain(tensor).clone()


def _leaves(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors and numbers in nested dicts and lists, numbers as tensors."""
    if isinstance(value, Tensor):
        yield name, _copy(value)
    elif isinstance(value, bool | int | float):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _leaves(f"{name}.{position}", inner)


# ------------------------------------------------------------------------------------------------ the usual steps


def training(
    model: nn.Module, loss: Callable[[Ledger], Tensor], *, optimizer: torch.optim.Optimizer | None = None
) -> Built:
    """The usual step around a loss: backward, keep the gradients, optimizer, zero_grad."""
    optimizer = optimizer or sgd(model)
    ledger = Ledger([model], [optimizer])

    def step() -> Tensor:
        value = loss(ledger)
        value.backward()
        ledger.keep_gradients()
        optimizer.step()
        optimizer.zero_grad()
        return value

    return Built(model, step, ledger.state)


def regression(
    model: nn.Module, *inputs: object, optimizer: torch.optim.Optimizer | None = None, **named: object
) -> Built:
    """Train a model with one tensor for output towards zero, always on the same batch."""

    def loss(ledger: Ledger) -> Tensor:
        output = model(*inputs, **named)
        ledger.keep("output", output)
        return output.square().mean()

    return training(model, loss, optimizer=optimizer)


def inference(model: nn.Module, forward: Callable[[Ledger], Tensor]) -> Built:
    """No training at all: the step is one forward pass, its output is all there is to compare."""
    ledger = Ledger([model.eval()])

    def step() -> Tensor:
        output = forward(ledger)
        ledger.keep("output", output)
        return output.float().mean()

    return Built(model, step, ledger.state)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def mlp_layers(*, width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


# ------------------------------------------------------------------------------------------------ plain models


@case
def mlp() -> Built:
    """The plainest step: if this one changes, everything does."""
    return regression(mlp_layers(), torch.randn(6, 4))


@case
def float64() -> Built:
    """Values that a detour through float32 would cut."""
    return regression(mlp_layers().double(), torch.randn(6, 4, dtype=torch.float64))


@case
def cnn_batch_norm() -> Built:
    """Running statistics: a forward pass run once more than asked for moves them."""
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 3)
    )
    return regression(model, torch.randn(4, 3, 8, 8))


@case
def convolution_kinds() -> Built:
    """Depthwise, grouped, dilated and transposed convolutions take other kernels than the plain one."""
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=4),
        nn.Conv2d(8, 8, 3, padding=2, groups=2, dilation=2),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(2),
        nn.Conv1d(4, 2, 5, stride=3),
    )
    return regression(model, torch.randn(2, 4, 6, 6))


@case
def channels_last() -> Built:
    """Kernels are chosen by strides: a recorder that makes a tensor contiguous changes the bits after it."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 3))
    batch = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    return regression(model.to(memory_format=torch.channels_last), batch)


@case
def group_and_instance_norm() -> Built:
    """Norms with statistics per sample, one of them with running buffers."""
    norms = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.LayerNorm([4, 4])
    return regression(nn.Sequential(nn.Conv2d(2, 4, 3), *norms), torch.randn(3, 2, 6, 6))


@case
def dropout() -> Built:
    """Random numbers drawn in forward: one draw by the recorder shifts all masks after it."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.3), nn.Linear(32, 32), nn.AlphaDropout(0.2), nn.Linear(32, 2))
    return regression(model, torch.randn(6, 4))


@case
def empty_batch() -> Built:
    """Tensors without elements: min, max and mean of nothing."""

    def loss(ledger: Ledger) -> Tensor:
        output = model(torch.empty(0, 4))
        ledger.keep("output", output)
        return output.sum()

    model = mlp_layers()
    return training(model, loss)


@case
def not_finite() -> Built:
    """NaN and infinity in outputs, gradients and weights, which must stay the same NaN."""

    class Diverges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            return torch.stack([h.sum(), h[0, 0] / 0.0, (h[0, 1] * 0).log() - h[1, 1], (h * 0).sqrt().sum()])

    return regression(Diverges(), torch.randn(3, 4))


@case
def odd_dtypes() -> Built:
    """Modules that put out float8, half, int16 and bool: statistics of these are often not implemented."""

    class Cast(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x: Tensor) -> Tensor:
            return x.to(self.dtype)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 8)
            types = torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.int16, torch.uint8, torch.bool
            self.casts = nn.ModuleList([Cast(dtype) for dtype in types])

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            return h + sum(cast(h.detach().abs() * 3).float() for cast in self.casts) + self.casts[2](h).float()

    return regression(Model(), torch.randn(3, 4))


# ------------------------------------------------------------------------------------------------ attention


@case
def encoder_layer_training() -> Built:
    """torch's own encoder layer, in training, with its dropouts."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return regression(layer, torch.randn(2, 5, 16))


@case
def encoder_layer_fast_path() -> Built:
    """Without gradients the layer is one fused operation, unless somebody hangs hooks on it or on its children.

    With a mask the bits of the two ways differ. Without one they do not: then the attention is still the fused one.
    """
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    batch, future = torch.randn(2, 5, 16), torch.ones(5, 5, dtype=torch.bool).triu(1)
    return inference(layer, torch.no_grad()(lambda _: layer(batch, src_mask=future)))


@case
def encoder_nested_fast_path() -> Built:
    """With a padding mask the whole encoder runs on a nested tensor, of which numpy and clone know little."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "nested tensors are a prototype" is said once in a process: here
        torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    batch = torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    return inference(encoder, torch.no_grad()(lambda _: encoder(batch, src_key_padding_mask=padding)))


@case
def attention_fast_path() -> Built:
    """nn.MultiheadAttention has a fused path of its own, but only as long as query, key and value are one object."""
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    batch = torch.randn(2, 5, 16)
    return inference(attention, torch.no_grad()(lambda _: attention(batch, batch, batch, need_weights=False)[0]))


@case
def attention_training() -> Built:
    """nn.MultiheadAttention never calls its out_proj as a module: it is to be seen, but not to be called."""
    attention = nn.MultiheadAttention(16, 4, dropout=0.1)
    query, memory = torch.randn(5, 2, 16), torch.randn(7, 2, 16)

    def loss(ledger: Ledger) -> Tensor:
        output, weights = attention(query, memory, memory, average_attn_weights=False)
        ledger.keep("output", output)
        return output.square().mean() + weights.square().mean()

    return training(attention, loss)


class Block(nn.Module):
    """A decoder block with causal attention, as everybody writes it."""

    def __init__(self, attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.blocks = nn.Sequential(Block(attention), Block(attention))
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))))


def language_model(attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Built:
    model = Gpt(attention)
    tokens = torch.randint(20, (2, 9))

    def loss(ledger: Ledger) -> Tensor:
        logits = model(tokens[:, :-1])
        ledger.keep("logits", logits)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return training(model, loss, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))


@case
def gpt_sdpa() -> Built:
    """scaled_dot_product_attention picks its kernel by what it is given."""
    return language_model(functools.partial(F.scaled_dot_product_attention, is_causal=True))


@case
def gpt_softmax() -> Built:
    """The same attention written out, with -inf in the scores."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(future, float("-inf"))
        return scores.softmax(dim=-1) @ v

    return language_model(attention)


# ------------------------------------------------------------------------------------------------ transformers


def pretrained_style(model_name: str, config_name: str, **sizes: object) -> Built:
    """A randomly initialised model of the transformers library, which computes its own loss from labels."""
    import transformers

    model = getattr(transformers, model_name)(getattr(transformers, config_name)(vocab_size=24, **sizes)).train()
    model.loss_type = model.loss_type or "ForCausalLM"  # the default, which transformers takes with a warning
    tokens = torch.randint(24, (2, 6))

    def loss(ledger: Ledger) -> Tensor:
        output = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens)
        ledger.keep("logits", output.logits)
        return output.loss

    return training(model, loss, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3))


@case(needs="transformers")
def hf_gpt2() -> Built:
    """A ModelOutput with a key/value cache in it, tied weights, dropout."""
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 16}
    return pretrained_style("GPT2LMHeadModel", "GPT2Config", bos_token_id=0, eos_token_id=1, **sizes)


@case(needs="transformers")
def hf_llama() -> Built:
    """Rotary embeddings and grouped key/value heads; decorators around forward."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return pretrained_style("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **sizes)


@case(needs="transformers")
def hf_bert() -> Built:
    """An encoder with masks, token types and dropout."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return pretrained_style("BertForMaskedLM", "BertConfig", max_position_embeddings=16, **sizes)


# ------------------------------------------------------------------------------------------------ recurrence


class SequenceModel(nn.Module):
    """A recurrent network, which returns a tuple, and a head on all of its outputs."""

    def __init__(self, recurrent: nn.Module, width: int) -> None:
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.recurrent(x)
        return self.head(sequence)


@case
def rnn() -> Built:
    """A whole sequence in one call."""
    return regression(SequenceModel(nn.RNN(4, 6), 6), torch.randn(5, 3, 4))


@case
def lstm_bidirectional() -> Built:
    """Two layers, both directions, dropout between them; hidden state is a nested tuple."""
    return regression(SequenceModel(nn.LSTM(4, 6, 2, bidirectional=True, dropout=0.2), 12), torch.randn(5, 3, 4))


@case
def gru() -> Built:
    """Batch first: the output is a transposed view of what was computed."""
    return regression(SequenceModel(nn.GRU(4, 6, batch_first=True), 6), torch.randn(3, 5, 4))


@case
def lstm_packed() -> Built:
    """A PackedSequence goes in and comes out: a namedtuple whose constructor is not a namedtuple's."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 6)

        def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            output, (hidden, _) = self.lstm(packed)
            return nn.utils.rnn.pad_packed_sequence(output)[0].sum(0) + hidden[0]

    return regression(Packed(), torch.randn(5, 3, 4), [3, 5, 2])


@case
def lstm_cell_loop() -> Built:
    """One module called many times in one forward pass, feeding itself."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(4, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = c = x.new_zeros(x.shape[1], 6)
            for frame in x:
                h, c = self.cell(frame, (h, c))
            return self.head(h)

    return regression(Loop(), torch.randn(4, 3, 4))


@case
def bptt() -> Built:
    """Three chunks, the hidden state detached in between and carried over to the next step."""
    model = nn.ModuleDict({"rnn": nn.GRU(4, 6), "head": nn.Linear(6, 2)})
    optimizer = sgd(model)
    ledger = Ledger([model], [optimizer])
    sequence = torch.randn(9, 2, 4)
    carried = torch.zeros(1, 2, 6)

    def step() -> Tensor:
        nonlocal carried
        total = torch.zeros(())
        for chunk in sequence.split(3):
            output, hidden = model["rnn"](chunk, carried)
            loss = model["head"](output).square().mean()
            loss.backward()
            ledger.keep_gradients()
            optimizer.step()
            optimizer.zero_grad()
            carried = hidden.detach()
            total += loss.detach()
        ledger.keep("hidden", carried)
        return total

    return Built(model, step, ledger.state)


# ------------------------------------------------------------------------------------------------ sharing


@case
def tied_weights() -> Built:
    """One parameter under two names: embedding and head."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embedding(tokens).tanh())

    return regression(Tied(), torch.randint(12, (3, 4)))


@case
def shared_module() -> Built:
    """One module under two names and called three times: its gradient is a sum of three, in an order."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.again = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.first(self.again(x).tanh()) + self.first(x)

    return regression(Shared(), torch.randn(5, 4))


@case
def recursive_module() -> Built:
    """A module that calls itself: its forward begins again before it has ended."""

    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int) -> Tensor:
            x = self.inner(x).tanh()
            return x if depth == 0 else x + self(x, depth - 1)

    return regression(Recursive(), torch.randn(3, 4), 2)


@case
def many_consumers() -> Built:
    """A tensor used by many: gradients are summed in the order in which the graph was built."""

    class Consumers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            return torch.cat([h, h], dim=1) + torch.cat([h * h, h.exp() / 3], dim=1) + self.inner(h).repeat(1, 2)

    return regression(Consumers(), torch.randn(5, 4))


@case
def identity_output() -> Built:
    """A module that returns its input: `output is input` must stay true, because user code may ask."""

    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.same = nn.Linear(4, 4), nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            return h if self.same(h) is h else h * 2

    return regression(Asks(), torch.randn(3, 4))


# ------------------------------------------------------------------------------------------------ writing in place


@case
def inplace_relu_after_batch_norm() -> Built:
    """The output of one module is overwritten by the next: no view may lie between them."""
    block = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.Hardtanh(inplace=True)
    return regression(nn.Sequential(*block), torch.randn(2, 3, 6, 6))


@case
def inplace_arithmetic() -> Built:
    """Writes into a module's output by the caller: +=, item assignment, mul_, index_put_, masked_fill_."""

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y += 1
            y[0] = 2
            y.mul_(0.5)
            y.index_put_((torch.tensor([1, 1]), torch.tensor([0, 2])), torch.tensor([0.25, 0.75]), accumulate=True)
            y.masked_fill_(x > 1, 0.125)
            return self.second(y)

    return regression(Writes(), torch.randn(5, 4))


@case
def inplace_on_views() -> Built:
    """Writes through views: the base changes although nobody touched it by name."""

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            left, right = y[:, :3], y[:, 3:]
            left.mul_(2)
            right.add_(left.detach())
            y.diagonal().zero_()
            y.t()[1:4:2].tanh_()
            return self.second(y)

    return regression(Views(), torch.randn(5, 4))


@case
def inplace_on_input() -> Built:
    """A module that overwrites what it was given, and a caller who reads it afterwards."""

    class Overwrites(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2).clamp_(-1, 1)

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.overwrites, self.head = nn.Linear(4, 4), Overwrites(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            self.overwrites(h)
            return self.head(h)

    return regression(Reads(), torch.randn(5, 4))


@case
def strided_outputs() -> Built:
    """Outputs that own no memory of their own: expanded, transposed, overlapping, every second element."""

    class View(nn.Module):
        def __init__(self, view: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.view = view

        def forward(self, x: Tensor) -> Tensor:
            return self.view(x)

    model = nn.Sequential(
        nn.Linear(4, 6),
        View(lambda x: x.unsqueeze(1).expand(-1, 3, -1)),
        View(lambda x: x.transpose(1, 2)),
        View(lambda x: x[:, ::2]),
        View(lambda x: x.unfold(1, 2, 1)),
        nn.Linear(2, 2),
    )
    return regression(model, torch.randn(3, 4))


# ------------------------------------------------------------------------------------------------ autograd


class Checkpointed(nn.Module):
    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 2)
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.4), nn.GELU())
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.inner, self.first(x), use_reentrant=self.use_reentrant))


@case
def checkpoint_reentrant() -> Built:
    """Modules run again inside backward, in a backward of their own; dropout must draw the same mask twice."""
    return regression(Checkpointed(use_reentrant=True), torch.randn(5, 4))


@case
def checkpoint_non_reentrant() -> Built:
    """Recomputed when a saved tensor is unpacked: the saved tensors of both passes are counted and matched."""
    return regression(Checkpointed(use_reentrant=False), torch.randn(5, 4))


@case
def gradient_penalty() -> Built:
    """Double backward: hooks in the first backward become part of the second graph."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))

    def loss(ledger: Ledger) -> Tensor:
        x = torch.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
        output = model(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        ledger.keep("slope", slope)
        return output.mean() + (slope.norm(dim=1) - 1).square().mean()

    return training(model, loss)


@case
def backward_twice() -> Built:
    """retain_graph: the same graph is walked twice and gradients add up."""
    model = mlp_layers()
    optimizer = sgd(model)
    ledger = Ledger([model], [optimizer])
    batch = torch.randn(5, 4)

    def step() -> Tensor:
        loss = model(batch).square().mean()
        loss.backward(retain_graph=True)
        ledger.keep_gradients()
        (3 * loss).backward()
        ledger.keep_gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    return Built(model, step, ledger.state)


@case
def autograd_grad() -> Built:
    """Gradients by torch.autograd.grad: nothing is ever accumulated in .grad, weights are written by hand."""
    model = mlp_layers()
    ledger = Ledger([model])
    batch = torch.randn(5, 4)

    def step() -> Tensor:
        loss = model(batch).square().mean()
        names, parameters = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for name, parameter, gradient in zip(names, parameters, gradients, strict=True):
                ledger.keep(f"gradient.{name}", gradient)
                parameter -= 0.1 * gradient
        return loss

    return Built(model, step, ledger.state)


@case
def custom_function() -> Built:
    """A user's autograd.Function with saved tensors, two outputs and a None gradient."""

    class ScaledSine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x)
            ctx.scale = scale
            return x.mul(scale).sin(), x.mul(scale).cos()

        @staticmethod
        def backward(ctx, grad_sine: Tensor, grad_cosine: Tensor) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            inner = x * ctx.scale
            return ctx.scale * (grad_sine * inner.cos() - grad_cosine * inner.sin()), None

    class Sines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            sine, cosine = ScaledSine.apply(self.inner(x), 1.5)
            return sine + 2 * cosine

    return regression(Sines(), torch.randn(5, 4))


@case
def custom_function_in_place() -> Built:
    """A user's autograd.Function that marks its input dirty and returns it."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:
            return grad * 2

    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x)
            Double.apply(h)
            return h.sin()

    return regression(Doubles(), torch.randn(5, 4))


@case
def saved_tensors_hooks() -> Built:
    """The user packs saved tensors into bfloat16: whatever more is saved, or hooked in between, is packed too."""

    def pack(tensor: Tensor) -> Tensor:
        return tensor.bfloat16() if tensor.is_floating_point() else tensor

    def unpack(tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.is_floating_point() else tensor

    def loss(ledger: Ledger) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return model(batch).square().mean()

    model, batch = mlp_layers(), torch.randn(5, 4)
    return training(model, loss)


@case
def detach_in_middle() -> Built:
    """Half of the model gets no gradient, on purpose; a module output without grad_fn."""

    class Detaches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.above = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.above(self.below(x).detach())

    return regression(Detaches(), torch.randn(5, 4))


@case
def no_grad_inside() -> Built:
    """A teacher in no_grad inside forward: outputs that must not start to require a gradient."""

    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                target = self.teacher(x)
            return self.student(x) - target * (2 if target.requires_grad else 1)

    return regression(Teacher(), torch.randn(5, 4))


@case
def frozen_parameters() -> Built:
    """Only the head learns; below it nothing requires a gradient, not even the input."""
    model = mlp_layers()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return regression(model, torch.randn(5, 4), optimizer=optimizer)


@case
def inference_mode() -> Built:
    """Inference tensors have no version counter, and may not be saved for backward."""
    model = mlp_layers()
    batch = torch.randn(5, 4)
    return inference(model, torch.inference_mode()(lambda _: model(batch)))


@case
def per_sample_gradients() -> Built:
    """vmap and grad inside forward: hooks on the inner module meet batched and wrapped tensors without data."""

    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.func.vmap(torch.func.grad(lambda sample: self.energy(sample).sum()))(x)

    return regression(Force(), torch.randn(5, 4))


@case
def functional_call() -> Built:
    """The module is called with other tensors in the place of its parameters, a whole ensemble at once."""

    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)
            self.deviation = nn.Parameter(torch.randn(3, 2, 4) / 10)

        def forward(self, x: Tensor) -> Tensor:
            def member(deviation: Tensor) -> Tensor:
                weights = {"weight": self.inner.weight + deviation, "bias": self.inner.bias}
                return torch.func.functional_call(self.inner, weights, (x,))

            return torch.func.vmap(member)(self.deviation)

    return regression(Ensemble(), torch.randn(5, 4))


# ------------------------------------------------------------------------------------------------ number kinds


@case
def autocast_bf16() -> Built:
    """Types are chosen per operation while autocast is on: the recorder's own arithmetic must not take part."""

    def loss(ledger: Ledger) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(batch)
        ledger.keep("output", output)
        return output.float().square().mean()

    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8))
    batch = torch.randn(6, 8)
    return training(model, loss)


@case(needs="torch.amp.GradScaler")
def autocast_scaled() -> Built:
    """A GradScaler: gradients are scaled in backward, unscaled before clipping; the third step overflows."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    ledger = Ledger([model], [optimizer])
    batch = torch.randn(6, 8)
    steps = 0

    def step() -> Tensor:
        nonlocal steps
        steps += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch).float().square().mean() * (float("inf") if steps == 3 else 1.0)
        scaler.scale(loss).backward()
        ledger.keep_gradients()
        scaler.unscale_(optimizer)
        ledger.keep("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        scaler.step(optimizer)
        scaler.update()
        ledger.keep("scale", torch.tensor(scaler.get_scale()))
        optimizer.zero_grad()
        return loss

    return Built(model, step, ledger.state)


@case
def bf16_weights() -> Built:
    """A model that is bfloat16 throughout: numpy has no such type."""

    def loss(ledger: Ledger) -> Tensor:
        output = model(batch)
        ledger.keep("output", output)
        return output.square().mean()

    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)).bfloat16()
    batch = torch.randn(6, 8, dtype=torch.bfloat16)
    return training(model, loss)


@case
def complex_fft() -> Built:
    """Complex values in the middle of a real model."""

    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.irfft(torch.fft.rfft(self.inner(x)) * self.filter, n=8)

    return regression(Spectral(), torch.randn(4, 8))


@case
def complex_parameters() -> Built:
    """Complex weights, an output that is only lazily conjugated, and Adam's real view of complex state."""

    class Conjugates(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.conj()

    model = nn.Sequential(
        nn.Linear(4, 6, dtype=torch.complex64), Conjugates(), nn.Linear(6, 2, dtype=torch.complex64), Conjugates()
    )
    batch = torch.randn(3, 4, dtype=torch.complex64)

    def loss(ledger: Ledger) -> Tensor:
        output = model(batch)
        ledger.keep("output", output)
        return output.abs().square().mean()

    return training(model, loss, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))


@case
def sparse_gradients_sgd() -> Built:
    """Sparse, uncoalesced gradients beside dense ones: a recorder must not coalesce or densify them."""
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Linear(4, 2))
    tokens = torch.tensor([[3, 3, 7], [7, 0, 19]])
    return regression(model, tokens, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


@case
def sparse_adam() -> Built:
    """SparseAdam and an EmbeddingBag: only the touched rows have state."""
    model = nn.EmbeddingBag(20, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)
    return regression(model, torch.tensor([3, 3, 7, 0, 7]), torch.tensor([0, 3]), optimizer=optimizer)


@case
def fake_quantize() -> Built:
    """Rounding in forward, straight through in backward: an ulp before it is a whole step after it."""

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            weight = torch.fake_quantize_per_tensor_affine(self.inner.weight, 1 / 64, 0, -128, 127)
            h = F.linear(x, weight, self.inner.bias)
            return self.head(h + ((h * 16).round() / 16 - h).detach())

    return regression(Quantized(), torch.randn(5, 4))


# ------------------------------------------------------------------------------------------------ inputs and outputs


class Structured(nn.Module):
    """Two heads on one trunk, put together and taken apart by whatever the case says."""

    class Heads(nn.Module):
        def __init__(self, pack: Callable[[Tensor, Tensor], object]) -> None:
            super().__init__()
            self.trunk, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 3)
            self.pack = pack

        def forward(self, x: Tensor) -> object:
            h = self.trunk(x).tanh()
            return self.pack(self.left(h), self.right(h))

    def __init__(self, pack: Callable[[Tensor, Tensor], object], unpack: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.heads = self.Heads(pack)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.unpack(self.heads(x))
        return torch.cat([left, 2 * right], dim=1)


def structured(pack: Callable[[Tensor, Tensor], object], unpack: Callable[..., tuple[Tensor, Tensor]]) -> Built:
    return regression(Structured(pack, unpack), torch.randn(5, 4))


@case
def returns_dict() -> Built:
    """A dict, whose keys are not all strings."""
    return structured(lambda a, b: {"left": a, 7: b}, lambda out: (out["left"], out[7]))


@dataclass
class Pair:
    left: Tensor
    right: Tensor
    note: str = "a dataclass"


@case
def returns_dataclass() -> Built:
    """A dataclass that must come back as itself."""
    return structured(Pair, lambda out: (out.left, out.right) if type(out) is Pair else (out.right, out.left))


PairTuple = namedtuple("PairTuple", ["left", "right"])


@case
def returns_namedtuple() -> Built:
    """A namedtuple, which a careless walk turns into a plain tuple."""
    return structured(PairTuple, lambda out: (out.left, out.right))


@case
def returns_nested() -> Built:
    """Lists of tuples of dicts, with None, numbers, strings and an empty list between the tensors."""
    return structured(
        lambda a, b: [None, ({"a": [a, 1]}, "text"), [], (3.5, [[b]])], lambda out: (out[1][0]["a"][0], out[3][1][0][0])
    )


@case
def returns_object() -> Built:
    """An object of which nothing is known, with slots, and with tensors inside."""

    class Opaque:
        __slots__ = ("inside",)

        def __init__(self, *inside: Tensor) -> None:
            self.inside = inside

    return structured(Opaque, lambda out: out.inside)


@case
def returns_generator() -> Built:
    """A generator can be read only once, and not by the recorder."""
    return structured(lambda a, b: (part * 2 for part in (a, b)), tuple)


@case
def keyword_only() -> Built:
    """Everything goes in by name, tensors inside a dict too."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, *, batch: dict[str, Tensor], scale: float, bias: Tensor | None = None) -> Tensor:
            output = self.inner(input=batch["x"]) * scale
            return output if bias is None else output + bias

    return regression(Named(), batch={"x": torch.randn(5, 4)}, scale=0.5, bias=torch.randn(2))


@case
def tensor_subclass() -> Built:
    """A Tensor subclass that counts the functions called on it: calls by the recorder would show in the result."""

    class Counting(Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in (torch.add, F.linear, torch.mean, Tensor.mean, Tensor.clone, Tensor.sum):
                Counting.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    model = mlp_layers()
    batch = torch.randn(5, 4).as_subclass(Counting)

    def loss(ledger: Ledger) -> Tensor:
        Counting.calls = 0
        output = model(batch)
        ledger.keep("calls", torch.tensor(Counting.calls))
        return output.as_subclass(Tensor).square().mean()

    return training(model, loss)


# ------------------------------------------------------------------------------------------------ the user's own hooks


@case
def user_tensor_hooks() -> Built:
    """Hooks that change gradients on an inner tensor and on a parameter, and a retained inner gradient."""
    model = mlp_layers()
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    batch = torch.randn(5, 4)
    optimizer = sgd(model)
    ledger = Ledger([model], [optimizer])

    def step() -> Tensor:
        inner = model[0](batch)
        inner.retain_grad()
        inner.register_hook(lambda grad: grad * 3)
        loss = model[2](model[1](inner)).square().mean()
        loss.backward()
        ledger.keep("inner.grad", inner.grad)
        ledger.keep_gradients()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Built(model, step, ledger.state)


@case
def user_module_hooks() -> Built:
    """Forward hooks that replace inputs and outputs, full backward hooks that replace gradients: order matters."""
    model = mlp_layers()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    model[1].register_forward_hook(lambda module, inputs, output: output + 1)
    model[2].register_forward_hook(
        lambda module, inputs, kwargs, output: output * 2, with_kwargs=True, prepend=True, always_call=True
    )
    model[1].register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 0.5,))
    model[2].register_full_backward_hook(
        lambda module, grad_input, grad_output: (grad_input[0] + grad_output[0].sum(),)
    )
    return regression(model, torch.randn(5, 4))


@case
def user_legacy_backward_hook() -> Built:
    """A backward hook of the old kind: torch refuses a full one on the same module."""
    model = mlp_layers()
    model[1].register_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 0.5,))
    return regression(model, torch.randn(5, 4))


@case
def user_global_hook() -> Built:
    """Hooks on all modules of the process, hung and taken down within the step."""
    model, batch = mlp_layers(), torch.randn(5, 4)

    def loss(ledger: Ledger) -> Tensor:
        seen = []
        hook = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(output))
        try:
            output = model(batch)
        finally:
            hook.remove()
        ledger.keep("seen", torch.tensor(len(seen)))
        return output.square().mean() + sum(tensor.mean() for tensor in seen)

    return training(model, loss)


@case
def optimizer_in_backward() -> Built:
    """Each weight is updated as soon as its gradient is there, and the gradient freed, while backward still runs."""
    model, batch = mlp_layers(), torch.randn(5, 4)
    optimizers = {parameter: torch.optim.Adam([parameter], lr=0.01) for parameter in model.parameters()}
    ledger = Ledger([model], list(optimizers.values()))

    def update(parameter: Tensor) -> None:
        ledger.keep(f"gradient{list(parameter.shape)}", parameter.grad)
        optimizers[parameter].step()
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def step() -> Tensor:
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    return Built(model, step, ledger.state)


# ------------------------------------------------------------------------------------------------ training loops


@case
def accumulation_and_clipping() -> Built:
    """Three micro-batches, then the norm over all gradients: one changed bit scales everything."""
    model = mlp_layers()
    optimizer = sgd(model)
    ledger = Ledger([model], [optimizer])
    batch = torch.randn(9, 4)

    def step() -> Tensor:
        total = torch.zeros(())
        for micro in batch.split(3):
            loss = model(micro).square().mean() / 3
            loss.backward()
            ledger.keep_gradients()
            total += loss.detach()
        ledger.keep("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.05))
        ledger.keep_gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return total

    return Built(model, step, ledger.state)


@case
def gan() -> Built:
    """Two models and two optimizers; the discriminator is run three times and frozen in between."""
    generator, discriminator = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), mlp_layers()
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (generator, discriminator)]
    ledger = Ledger([generator, discriminator], optimizers)
    real = torch.randn(5, 4)

    def step() -> Tensor:
        fake = generator(torch.randn(5, 3))
        judged = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
        judged.backward()
        ledger.keep_gradients()
        optimizers[1].step()
        discriminator.requires_grad_(False)
        fooled = F.softplus(-discriminator(fake)).mean()
        fooled.backward()
        discriminator.requires_grad_(True)
        ledger.keep_gradients()
        optimizers[0].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        return judged.detach() + fooled.detach()

    return Built([generator, discriminator], step, ledger.state)


@case
def lbfgs() -> Built:
    """An optimizer that runs the model as often as it likes, and decides by the values it sees."""
    model, batch = mlp_layers(), torch.randn(5, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    ledger = Ledger([model], [optimizer])

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        ledger.keep_gradients()
        return loss

    return Built(model, lambda: optimizer.step(closure), ledger.state)


@case
def adamw_foreach() -> Built:
    """All parameters in one multi-tensor operation, with lists of tensors as arguments."""
    model = mlp_layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True, amsgrad=True)
    return regression(model, torch.randn(5, 4), optimizer=optimizer)


@case(needs=fuses_on_the_host)
def adamw_fused() -> Built:
    """One fused kernel that writes parameters and state in place."""
    model = mlp_layers()
    return regression(model, torch.randn(5, 4), optimizer=torch.optim.AdamW(model.parameters(), lr=0.01, fused=True))


@case
def optimizer_through_data() -> Built:
    """An old-style optimizer that writes through `.data`: version counters do not see it."""

    class Old(torch.optim.Optimizer):
        def __init__(self, parameters) -> None:
            super().__init__(parameters, {"lr": 0.1})

        def step(self, closure=None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    average = self.state[parameter].setdefault("average", torch.zeros_like(parameter.data))
                    average.mul_(0.9).add_(parameter.grad.data)
                    parameter.data.add_(average, alpha=-group["lr"])

    model = mlp_layers()
    return regression(model, torch.randn(5, 4), optimizer=Old(model.parameters()))


@case
def ema_copy() -> Built:
    """The model is deep-copied while it is watched: hooks are copied with it, and what they hold on to."""
    model, batch = mlp_layers(), torch.randn(5, 4)

    def loss(ledger: Ledger) -> Tensor:
        target = copy.deepcopy(model).requires_grad_(False)(batch)
        ledger.keep("target", target)
        return (model(batch) - 0.9 * target).square().mean()

    return training(model, loss)


@case
def whole_model_saved() -> Built:
    """torch.save of the module itself: hooks are pickled with it, so a closure in one of them is the end."""
    model, batch = mlp_layers(), torch.randn(5, 4)

    def loss(ledger: Ledger) -> Tensor:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for name, tensor in torch.load(file, weights_only=False).state_dict().items():
            ledger.keep(f"saved.{name}", tensor)
        return model(batch).square().mean()

    return training(model, loss)


@case
def state_dict_loaded() -> Built:
    """A checkpoint of weights and optimizer is taken and loaded back in the middle of training."""
    model, batch = mlp_layers(), torch.randn(5, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss(ledger: Ledger) -> Tensor:
        weights, moments = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        ledger.keep("number of weights", torch.tensor(len(weights)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        return model(batch).square().mean()

    return training(model, loss, optimizer=optimizer)


@case
def forward_in_thread() -> Built:
    """Forward in another thread, where grad mode and autocast start anew; backward in this one."""
    model, batch = mlp_layers(), torch.randn(5, 4)

    def loss(ledger: Ledger) -> Tensor:
        outputs = []
        thread = threading.Thread(target=lambda: outputs.append(model(batch)))
        thread.start()
        thread.join()
        ledger.keep("output", outputs[0])
        return outputs[0].square().mean()

    return training(model, loss)


# ------------------------------------------------------------------------------------------------ unusual modules


@case
def parameter_containers() -> Built:
    """ParameterList and ParameterDict: parameters that belong to no layer."""

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([torch.randn(4, 4), torch.randn(4, 4)])
            self.gains = nn.ParameterDict({"in": torch.ones(4), "out": torch.ones(4)})

        def forward(self, x: Tensor) -> Tensor:
            x = x * self.gains["in"]
            for weight in self.weights:
                x = (x @ weight).tanh()
            return x * self.gains["out"]

    return regression(Bag(), torch.randn(5, 4))


@case
def parametrizations() -> Built:
    """Weights computed on every access: reading one more time moves the buffers of spectral_norm."""
    wrap = nn.utils.parametrizations
    model = nn.Sequential(wrap.weight_norm(nn.Linear(4, 6)), nn.Tanh(), wrap.spectral_norm(nn.Linear(6, 2)))
    return regression(model, torch.randn(5, 4))


@case
def lazy_layers() -> Built:
    """Parameters that have no shape before the first batch, in modules that then change their class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "lazy modules are under heavy development"
        model = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return regression(model, torch.randn(5, 4))


@case
def growing_model() -> Built:
    """A layer is added on every step: names that were not there when recording began."""
    model = nn.Sequential(nn.Linear(4, 4))
    ledger = Ledger([model])
    batch = torch.randn(5, 4)

    def step() -> Tensor:
        model.append(nn.Linear(4, 4))
        loss = model(batch).square().mean()
        loss.backward()
        ledger.keep_gradients()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        model.zero_grad()
        return loss

    return Built(model, step, ledger.state)


@case
def control_flow() -> Built:
    """Python decides by values (.item(), bool of a tensor) which layers run, and how often."""

    class Decides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.even, self.odd = nn.Linear(4, 4, bias=False), nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            rounds = 0
            while x.norm().item() > 0.2 and rounds < 16:
                x = self.inner(x) * 0.8
                rounds += 1
            return self.odd(x) if rounds % 2 else self.even(x * (2 if x.mean() > 0 else 1))

    model = Decides()
    return training(model, lambda ledger: model(torch.randn(1, 4)).square().mean())


@case
def scripted_submodule() -> Built:
    """A ScriptModule inside: its hooks are compiled or refused, its forward is not Python."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                if bool(x.sum() > -1.0):
                    x = self.linear(x).relu()
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "torch.jit.script is deprecated"
        scripted = torch.jit.script(Inner())
    return regression(nn.Sequential(nn.Linear(4, 4), scripted, nn.Linear(4, 2)), torch.randn(5, 4))


def compiled_regression(model: nn.Module, batch: Tensor) -> Built:
    """Compile in the first step of each build, which makes that step slow: what earlier builds compiled is forgotten.

    The backend to use is aot_eager: it traces forward and backward like the default one, but needs no C++ compiler.
    """
    torch.compiler.reset()
    built = regression(model, batch)

    def step() -> Tensor:
        with warnings.catch_warnings():
            # dynamo looks at .grad of every input and swallows the warning, but not where warnings are errors
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            return built.step()

    return Built(model, step, built.state)


@case
def compiled_model() -> Built:
    """torch.compile around the model: hooks on the inside are traced, or break the graph."""
    return compiled_regression(torch.compile(mlp_layers(), backend="aot_eager"), torch.randn(5, 4))


@case
def compiled_in_place() -> Built:
    """module.compile() on a submodule: the call itself is replaced."""

    class Inner(nn.Module):  # a class of torch's own, as nn.Sequential, would silently not be compiled this way
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).tanh() + 1

    model = nn.Sequential(nn.Linear(4, 4), Inner())
    model[1].compile(backend="aot_eager")
    return compiled_regression(model, torch.randn(5, 4))


# ------------------------------------------------------------------------------------------------ failures


@case(raises=RuntimeError)
def raises_in_layer2() -> Built:
    """Forward fails half way: the first layers have run, their hooks have not all been left in order."""

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("layer2 always fails")

    return regression(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Fails()), torch.randn(5, 4))


@case(raises=RuntimeError)
def raises_in_backward() -> Built:
    """Backward fails half way: the upper layers have gradients, the lower ones have none."""

    class FailsBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:
            raise RuntimeError("backward always fails")

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.above = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.above(FailsBackward.apply(self.below(x)))

    return regression(Fails(), torch.randn(5, 4))


@case(raises=KeyboardInterrupt)
def interrupted() -> Built:
    """Ctrl-C in the middle of forward: not an Exception, and `finally` is all there is."""

    class Interrupted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyboardInterrupt

    return regression(nn.Sequential(nn.Linear(4, 4), Interrupted()), torch.randn(5, 4))
