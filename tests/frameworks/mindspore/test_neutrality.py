"""Recording changes nothing: every network of the zoo, at every level, bit by bit."""

import pytest

ms = pytest.importorskip("mindspore")

from cells import CASES, filled  # noqa: E402
from mindspore import nn  # noqa: E402

import twintrace as tt  # noqa: E402

pytestmark = [pytest.mark.needs_mindspore, pytest.mark.filterwarnings("ignore:twintrace. compiled:RuntimeWarning")]


def train(name, record):
    """Two steps of a case; everything that was computed."""
    case = CASES[name]()
    net = filled(case.net)
    weights = [parameter for parameter in net.get_parameters() if parameter.requires_grad]
    optimizer = nn.Momentum(weights, 0.05, 0.9)
    differentiated = ms.value_and_grad(lambda *inputs: case.loss(net(*inputs)), None, weights)
    results = []
    with record(net):
        for _ in range(2):
            if case.raises:
                with pytest.raises(ValueError, match=case.raises):
                    differentiated(*case.inputs)
                results.append(net(*case.inputs) if not case.raises else net.layer(*case.inputs))
                continue
            loss, gradients = differentiated(*case.inputs)
            optimizer(gradients)
            results.append([loss, list(gradients)])
    return results, net


@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_the_same(name, level):
    found = tt.selfcheck(lambda record: train(name, record), level=level, keep="tensor")
    assert found.same, str(found)
    assert found.compared >= 4
