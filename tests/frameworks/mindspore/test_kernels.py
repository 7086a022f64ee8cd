"""MindSpore's own kernel dump in the trace: in a process of its own, since MindSpore reads its settings once in a process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import twintrace as tt
from twintrace.model.sites import Kind, Phase
from twintrace.testing.reading import Reading, check_same_bits

pytestmark = pytest.mark.needs_mindspore
SCRIPT = Path(__file__).with_name("kernels_script.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, checkout_env):
    place = tmp_path_factory.mktemp("kernels")
    command = [sys.executable, str(SCRIPT), str(place)]
    done = subprocess.run(command, env=checkout_env, cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return place


@pytest.fixture
def expected(folder):
    with np.load(folder / "expected.npz") as found:
        return dict(found)


def kernels(reading, kind, phase=Phase.FORWARD):
    return [call for call in reading.calls if call.site.type == kind and call.site.phase is phase]


def test_a_jitted_function_shows_its_kernels_in_every_recorded_step(folder, expected):
    assert tt.open(folder / "jit").steps == (0, 1)
    for step in (0, 1):
        reading = Reading(folder / "jit", step=step)
        assert {call.site.kind for call in reading.calls} == {Kind.OP}
        (relu,), (mul,) = kernels(reading, "ReLU"), kernels(reading, "Mul")
        check_same_bits(reading.inputs(relu)["0"], expected["x"])
        check_same_bits(reading.outputs(relu)[""], np.maximum(expected["x"], 0))
        check_same_bits(reading.outputs(mul)[""], np.maximum(expected["x"], 0) * np.float32(2))
        assert relu.config.values["graph"] == 0
        assert relu.config.values["iteration"] == step
        assert relu.stack[0].code == "doubled(x)"


def test_a_network_in_graph_mode_shows_its_kernels_below_it(folder, expected):
    reading = Reading(folder / "graph")
    first, last = kernels(reading, "MatMul")
    assert reading.sites(Kind.MODULE) == ["forward/module:#0"]
    assert [first.site.path, last.site.path] == ["first", "last"]
    assert {reading.parent(call) for call in reading.calls if call.site.kind is Kind.OP} == {"forward/module:#0"}
    np.testing.assert_allclose(
        reading.outputs(first)[""], expected["x"] @ expected["first.weight"].T, rtol=1e-5, atol=1e-6
    )
    assert "compiled" not in reading.notes()


def test_gradients_are_kernels_of_the_way_back(folder, expected):
    reading = Reading(folder / "gradients")
    back = {name for call in reading.calls if call.site.phase is Phase.BACKWARD for name in [call.site.type]}
    assert {"MatMul", "BiasAddGrad", "ReluGrad"} <= back
    results = [
        value.tobytes()
        for call in reading.calls
        if call.site.phase is Phase.BACKWARD
        for value in reading.outputs(call).values()
    ]
    for number in range(4):
        assert expected[f"gradient{number}"].tobytes() in results, (
            f"the gradient of parameter {number} is in no kernel's output"
        )


def test_whoever_comes_too_late_is_told(folder):
    text = (folder / "late.txt").read_text()
    assert "a graph has been compiled already" in text
    assert "before the first @jit function" in text


def test_other_frameworks_do_not_offer_it(tmp_path):
    from twintrace.frameworks import reference  # noqa: F401 - imported, so that it can be chosen

    for option in ("eager", "kernels"):
        with pytest.raises(tt.UsageError, match=f"{option}=True: reference does not offer it"):
            tt.record(tmp_path / "t", framework="reference", level="api", **{option: True})


@pytest.mark.offered("mindspore.MsDispatchMode")
def test_level_op_says_which_kernels_it_cannot_show(tmp_path):
    """The backward of a convolution is computed, and no kernel of it comes by."""
    ms = pytest.importorskip("mindspore")
    nn, Tensor = ms.nn, ms.Tensor
    net = nn.SequentialCell(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1), nn.MaxPool2d(2))
    x = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]], ms.float32)
    with tt.record(tmp_path / "t", net, level="op"):
        ms.value_and_grad(lambda y: net(y).sum(), None, net.trainable_params())(x)
    journal = tt.open(tmp_path / "t").journal(0)
    [note] = [note.text for note in journal.notes() if note.topic == "kernels"]
    assert "backward kernels of convolution" in note
    backward = {call.site.name for call in journal.calls() if call.site.phase == "backward"}
    assert not any("Conv" in name for name in backward)
