"""PrecisionDebugger on MindSpore: what is its own there."""

import re
import zlib

import numpy as np
import pytest

from tests.compat.msprobe.dumped import array, data, document, tensors

ms = pytest.importorskip("mindspore")
pytestmark = pytest.mark.needs_mindspore

from mindspore import mint, nn, ops  # noqa: E402

from twintrace.compat.msprobe import mindspore as door  # noqa: E402
from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all  # noqa: E402
from twintrace.compat.troubleshooter import saving  # noqa: E402


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 2)

    def construct(self, x):
        return ops.tanh(self.fc(x)) * 2


@pytest.fixture
def make(config):
    return lambda *settings, **fields: PrecisionDebugger(config_path=config(*settings, **fields))


@pytest.fixture
def step(tmp_path):
    return tmp_path / "dump" / "step0" / "rank"


def record(debugger, net, x):
    gradient = ms.value_and_grad(lambda x: net(x).sum(), 0, net.trainable_params())
    debugger.start(net)
    found = gradient(x)
    debugger.stop()
    debugger.step()
    return found


def ones(*shape, dtype=np.float32):
    return ms.Tensor(np.ones(shape, dtype))


def test_the_records_of_a_step(make, step):
    record(make(), Net(), ones(3, 4))
    names = set(data(step))
    assert {
        "Cell.fc.Dense.forward.0", "Cell.fc.Dense.backward.0", "Cell.fc.Dense.parameters_grad", "Functional.tanh.0.forward",
        "Functional.tanh.0.backward", "Tensor.__mul__.0.forward", "Tensor.sum.0.forward", "Primitive.MatMul.0.forward",
    } <= names  # fmt: skip
    assert document(step, "construct.json")["Primitive.MatMul.0.forward"] == "Cell.fc.Dense.forward.0"
    element = data(step)["Cell.fc.Dense.forward.0"]["input_args"][0]
    assert list(element) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm"], "there is no requires_grad"
    assert (element["type"], element["dtype"], element["Max"]) == ("mindspore.Tensor", "Float32", 1.0)


def test_values(make, step):
    net, x = Net(), ms.Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    _, (gradient, (weight, bias)) = record(make(task="tensor"), net, x)
    found = data(step)
    named = {element["data_name"] for entry in found.values() for _, element in tensors(entry)}
    assert {path.name for path in (step / "dump_tensor_data").iterdir()} == named
    assert np.array_equal(array(step, found["Cell.fc.Dense.forward.0"]["input_args"][0]), x.asnumpy())
    assert np.array_equal(array(step, found["Cell.fc.Dense.backward.0"]["output"][0]), gradient.asnumpy())
    assert np.array_equal(array(step, found["Cell.fc.Dense.parameters_grad"]["weight"][0]), weight.asnumpy())
    assert np.array_equal(array(step, found["Cell.fc.Dense.parameters_grad"]["bias"][0]), bias.asnumpy())


def test_numbers_of_integers_are_floats(make, step):
    debugger = make(level="L1")
    debugger.start()
    mint.abs(ms.Tensor(np.array([3, -4], np.int32)))
    debugger.stop()
    (element,) = data(step)["Mint.abs.0.forward"]["input_args"]
    assert (element["dtype"], element["Max"], element["Min"], element["Norm"]) == ("Int32", 3.0, -4.0, 5.0)
    assert isinstance(element["Max"], float)


def test_bf16_is_widened(make, step):
    x = ms.Tensor(np.array([1.5, -2.0], np.float32)).astype(ms.bfloat16)
    debugger = make(level="L1", task="tensor")
    debugger.start()
    ops.reshape(x, (2, 1))
    debugger.stop()
    (element,) = [e for name, entry in data(step).items() if "reshape" in name for e in entry["input_args"][:1]]
    assert element["dtype"] == "BFloat16"
    assert np.array_equal(array(step, element), np.array([1.5, -2.0], np.float32))


def test_the_checksum_of_bf16_is_that_of_float32(make, step):
    x = ms.Tensor(np.array([1.5, -2.0], np.float32)).astype(ms.bfloat16)
    debugger = make(level="L1", section={"summary_mode": "md5"})
    debugger.start()
    ops.reshape(x, (2, 1))
    debugger.stop()
    (element,) = [e for name, entry in data(step).items() if "reshape" in name for e in entry["input_args"][:1]]
    assert element["md5"] == f"{zlib.crc32(np.array([1.5, -2.0], np.float32).tobytes()):08x}"


def test_a_list_of_cells_and_of_names(make, step):
    one, two = Net(), Net()
    debugger = make(section={"list": ["1.fc"]})
    debugger.start([one, two])
    one(ones(1, 4))
    two(ones(1, 4))
    debugger.stop()
    names = set(data(step))
    assert "Cell.1.fc.Dense.forward.0" in names
    assert "Primitive.MatMul.1.forward" in names, "what a listed cell calls, by the number that it has without a list"
    assert not [name for name in names if name.startswith("Cell.0") or "tanh" in name]


def test_a_function_is_listed_by_the_name_in_the_source(make, step):
    debugger = make(level="L1", section={"list": ["Functional.tanh"]})
    debugger.start()
    ops.tanh(ones(2))
    mint.sin(ones(2))
    debugger.stop()
    assert list(data(step)) == ["Functional.tanh.0.forward"]


def test_a_compiled_function_is_one_record(make, step):
    @ms.jit
    def scaled(x, y):
        return ops.tanh(x) * y

    debugger = make(level="L1", task="tensor")
    gradient = ms.value_and_grad(lambda x: scaled(x, ones(2)).sum(), 0)
    debugger.start()
    with pytest.warns(RuntimeWarning, match="compiled: .*run the script with MS_JIT=0"):
        gradient(ones(2))
    debugger.stop()
    debugger.step()
    found = data(step)
    assert "Functional.tanh.0.forward" not in found
    assert np.allclose(array(step, found["Jit.scaled.0.forward"]["output"][0]), np.tanh(1))
    assert np.allclose(array(step, found["Jit.scaled.0.backward"]["input"][0]), 1)


def test_a_compiled_function_is_seen_inside_with_mindspores_own_switch(make, step, monkeypatch):
    """What the warning advises."""
    monkeypatch.setenv("MS_JIT", "0")

    @ms.jit
    def scaled(x, y):
        return ops.tanh(x) * y

    debugger = make(level="L1")
    debugger.start()
    scaled(ones(2), ones(2))
    debugger.stop()
    debugger.step()
    assert list(data(step)) == ["Functional.tanh.0.forward", "Tensor.__mul__.0.forward"]


def test_save(make, step):
    debugger = make(level="debug")

    def forward(x):
        y = x * 2
        debugger.save([y, 1], "y")
        return y.sum()

    debugger.start()
    ms.value_and_grad(forward, 0)(ones(2))
    debugger.stop()
    debugger.step()
    saved = document(step, "debug.json")["data"]
    assert saved["y.0.debug"][0]["Max"] == 2.0
    assert saved["y_grad.0.debug"][0]["Max"] == 1.0
    assert saved["y_grad.0.debug"][1] is None


def test_seed_all():
    found = []
    for _ in range(2):
        seed_all(7)
        found.append((ops.standard_normal((3,)).asnumpy().tolist(), np.random.rand()))
    assert found[0] == found[1]
    net = nn.Dropout(p=0.9)
    net.set_train()
    assert net(ones(100)).asnumpy().sum() == 100, "dropout is taken out"


def batches(count):
    images = np.random.default_rng(0).standard_normal((count, 4)).astype(np.float32)
    return ms.dataset.NumpySlicesDataset((images, np.zeros((count, 2), np.float32)), shuffle=False).batch(1)


def test_a_callback_records_each_step_of_a_training(make, tmp_path):
    net = Net()
    debugger = make("L0")
    debugger.start(net)
    loop = ms.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params()))
    loop.train(1, batches(3), callbacks=[door.MsprobeStep(debugger)], dataset_sink_mode=False)
    steps = sorted((tmp_path / "dump").iterdir())
    assert [step.name for step in steps] == ["step0", "step1", "step2"]
    for step in steps:
        assert {"Cell.fc.Dense.forward.0", "Cell.fc.Dense.backward.0"} <= set(data(step / "rank"))
    assert issubclass(door.MsprobeStep, ms.train.Callback)


def test_a_training_that_is_taken_up_again_counts_on(make, tmp_path):
    net = Net()
    debugger = make("L0")
    debugger.start(net)
    loop = ms.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params()))
    callback = door.MsprobeInitStep()

    class Context:
        def original_args(self):
            return type("Parameters", (), {"cur_step_num": 40})

    callback.on_train_begin(Context())
    loop.train(1, batches(1), callbacks=[door.MsprobeStep(debugger)], dataset_sink_mode=False)
    assert "step40" in {step.name for step in (tmp_path / "dump").iterdir()}


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_values_saved_from_inside_a_network(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(saving, "_NUMBERS", saving._Numbers())
    folder = str(tmp_path / "dump")

    class Saving(nn.Cell):
        def construct(self, x):
            door.save(folder, "x", x)
            door.save(folder, "both", {"a": x, "b": [x]})
            x = door.save_grad(folder, "z", x)
            return (x * x).sum()

    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        function = ms.value_and_grad(Saving())
        for _ in range(2):
            for found in function(ones(3)):
                found.asnumpy()  # a graph runs when its results are wanted
            door.step()
    finally:
        ms.set_context(mode=before)
    for step in (0, 1):
        files = {
            re.sub(r"_\d+$", "", file.stem): file for file in (tmp_path / "dump" / f"step{step}" / "rank0").iterdir()
        }
        assert set(files) == {"x_float32", "both.a_float32", "both.b.0_float32", "z_grad_float32"}
        assert np.array_equal(np.load(files["z_grad_float32"]), np.full(3, 2, np.float32))


def test_the_input_of_the_function_has_its_gradient_when_it_is_saved(make, step):
    """Also a parameter; and nothing stays on the tensor after the step."""
    debugger, net, x = make("debug", "tensor"), Net(), ones(3, 4)

    def function(x):
        debugger.save(x, "x")
        debugger.save(net.fc.weight, "w")
        return (net(x) * x[:, :2]).sum()

    found = ms.value_and_grad(function, 0, [net.fc.weight])(x)[1]
    debugger.step()
    saved = document(step, "debug.json")["data"]
    assert np.array_equal(array(step, saved["x_grad.0.debug"]), found[0].asnumpy())
    assert np.array_equal(array(step, saved["w_grad.0.debug"]), found[1][0].asnumpy())
    text = (step / "debug.json").read_text()
    ms.value_and_grad(lambda x: net(x).sum(), 0)(x)
    assert (step / "debug.json").read_text() == text
