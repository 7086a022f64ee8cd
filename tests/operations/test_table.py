"""The table itself: rows are read, every operation has a kernel with its arguments, a changed argument is another meaning."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from operation_cases import Recording, computed

from twintrace.model.records import Call
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.tensors import Spec
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.operations import (
    Meaning,
    Operand,
    accuracy_of,
    different_arguments,
    is_question,
    meaning_of,
    role_of,
    traits_of,
    variants,
)
from twintrace.operations.catalog import OPERATIONS
from twintrace.operations.conventions import index, overhang, same_sides
from twintrace.operations.kernels import GIVEN_RESULT, KERNELS
from twintrace.operations.mindspore_reading import row_of as primitive_row_of
from twintrace.operations.rows import NotTold, row_of, rows_in, signature_of


def call(name, *args, framework="torch", out=None, **kwargs):
    """A call as a record has it; tensors are numbered from 0, the result is 99."""
    return Call(0, Site(Kind.API, name, 0, Phase.FORWARD), None, args, kwargs, TensorRef(99) if out is None else out)


def spec(number):
    """Shapes of the tensors that `call` names."""
    return Spec("f32", {0: (2, 4, 9, 9), 1: (6, 4, 3, 3), 99: (2, 6, 4, 4)}.get(number, (4,)))


class TestRows:
    def test_a_row_binds_and_translates(self):
        """Defaults are filled in, names are ours."""
        row = row_of("ops.softmax(input, axis=-1, *, dtype=None) = softmax(dim=axis)")
        assert row.operation == "softmax"
        assert row.signature.bind([1], {}, {}) == {"input": 1, "axis": -1, "dtype": None}

    def test_what_is_not_recorded_is_not_guessed(self):
        """A setting without default that is nowhere makes the row say nothing."""
        signature = signature_of("MatMul(x, y, transpose_a, transpose_b)")
        with pytest.raises(NotTold, match="transpose_a"):
            signature.bind([1, 2], {}, {})
        assert signature.bind([1, 2], {}, {"transpose_a": True, "transpose_b": False})["transpose_a"] is True

    def test_results_can_be_limited(self):
        """`[:1]` keeps the first result."""
        assert row_of("f(x) = batch_norm(input=x)[:1]").outputs == 1

    def test_one_line_for_one_two_and_three_axes(self):
        """`<n>` is the number of axes."""
        rows = list(rows_in("pool<n>d(input, size) = pool(size=spread(size, <n>))\nrelu(input) = relu"))
        assert [row.signature.name for row in rows] == ["pool1d", "pool2d", "pool3d", "relu"]
        assert [eval(row.arguments["size"], {"spread": lambda _, n: n, "size": 0}) for row in rows[:3]] == [1, 2, 3]

    def test_parameters_under_another_name_are_seen(self):
        """As they are, or as what raises otherwise; what is computed of them is no name of theirs."""
        row = row_of("f(x, y, z, gamma, n) = g(input=unless(x, n), weight=gamma, other=given(y, z), size=spread(n, 2))")
        assert row.renamed == {"x": "input", "gamma": "weight", "y": "other", "z": "other"}

    def test_a_primitive_without_attributes_is_the_function_of_its_name(self):
        """One that has attributes has a row: they may not have been recorded."""
        assert primitive_row_of("ops", "LogicalNot").operation == "logical_not"
        assert primitive_row_of("ops", "Xlogy").operation == "xlogy"
        assert primitive_row_of("ops", "Tril") is None
        assert primitive_row_of("mint", "LogicalNot") is None


class TestCatalog:
    def test_every_operation_has_a_kernel_with_its_arguments(self):
        """Kernels are called with the arguments of the catalog by name."""
        assert set(OPERATIONS) <= set(KERNELS)
        for name, signature in OPERATIONS.items():
            names = [parameter.name for parameter in signature.parameters]
            if not inspect.isbuiltin(KERNELS[name]):  # these tell no signature
                inspect.signature(KERNELS[name]).bind(**dict.fromkeys(names))

    def test_kernels_write_to_none_of_their_inputs(self):
        """What moves values gives copies."""
        x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
        before = x.clone()
        moved = KERNELS["setitem"](input=x, index=(0,), value=9.0)
        KERNELS["getitem"](input=x, index=(slice(0, 2, 1),)).add_(1)
        KERNELS["reshape"](input=x, shape=(4, 3)).add_(1)
        assert torch.equal(x, before)
        assert moved[0].eq(9).all()


class TestConventions:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(size=st.integers(1, 20), kernel=st.integers(1, 5), stride=st.integers(1, 4), dilation=st.integers(1, 2))
    def test_same_padding_keeps_the_size(self, size, kernel, stride, dilation):
        """The output has ceil(size / stride) cells, and no smaller padding would do."""
        ((before, behind),) = same_sides((size,), (kernel,), (stride,), (dilation,))
        cells = size + before + behind - dilation * (kernel - 1) - 1
        assert cells // stride + 1 == -(-size // stride)
        assert 0 <= behind - before <= 1

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(size=st.integers(4, 20), kernel=st.integers(2, 4), stride=st.integers(1, 4), padding=st.integers(0, 1))
    def test_ceil_mode_adds_what_torch_adds(self, size, kernel, stride, padding):
        """Output sizes are those of PyTorch's own pooling."""
        want = F.max_pool1d(torch.zeros(1, 1, size), kernel, stride, padding, 1, True).shape[-1]
        (more,) = overhang((size,), (kernel,), (stride,), ((padding, padding),), (1,), True)
        assert (size + 2 * padding + more - kernel) // stride + 1 == want

    def test_indices_have_one_form(self):
        """Ellipsis, negative places and trailing slices do not tell two indices apart."""
        shape = (4, 5, 6)
        assert index(("...", slice(1, None)), shape) == index((slice(None), slice(None), slice(1, 6)), shape)
        assert index((-1,), shape) == index((3, slice(None)), shape) == (3,)


CHANGES = [
    ("torch.nn.functional.gelu", (TensorRef(0),), {"approximate": "tanh"}, "approximate"),
    ("torch.nn.functional.leaky_relu", (TensorRef(0), 0.2), {}, "negative_slope"),
    ("torch.nn.functional.conv2d", (TensorRef(0), TensorRef(1), None, 2), {}, "stride"),
    ("torch.nn.functional.conv2d", (TensorRef(0), TensorRef(1)), {"padding": 1}, "padding"),
    ("torch.nn.functional.conv2d", (TensorRef(0), TensorRef(1)), {"padding": "same"}, "padding"),
    ("torch.nn.functional.max_pool2d", (TensorRef(0), 2), {"ceil_mode": True}, "ceil_mode"),
    ("torch.nn.functional.avg_pool2d", (TensorRef(0), 3, 1, 1), {"count_include_pad": False}, "count_include_pad"),
    ("torch.sum", (TensorRef(0), 1), {}, "dim"),
    ("torch.sum", (TensorRef(0),), {"keepdim": True}, "keepdim"),
    ("torch.nn.functional.layer_norm", (TensorRef(0), Nest("tuple", (("0", 9),))), {"eps": 1e-6}, "eps"),
    ("torch.nn.functional.dropout", (TensorRef(0), 0.3), {}, "p"),
    ("torch.nn.functional.mse_loss", (TensorRef(0), TensorRef(0)), {"reduction": "sum"}, "reduction"),
    ("torch.var", (TensorRef(0),), {"correction": 0}, "correction"),
    ("torch.Tensor.__getitem__", (TensorRef(0), Token("slice", "1:")), {}, "index"),
    ("torch.clamp", (TensorRef(0), -1, 1), {}, "min"),
    ("torch.nn.functional.batch_norm", (TensorRef(0), None, None), {"momentum": 0.9}, "momentum"),
]
DEFAULTS = {
    "torch.nn.functional.layer_norm": (TensorRef(0), Nest("tuple", (("0", 9),))),
    "torch.nn.functional.max_pool2d": (TensorRef(0), 2),
    "torch.nn.functional.avg_pool2d": (TensorRef(0), 3, 1, 1),
    "torch.nn.functional.conv2d": (TensorRef(0), TensorRef(1)),
    "torch.nn.functional.mse_loss": (TensorRef(0), TensorRef(0)),
    "torch.Tensor.__getitem__": (TensorRef(0), Token("slice", ":")),
    "torch.nn.functional.batch_norm": (TensorRef(0), None, None),
}


class TestMeanings:
    @pytest.mark.parametrize(("name", "args", "kwargs", "argument"), CHANGES)
    def test_a_changed_argument_is_another_meaning(self, name, args, kwargs, argument):
        """Said by the name of the argument, also where the other side has the default."""
        plain = meaning_of(call(name, *DEFAULTS.get(name, (TensorRef(0),))), "torch", spec)
        changed = meaning_of(call(name, *args, **kwargs), "torch", spec)
        assert argument in different_arguments(plain, changed)

    def test_one_operation_under_two_names(self):
        """PyTorch and MindSpore say the same, and it is found equal."""
        left = meaning_of(call("torch.nn.functional.softmax", TensorRef(0), dim=-1), "torch", spec)
        right = meaning_of(call("mindspore.ops.softmax", TensorRef(0), 3), "mindspore", spec)
        assert left.operation == right.operation
        assert different_arguments(left, right) == {}

    def test_what_python_asked_has_no_meaning(self):
        """A question is known as one."""
        question = call("torch.Tensor.__bool__", TensorRef(0), out=True)
        assert meaning_of(question, "torch", spec) is None
        assert is_question(question)
        assert not is_question(call("torch.exp", TensorRef(0)))

    def test_a_function_without_row_is_called_as_it_stands(self):
        """Its positions are its arguments."""
        meaning = meaning_of(call("torch.fft.rfft", TensorRef(0), 8), "torch", spec)
        assert (meaning.operation, meaning.arguments) == ("torch.fft.rfft", {"0": Operand(0), "1": 8})


class TestTraits:
    def test_dropout_is_random_only_while_it_draws(self):
        """Switched off, or with nothing to drop, it draws nothing."""
        draws = {"input": Operand(0), "p": 0.5, "training": True}
        assert traits_of(Meaning("dropout", draws)).random
        assert not traits_of(Meaning("dropout", {**draws, "training": False})).random
        assert not traits_of(Meaning("dropout", {**draws, "p": 0.0})).random

    def test_sets_of_traits(self):
        """Movement, decisions, memory that nobody wrote."""
        assert traits_of(Meaning("permute", {})).moves
        assert traits_of(Meaning("argmax", {})).decides
        assert traits_of(Meaning("empty", {})).uninitialised
        assert traits_of(Meaning("scaled_dot_product_attention", {})).composite
        assert traits_of(Meaning("tanh", {})).approximates
        assert not any(
            getattr(traits_of(Meaning("matmul", {})), name) for name in ("moves", "decides", "random", "approximates")
        )

    def test_roles(self):
        """Operands have the names that messages use."""
        assert role_of("linear", "weight") == "weight"
        assert role_of("embedding", "weight") == "table"
        assert role_of("cat", "tensors.1") == "operand 2"

    def test_torch_is_as_accurate_as_said(self):
        """Elementary functions of PyTorch stay within their accuracy in float32."""
        x = torch.cat([torch.randn(20_000, generator=torch.Generator().manual_seed(i)) * 10.0**i for i in range(-3, 2)])
        for name in ("exp", "sin", "cos", "tanh", "sigmoid", "erf", "expm1", "silu", "mish"):
            _within_accuracy(name, "torch", x, (getattr(torch, name, None) or getattr(F, name))(x))

    @pytest.mark.needs_mindspore
    def test_mindspore_is_as_accurate_as_said(self):
        """So do MindSpore's, which are further off, and would not pass with PyTorch's accuracy."""
        ms = pytest.importorskip("mindspore")
        x = torch.cat(
            [torch.randn(20_000, generator=torch.Generator().manual_seed(i)) * 10.0**i for i in range(-3, 2)]
        ).clamp(-86, 86)
        functions = {
            "exp": ms.ops.exp,
            "tanh": ms.ops.tanh,
            "sigmoid": ms.ops.sigmoid,
            "silu": ms.ops.silu,
            "expm1": ms.ops.expm1,
        }
        for name, function in functions.items():
            got = torch.from_numpy(function(ms.Tensor(x.numpy())).asnumpy())
            _within_accuracy(name, "mindspore", x, got)
            if name == "tanh":
                with pytest.raises(AssertionError):
                    _within_accuracy(name, "torch", x, got)


def _within_accuracy(name, framework, x, got):
    exact = x.double().requires_grad_()
    want = KERNELS[name](input=exact)
    (slope,) = torch.autograd.grad(want.sum(), exact)
    allowed = accuracy_of(name, framework)
    bound = 2.0**-24 * (
        allowed.result * want.abs()
        + allowed.argument * (exact * slope).abs()
        + allowed.absolute
        + allowed.input * exact.abs()
    )
    finite = torch.isfinite(got) & (want.abs() < 3e38)
    assert ((got.double() - want).abs() <= bound + 2.0**-126)[finite].all(), name


class TestVariants:
    def test_known_variants_are_offered_with_a_sentence(self):
        """Each is another meaning."""
        gelu = Meaning("gelu", {"input": Operand(0), "approximate": "none"})
        found = dict(variants(gelu))
        assert found["GELU by tanh"].arguments["approximate"] == "tanh"
        assert "GELU by the error function" not in found

    def test_a_variant_explains_the_other_result(self):
        """Swapped operands give the other side's numbers."""
        meaning = Meaning("sub", {"input": Operand(0), "other": Operand(1), "alpha": 1})
        values = {0: torch.tensor([5.0]), 1: torch.tensor([3.0])}
        results = {sentence: computed(variant, values.__getitem__)[0].item() for sentence, variant in variants(meaning)}
        assert results["its operands swapped"] == -2.0

    @pytest.mark.parametrize(
        "operation", ["batch_norm", "max_pool", "avg_pool", "conv", "cross_entropy", "softmax", "layer_norm", "linear"]
    )
    def test_variants_have_the_arguments_of_their_operation(self, operation):
        """So that every one of them can be computed."""
        arguments = {
            "batch_norm": ((TensorRef(0), TensorRef(2), TensorRef(3)), {}),
            "max_pool": ((TensorRef(0), 3, 2, 1), {}),
            "avg_pool": ((TensorRef(0), 3, 2, 1), {}),
            "conv": ((TensorRef(0), TensorRef(1), TensorRef(2), 1, 1), {}),
            "cross_entropy": ((TensorRef(0), TensorRef(2)), {}),
            "softmax": ((TensorRef(0), 1), {}),
            "layer_norm": ((TensorRef(0), Nest("tuple", (("0", 9),)), TensorRef(2)), {}),
            "linear": ((TensorRef(0), TensorRef(1)), {}),
        }[operation]
        names = {"max_pool": "max_pool2d", "avg_pool": "avg_pool2d", "conv": "conv2d"}
        meaning = meaning_of(
            call(f"torch.nn.functional.{names.get(operation, operation)}", *arguments[0]), "torch", spec
        )
        found = list(variants(meaning, spec))
        assert found
        for sentence, variant in found:
            assert sentence
            inspect.signature(KERNELS[variant.operation]).bind(**variant.arguments)


def test_the_mask_of_a_dropout_is_read_off_its_result():
    """Its scale is checked, wherever the mask fell."""
    x = torch.randn(50, dtype=torch.float64)
    y = F.dropout(x, 0.25)
    given_result = GIVEN_RESULT["dropout"]
    assert torch.allclose(given_result(y, input=x, p=0.25, training=True), y)
    assert not torch.allclose(given_result(y, input=x, p=0.5, training=True), y)


def test_an_unknown_keyword_is_not_passed_over():
    """A row says nothing of a call that it does not know in full."""
    assert meaning_of(call("torch.nn.functional.gelu", TensorRef(0), strength=2), "torch", spec) is None
    assert meaning_of(call("torch.exp", TensorRef(0), out=None), "torch", spec) is not None


MODULES = [
    (torch.nn.Linear(4, 3), (5, 4)),
    (torch.nn.Conv2d(4, 6, 3, 2, 1, groups=2), (2, 4, 7, 7)),
    (torch.nn.Conv1d(4, 2, 3, padding="same"), (2, 4, 7)),
    (torch.nn.ConvTranspose2d(4, 2, 3, 2, 1, 1), (2, 4, 5, 5)),
    (torch.nn.BatchNorm1d(4), (6, 4)),
    (torch.nn.BatchNorm2d(4).eval(), (2, 4, 5, 5)),
    (torch.nn.LayerNorm(4, eps=1e-3), (5, 4)),
    (torch.nn.GroupNorm(2, 4), (2, 4, 5)),
    (torch.nn.RMSNorm(4), (5, 4)),
    (torch.nn.GELU("tanh"), (5, 4)),
    (torch.nn.LeakyReLU(0.3), (5, 4)),
    (torch.nn.PReLU(4), (5, 4)),
    (torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 4, 8, 8)),
    (torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 4, 8, 8)),
    (torch.nn.AdaptiveAvgPool2d(2), (2, 4, 5, 5)),
    (torch.nn.Softmax(-1), (5, 4)),
    (torch.nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True), (2, 5, 4)),
    (torch.nn.GRU(4, 3), (5, 2, 4)),
    (torch.nn.GRUCell(4, 3), (2, 4)),
    (torch.nn.Upsample(scale_factor=2, mode="bilinear"), (1, 4, 3, 3)),
    (torch.nn.PixelShuffle(2), (1, 4, 3, 3)),
    (torch.nn.ZeroPad2d(1), (1, 4, 3, 3)),
    (torch.nn.Dropout(0.4).eval(), (5, 4)),
    (torch.nn.Flatten(), (2, 4, 3)),
    (torch.nn.Hardswish(), (5, 4)),
    (torch.nn.ELU(0.7), (5, 4)),
]


@pytest.mark.parametrize(
    ("module", "shape"), MODULES, ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else ""
)
def test_modules(module, shape):
    """Modules as calls of their own: settings, parameters and buffers are read from the module."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    recording = Recording(lambda: module(x), module, level="module")
    recording.check(recording.calls[-1])


def test_a_users_module_of_the_same_name_has_no_meaning():
    """What a class of the user's does is not known by its name."""

    class GELU(torch.nn.Module):
        approximate = "none"

        def forward(self, x):
            return x * 2

    module = GELU()
    recording = Recording(lambda: module(torch.ones(3)), module, level="module")
    assert meaning_of(recording.calls[-1], "torch", recording.specs.__getitem__) is None
