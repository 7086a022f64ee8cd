"""The same random numbers every time, and everything as it was afterwards."""

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402
from mindspore.ops import dropout as imported_dropout  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks.mindspore import patches  # noqa: E402

pytestmark = pytest.mark.needs_mindspore
ONES = np.ones((8, 8), np.float32)


def drawn():
    """Numbers of each of MindSpore's sources."""
    dense = nn.Dense(3, 3).weight.asnumpy().copy()
    dropout = nn.Dropout(p=0.5).set_train()(Tensor(ONES)).asnumpy().copy()
    normal = ops.standard_normal((4,)).asnumpy().copy()
    return [dense, dropout, normal]


def test_seeds_repeat():
    with tt.seed_all(3):
        first = drawn()
    with tt.seed_all(3):
        again = drawn()
    with tt.seed_all(4):
        other = drawn()
    assert all((one == two).all() for one, two in zip(first, again, strict=True))
    assert any((one != two).any() for one, two in zip(first, other, strict=True))


def test_the_seeds_are_as_they_were_afterwards():
    ms.set_seed(11)
    state = ms.get_rng_state().asnumpy().copy()
    with tt.seed_all(3):
        assert ms.get_seed() == 3
        drawn()
    assert ms.get_seed() == 11
    assert (ms.get_rng_state().asnumpy() == state).all()


def test_deterministic_on_request():
    before = ms.get_context("deterministic")
    with tt.seed_all(0):
        assert ms.get_context("deterministic") == before
    with tt.seed_all(0, deterministic=True):
        assert ms.get_context("deterministic") == "ON"
    assert ms.get_context("deterministic") == before


def test_dropout_is_taken_out_and_comes_back():
    x = Tensor(ONES)
    image = Tensor(np.ones((2, 4, 3, 3), np.float32))
    held, primitive, planes = nn.Dropout(p=0.5).set_train(), ops.Dropout(0.5), ops.Dropout2D(0.5)

    @ms.jit
    def compiled(x):
        return held(x)

    ways = {
        "ops.dropout": lambda: ops.dropout(x, 0.5),
        "imported": lambda: imported_dropout(x, 0.5),
        "ops.Dropout": lambda: primitive(x)[0],
        "ops.Dropout2D": lambda: planes(image)[0],
        "nn.Dropout": lambda: held(x),
        "nn.Dropout2d": lambda: nn.Dropout2d(0.5).set_train()(image),
        "compiled": lambda: compiled(x),
    }
    layers = len(patches._LAYERS)
    with tt.seed_all(0, disable_dropout=True):
        for name, way in ways.items():
            assert (way().asnumpy() == 1).all(), name
        assert (mint.nn.functional.dropout(x, 0.5).asnumpy() == 1).all()
    assert len(patches._LAYERS) == layers
    for name, way in ways.items():
        if name != "compiled":
            assert (way().asnumpy() == 0).any(), name


@pytest.mark.parametrize("layer", [
    lambda: nn.MultiheadAttention(8, 2, dropout=0.5), lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.5)
], ids=["attention", "encoder"])  # fmt: skip
def test_dropout_inside_a_layer_is_taken_out(layer):
    net, x = layer().set_train(), Tensor(np.random.default_rng(0).standard_normal((4, 2, 8)).astype(np.float32))

    def run():
        result = net(x, x, x)[0] if isinstance(net, nn.MultiheadAttention) else net(x)
        return result.asnumpy()

    with tt.seed_all(0, disable_dropout=True):
        assert np.array_equal(run(), run())
    assert not np.array_equal(run(), run())
