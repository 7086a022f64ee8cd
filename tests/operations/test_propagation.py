"""Errors of operands, carried through each operation: never less than its derivatives say, and no more than a small multiple."""

import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from twintrace.operations.rounding import RunningError  # noqa: E402

pytestmark = pytest.mark.needs_torch
NO_ROUNDING = 1e-30
U = 2.0**-24


def positive(*shape, above=0.1):
    return above + 0.8 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


X, Y, Z = normal(6), normal(6, seed=1), normal(6, seed=2)
P, Q = positive(6), positive(6).flip(0)
ROWS = normal(3, 4)
LABELS, PLACES, HERE = torch.tensor([0, 2, 1]), torch.tensor([[0, 2], [1, 1], [3, 0]]), torch.tensor([True, False] * 3)

EXACT = {
    **{name: (getattr(torch, name), P) for name in
       ("exp", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "reciprocal", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "sigmoid", "erf", "erfc", "atan", "asin", "acos", "asinh", "atanh", "digamma", "lgamma", "erfinv", "i0", "sqrt",
        "relu")},
    "acosh": (torch.acosh, positive(6, above=1.1)),
    **{name: (getattr(torch, name), X) for name in ("neg", "abs")},
    "a square": (lambda x: x.pow(2), X), "a cube": (lambda x: x.pow(3), X), "a root": (lambda x: x.pow(0.3), P),
    "pow": (torch.pow, P, Q), "a power of 2": (lambda x: 2.0**x, X),
    "add": (torch.add, X, Y), "3 times more": (lambda x, y: torch.add(x, y, alpha=3), X, Y), "sub": (torch.sub, X, Y),
    "3 times less": (lambda x, y: torch.sub(x, y, alpha=3), X, Y), "2 - x": (lambda x: 2 - x, X), "mul": (torch.mul, X, Y),
    "div": (torch.div, X, P), "atan2": (torch.atan2, P, Q),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2), X, Y, Z),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=2), X, Y, P),
    "sum": (lambda x: x.sum(1), ROWS), "mean": (lambda x: x.mean(1), ROWS), "cumsum": (lambda x: x.cumsum(1), ROWS),
    "prod": (lambda x: x.prod(1), positive(3, 4)), "cumprod": (lambda x: x.cumprod(1), positive(3, 4)),
    "mm": (torch.mm, ROWS, normal(4, 2)), "bmm": (torch.bmm, normal(2, 3, 4), normal(2, 4, 2)), "outer": (torch.outer, X, Y[:2]),
    "addmm": (lambda x, y, z: torch.addmm(x, y, z, beta=2, alpha=3), normal(2), ROWS, normal(4, 2)),
    "linear": (F.linear, ROWS, normal(2, 4), normal(2)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), ROWS, normal(2, 4)),
    "conv1d": (F.conv1d, normal(1, 2, 5), normal(2, 2, 3), normal(2)),
    "conv_transpose1d": (F.conv_transpose1d, normal(1, 2, 5), normal(2, 2, 3), normal(2)),
    "softplus": (F.softplus, X), "mse_loss": (F.mse_loss, X, Y), "smooth_l1_loss": (F.smooth_l1_loss, X, Y),
    "cat": (lambda x, y: torch.cat([x, y]), X, Y), "where": (lambda x, y: torch.where(HERE, x, y), X, Y),
    "gather": (lambda x: x.gather(1, PLACES), ROWS), "embedding": (lambda x: F.embedding(LABELS, x), ROWS),
    "index_add": (lambda x, y: x.index_add(0, torch.tensor([0, 2, 0]), y), ROWS, normal(3, 4, seed=3)),
    "scatter_add": (lambda x, y: x.scatter_add(0, torch.tensor([[0, 1], [1, 0]]), y), ROWS, normal(2, 2)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), normal(1, 2, 6)), "fold": (lambda x: F.fold(x, (4, 4), (2, 2)), normal(1, 4, 9)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), normal(1, 2, 4)),
    "pad": (lambda x: F.pad(x, (1, 1)), ROWS), "replicate": (lambda x: F.pad(x, (1, 1), mode="replicate"), normal(1, 2, 3)),
    "clamp": (lambda x: x.clamp(-2, 2), X),
}  # fmt: skip
WIDER = {
    "exp2": (torch.exp2, 1.5, P), "special.i1": (torch.special.i1, 3.1, P), "maximum": (torch.maximum, 20.0, X, Y),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), 2.0, X, Y), "hypot": (torch.hypot, 2.0, P, Q),
    "amax": (lambda x: x.amax(1), 20.0, ROWS),
    "logsumexp": (lambda x: x.logsumexp(1), 2.5, ROWS), "softmax": (lambda x: x.softmax(1), 8.0, ROWS),
    "log_softmax": (lambda x: x.log_softmax(1), 5.0, ROWS), "var": (lambda x: x.var(1), 2.5, ROWS),
    "std": (lambda x: x.std(1), 2.5, ROWS),
    "sort": (lambda x: x.sort(1).values, 3.0, ROWS), "topk": (lambda x: x.topk(2, 1).values, 3.0, ROWS),
    "median": (lambda x: x.median(1).values, 3.0, ROWS), "cummax": (lambda x: x.cummax(1).values, 3.0, ROWS),
    "norm": (lambda x: x.norm(dim=1), 2.0, ROWS), "cdist": (torch.cdist, 2.0, ROWS, normal(2, 4)),
    "elu": (F.elu, 20.0, X), "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), 17.0, X), "hardswish": (F.hardswish, 5.0, P),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), 5.0, ROWS, normal(4), normal(4, seed=4)),
    "group_norm": (lambda x: F.group_norm(x, 2), 8.0, normal(2, 4, 3)),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS), 4.0, ROWS),
}  # fmt: skip


def carried(function, operands):
    """The bound of a function's result, and what its derivatives make of the same errors of the operands."""
    operands = [operand.clone() for operand in operands]
    given = [1e-6 * (0.5 + positive(*operand.shape)) for operand in operands]
    with RunningError(NO_ROUNDING, NO_ROUNDING) as errors:
        for operand, error in zip(operands, given, strict=True):
            errors.add(operand, error)
        result = function(*operands)
    assert not errors.unknown
    slopes = torch.autograd.functional.jacobian(function, tuple(operands))
    sizes = [slope.abs().reshape(result.numel(), -1) for slope in slopes]
    expected = sum(size @ error.reshape(-1) for size, error in zip(sizes, given, strict=True))
    return errors.of(result).reshape(-1), expected


@pytest.mark.parametrize("name", EXACT)
def test_errors_are_carried_by_the_derivatives(name):
    function, *operands = EXACT[name]
    bound, expected = carried(function, operands)
    torch.testing.assert_close(bound, expected, rtol=1e-3, atol=1e-20)


@pytest.mark.parametrize("name", WIDER)
def test_errors_are_carried_by_no_more_than_a_multiple(name):
    function, most, *operands = WIDER[name]
    bound, expected = carried(function, operands)
    assert bool((bound >= 0.999 * expected).all())
    assert bool((bound <= most * expected + 1e-20).all()), float((bound / expected).max())


@pytest.mark.parametrize(
    ("function", "operands", "units"),
    [
        (torch.add, (X, Y), lambda y: y.abs()),
        (torch.sub, (X, Y), lambda y: y.abs()),
        (torch.mul, (X, Y), lambda y: y.abs()),
        (torch.div, (X, P), lambda y: y.abs()),
        (torch.sqrt, (P,), lambda y: y),
        (torch.reciprocal, (P,), lambda y: y),
        (torch.exp, (X,), lambda y: 8 * y),
        (torch.tanh, (X,), lambda y: 8 * y.abs()),
        (torch.erf, (X,), lambda y: 8 * torch.ones_like(y)),  # of 1 everywhere
        (lambda x: x.pow(2), (X,), lambda y: y),
        (lambda x: x.pow(3), (X,), lambda y: 8 * y.abs()),
        (lambda x: x.sum(1), (ROWS,), lambda y: 3 * math.sqrt(4) * ROWS.abs().sum(1) + y.abs()),
        (torch.mm, (ROWS, normal(4, 2)), lambda y: 3 * math.sqrt(4) * (ROWS.abs() @ normal(4, 2).abs()) + y.abs()),
        (F.hardtanh, (X,), None),
        (torch.neg, (X,), None),
        (torch.abs, (X,), None),
        (lambda x: x.reshape(2, 3).T, (X,), None),
        (lambda x: x.amax(), (X,), None),
        (lambda x: x[HERE], (X,), None),
        (lambda x: x.sort().values, (X,), None),
        (lambda x: x.mul(9).long().cumsum(0), (X,), None),  # integers are exact
        (lambda x: x.mul(9).long().sum(), (X,), None),
        (lambda x: x.mul(9).long().cumprod(0), (X,), None),
        (lambda x: x.cumsum(0), (X,), lambda y: 3 * math.sqrt(6) * X.abs().cumsum(0) + y.abs()),
        (lambda x: x.cumprod(0), (X,), lambda y: 6 * y.abs()),
        (lambda x: x.prod(), (X,), lambda y: 6 * y.abs()),
        (lambda x: x.mean(1), (ROWS,), lambda y: (3 * math.sqrt(4) * ROWS.abs().sum(1) + y.abs()) / 4 + y.abs()),
    ],
)
def test_own_rounding(function, operands, units):
    """In units of the precision; none of what only moves or picks values."""
    with RunningError(U, U) as errors:
        result = function(*operands)
    found = errors.of(result)
    if units is None:
        assert found is None or not bool(found.any())
    else:
        torch.testing.assert_close(found, U * units(result), rtol=2e-3, atol=0.0)


@pytest.mark.parametrize("error", [None, 1e-3])
def test_the_gradient_of_a_sampled_volume_has_the_error_of_what_comes_back(error):
    sent, volume, grid = normal(1, 2, 2, 2, 2), normal(1, 2, 3, 3, 3), positive(1, 2, 2, 2, 3)
    with RunningError(U, U) as errors:
        if error is not None:
            errors.add(sent, torch.full_like(sent, error))
        image, places = torch.ops.aten.grid_sampler_3d_backward(sent, volume, grid, 0, 0, False, [True, True])
    for result in (image, places):
        least = float(errors.of(result).min())
        assert least >= error if error is not None else 0 < least < 1e-4
