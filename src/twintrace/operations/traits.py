"""Traits of operations: what a judge must know of one beside what it computes.

    traits_of(meaning).random           draws random numbers: another seed, another result
    traits_of(meaning).moves            copies values without changing them: exact
    traits_named("Dense").contracts     sums of products: what is known of an operation by its name alone
    accuracy_of("tanh", "mindspore")    how far the framework's approximation is from the function, in units of the dtype
    role_of("linear", "weight")         how messages call an operand
    is_question(call)                   hands a value to Python or asks for a shape

A question has no meaning: nothing goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..model.records import Call
from .catalog import OPERATIONS
from .families import family_of, operations_named
from .meanings import Meaning
from .mindspore_reading import SILENT
from .torch_names import QUESTIONS


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an operation that a judge must know."""

    random: bool = False
    """It draws random numbers."""
    moves: bool = False
    """It only moves or copies values, or makes them from its settings."""
    views: bool = False
    """Its result may share memory with what it moves."""
    affine: bool = False
    """Its gradient does not depend on the values that it takes, but for masks."""
    decides: bool = False
    """Comparison, choice or rounding, or a kink: near a tie, rounding picks the other side, of the result or of its gradient."""
    chooses: bool = False
    """It tells the places of values: of equal ones, any."""
    uninitialised: bool = False
    """Its result is whatever was in memory."""
    composite: bool = False
    """The framework computes it in several steps, each of which rounds to the working dtype."""
    approximates: bool = False
    """Elementary functions are in it: a polynomial or a table stands for each, not the same everywhere."""
    product: bool = False
    """A sum of products: matrix products and convolutions."""
    chained: bool = False
    """Products of more than two operands, one after the other: those between are rounded."""
    casts: bool = False
    """It rounds to another element type."""
    recurrent: bool = False
    """Its result goes on as its own input, step by step."""
    widens: bool = False
    """It computes as its operands are, and may leave its results in a finer element type: gradients of a layer in bf16, in f32."""
    contracts: bool = False
    """Sums of products are in it, over a length that the shapes tell."""
    cancels: bool = False
    """The result may be much smaller than the operands."""
    exponential: bool = False
    """An absolute error becomes a relative one, or the other way round."""
    selects: bool = False
    """Few of the elements come out, with the errors of all."""
    sums: bool = False
    """A sum of terms that may cancel."""
    steps: int = 1
    """Elementary operations in one call, one after the other."""

    def __or__(self, other: Traits) -> Traits:
        """Traits of what does both, one inside the other."""
        return replace(
            self,
            contracts=self.contracts or other.contracts,
            cancels=self.cancels or other.cancels,
            exponential=self.exponential or other.exponential,
            decides=self.decides or other.decides,
            approximates=self.approximates or other.approximates,
        )


def is_question(call: Call) -> bool:
    """Does the call compute nothing that goes on: hand a value to Python, look at a shape, keep the framework's books?"""
    name = call.site.name.split(".")[1] if call.site.name.startswith("aten.") else call.site.name.rpartition(".")[2]
    return name in SILENT or name in QUESTIONS or name.lstrip("_") in QUESTIONS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOVES = _names("""
identity detach reshape permute expand tile getitem setitem cat cut stack split unbind gather gather_nd index_select take embedding
scatter index_copy index_fill index_put masked_fill masked_select masked_scatter copy fill fill_diagonal flip roll rot90 pad
mirror_pad repeat_interleave tril triu diag diagonal diag_embed meshgrid broadcast_tensors pixel_shuffle pixel_unshuffle
channel_shuffle depth_to_space space_to_depth where unfold unfold_axis zeros ones full tensor eye one_hot real imag conj positive
view_as_real view_as_complex complex
""")
_VIEWS = _names("""
identity detach reshape permute expand getitem split unbind diagonal unfold_axis broadcast_tensors real imag view_as_real
view_as_complex
""")
_DECIDES = _names("""
eq ne lt le gt ge isclose isfinite isinf isnan isneginf isposinf logical_not logical_and logical_or logical_xor all
any argmax argmin max_dim min_dim amax amin max_pool adaptive_max_pool median median_dim kthvalue mode cummax cummin sort argsort
topk unique nonzero searchsorted bucketize histc bincount count_nonzero ceil floor trunc round frac sign sgn signbit floor_divide
trunc_divide remainder fmod heaviside clamp relu relu6 hardtanh hardshrink softshrink threshold maximum minimum fmax
fmin abs copysign hardswish hardsigmoid leaky_relu prelu rrelu dropout feature_dropout alpha_dropout where masked_fill masked_select
masked_scatter l1_loss smooth_l1_loss huber_loss hinge_embedding_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss
multi_margin_loss multilabel_margin_loss clip_grad_norm
""")
_AFFINE = _names("add sub neg sum mean cast masked_fill where")
_CHOOSES = _names("argmax argmin argsort sort topk max_dim min_dim median_dim mode kthvalue cummax cummin")
_RANDOM = _names("random gumbel_softmax")


def _drops(arguments: Mapping[str, Any]) -> bool:
    share = arguments.get("p")
    return bool(arguments.get("training")) and isinstance(share, int | float) and 0 < share < 1


def _drops_between_layers(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("train")) and bool(arguments.get("dropout")) and arguments.get("num_layers") != 1


_DRAWN_IF: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _drops),
    "rrelu": lambda arguments: bool(arguments.get("training")),
    "scaled_dot_product_attention": lambda arguments: bool(arguments.get("dropout_p")),
    "multi_head_attention": lambda arguments: bool(arguments.get("training")) and bool(arguments.get("dropout_p")),
    **dict.fromkeys(("lstm", "gru", "rnn"), _drops_between_layers),
}
"""Operations that draw random numbers for some arguments only."""
_WRITES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("setitem", "copy", "fill"), ("input",)),
    **dict.fromkeys(("batch_norm", "instance_norm"), ("running_mean", "running_var")),
}
_WITHOUT_GRADIENT = _names("""
eq ne lt le gt ge isclose isfinite isinf isnan isneginf isposinf signbit logical_not logical_and logical_or logical_xor bitwise_not
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm all any count_nonzero argmax argmin argsort
nonzero unique bincount histc searchsorted bucketize one_hot heaviside detach fill zeros ones full arange linspace eye tensor empty
random
""")
_COMPOSITE = _names("""
scaled_dot_product_attention multi_head_attention normalize l2_normalize lstm gru rnn flat_lstm lstm_layer lstm_layer_backward
lstm_cell gru_cell rnn_cell
cosine_similarity pairwise_distance cosine_embedding_loss margin_ranking_loss triplet_margin_loss gaussian_nll_loss poisson_nll_loss
soft_margin_loss multilabel_soft_margin_loss multilabel_margin_loss multi_margin_loss hinge_embedding_loss cross_entropy kl_div
binary_cross_entropy binary_cross_entropy_with_logits local_response_norm instance_norm rms_norm huber_loss smooth_l1_loss dice_loss
sgd adam nadam radam adamax adadelta rmsprop adagrad lamb
weight_norm var_mean std_mean cdist bilinear swiglu glu quick_gelu lerp addcmul addcdiv addmm
""")
_CHAINED = _names("bilinear einsum multi_dot")
"""Products of any number of operands."""
_RECURRENT = _names("lstm gru rnn flat_lstm lstm_layer lstm_layer_backward")
_GATED = _RECURRENT | _names("lstm_cell gru_cell rnn_cell")
_ATTENTION = _names("scaled_dot_product_attention multi_head_attention")
_TRANSFORMERS = _names("transformer transformer_layer")
_SOFTMAX = _names("softmax softmin log_softmax gumbel_softmax")
_ENTROPY = _names("cross_entropy binary_cross_entropy binary_cross_entropy_with_logits")
_LIKELIHOOD = _names("nll_loss poisson_nll_loss gaussian_nll_loss")
_LOSSES = (
    _ENTROPY
    | _LIKELIHOOD
    | _names("""
mse_loss l1_loss smooth_l1_loss huber_loss kl_div soft_margin_loss multilabel_soft_margin_loss multilabel_margin_loss
multi_margin_loss hinge_embedding_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss dice_loss
""")
)
_NORMS = _names("""
weight_norm batch_norm instance_norm layer_norm group_norm rms_norm local_response_norm normalize l2_normalize renorm vector_norm
clip_grad_norm
""")
_EXPONENTIALS = _names("""
exp exp2 expm1 log log10 log1p log2 logsigmoid pow logaddexp logaddexp2 logit logsumexp logcumsumexp ldexp
""")
_APPROXIMATES = _names("""
acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv lgamma rsqrt sin sinc sinh tan tanh sigmoid i0 tanhshrink silu
mish selu gelu quick_gelu elu celu softplus atan2 hypot xlogy polygamma swiglu glu
""") | (_EXPONENTIALS | _SOFTMAX | _ENTROPY | _ATTENTION | _GATED | _TRANSFORMERS) - {"ldexp"}
_PRODUCTS = _names("""
linear matmul mm bmm addmm baddbmm conv conv_transpose einsum tensordot dot mv outer bilinear torch.mm torch.bmm torch.matmul
torch.addmm torch.baddbmm aten.mm.default aten.bmm.default aten.addmm.default aten.baddbmm.default aten.convolution.default
""")
_CONTRACTS = _PRODUCTS | _ATTENTION | _GATED | _TRANSFORMERS | _names("addbmm kron multi_dot")
_SUMS = _names("sum nansum half_square_sum")
_CANCELS = (
    _SUMS
    | _NORMS
    | _LOSSES
    | _SOFTMAX
    | _names("""
add sub addcmul addcdiv addmm addbmm addr bias_add add_all mean nanmean var std var_mean std_mean cumsum logcumsumexp diff
scatter_add scatter_reduce index_add embedding_backward all_reduce reduce_scatter
""")
)
_SELECTS = _names("getitem split unbind gather gather_nd index_select take embedding embedding_bag masked_select")
_STEPS: Mapping[str, int] = {
    **dict.fromkeys(_NORMS | _SOFTMAX | _LOSSES | {"gelu", "quick_gelu", "silu"}, 3),
    **dict.fromkeys(_ATTENTION, 8), **dict.fromkeys(_GATED, 16), "transformer_layer": 24, "transformer": 64,
}  # fmt: skip
"""Elementary operations, one after the other: mean, variance and quotient; products, scale, mask and softmax; gates."""


_KNOWN = frozenset(("empty", "cast", *_STEPS)).union(
    _MOVES, _DECIDES, _COMPOSITE, _APPROXIMATES, _PRODUCTS, _RECURRENT, _CONTRACTS, _CANCELS, _SELECTS, _SUMS,
    _EXPONENTIALS, _SOFTMAX, _ENTROPY, _LIKELIHOOD, _ATTENTION,
)  # fmt: skip
"""Names that have traits."""


def traits_of(meaning: Meaning) -> Traits:
    """Traits of an operation with these arguments: dropout that is off draws nothing."""
    name = meaning.operation.removeprefix("torch.nn.functional.").removeprefix("torch.")
    known = _traits(frozenset((meaning.operation, name)))
    if _is_random(meaning, name):
        known = replace(known, random=True)
    several = name in _CHAINED and sum(1 for _ in meaning.operands()) > 2
    return replace(known, composite=True, chained=True) if several else known


@lru_cache(maxsize=4096)
def traits_named(name: str) -> Traits:
    """Traits of an operation by its name alone, forward and backward alike; of a name that no table has, none."""
    family = family_of(name)
    names = operations_named(name) | {family, family.removesuffix("_backward")}
    # Names that nothing is known of, thousands where values were saved, have the same traits: none.
    return _traits(frozenset(known for known in names if known in _KNOWN or known.startswith("torch.")))


@lru_cache(maxsize=4096)
def _traits(names: frozenset[str]) -> Traits:
    return Traits(
        moves=bool(names & _MOVES),
        views=bool(names & _VIEWS),
        affine=bool(names & (_MOVES | _AFFINE)),
        decides=bool(names & _DECIDES),
        chooses=bool(names & _CHOOSES),
        uninitialised="empty" in names,
        composite=bool(names & _COMPOSITE) or any(name.startswith("torch.") for name in names),
        approximates=bool(names & _APPROXIMATES),
        product=bool(names & _PRODUCTS),
        casts="cast" in names,
        recurrent=bool(names & _RECURRENT),
        widens="lstm_layer_backward" in names,
        contracts=bool(names & _CONTRACTS),
        cancels=bool(names & _CANCELS),
        exponential=bool(names & (_EXPONENTIALS | _SOFTMAX | _ENTROPY | _LIKELIHOOD | _ATTENTION)),
        selects=bool(names & _SELECTS),
        sums=bool(names & _SUMS),
        steps=max((_STEPS.get(name, 1) for name in names), default=1),
    )


def _is_random(meaning: Meaning, name: str) -> bool:
    drawn = _DRAWN_IF.get(name)
    return drawn(meaning.arguments) if drawn is not None else bool(draws(name))


def draws(operation: str) -> str:
    """`always` for an operation that draws random numbers, `sometimes` if its arguments decide, else empty."""
    if operation in _DRAWN_IF:
        return "sometimes"
    if operation in OPERATIONS:
        return "always" if operation in _RANDOM else ""
    words = ("rand", "bernoulli", "multinomial", "poisson", "dropout")  # functions of PyTorch's that have no row
    return "always" if any(word in operation for word in words) else ""


def writes(operation: str) -> tuple[str, ...]:
    """Arguments that an operation writes to by what it is, whatever it is called."""
    return _WRITES.get(operation, ())


def is_axis(operation: str, name: str) -> bool:
    """Does an argument count axes? What it says depends on the order in which the axes of the operands lie."""
    row = OPERATIONS.get(operation)
    return row is not None and any(item.name == name and item.kind for item in row.parameters)


def gives_any_order(meaning: Meaning) -> bool:
    """True if a call may give its results in any order: a top-k that does not sort."""
    return meaning.operation == "topk" and not meaning.arguments.get("sorted", True)


def has_gradient(operation: str) -> bool:
    """True if gradients go through an operation: its results are numbers that depend on numbers that it was given."""
    return operation not in _WITHOUT_GRADIENT


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Error of a framework's own approximation of f: at most `u·(result·|y| + argument·|x·f'(x)| + absolute + input·|x|)`, with u
    the unit roundoff of the dtype that it computes in (float32 also where its operands have 16 bits, then rounded once more).
    """

    result: float = 8.0
    argument: float = 0.0
    absolute: float = 0.0
    input: float = 0.0


_DEFAULT = Accuracy()
_ACCURACIES: Mapping[tuple[str, str], Accuracy] = {
    # Where a function cancels, the error is that of its parts.
    ("torch", "gelu"): Accuracy(input=8),
    ("torch", "silu"): Accuracy(input=4),
    ("torch", "mish"): Accuracy(input=4),
    ("torch", "digamma"): Accuracy(absolute=24),
    ("torch", "selu"): Accuracy(absolute=4),
    # MindSpore 2.10's kernels on a CPU, measured over 1.2 million arguments, with half as much again as a margin:
    # log1p and expm1 are log(1 + x) and exp(x) - 1, erfinv is a short polynomial, and exp stops at -87 and 88.
    ("mindspore", "exp"): Accuracy(result=96, argument=8),
    ("mindspore", "log"): Accuracy(absolute=12),
    ("mindspore", "log1p"): Accuracy(absolute=12),
    ("mindspore", "expm1"): Accuracy(result=96, argument=8, absolute=110),
    ("mindspore", "tanh"): Accuracy(absolute=2600),
    ("mindspore", "sigmoid"): Accuracy(result=64, argument=8),
    ("mindspore", "silu"): Accuracy(result=64, argument=8, input=24),
    ("mindspore", "softplus"): Accuracy(argument=8, absolute=64),
    ("mindspore", "erfinv"): Accuracy(result=530_000),
    ("mindspore", "digamma"): Accuracy(absolute=24),
    # Not measured: from the functions that they are made of (tanh, exp, log).
    ("mindspore", "gelu"): Accuracy(input=2600),
    ("mindspore", "mish"): Accuracy(input=2600),
    ("mindspore", "elu"): Accuracy(result=96, argument=8, absolute=110),
    ("mindspore", "softmax"): Accuracy(result=192, argument=8),
    ("mindspore", "log_softmax"): Accuracy(argument=8, absolute=110),
    ("mindspore", "logsumexp"): Accuracy(argument=8, absolute=110),
}


def accuracy_of(operation: str, framework: str) -> Accuracy:
    """Error bound of the framework's own function. MSAdapter runs MindSpore's kernels."""
    home = "mindspore" if framework == "msadapter" else framework
    return _ACCURACIES.get((home, operation), _DEFAULT)


_ROLES: Mapping[str, str] = {
    "input": "input", "other": "second operand", "weight": "weight", "bias": "bias", "attn_mask": "mask", "mask": "mask",
    "target": "target", "running_mean": "running mean", "running_var": "running variance", "query": "query", "key": "key",
    "value": "value", "index": "index", "src": "source", "tensors": "operand", "operands": "operand", "mat1": "first matrix",
    "mat2": "second matrix", "hx": "initial state", "params": "parameter", "parameters": "parameter", "gradients": "gradient",
    "exp_avg": "first moment", "exp_avg_sq": "second moment", "momentum_buffer": "momentum", "condition": "condition",
    "indices": "index", "in_proj": "input projection", "w_ih": "input weight", "w_hh": "hidden weight",
}  # fmt: skip


def role_of(operation: str, path: str) -> str:
    """Role of an operand in its operation: `weight`, `mask`, `operand 2`."""
    head, _, rest = path.partition(".")
    if operation == "embedding" and head == "weight":
        return "table"
    role = _ROLES.get(head, head.replace("_", " "))
    return f"{role} {int(rest) + 1}" if rest.isdigit() else role
