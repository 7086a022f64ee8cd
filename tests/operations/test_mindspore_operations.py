"""MindSpore's own functions, methods, primitives and Cells compute what their meanings say."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operation_cases import Recording

from twintrace.model.records import Call
from twintrace.model.sites import Kind, Site
from twintrace.model.tensors import Spec
from twintrace.model.values import TensorRef
from twintrace.operations import Operand, is_question, meaning_of

ms = pytest.importorskip("mindspore")
from mindspore import mint, nn, ops  # noqa: E402

pytestmark = pytest.mark.needs_mindspore
few = settings(max_examples=3, deadline=None, derandomize=True)


def values(*shape, seed=0, dtype=np.float32, positive=False):
    """Numbers from a normal distribution."""
    array = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return ms.Tensor(np.abs(array) + 0.1 if positive else array)


def recorded(run):
    """What a function's calls were."""
    return Recording(run, nn.Identity())


CALLS = {
    "elementwise": """
        x + y
        2 - x
        x * 3
        x / 2
        1 / (x + 9)
        -x
        x > y
        ops.equal(x, y)
        x.equal(x)
        ops.abs(x)
        ops.DivNoNan()(x, ops.floor(y))
        ops.exp(x)
        ops.log(ops.abs(x) + 1)
        ops.sqrt(ops.abs(x))
        ops.sin(x)
        ops.erf(x)
        ops.square(x)
        mint.rsqrt(ops.abs(x) + 1)
        ops.maximum(x, y)
        ops.pow(x, 2)
        ops.floor(x)
        ops.clip(x, -0.5, 0.5)
        ops.clip_by_value(x, -0.3, 0.2)
        ops.where(x > 0, x, y)
        ops.select(x > 0, x, y)
        x.astype(ms.float16)
        ops.cast(x, ms.int32)
        x.masked_fill(x > 0, 3.0)
        ops.addcmul(x, x, y, 0.5)
        ops.lerp(x, y, 0.25)
        mint.add(x, y, alpha=2)
    """,
    "activations": """
        ops.relu(x)
        ops.relu6(x)
        ops.gelu(x)
        ops.gelu(x, approximate='tanh')
        ops.GeLU()(x)
        ops.leaky_relu(x)
        ops.leaky_relu(x, 0.3)
        ops.elu(x)
        ops.silu(x)
        ops.softplus(x)
        ops.hardswish(x)
        ops.hardsigmoid(x)
        ops.softmax(x)
        ops.softmax(x, 0)
        ops.log_softmax(x, -1)
        ops.Softmax(1)(x)
        ops.celu(x, 0.7)
        ops.hardtanh(x, -0.2, 0.4)
        ops.mish(x)
        ops.softshrink(x, 0.2)
        ops.dropout(x, 0.5, False)
        mint.nn.functional.gelu(x)
        mint.nn.functional.leaky_relu(x)
        mint.softmax(x, 1)
        ops.threshold(x, 0.1, 5.0)
        ops.glu(x, 1)
        ops.prelu(x, values(4, seed=3))
    """,
    "reductions": """
        x.sum()
        x.sum(0)
        x.mean(-1, keep_dims=True)
        x.mean()
        ops.mean(x, 1)
        ops.sum(x, -1, True)
        ops.prod(x, 1)
        x.max()
        x.min()
        ops.amax(x, 0)
        x.std()
        x.std(1, ddof=1)
        x.var(0)
        ops.std(x, 1, 1)
        ops.var(x, axis=1)
        ops.ReduceMean(True)(x, 1)
        ops.ReduceSum()(x, (0, 1))
        ops.ReduceMax()(x, -1)
        ops.argmax(x, 1)
        x.argmax()
        ops.cumsum(x, 1)
        ops.logsumexp(x, 1)
        ops.max(x, 1)
        ops.norm(x, dim=1)
        mint.norm(x, p=2, dim=-1)
        mint.var(x, 0)
        mint.std(x, dim=1, correction=0)
        mint.mean(x, dim=0)
        ops.topk(x, 2)
        ops.all(x > 0, 1)
        ops.any(x > 0)
        mint.sum(x, dim=1, keepdim=True)
        ops.L2Normalize(1)(x)
    """,
    "movement": """
        x.reshape(4, 3)
        x.view(-1)
        ops.reshape(x, (2, 6))
        ops.transpose(x, (1, 0))
        x.swapaxes(0, 1)
        x.T
        x.transpose(1, 0)
        x.permute(1, 0)
        ops.expand_dims(x, 1)
        x.expand_dims(0)
        ops.ExpandDims()(x, -1)
        x[:, 1:]
        x[..., 0]
        x[1]
        ops.concat((x, y), 1)
        ops.stack((x, y), 1)
        mint.cat((x, y), dim=0)
        ops.Concat(1)((x, y))
        ops.tile(x, (2, 1))
        x.broadcast_to((2, 3, 4))
        ops.split(x, 2, 1)
        ops.split(x, split_size_or_sections=2, axis=1)
        ops.split(tensor=x, split_size_or_sections=2)
        mint.split(x, split_size_or_sections=2, dim=1)
        x.chunk(2, 1)
        ops.flip(x, (0,))
        ops.roll(x, 1, 0)
        ops.pad(x, (1, 2))
        ops.gather(x, ms.Tensor([2, 0]), 0)
        ops.unstack(x, 0)
        ops.Gather()(x, ms.Tensor([[1, 0]]), 1)
        ops.gather_elements(x, 1, ms.Tensor([[0], [1], [2]]))
        ops.tril(x)
        ops.triu(x, 1)
        ops.one_hot(ms.Tensor([1, 3]), 4)
        ops.StridedSlice()(x, (0, 1), (3, 4), (1, 2))
        ops.repeat_interleave(x, 2, 1)
        ops.flatten(x)
        ops.zeros((2, 3))
        ops.ones_like(x)
        ops.full((2, 2), 3.0)
        ops.arange(0, 6, 2)
        ops.eye(3)
        ops.Pad(((1, 0), (0, 2)))(x)
        ops.slice(x, (0, 1), (2, 2))
        ops.squeeze(x.reshape(1, 3, 4))
        x.flatten()
        mint.unsqueeze(x, 1)
        mint.permute(x, (1, 0))
    """,
    "contractions": """
        x @ y.T
        ops.matmul(x, y.T)
        ops.MatMul(transpose_b=True)(x, y)
        ops.MatMul(transpose_a=True)(x, y)
        ops.bmm(x[None], y.T[None])
        ops.BatchMatMul(transpose_b=True)(x[None], y[None])
        ops.dense(x, y)
        ops.BiasAdd()(x, values(4, seed=2))
        ops.addmm(x @ y.T, x, y.T, beta=0.5)
        ops.mm(x, y.T)
        ops.outer(x[0], y[0])
        ops.einsum('ab,cb->ac', x, y)
        mint.nn.functional.linear(x, y)
        mint.matmul(x, y.T)
        mint.baddbmm((x @ y.T)[None], x[None], y.T[None], beta=2)
        ops.BiasAdd()(values(2, 4, 3, 3), values(4, seed=2))
    """,
    "losses": """
        ops.mse_loss(x, y)
        ops.l1_loss(x, y, 'sum')
        ops.smooth_l1_loss(x, y)
        ops.smooth_l1_loss(x, y, 0.4, 'mean')
        ops.huber_loss(x, y)
        ops.cross_entropy(x, ms.Tensor([1, 0, 3], ms.int32))
        ops.cross_entropy(x, ms.Tensor([1, 0, 3], ms.int32), label_smoothing=0.2)
        ops.nll_loss(ops.log_softmax(x), ms.Tensor([1, 0, 3], ms.int32))
        mint.nn.functional.mse_loss(x, y)
        ops.binary_cross_entropy_with_logits(x, ops.sigmoid(y), ops.ones_like(x), ops.ones_like(x))
        ops.kl_div(x, ops.sigmoid(y), 'mean')
        ops.SoftmaxCrossEntropyWithLogits()(x, ops.softmax(y))[0]
        ops.SparseSoftmaxCrossEntropyWithLogits()(x, ms.Tensor([1, 0, 3], ms.int32))
    """,
    "norms": """
        ops.layer_norm(x, (4,), values(4, seed=4), values(4, seed=5))
        ops.LayerNorm(epsilon=0.001)(x, values(4, seed=4), values(4, seed=5))
        ops.rms_norm(x, values(4, seed=4), 0.001)
        ops.group_norm(values(2, 4, 3), 2)
        mint.nn.functional.layer_norm(x, (4,), eps=0.01)
        ops.batch_norm(x, ops.zeros(4), ops.ones(4), values(4, seed=4), values(4, seed=5), False, 0.1, 0.001)
    """,
}
"""Expressions, one on each line. What MindSpore does not offer on a CPU is left out when it says so."""
ROUGH = frozenset(("tanh", "gelu", "mish", "erfinv", "GeLU", "softplus"))
"""MindSpore's CPU kernels that are further from the function than rounding is (traits.py)."""


UNOFFERED = re.compile("unregistered|Unsupported op|kernelmod|not supported|unsupported", re.IGNORECASE)


@pytest.mark.parametrize("family", CALLS)
def test_functions_methods_and_primitives(family):
    """Every call has a meaning, and computes it."""
    names = {"x": values(3, 4), "y": values(3, 4, seed=1), "ops": ops, "mint": mint, "ms": ms, "values": values}
    codes = [compile(line.strip(), "<call>", "eval") for line in CALLS[family].strip().splitlines()]

    def run():
        for code in codes:
            try:
                eval(code, names)
            except (RuntimeError, TypeError, ValueError) as error:
                if not UNOFFERED.search(str(error)):
                    raise

    recording = recorded(run)
    calls = [call for call in recording.calls if not is_question(call) and call.raised is None]
    assert len(calls) >= len(codes) // 2
    for call in calls:
        recording.check(call, 6e4 if call.site.name.rpartition(".")[2] in ROUGH else 1024)


@few
@given(
    cases=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.integers(1, 3),
            st.integers(1, 2),
            st.sampled_from(["same", "valid", "pad"]),
            st.sampled_from([1, 2]),
            st.booleans(),
            st.integers(6, 9),
            st.integers(1, 2),
        ),
        min_size=8,
        max_size=12,
    )
)
def test_convolutions(cases):
    """Padding by mode, uneven where the sizes are: of the Cell, of its primitive, of the function."""
    cells = []
    for kernel, stride, dilation, mode, group, bias, size, pad in cases:
        cell = nn.Conv2d(
            4,
            6,
            kernel,
            1 if dilation > 1 else stride,
            mode,
            pad if mode == "pad" else 0,
            dilation,
            group,
            has_bias=bias,
        )
        cells.append((cell, size))
    recording = recorded(lambda: [cell(values(2, 4, size, size)) for cell, size in cells])
    for call in recording.calls:
        recording.check(call)


@few
@given(
    cases=st.lists(
        st.tuples(st.integers(2, 3), st.integers(1, 3), st.sampled_from(["same", "valid"]), st.integers(5, 9)),
        min_size=8,
        max_size=12,
    )
)
def test_poolings(cases):
    """The padding of an average is not counted."""
    cells = [
        (kind(kernel, stride, mode), size)
        for kernel, stride, mode, size in cases
        for kind in (nn.MaxPool2d, nn.AvgPool2d)
    ]
    recording = recorded(lambda: [cell(values(2, 3, size, size)) for cell, size in cells])
    calls = [call for call in recording.calls if call.site.name.endswith("Pool")]
    assert len(calls) == len(cells)
    for call in calls:
        recording.check(call)


@few
@given(
    cases=st.lists(
        st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(0, 1), st.booleans(), st.integers(5, 9)),
        min_size=4,
        max_size=8,
    ),
    counted=st.booleans(),
)
def test_poolings_with_padding_of_their_own(cases, counted):
    """They are poolings of volumes one cell deep."""
    cells = []
    for kernel, stride, padding, ceil_mode, size in cases:
        options = {"pad_mode": "pad", "padding": padding, "ceil_mode": ceil_mode}
        cells.append((nn.MaxPool2d(kernel, stride, **options), size))
        cells.append((nn.AvgPool2d(kernel, stride, count_include_pad=counted, **options), size))
    recording = recorded(lambda: [cell(values(2, 3, size, size)) for cell, size in cells])
    calls = [call for call in recording.calls if "Pool3D" in call.site.name]
    assert len(calls) == len(cells)
    for call in calls:
        recording.check(call)


@pytest.mark.parametrize("mode", ["same", "valid", "pad"])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (3, 1), (2, 3)])
def test_transposed_convolution(mode, kernel, stride):
    """The cells that are cut off, and those that are added."""
    cell = nn.Conv2dTranspose(3, 2, kernel, stride, mode, 1 if mode == "pad" else 0, has_bias=False)
    recording = recorded(lambda: cell(values(2, 3, 5, 5)))
    (call,) = [call for call in recording.calls if "Conv2D" in call.site.name]
    recording.check(call)


def cells():
    """Cells that are one operation, with an input each."""
    image = values(2, 4, 6, 6)
    return [
        (nn.Dense(4, 3), values(5, 4)),
        (nn.Conv2d(4, 3, 3, 2), image),
        (nn.Conv1d(4, 3, 3, pad_mode="valid"), values(2, 4, 8)),
        (nn.LayerNorm((6,), epsilon=1e-3), values(2, 6)),
        (nn.BatchNorm2d(4), image),
        (nn.BatchNorm2d(4).set_train(), image),
        (nn.GELU(), values(3, 4)),
        (nn.GELU(False), values(3, 4)),
        (nn.ReLU6(), values(3, 4)),
        (nn.HSwish(), values(3, 4)),
        (nn.MaxPool2d(3, 2, pad_mode="same"), image),
        (nn.AvgPool2d(2, 2), image),
        (nn.GroupNorm(2, 4), image),
        (nn.PReLU(4), image),
        (nn.Embedding(9, 4), ms.Tensor([[1, 2], [0, 8]])),
        (nn.Dropout(p=0.4), values(3, 4)),
        (nn.Conv2dTranspose(4, 3, 3, 2), image),
        (nn.DiceLoss(0.25), values(3, 4, positive=True), values(3, 4, seed=1, positive=True)),
    ]


def test_cells():
    """Cells as calls of their own: settings and parameters are read from the Cell."""
    for cell, *given_ in cells():
        recording = Recording(lambda cell=cell, given_=given_: cell(*given_), cell, level="module")
        (call,) = [call for call in recording.calls if call.parent is None]
        recording.check(call, 6e4 if "GELU" in call.site.type else 1024)


@pytest.mark.parametrize(
    "cell",
    [
        nn.MaxPool2d(3, 2, pad_mode="pad", padding=1),
        nn.AvgPool2d(3, 2, pad_mode="pad", padding=1),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.AvgPool2d(3, 2, divisor_override=2),
    ],
    ids=["max", "avg", "overhang", "divisor"],
)
def test_poolings_whose_settings_are_not_on_the_cell(cell):
    """The Cell hands them to its primitive and keeps none: at level module such a pooling is not known."""
    recording = Recording(lambda: cell(values(2, 4, 6, 6)), cell, level="module")
    (call,) = [call for call in recording.calls if call.parent is None]
    assert meaning_of(call, "mindspore", recording.specs.__getitem__) is None


def test_a_users_class_of_the_same_name_has_no_meaning():
    """What a class of the user's does is not known by its name."""

    class GELU(nn.Cell):
        def __init__(self):
            super().__init__()
            self.approximate = "tanh"

        def construct(self, x):
            return x * 2

    cell = GELU()
    recording = Recording(lambda: cell(values(3, 4)), cell, level="module")
    assert meaning_of(recording.calls[-1], "mindspore", recording.specs.__getitem__) is None


def test_settings_of_a_primitive_are_recorded():
    """What a primitive was made with is in its call."""
    recording = recorded(lambda: ops.MatMul(transpose_b=True)(values(2, 3), values(4, 3)))
    call = recording.call("MatMul")
    assert call.config is not None
    assert call.config.values == {"transpose_a": False, "transpose_b": True}
    assert (call.config.path, call.config.type) == ("", "mindspore.ops.MatMul")


def spoken(name, *args, specs):
    """Meaning of a call that no kernel of the processor's computes."""
    site = Site(Kind.API, f"mindspore.{name}", 0)
    call = Call(0, site, None, args, {}, TensorRef(len(specs) - 1), order=0)
    return meaning_of(call, "mindspore", [Spec("f32", shape) for shape in specs].__getitem__)


def test_accelerators_primitives_are_known():
    """Modules of `mint` call them, in the order of their own arguments."""
    x, w, y = TensorRef(0), TensorRef(1), TensorRef(2)
    conv = spoken("ops.Conv3DExt", x, w, None, 2, 1, 1, 1, specs=[(1, 2, 4, 8, 8), (6, 2, 3, 3, 3), (1, 6, 2, 4, 4)])
    norm = spoken("ops.BatchNormExt", x, w, w, w, w, False, 0.1, 1e-3, specs=[(2, 3, 4), (3,), (2, 3, 4)])
    early = spoken("Tensor.index_add_", x, 0, w, y, specs=[(4, 3), (2,), (2, 3), (4, 3)])
    late = spoken("Tensor.index_add", x, w, y, 0, specs=[(4, 3), (2,), (2, 3), (4, 3)])

    assert conv.operation == "conv"
    assert (conv.arguments["stride"], conv.arguments["padding"]) == ((2, 2, 2), ((1, 1), (1, 1), (1, 1)))
    assert (norm.operation, norm.arguments["eps"], norm.arguments["training"]) == ("batch_norm", 1e-3, False)
    assert early.arguments == late.arguments
    assert (early.operation, early.arguments["dim"], early.arguments["source"]) == ("index_add", 0, Operand(2))
