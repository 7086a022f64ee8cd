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


# Cases that a level could disturb most; every case at every level is the slow sweep.
DELICATE = ["in place", "dropout on", "custom bprop", "raises", "recompute", "residual"]


LEVELS = ["module", "api", pytest.param("op", marks=pytest.mark.offered("mindspore.MsDispatchMode"))]


def check(name, level):
    found = tt.selfcheck(lambda record: train(name, record), level=level, keep="tensor")
    assert found.same, str(found)
    assert found.compared >= 4


@pytest.mark.parametrize("name", CASES)
def test_recording_everything_leaves_every_bit_as_it_was(name):
    check(name, "mix")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", DELICATE)
def test_the_other_levels_leave_delicate_cases_alone(name, level):
    check(name, level)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in DELICATE])
def test_every_level_leaves_every_case_alone(name, level):
    check(name, level)
