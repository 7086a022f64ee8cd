"""PyTorch's own functions compute what their meanings say: settings, shapes and dtypes drawn at random."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from operation_cases import Recording

few = settings(max_examples=4, deadline=None, derandomize=True)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
seeds = st.integers(0, 1000)


def values(*shape, seed=0, dtype=torch.float32, scale=1.0):
    """Numbers from a normal distribution."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def check(run, name=None, units=512.0):
    """Record one call, and hold it against its meaning."""
    recording = Recording(run)
    call = recording.call(name) if name else recording.calls[-1]
    return recording.check(call, units)


UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "acosh",
    "asinh",
    "atanh",
    "deg2rad",
]
ACTIVATIONS = [
    ("relu", {}),
    ("relu6", {}),
    ("silu", {}),
    ("mish", {}),
    ("selu", {}),
    ("hardswish", {}),
    ("hardsigmoid", {}),
    ("softsign", {}),
    ("gelu", {"approximate": "none"}),
    ("gelu", {"approximate": "tanh"}),
    ("gelu", {}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("leaky_relu", {}),
    ("elu", {"alpha": 1.7}),
    ("celu", {"alpha": 0.6}),
    ("hardtanh", {"min_val": -0.3, "max_val": 0.8}),
    ("softplus", {"beta": 2.0, "threshold": 3.0}),
    ("softplus", {}),
    ("threshold", {"threshold": 0.1, "value": -2.0}),
    ("hardshrink", {"lambd": 0.2}),
    ("softshrink", {"lambd": 0.3}),
    ("tanhshrink", {}),
    ("logsigmoid", {}),
    ("glu", {"dim": 0}),
    ("softmax", {"dim": 1}),
    ("log_softmax", {"dim": -2}),
    ("softmin", {"dim": 0}),
    ("softmax", {"dim": -1, "dtype": torch.float32}),
    ("normalize", {"p": 2.0, "dim": 0}),
    ("normalize", {"p": 1.0, "dim": -1, "eps": 0.5}),
    ("dropout", {"training": False}),
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "logsumexp",
    "std",
    "var",
    "argmax",
    "argmin",
    "all",
    "any",
    "norm",
    "max",
    "min",
]


@pytest.mark.parametrize("name", UNARY)
@few
@given(seed=seeds, dtype=dtypes)
def test_elementary_functions(name, seed, dtype):
    """Functions of one tensor."""
    x = values(3, 5, seed=seed, dtype=dtype)
    x = (
        x.abs() + 1
        if name in ("acosh", "digamma", "lgamma")
        else x.tanh() * 0.9
        if name in ("erfinv", "acos", "asin", "atanh")
        else x
    )
    x = x.abs() + 0.1 if name.startswith(("log", "sqrt", "rsqrt", "reciprocal")) else x
    meaning = check(lambda: getattr(torch, name)(x), name)
    assert meaning.operation == name


@pytest.mark.parametrize(("name", "given_"), ACTIVATIONS)
@few
@given(seed=seeds, dtype=dtypes)
def test_activations(name, given_, seed, dtype):
    """Functions of one tensor with settings, defaults among them."""
    x = values(4, 6, seed=seed, dtype=dtype, scale=3)
    check(lambda: getattr(F, name)(x, **given_), name)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder", "atan2", "eq", "lt", "ge"]
)
@few
@given(seed=seeds, dtype=dtypes, scalar=st.booleans())
def test_pairs(name, seed, dtype, scalar):
    """Functions of two tensors, or of a tensor and a number."""
    assume(not (scalar and name in ("maximum", "minimum", "atan2")))
    x = values(3, 4, seed=seed, dtype=dtype)
    x = x.abs() + 0.1 if name == "pow" else x
    y = 1.5 if scalar else values(4, seed=seed + 1, dtype=dtype).abs() + 0.5
    check(lambda: getattr(torch, name)(x, y), name)


@pytest.mark.parametrize(
    ("run", "operation"),
    [
        (lambda x, y: x + y, "add"),
        (lambda x, y: 2 - x, "sub"),
        (lambda x, y: x - 2, "sub"),
        (lambda x, y: 3 / (x + 5), "div"),
        (lambda x, y: x * 3, "mul"),
        (lambda x, y: -x, "neg"),
        (lambda x, y: x @ y.T, "matmul"),
        (lambda x, y: 2.0**x, "pow"),
        (lambda x, y: (x > y) & (x < 1), "bitwise_and"),
        (lambda x, y: ~(x > y), "bitwise_not"),
        (lambda x, y: x // 0.3, "floor_divide"),
        (lambda x, y: x % 0.7, "remainder"),
        (lambda x, y: x.clone().add_(y, alpha=2), "add"),
        (lambda x, y: x.clone().mul_(3), "mul"),
        (lambda x, y: torch.add(x, y, alpha=0.5), "add"),
        (lambda x, y: torch.lerp(x, y, 0.3), "lerp"),
        (lambda x, y: torch.addcmul(x, x, y, value=0.3), "addcmul"),
        (lambda x, y: torch.div(x, y, rounding_mode="trunc"), "trunc_divide"),
        (lambda x, y: x.clamp(-0.5, 0.2), "clamp"),
        (lambda x, y: x.clamp(min=0.1), "clamp"),
        (lambda x, y: torch.where(x > y, x, 0.0), "where"),
        (lambda x, y: x.masked_fill(x > 0, -7.0), "masked_fill"),
        (lambda x, y: x.clone().masked_fill_(x > 0, 2.0), "masked_fill"),
        (lambda x, y: x.half(), "cast"),
        (lambda x, y: x.to(torch.int32), "cast"),
        (lambda x, y: x.to("cpu"), "identity"),
        (lambda x, y: x.type_as(y), "identity"),
        (lambda x, y: x.detach(), "detach"),
        (lambda x, y: x.clone().fill_(3), "fill"),
        (lambda x, y: x.clone().copy_(y), "copy"),
        (lambda x, y: x.clone().zero_(), "fill"),
    ],
)
def test_operators_and_methods(run, operation):
    """Operators, methods, in-place variants: one operation on the value before."""
    x, y = values(3, 4), values(3, 4, seed=1)
    assert check(lambda: run(x, y)).operation == operation


@pytest.mark.parametrize("name", REDUCTIONS)
@few
@given(seed=seeds, dtype=dtypes, dim=st.sampled_from([None, 0, 1, -1]), keepdim=st.booleans())
def test_reductions(name, seed, dtype, dim, keepdim):
    """Sums, extremes and moments, over all axes or one."""
    x = values(3, 4, 5, seed=seed, dtype=dtype)
    x = x > 0.3 if name in ("all", "any") else x
    if dim is None:
        assume(name not in ("logsumexp",))
        meaning = check(lambda: getattr(x, name)(), name)
    else:
        meaning = check(lambda: getattr(x, name)(dim, keepdim=keepdim), name)
    assert meaning.arguments.get("dim", 0) not in (-1, (-1,))


@few
@given(seed=seeds, correction=st.sampled_from([0, 1, 2]), dims=st.sampled_from([(0,), (0, 2), (-1, 0)]))
def test_variance(seed, correction, dims):
    """Degrees of freedom, and several axes."""
    x = values(3, 4, 5, seed=seed)
    assert check(lambda: torch.var(x, dims, correction=correction), "var").arguments["correction"] == correction
    assert check(lambda: torch.std(x, dims, False), "std").arguments["correction"] == 0
    assert check(lambda: torch.std(x, True), "std").arguments["correction"] == 1
    check(lambda: torch.var_mean(x, dims, correction=correction), "var_mean")


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@few
@given(
    seed=seeds,
    count=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    padding=st.sampled_from([0, 1, 2, "same", "valid"]),
    dtype=dtypes,
)
def test_convolutions(seed, count, kernel, stride, dilation, groups, bias, padding, dtype):
    """Explicit padding, whatever was written."""
    stride = 1 if padding == "same" else stride
    x = values(2, 4, *([7] * count), seed=seed, dtype=dtype)
    w = values(6, 4 // groups, *([kernel] * count), seed=seed + 1, dtype=dtype)
    b = values(6, seed=seed + 2, dtype=dtype) if bias else None
    function = (F.conv1d, F.conv2d, F.conv3d)[count - 1]
    meaning = check(lambda: function(x, w, b, stride, padding, dilation, groups))
    total = dilation * (kernel - 1)
    want = {"same": (total // 2, total - total // 2), "valid": (0, 0)}.get(padding, (padding, padding))
    assert meaning.arguments["padding"] == (want,) * count


@few
@given(
    seed=seeds,
    count=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    more=st.integers(0, 1),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
)
def test_transposed_convolutions(seed, count, kernel, stride, padding, more, dilation, groups):
    """Cells cut off and added."""
    assume(more < max(stride, dilation) and padding <= dilation * (kernel - 1))
    x = values(2, 4, *([5] * count), seed=seed)
    w = values(4, 3, *([kernel] * count), seed=seed + 1)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[count - 1]
    check(lambda: function(x, w, None, stride, padding, more, groups, dilation))


@few
@given(
    seed=seeds,
    count=st.integers(1, 3),
    kernel=st.integers(2, 3),
    stride=st.sampled_from([None, 1, 2, 3]),
    padding=st.integers(0, 1),
    ceil=st.booleans(),
    counted=st.booleans(),
    size=st.integers(5, 9),
)
def test_poolings(seed, count, kernel, stride, padding, ceil, counted, size):
    """Ceil mode and counted padding, for both kinds."""
    x = values(2, 3, *([size] * count), seed=seed)
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    check(lambda: largest(x, kernel, stride, padding, 1, ceil))
    check(lambda: largest(x, kernel, stride, padding, 1, ceil, return_indices=True))
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[count - 1]
    meaning = check(lambda: average(x, kernel, stride, padding, ceil, counted))
    assert meaning.arguments["count_include_pad"] is (counted or padding == 0)


@few
@given(
    seed=seeds, training=st.booleans(), momentum=st.floats(0.05, 0.9), eps=st.sampled_from([1e-5, 1e-3]), dtype=dtypes
)
def test_batch_norm_and_its_statistics(seed, training, momentum, eps, dtype):
    """The running statistics are results, by the names of the arguments that were written to."""
    x, mean, var = values(6, 3, 4, seed=seed, dtype=dtype), torch.zeros(3), torch.ones(3)
    w, b = values(3, seed=1), values(3, seed=2)
    assume(dtype is torch.float32)
    meaning = check(lambda: F.batch_norm(x, mean, var, w, b, training, momentum, eps), "batch_norm")
    assert set(meaning.results.values()) == ({0, "running_mean", "running_var"} if training else {0})


@few
@given(seed=seeds, eps=st.sampled_from([1e-5, 1e-2]), affine=st.booleans(), dtype=dtypes)
def test_other_norms(seed, eps, affine, dtype):
    """Layer, group, RMS and instance norms."""
    x = values(3, 4, 6, seed=seed, dtype=dtype)
    w, b = (values(6, seed=1, dtype=dtype), values(6, seed=2, dtype=dtype)) if affine else (None, None)
    check(lambda: F.layer_norm(x, (6,), w, b, eps))
    check(lambda: F.rms_norm(x, (6,), w, eps))
    tiny = x * 2.0**-9  # the epsilon shows: kernels compute in float32, and take its own
    own = torch.finfo(dtype if dtype is torch.float64 else torch.float32).eps
    assert check(lambda: F.rms_norm(tiny, (6,), w)).arguments["eps"] == own
    check(lambda: F.layer_norm(x, (4, 6)))
    check(lambda: F.group_norm(x, 2, None, None, eps))
    check(lambda: F.instance_norm(x.float(), eps=eps))


@few
@given(
    seed=seeds,
    causal=st.booleans(),
    masked=st.sampled_from([None, "bool", "add"]),
    scale=st.sampled_from([None, 0.7]),
    dtype=dtypes,
)
def test_attention(seed, causal, masked, scale, dtype):
    """Masks, and the scale that is not written."""
    q, k, v = (values(2, 2, 5, 8, seed=seed + i, dtype=dtype) for i in range(3))
    mask = (
        None
        if causal or masked is None
        else values(5, 5, seed=9) > -1
        if masked == "bool"
        else values(5, 5, seed=9, dtype=dtype)
    )
    meaning = check(lambda: F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale))
    assert math.isclose(meaning.arguments["scale"], scale or 8**-0.5)


@few
@given(
    seed=seeds,
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.7]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_kernels_of_attention(seed, causal, scale, dtype):
    """Forward and backward, as level op records them."""
    q, k, v = (values(2, 2, 5, 8, seed=seed + i, dtype=dtype).requires_grad_() for i in range(3))

    def run():
        F.scaled_dot_product_attention(q, k, v, None, 0.0, causal, scale=scale).sum().backward()

    recording = Recording(run, level="op")
    for end, results in (("", 1), ("_backward", 3)):
        name = f"aten._scaled_dot_product_flash_attention_for_cpu{end}.default"
        call = next(call for call in recording.calls if call.site.name == name)
        meaning = recording.check(call, 512.0)
        assert (len(meaning.results), meaning.arguments["is_causal"]) == (results, causal)
        assert math.isclose(meaning.arguments["scale"], scale or 8**-0.5)


LOSSES = [
    ("mse_loss", "same", {}),
    ("l1_loss", "same", {"reduction": "sum"}),
    ("smooth_l1_loss", "same", {"beta": 0.4}),
    ("huber_loss", "same", {"delta": 0.6, "reduction": "none"}),
    ("cross_entropy", "classes", {}),
    ("cross_entropy", "classes", {"label_smoothing": 0.2, "ignore_index": 1}),
    ("cross_entropy", "classes", {"reduction": "sum"}),
    ("nll_loss", "classes", {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", "share", {}),
    ("kl_div", "share", {}),
    ("kl_div", "share", {"reduction": "batchmean"}),
    ("binary_cross_entropy", "shares", {}),
    ("soft_margin_loss", "sign", {}),
    ("mse_loss", "same", {"size_average": False}),
    ("mse_loss", "same", {"reduce": False}),
    ("poisson_nll_loss", "share", {}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "given_"), LOSSES)
@few
@given(seed=seeds)
def test_losses(name, kind, given_, seed):
    """Reductions, written in the three ways that there are."""
    x = values(6, 4, seed=seed)
    other = values(6, 4, seed=seed + 1)
    target = {
        "same": other,
        "classes": other.argmax(1),
        "share": other.sigmoid(),
        "shares": other.sigmoid(),
        "sign": other.sign(),
    }[kind]
    x = x.sigmoid() if kind == "shares" else x
    check(lambda: getattr(F, name)(x, target, **given_), name)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.view(6, -1),
        lambda x: x.reshape(-1),
        lambda x: x.flatten(1),
        lambda x: x.transpose(0, -1),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.permute((1, 2, 0)),
        lambda x: x[0].T,
        lambda x: x.mT,
        lambda x: x.unsqueeze(-1),
        lambda x: x[:1].squeeze(0),
        lambda x: x[..., 1:],
        lambda x: x[:, -1],
        lambda x: x[0, ..., None, ::2],
        lambda x: x[:, [0, 2]],
        lambda x: x[x > 0],
        lambda x: x[torch.tensor([1, 0])],
        lambda x: torch.cat((x, x), -1),
        lambda x: torch.stack((x, x), 1),
        lambda x: x.chunk(2, 1),
        lambda x: x.split([1, 2], 1),
        lambda x: x.unbind(-1),
        lambda x: x.expand(3, -1, -1, -1),
        lambda x: x.repeat(2, 1, 3),
        lambda x: x.tile((2,)),
        lambda x: torch.roll(x, (1, -1), (0, 2)),
        lambda x: x.flip(0, -1),
        lambda x: F.pad(x, (1, 2, 0, 1), value=3),
        lambda x: F.pad(x, (1, 1), "reflect"),
        lambda x: x.tril(1),
        lambda x: x.triu(),
        lambda x: torch.movedim(x, 0, 2),
        lambda x: x.gather(1, torch.zeros(2, 1, 4, dtype=torch.long)),
        lambda x: x.index_select(-1, torch.tensor([3, 0])),
        lambda x: F.embedding(torch.tensor([[1, 0]]), x[0], padding_idx=-1),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.select(1, 2),
        lambda x: x.narrow(2, 1, 2),
        lambda x: F.one_hot(torch.tensor([1, 3])),
        lambda x: torch.einsum("abc,adc->abd", x, x),
        lambda x: x.scatter(1, torch.zeros(2, 1, 4, dtype=torch.long), 5.0),
        lambda x: F.interpolate(x, scale_factor=2.0),
        lambda x: F.interpolate(x, size=7, mode="linear"),
        lambda x: F.interpolate(x[None], scale_factor=1.7, mode="bilinear"),
        lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 2), 2),
        lambda x: x.topk(2, 1),
        lambda x: x.sort(-1, True),
        lambda x: x.cumsum(1),
        lambda x: torch.cumsum(x, axis=1),
        lambda x: torch.max(input=x, axis=-1, keepdims=True),
        lambda x: torch.cat((x, x), axis=-1),
        lambda x: torch.swapaxes(x, axis0=0, axis1=-1),
        lambda x: x[:, :1].broadcast_to(2, 3, 4),
        lambda x: x[torch.tensor(0) : torch.tensor(1)],
        lambda x: torch.linalg.vector_norm(x, 3, 1),
        lambda x: torch.bmm(x, x.mT),
        lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5),
        lambda x: F.linear(x, x[0]),
        lambda x: torch.arange(0, 5, 2),
        lambda x: torch.full((2, 3), 1.5),
        lambda x: torch.zeros_like(x),
        lambda x: x.new_ones(3),
        lambda x: torch.linspace(0, 1, 5),
        lambda x: torch.tensor([1.0, 2.0]),
        lambda x: torch.fft.rfft(x),
        lambda x: torch.logcumsumexp(x, 1),
        lambda x: x.diff(dim=1),
        lambda x: F.cosine_similarity(x, x + 1, dim=-1),
    ],
)
def test_movement_and_the_rest(run):
    """What moves values, makes them, or has no drawing of its own."""
    check(lambda: run(values(2, 3, 4)))


def test_write_by_index():
    """The value before is the operand, the value after the result."""
    x = values(4, 5)
    meaning = check(lambda: x.__setitem__((slice(None), 0), 9.0), "__setitem__")
    assert meaning.operation == "setitem"
    assert meaning.arguments["index"] == (slice(0, 4, 1), 0)


@pytest.mark.parametrize("level", ["op"])
def test_kernels_of_a_training_step(level):
    """Kernels below a forward and backward pass."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    x, y = values(4, 6), torch.tensor([0, 1, 2, 0])
    recording = Recording(lambda: F.cross_entropy(model(x), y).backward(), model, level)
    for call in recording.calls:
        recording.check(call, 4096)


def test_random_calls_have_no_kernel_that_guesses():
    """A mask that was drawn is not recomputed."""
    from twintrace.operations.kernels import Random

    with pytest.raises(Random):
        check(lambda: F.dropout(values(4, 4), 0.5), "dropout")
