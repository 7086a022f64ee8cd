"""Kernels that are written out in plain steps: PyTorch's own functions are within their bounds, and nothing wrong is."""

import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from twintrace.model.tensors import Spec
from twintrace.operations import Meaning, Operand
from twintrace.operations.audits import audit
from twintrace.operations.evaluation import Values
from twintrace.operations.recorded_gradients import Gradients

few = settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
seeds = st.integers(0, 10_000)
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.bool: "b8"}


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def whole(seed, below, *shape):
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


def check(operation, function, *, loose=(), **arguments):
    """The framework's result and gradients are within the bound; a damaged element and a result times 0.999 are not."""
    names, tensors, given_ = {}, [], {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                value = value.clone().requires_grad_()
            names[name] = len(tensors)
            tensors.append(value)
        given_[name] = value
    result = function(**given_)
    seed = draw(7, *result.shape)
    floating = {name: place for name, place in names.items() if tensors[place].is_floating_point()}
    gradients = torch.autograd.grad(result, [tensors[place] for place in floating.values()], seed, allow_unused=True)
    numbers = {place: len(tensors) + 2 + turn for turn, place in enumerate(floating.values())}
    made, sent = len(tensors), len(tensors) + 1
    every = [item.detach() for item in (*tensors, result, seed)]
    every += [
        torch.zeros_like(tensors[place]) if item is None else item
        for item, place in zip(gradients, floating.values(), strict=True)
    ]
    meaning = Meaning(operation, {name: Operand(names[name]) if name in names else value for name, value in arguments.items()},
                      {made: 0})  # fmt: skip
    recorded = Gradients({made: sent}, {place: [number] for place, number in numbers.items()})

    def scores(changed=None, wrong=lambda value: value):
        def read(number):
            value = every[number] if number != changed else wrong(every[number].clone())
            return value.numpy()

        values = Values(read, lambda number: Spec(NAMES[every[number].dtype], tuple(every[number].shape)))
        found = audit(meaning, values, recorded)
        assert not found.failure, found.failure
        assert not found.backward_failure, found.backward_failure
        return {**found.forward, **found.backward}

    right = scores()
    assert set(right) == {made, *numbers.values()}
    for number, score in right.items():
        assert score.ratio <= 1, (number, score)
        if not every[number].any() or number in [numbers[names[name]] for name in loose]:
            continue
        assert scores(number, damaged)[number].ratio > 1, number
        assert scores(number, lambda value: value * 0.999)[number].ratio > 1, number


def damaged(value):
    value = value.contiguous()
    place = value.abs().argmax()
    value.view(-1)[place] *= 1.01
    return value


@few
@given(seed=seeds, mode=st.sampled_from(["sum", "mean"]), length=st.integers(1, 200), width=st.integers(1, 24))
def test_bags_of_words(seed, mode, length, width):
    """Rows that nearly cancel: the error of a mean is that of its terms, not of what is left of them."""
    check("embedding_bag", lambda input, weight, **more: F.embedding_bag(input, weight, **more),
          input=whole(seed, 40, 6, length), weight=draw(seed, 40, width), offsets=None, mode=mode, per_sample_weights=None,
          include_last_offset=False, padding_idx=None)  # fmt: skip


@few
@given(seed=seeds, mode=st.sampled_from(["sum", "mean", "max"]), last=st.booleans(), padded=st.booleans())
def test_bags_by_their_offsets(seed, mode, last, padded):
    offsets = torch.tensor([0, 3, 3, 9, 20] if last else [0, 3, 3, 9])
    check("embedding_bag", lambda input, weight, **more: F.embedding_bag(input, weight, **more),
          input=whole(seed, 30, 20), weight=draw(seed, 30, 7), offsets=offsets, mode=mode, per_sample_weights=None,
          include_last_offset=last, padding_idx=4 if padded else None)  # fmt: skip


@few
@given(seed=seeds)
def test_bags_with_weights(seed):
    check("embedding_bag", lambda input, weight, **more: F.embedding_bag(input, weight, **more),
          input=whole(seed, 30, 5, 16), weight=draw(seed, 30, 7), offsets=None, mode="sum",
          per_sample_weights=draw(seed + 1, 5, 16), include_last_offset=False, padding_idx=None)  # fmt: skip


@few
@given(seed=seeds, sizes=st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 9)), biased=st.booleans())
def test_bilinear(seed, sizes, biased):
    one, two, out = sizes
    check("bilinear", F.bilinear, input1=draw(seed, 8, one), input2=draw(seed + 1, 8, two), weight=draw(seed + 2, out, one, two),
          bias=draw(seed + 3, out) if biased else None)  # fmt: skip


@few
@given(seed=seeds, count=st.integers(1, 300))
def test_take(seed, count):
    check("take", torch.take, input=draw(seed, 5, 6), index=whole(seed, 30, count))


@few
@given(seed=seeds, q=st.sampled_from([0.0, 0.1, 0.5, 0.73, 1.0]), dim=st.sampled_from([None, 0, 1]), keepdim=st.booleans(),
       how=st.sampled_from(["linear", "lower", "higher", "midpoint", "nearest"]))  # fmt: skip
def test_quantile(seed, q, dim, keepdim, how):
    check("quantile", lambda input, q, dim, keepdim, interpolation: torch.quantile(input, q, dim, keepdim,
          interpolation=interpolation), input=draw(seed, 9, 11), q=q, dim=dim, keepdim=keepdim, interpolation=how)  # fmt: skip


@few
@given(seed=seeds, mode=st.sampled_from(["bilinear", "bicubic", "nearest"]), corners=st.booleans(),
       padding=st.sampled_from(["zeros", "border", "reflection"]))  # fmt: skip
def test_grid_sample(seed, mode, padding, corners):
    check("grid_sample", F.grid_sample, input=draw(seed, 2, 3, 7, 9), grid=draw(seed + 1, 2, 5, 4, 2) * 0.4, mode=mode,
          padding_mode=padding, align_corners=corners)  # fmt: skip


@few
@given(seed=seeds, mode=st.sampled_from(["bilinear", "bicubic"]), corners=st.booleans(), antialias=st.booleans(),
       sizes=st.sampled_from([((32, 32), (10, 13)), ((7, 9), (14, 20)), ((5, 5), (3, 3)), ((14, 14), (16, 16))]))  # fmt: skip
def test_interpolate(seed, mode, corners, antialias, sizes):
    """Weights are computed from places, which round."""
    shape, size = sizes
    scales = tuple(after / before for after, before in zip(size, shape, strict=True))
    check("interpolate", lambda input, size, scales, **flags: F.interpolate(input, size=size, **flags), scales=scales,
          input=draw(seed, 2, 8, *shape), size=size, mode=mode, align_corners=corners, antialias=antialias)  # fmt: skip


@few
@given(seed=seeds, corners=st.booleans(), size=st.sampled_from([(2, 1, 5, 7), (2, 1, 1, 4), (2, 1, 3, 4, 5)]))
def test_affine_grid(seed, corners, size):
    axes = len(size) - 2
    corners = corners and 1 not in size[2:]  # PyTorch warns
    check("affine_grid", F.affine_grid, theta=draw(seed, 2, axes, axes + 1), size=size, align_corners=corners)


@few
@given(seed=seeds, reduce=st.sampled_from(["sum", "mean", "amax", "amin"]), own=st.booleans())
def test_scatter_reduce(seed, reduce, own):
    check("scatter_reduce", torch.scatter_reduce, input=draw(seed, 4, 9), dim=1, index=whole(seed, 9, 4, 40),
          src=draw(seed + 1, 4, 40), reduce=reduce, include_self=own)  # fmt: skip


@few
@given(seed=seeds, rows=st.sampled_from([4, 60]), width=st.integers(1, 80), p=st.sampled_from([1.0, 2.0, 3.0]))
def test_distances(seed, rows, width, p):
    """From 25 rows on PyTorch computes them from products, which cancel."""
    check("cdist", torch.cdist, x1=draw(seed, rows, width), x2=draw(seed + 1, rows + 3, width), p=p)


@few
@given(seed=seeds, steps=st.sampled_from([5, 60]), reduction=st.sampled_from(["none", "sum", "mean"]))
def test_ctc_loss(seed, steps, reduction):
    lengths = torch.tensor([steps, steps - 1, steps])
    check("ctc_loss", F.ctc_loss, log_probs=draw(seed, steps, 3, 6).log_softmax(-1), targets=whole(seed, 5, 3, 2) + 1,
          input_lengths=lengths, target_lengths=torch.tensor([2, 2, 1]), blank=0,
          zero_infinity=False, reduction=reduction)  # fmt: skip


@few
@given(seed=seeds, length=st.integers(1, 120))
def test_running_products_and_sums_of_exponentials(seed, length):
    check("cumprod", torch.cumprod, input=1 + 0.1 * draw(seed, 3, length), dim=1)
    check("logcumsumexp", torch.logcumsumexp, input=draw(seed, 3, length), dim=1)


@few
@given(seed=seeds)
def test_values_that_are_moved_or_meet(seed):
    mask = draw(seed, 6, 7) > 0
    check("masked_scatter", torch.masked_scatter, input=draw(seed, 6, 7), mask=mask, source=draw(seed + 1, 50))
    check("adaptive_max_pool", lambda input, output_size: F.adaptive_max_pool2d(input, output_size), input=draw(seed, 2, 3, 7, 7),
          output_size=(5, 5))  # fmt: skip
    check("adaptive_max_pool", lambda input, output_size: F.adaptive_max_pool3d(input, output_size),
          input=draw(seed, 1, 2, 5, 5, 5), output_size=(3, 3, 3))  # fmt: skip


@few
@given(seed=seeds)
def test_elementary_functions_that_torch_has_below_its_kernels(seed):
    x, y = draw(seed, 5, 6), draw(seed + 1, 5, 6)
    check("erfinv", torch.erfinv, input=x.tanh() * 0.9)
    check("i0", torch.i0, input=x)
    check("digamma", torch.digamma, input=x.abs() + 1)
    check("atan2", torch.atan2, input=x, other=y)
    check("hypot", torch.hypot, input=x, other=y)
    check("hardshrink", F.hardshrink, input=x, lambd=0.5)
    check("softshrink", F.softshrink, input=x, lambd=0.5)
    check(
        "floor_divide",
        lambda input, other: torch.div(input, other, rounding_mode="floor"),
        input=x * 9,
        other=y.abs() + 1,
    )


@few
@given(seed=seeds, shape=st.sampled_from([(6, 40), (4, 3, 5, 5), (7, 2)]), dim=st.integers(0, 1))
def test_weight_norm(seed, shape, dim):
    lengths = [size if axis == dim else 1 for axis, size in enumerate(shape)]
    check("weight_norm", torch._weight_norm, v=draw(seed, *shape), g=draw(seed + 1, *lengths), dim=dim)
