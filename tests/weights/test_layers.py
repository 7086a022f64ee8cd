"""Each rule, by running the layer: weights carried over, the same input, the same outputs and gradients. Both directions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import mindspore as ms
import torch
from mindspore import mint
from mindspore import nn as mn
from torch import nn as tn
from torch.nn.utils import parametrizations
from transformers import pytorch_utils

from twintrace.frameworks import registry
from twintrace.frameworks.reference import miniature
from twintrace.weights.conversion import convert
from twintrace.weights.layers import RULES, layer_of
from twintrace.weights.mapping import map_states, predict
from twintrace.weights.states import open_state
from twintrace.weights.transforms import inverse

from .absent_kernels import FORMULAS, stood_in

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def numbers(high, *shape):
    return np.random.default_rng(high).integers(0, high, shape).astype(np.int64)


def weigh(name, shape):
    """The gradient of an output: any numbers, the same for both."""
    return np.random.default_rng([len(name), *shape]).standard_normal(shape).astype(np.float32)


def transformer(*sizes):
    with warnings.catch_warnings():  # torch recommends another layout, whose fast path MindSpore does not have
        warnings.simplefilter("ignore", UserWarning)
        return tn.Transformer(*sizes)


SEQUENCE = floats(5, 2, 6)
IMAGE = floats(2, 4, 6, 6)
VOLUME = floats(2, 4, 3, 4, 4)
# name: (torch, MindSpore, inputs). What MindSpore's defaults do differently is set here, so that both are the same layer.


class TorchCell(tn.Module):
    """Its state is a tuple, which the runner does not make up."""

    def __init__(self, *sizes):
        super().__init__()
        self.cell = tn.LSTMCell(*sizes)

    def forward(self, x, h, c):
        return self.cell(x, (h, c))


class MindSporeCell(mn.Cell):
    def __init__(self, *sizes):
        super().__init__()
        self.cell = mn.LSTMCell(*sizes)

    def construct(self, x, h, c):
        return self.cell(x, (h, c))


class MindSporeRMSNorm(mn.Cell):
    """MindSpore has a function and no layer, so everybody writes this one."""

    def __init__(self, width):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(width, np.float32)))

    def construct(self, x):
        return x / (x.square().mean(-1, keep_dims=True) + 1e-5).sqrt() * self.weight


class Summed(mn.SequentialCell):
    """An Embedding, its rows added up: an EmbeddingBag, which MindSpore does not have."""

    def construct(self, numbers):
        return self[0](numbers).sum(1)


LAYERS = {
    "Linear": (lambda: tn.Linear(6, 4), lambda: mn.Dense(6, 4), [SEQUENCE]),
    "Linear without bias": (lambda: tn.Linear(6, 4, bias=False), lambda: mn.Dense(6, 4, has_bias=False), [SEQUENCE]),
    "Linear, square": (lambda: tn.Linear(6, 6), lambda: mn.Dense(6, 6), [SEQUENCE]),
    "Bilinear": (lambda: tn.Bilinear(6, 3, 4), lambda: mn.BiDense(6, 3, 4), [floats(5, 6), floats(5, 3)]),
    "Conv1d": (
        lambda: tn.Conv1d(4, 6, 3, padding=1, stride=2, groups=2),
        lambda: mn.Conv1d(4, 6, 3, pad_mode="pad", padding=1, stride=2, group=2, has_bias=True),
        [floats(2, 4, 9)],
    ),
    "Conv2d": (
        lambda: tn.Conv2d(4, 6, 3, padding=1, dilation=2),
        lambda: mn.Conv2d(4, 6, 3, pad_mode="pad", padding=1, dilation=2, has_bias=True),
        [IMAGE],
    ),
    "Conv2d, depthwise": (
        lambda: tn.Conv2d(4, 4, 3, groups=4, bias=False),
        lambda: mn.Conv2d(4, 4, 3, pad_mode="valid", group=4),
        [IMAGE],
    ),
    "Conv3d": (
        lambda: tn.Conv3d(4, 6, 2),
        lambda: mn.Conv3d(4, 6, 2, pad_mode="valid", has_bias=True),
        [VOLUME],
    ),
    "ConvTranspose1d": (
        lambda: tn.ConvTranspose1d(4, 6, 3, stride=2),
        lambda: mn.Conv1dTranspose(4, 6, 3, stride=2, pad_mode="valid", has_bias=True),
        [floats(2, 4, 9)],
    ),
    "ConvTranspose2d": (
        lambda: tn.ConvTranspose2d(4, 6, 3, stride=2, padding=1),
        lambda: mn.Conv2dTranspose(4, 6, 3, stride=2, pad_mode="pad", padding=1, has_bias=True),
        [IMAGE],
    ),
    "ConvTranspose3d": (
        lambda: tn.ConvTranspose3d(4, 6, 2),
        lambda: mn.Conv3dTranspose(4, 6, 2, pad_mode="valid", has_bias=True),
        [VOLUME],
    ),
    "BatchNorm1d": (lambda: tn.BatchNorm1d(4), lambda: mn.BatchNorm1d(4), [floats(5, 4)]),
    "BatchNorm2d": (lambda: tn.BatchNorm2d(4), lambda: mn.BatchNorm2d(4), [IMAGE]),
    "BatchNorm2d without affine": (
        lambda: tn.BatchNorm2d(4, affine=False),
        lambda: mn.BatchNorm2d(4, affine=False),
        [IMAGE],
    ),
    "BatchNorm3d": (lambda: tn.BatchNorm3d(4), lambda: mn.BatchNorm3d(4), [VOLUME]),
    "SyncBatchNorm": (lambda: tn.SyncBatchNorm(4), lambda: mn.SyncBatchNorm(4), [IMAGE]),
    "LayerNorm": (lambda: tn.LayerNorm(6), lambda: mn.LayerNorm((6,), epsilon=1e-5), [SEQUENCE]),
    "LayerNorm without bias": (
        lambda: tn.LayerNorm(6, bias=False),
        lambda: mn.LayerNorm((6,), epsilon=1e-5),
        [SEQUENCE],
    ),
    "LayerNorm of two axes": (lambda: tn.LayerNorm((6, 6)), lambda: mn.LayerNorm((6, 6), 2, 2, epsilon=1e-5), [IMAGE]),
    "GroupNorm": (lambda: tn.GroupNorm(2, 4), lambda: mn.GroupNorm(2, 4), [IMAGE]),
    "Embedding": (lambda: tn.Embedding(10, 6), lambda: mn.Embedding(10, 6), [numbers(10, 3, 4)]),
    "EmbeddingLookup": (
        lambda: tn.Embedding(10, 6),
        lambda: mn.EmbeddingLookup(10, 6, target="DEVICE", sparse=False),
        [numbers(10, 3, 4)],
    ),
    "LSTMCell": (lambda: TorchCell(6, 4), lambda: MindSporeCell(6, 4), [floats(2, 6), floats(2, 4), floats(3, 4)[:2]]),
    "PReLU": (lambda: tn.PReLU(4), lambda: mn.PReLU(4), [IMAGE]),
    "PReLU of one": (lambda: tn.PReLU(), lambda: mn.PReLU(), [IMAGE]),
    **{
        f"{name}, {layers} layers, {'both directions' if both else 'one direction'}": (
            lambda name=name, layers=layers, both=both: getattr(tn, name)(6, 4, layers, bidirectional=both),
            lambda name=name, layers=layers, both=both: getattr(mn, name)(6, 4, layers, bidirectional=both),
            [SEQUENCE],
        )
        for name in ("LSTM", "GRU", "RNN")
        for layers in (1, 2)
        for both in (False, True)
    },
    "LSTM without bias": (
        lambda: tn.LSTM(6, 4, bias=False),
        lambda: mn.LSTM(6, 4, has_bias=False),
        [SEQUENCE],
    ),
    "GRUCell": (lambda: tn.GRUCell(6, 4), lambda: mn.GRUCell(6, 4), [floats(2, 6), floats(2, 4)]),
    "RNNCell": (lambda: tn.RNNCell(6, 4), lambda: mn.RNNCell(6, 4), [floats(2, 6), floats(2, 4)]),
    "MultiheadAttention": (
        lambda: tn.MultiheadAttention(6, 2),
        lambda: mn.MultiheadAttention(6, 2),
        [SEQUENCE, floats(4, 2, 6), floats(4, 2, 6)],
    ),
    "MultiheadAttention, keys of another size": (
        lambda: tn.MultiheadAttention(6, 2, kdim=3, vdim=5, add_bias_kv=True),
        lambda: mn.MultiheadAttention(6, 2, kdim=3, vdim=5, add_bias_kv=True),
        [SEQUENCE, floats(4, 2, 3), floats(4, 2, 5)],
    ),
    "TransformerEncoderLayer": (
        lambda: tn.TransformerEncoderLayer(6, 2, 8),
        lambda: mn.TransformerEncoderLayer(6, 2, 8),
        [SEQUENCE],
    ),
    "TransformerDecoderLayer": (
        lambda: tn.TransformerDecoderLayer(6, 2, 8),
        lambda: mn.TransformerDecoderLayer(6, 2, 8),
        [SEQUENCE, floats(4, 2, 6)],
    ),
    "Transformer": (
        lambda: transformer(6, 2, 1, 1, 8),
        lambda: mn.Transformer(6, 2, 1, 1, 8),
        [SEQUENCE, floats(4, 2, 6)],
    ),
    "weight_norm": (lambda: parametrizations.weight_norm(tn.Linear(6, 4)), lambda: mn.Dense(6, 4), [SEQUENCE]),
    "weight_norm of another axis": (
        lambda: parametrizations.weight_norm(tn.Conv2d(4, 6, 3), dim=1),
        lambda: mn.Conv2d(4, 6, 3, pad_mode="valid", has_bias=True),
        [IMAGE],
    ),
    "weight_norm of a Conv1d": (
        lambda: parametrizations.weight_norm(tn.Conv1d(4, 6, 3)),
        lambda: mn.Conv1d(4, 6, 3, pad_mode="valid", has_bias=True),
        [floats(2, 4, 9)],
    ),
    "InstanceNorm1d": (lambda: tn.InstanceNorm1d(4, affine=True), lambda: mn.InstanceNorm1d(4), [floats(2, 4, 9)]),
    "InstanceNorm2d": (lambda: tn.InstanceNorm2d(4, affine=True), lambda: mn.InstanceNorm2d(4), [IMAGE]),
    "InstanceNorm2d with statistics": (
        lambda: tn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        lambda: mn.InstanceNorm2d(4),
        [IMAGE],
    ),
    "InstanceNorm3d": (lambda: tn.InstanceNorm3d(4, affine=True), lambda: mn.InstanceNorm3d(4), [VOLUME]),
    "RMSNorm": (lambda: tn.RMSNorm(6, eps=1e-5), lambda: MindSporeRMSNorm(6), [SEQUENCE]),
    "EmbeddingBag": (
        lambda: tn.EmbeddingBag(10, 6, mode="sum"),
        lambda: Summed(mn.Embedding(10, 6)),
        [numbers(10, 3, 4)],
    ),
    "Conv1D of GPT-2": (lambda: pytorch_utils.Conv1D(4, 6), lambda: mn.Dense(6, 4), [SEQUENCE]),
    "Conv1D of GPT-2, square": (lambda: pytorch_utils.Conv1D(6, 6), lambda: mn.Dense(6, 6), [SEQUENCE]),
    "mint.Linear": (lambda: tn.Linear(6, 4), lambda: mint.nn.Linear(6, 4), [SEQUENCE]),
    "mint.Conv1d": (
        lambda: tn.Conv1d(4, 6, 3, padding=1, stride=2, groups=2),
        lambda: mint.nn.Conv1d(4, 6, 3, padding=1, stride=2, groups=2),
        [floats(2, 4, 9)],
    ),
    "mint.Conv2d": (
        lambda: tn.Conv2d(4, 6, 3, padding=(1, 2), dilation=2),
        lambda: mint.nn.Conv2d(4, 6, 3, padding=(1, 2), dilation=2),
        [IMAGE],
    ),
    "mint.Conv3d": (lambda: tn.Conv3d(4, 6, (1, 2, 3)), lambda: mint.nn.Conv3d(4, 6, (1, 2, 3)), [VOLUME]),
    "mint.ConvTranspose2d": (
        lambda: tn.ConvTranspose2d(4, 6, (2, 3), stride=2, padding=1, output_padding=1, groups=2),
        lambda: mint.nn.ConvTranspose2d(4, 6, (2, 3), stride=2, padding=1, output_padding=1, groups=2),
        [IMAGE],
    ),
    "mint.BatchNorm1d": (lambda: tn.BatchNorm1d(4), lambda: mint.nn.BatchNorm1d(4), [floats(5, 4)]),
    "mint.BatchNorm2d": (lambda: tn.BatchNorm2d(4), lambda: mint.nn.BatchNorm2d(4), [IMAGE]),
    "mint.BatchNorm3d": (lambda: tn.BatchNorm3d(4), lambda: mint.nn.BatchNorm3d(4), [VOLUME]),
    "mint.SyncBatchNorm": (lambda: tn.BatchNorm2d(4), lambda: mint.nn.SyncBatchNorm(4), [IMAGE]),
    "mint.LayerNorm": (lambda: tn.LayerNorm((6, 6)), lambda: mint.nn.LayerNorm((6, 6)), [IMAGE]),
    "mint.GroupNorm": (lambda: tn.GroupNorm(2, 4), lambda: mint.nn.GroupNorm(2, 4), [IMAGE]),
    "mint.Embedding": (lambda: tn.Embedding(10, 6), lambda: mint.nn.Embedding(10, 6), [numbers(10, 3, 4)]),
    "mint.PReLU": (lambda: tn.PReLU(4), lambda: mint.nn.PReLU(4), [IMAGE]),
}
# torch takes its running statistics when it does not train; MindSpore's layer takes those of the input, always.
TRAINING = {"InstanceNorm2d with statistics"}
# MindSpore's tanh and sigmoid on a CPU are approximations; everything else rounds once.
COARSE = {"RNN": 2e-3, "GRU": 1e-4, "Transformer": 1e-4}


class TorchNet(tn.Module):
    """The layer inside a net, as layers are."""

    def __init__(self, layer):
        super().__init__()
        self.inner = layer

    def forward(self, *inputs):
        return self.inner(*inputs)


class MindSporeNet(mn.Cell):
    def __init__(self, layer):
        super().__init__()
        self.inner = layer

    def construct(self, *inputs):
        return self.inner(*inputs)


def build(name):
    make_torch, make_mindspore, inputs = LAYERS[name]
    torch.manual_seed(len(name))
    left, right = TorchNet(make_torch()), MindSporeNet(make_mindspore())
    with torch.no_grad():
        for tensor in left.state_dict(keep_vars=True).values():
            if tensor.is_floating_point() and tensor.dim() == 1:  # ones and zeros would hide a swap
                tensor.uniform_(0.5, 1.5)
    return left, right, inputs


def assert_same(name, left, right, inputs, pairs):
    """Outputs, gradients of inputs, and gradients of parameters are the same."""
    training = name in TRAINING
    one = registry.weights_by_name("torch").run(left, inputs, weigh, training=training)
    with stood_in():
        two = registry.weights_by_name("mindspore").run(right, inputs, weigh, training=training)
    tolerance = next((value for kind, value in COARSE.items() if kind in name), 2e-5)
    assert list(one.outputs) == list(two.outputs)
    assert one.outputs
    for what, ours, theirs in (("output", one.outputs, two.outputs), ("input", one.inputs, two.inputs)):
        for slot, values in ours.items():
            assert_close(f"{what} {slot}", values, theirs[slot], tolerance)
    compared = 0
    for sources, target, steps in pairs:
        if len(sources) == 1 and sources[0] in one.parameters and target in two.parameters:
            values = two.parameters[target]
            values = values.T if "permute 1 0" in steps else values
            values = values.reshape(one.parameters[sources[0]].shape) if "insert axis 2" in steps else values
            assert_close(f"gradient of {target}", one.parameters[sources[0]], values, tolerance)
            compared += 1
    return compared


def assert_close(what, one, two, tolerance):
    assert one.shape == two.shape, what
    scale = max(1.0, float(np.abs(one).max(initial=0)))
    assert float(np.abs(one - two).max(initial=0)) <= tolerance * scale, what


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_the_same_after_its_weights_were_carried_to_mindspore(name):
    left, right, inputs = build(name)
    found = map_states(open_state(left), open_state(right))
    assert found.complete, found
    convert(open_state(left), open_state(right), found)
    compared = assert_same(name, left, right, inputs, [(p.left, p.right, p.steps) for p in found.pairs])
    learned = [pair for pair in found.pairs if len(pair.left) == 1 and "running" not in pair.left[0]]
    assert compared == len(learned) - sum(pair.left[0].endswith("num_batches_tracked") for pair in learned)


@pytest.mark.parametrize("name", [name for name in LAYERS if "weight_norm" not in name and "without" not in name])
def test_a_layer_computes_the_same_after_its_weights_were_carried_to_torch(name):
    left, right, inputs = build(name)
    generator = np.random.default_rng(5)
    for parameter in right.get_parameters():
        if str(parameter.dtype) == "Float32":
            values = generator.uniform(0.5, 1.5, parameter.shape).astype(np.float32)
            parameter.set_data(ms.Tensor(values if len(parameter.shape) == 1 else values - 1))
    found = map_states(open_state(right), open_state(left))
    assert found.complete, found
    convert(open_state(right), open_state(left), found)
    backwards = [((p.right,), p.left[0], inverse(p.steps)) for p in found.pairs]
    assert assert_same(name, left, right, inputs, backwards)


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "EmbeddingBag"])  # its Embedding is one level down
def test_the_names_that_are_predicted_are_those_of_the_layer(name):
    """With the torch net alone at hand, the MindSpore names and shapes are right."""
    left, right, _ = build(name)
    state, there = open_state(left), open_state(right)
    found = predict(state, "mindspore", mint=name.startswith("mint."))
    paired = map_states(state, there)
    assert {(p.left, p.right, p.steps) for p in found.pairs} == {(p.left, p.right, p.steps) for p in paired.pairs}


def test_tied_parameters_are_carried_once_and_filled_everywhere():
    class Tied(tn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = tn.Embedding(5, 3), tn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    class TiedThere(mn.Cell):
        def __init__(self):
            super().__init__()
            self.embed = mn.Embedding(5, 3)

    left, right = Tied(), TiedThere()
    there = map_states(open_state(left), open_state(right))
    assert [(pair.left, pair.right) for pair in there.pairs] == [(("embed.weight",), "embed.embedding_table")]
    assert there.complete
    convert(open_state(left), open_state(right), there)
    assert np.array_equal(left.embed.weight.detach().numpy(), right.embed.embedding_table.asnumpy())
    back = map_states(open_state(right), open_state(left))
    assert {pair.right: pair.left[0] for pair in back.pairs} == dict.fromkeys(
        ("embed.weight", "head.weight"), "embed.embedding_table"
    )


def test_buffers_of_a_module_s_own_are_carried():
    class Own(tn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.randn(4, 3))
            self.register_buffer("passing", torch.randn(4), persistent=False)
            self.scale = tn.Parameter(torch.randn(3))

    class OwnThere(mn.Cell):
        def __init__(self):
            super().__init__()
            self.lookup_table = ms.Parameter(ms.Tensor(np.zeros((4, 3), np.float32)), requires_grad=False)
            self.scale = ms.Parameter(ms.Tensor(np.zeros(3, np.float32)))

    left, right = Own(), OwnThere()
    found = map_states(open_state(left), open_state(right))
    convert(open_state(left), open_state(right), found)
    assert found.complete
    assert np.array_equal(left.table.numpy(), right.lookup_table.asnumpy())
    assert np.array_equal(left.scale.detach().numpy(), right.scale.asnumpy())


def test_a_square_matrix_of_an_unknown_class_is_doubted():
    class Odd(tn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = tn.Parameter(torch.randn(4, 4)), tn.Parameter(torch.randn(4))

    found = map_states(open_state(TorchNet(Odd())), open_state(MindSporeNet(mn.Dense(4, 4))))
    [doubted] = [pair for pair in found.pairs if pair.right == "inner.weight"]
    assert doubted.confidence <= 0.7
    assert "may be transposed" in doubted.because


def test_what_mindspore_saves_of_its_optimizer_is_left_out(tmp_path):
    net = MindSporeNet(mn.Dense(3, 2))
    train = mn.TrainOneStepCell(mn.WithLossCell(net, mn.MSELoss()), mn.Adam(net.trainable_params()))
    ms.save_checkpoint(train, str(tmp_path / "train.ckpt"))
    found = open_state(tmp_path / "train.ckpt")
    assert sorted(found.items) == ["inner.bias", "inner.weight"]
    assert "of the optimizer's" in found.notes[0]


def rules_of(framework, net):
    """The classes that have a rule, of the layers that hold the net's weights, and of those around them."""
    adapter = registry.weights_by_name(framework)
    found = {
        layer_of(framework, kinds)[0] for weight in adapter.weights_of(net) for kinds in (weight.kinds, weight.within)
    }
    return found - {""}


@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_every_rule_is_run(framework):
    """A rule that is added without a layer in LAYERS is noticed; so is one for a class that there is not."""
    side = {"torch": 0, "mindspore": 1}[framework]
    run = {rule for name in LAYERS for rule in rules_of(framework, build(name)[side])}
    assert run == set(RULES[framework])


class ReferenceNet(miniature.Module):
    def __init__(self):
        self.linear, self.norm = miniature.Linear(6, 6), miniature.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.linear(x))


def test_the_reference_s_rules_are_run():
    left, right = tn.Sequential(tn.Linear(6, 6), tn.LayerNorm(6)), ReferenceNet()
    found = map_states(open_state(left), open_state(right))
    convert(open_state(left), open_state(right), found)
    one = registry.weights_by_name("torch").run(left, [floats(5, 6)], weigh)
    two = registry.weights_by_name("reference").run(right, [floats(5, 6)], weigh)
    assert_close("output", one.outputs["0"], two.outputs["0"], 2e-5)
    assert_close("input", one.inputs["0"], two.inputs["0"], 2e-5)
    for pair in found.pairs:
        gradient = two.parameters[pair.right]
        gradient = gradient.T if pair.steps else gradient
        assert_close(pair.right, one.parameters[pair.left[0]], gradient, 2e-5)
    assert rules_of("reference", right) == set(RULES["reference"])


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("mint.")])
def test_a_layer_of_mint_has_the_rule_of_that_name(name):
    assert rules_of("mindspore", build(name)[1]) == {name}


def test_the_kernels_that_are_stood_in_for_are_absent(python):
    """Where MindSpore has a kernel it computes itself: a formula for one that there is would test less than it could."""
    there = python(ABSENT)
    assert there.returncode == 0, there.stderr
    assert there.stdout.split() == [primitive.__name__ for primitive in FORMULAS]


ABSENT = """
import sys
import mindspore as ms
import numpy as np
from mindspore.ops.auto_generate import gen_ops_prim as prims
from mindspore.ops.operations import InstanceNorm

ms.runtime.launch_blocking()

def floats(*shape):
    return ms.Parameter(ms.Tensor(np.ones(shape, np.float32)))

four = floats(4)
for primitive, arguments in {
    prims.BatchNormExt(): (floats(2, 4), four, four, four, four, False, 0.1, 1e-5),
    prims.LayerNormExt(): (floats(2, 4), (4,), four, four, 1e-5),
    prims.Embedding(): (ms.Tensor([1]), floats(3, 4), None, None, 2.0, False),
    prims.Conv1DExt(): (floats(1, 1, 3), floats(1, 1, 2), None, (1,), (0,), (1,), 1),
    prims.Conv2DExt(): (floats(1, 1, 3, 3), floats(1, 1, 2, 2), None, (1, 1), (0, 0), (1, 1), 1),
    prims.Conv3DExt(): (floats(1, 1, 3, 3, 3), floats(1, 1, 2, 2, 2), None, (1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
    prims.ConvTranspose2D(): (floats(1, 1, 3, 3), floats(1, 1, 2, 2), None, (1, 1), (0, 0), (0, 0), 1, (1, 1)),
    InstanceNorm(): (floats(2, 4, 3, 3), four, four, four, four),
}.items():
    try:
        made = primitive(*arguments)
        (made[0] if isinstance(made, tuple) else made).asnumpy()
    except (RuntimeError, TypeError) as error:
        sys.stderr.write(f"{primitive.name}: {error}\\n")
        print(primitive.name)
"""
