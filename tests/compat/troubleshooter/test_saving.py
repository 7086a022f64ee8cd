"""`ts.save` and `ts.save_grad`: names, numbers, nests, element types; in PyTorch and MindSpore, also where it is compiled."""

import functools
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import mindspore as ms
import torch
from mindspore import nn as mn
from torch import nn as tn

import twintrace as tt
import twintrace.compat.troubleshooter as ts
from twintrace.compat.troubleshooter import saving
from twintrace.model.errors import UsageError

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def numbers(monkeypatch):
    """Every test begins at 0."""
    monkeypatch.setattr(saving, "_NUMBERS", saving._Numbers())


@pytest.fixture
def pynative():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_nests_of_any_kind_and_depth(tmp_path):
    one = torch.ones(2)
    ts.save(str(tmp_path / "x.npy"), OrderedDict(a=[one, (one, None)], b={"c": one, 3: one}, d=None))
    assert files(tmp_path) == [
        "x.a.0_float32_0.npy", "x.a.1.0_float32_1.npy", "x.b.3_float32_3.npy", "x.b.c_float32_2.npy",
    ]  # fmt: skip


def test_one_number_after_the_other_whosever_the_tensors_are(tmp_path):
    """Under one name nothing is written over."""
    for value in (torch.tensor(X), X + 10, ms.Tensor(X + 20)):
        ts.save(tmp_path / "x", value)
    ts.save(tmp_path / "x", [ms.Tensor([1.0]), 1.5, torch.ones(1)])
    assert files(tmp_path) == [
        "x.0_float32_3.npy", "x.1_float64_4.npy", "x.2_float32_5.npy",
        "x_float32_0.npy", "x_float32_1.npy", "x_float32_2.npy",
    ]  # fmt: skip
    assert [np.load(tmp_path / f"x_float32_{number}.npy")[0, 0] for number in range(3)] == [0, 10, 20]


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), ("RANK_ID", "RANK_SIZE")])
def test_each_rank_has_its_folder(tmp_path, monkeypatch, names):
    for rank in "01":
        monkeypatch.setenv(names[0], rank)
        monkeypatch.setenv(names[1], "2")
        monkeypatch.setattr(saving, "_NUMBERS", saving._Numbers())  # as in a process of its own
        x = torch.ones(1, requires_grad=True)
        ts.save_grad(tmp_path / "g", x)
        ts.save(tmp_path / "n", 1.5)
        x.sum().backward()
    assert files(tmp_path) == ["rank0", "rank1"]
    assert files(tmp_path / "rank0") == files(tmp_path / "rank1") == ["g_backward_float32_1.npy", "n_float64_0.npy"]


@pytest.mark.parametrize(
    ("tensor", "name", "values"),
    [
        (torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "float32", [1.5, -2.0]),
        (torch.tensor([1.5], dtype=torch.float8_e4m3fn), "float32", [1.5]),
        (torch.tensor([1, 2]), "int64", [1, 2]),
        (torch.tensor(True), "bool", True),
        (torch.tensor([1 + 2j]), "complex64", [1 + 2j]),
        (torch.arange(6.0).reshape(2, 3).T, "float32", [[0, 3], [1, 4], [2, 5]]),
        (torch.zeros(0, 3, dtype=torch.float16), "float16", np.zeros((0, 3))),
        (torch.ones(2, requires_grad=True) * 3, "float32", [3, 3]),
        (tn.Parameter(torch.ones(1)), "float32", [1]),
        (torch.tensor([[0.0, 1.5], [0.0, 0.0]]).to_sparse(), "float32", [[0, 1.5], [0, 0]]),
        (torch.tensor([[0.0, 1.5], [0.0, 0.0]], dtype=torch.bfloat16).to_sparse(), "float32", [[0, 1.5], [0, 0]]),
        (ms.COOTensor(ms.Tensor([[0, 1]], ms.int64), ms.Tensor([1.5]), (2, 2)), "float32", [[0, 1.5], [0, 0]]),
        (ms.Tensor([1.5, -2.0], ms.bfloat16), "float32", [1.5, -2.0]),
        (ms.Tensor(3, ms.int32), "int32", 3),
        (ms.Parameter(ms.Tensor(X)), "float32", X),
        (X, "float32", X),
        (2, "int64", 2),
    ],
)
def test_values_of_every_kind(tmp_path, tensor, name, values):
    ts.save(tmp_path / "x", tensor)
    [file] = files(tmp_path)
    assert file == f"x_{name}_0.npy"
    found = np.load(tmp_path / file)
    assert found.shape == np.shape(values)
    np.testing.assert_array_equal(found, values)


def test_what_is_saved_is_what_it_was_then(tmp_path):
    x = torch.ones(3)
    ts.save(tmp_path / "x", x)
    x.add_(1)
    ts.save(tmp_path / "x", x)
    assert [np.load(tmp_path / name).tolist() for name in files(tmp_path)] == [[1, 1, 1], [2, 2, 2]]


def test_a_file_of_an_earlier_run_is_replaced(tmp_path):
    (tmp_path / "x_float32_0.npy").write_bytes(b"old")
    (tmp_path / "x_float32_0.npy").chmod(0o400)
    ts.save(tmp_path / "x", torch.ones(1))
    assert files(tmp_path) == ["x_float32_0.npy"]
    assert np.load(tmp_path / "x_float32_0.npy").tolist() == [1]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_a_ragged_tensor_is_refused_with_what_to_do(tmp_path):
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(UsageError, match=r"kept in parts \(values, offsets\), .* Take its parts instead"):
        ts.save(tmp_path / "x", ragged)
    ts.save(tmp_path / "x", ragged.values())
    assert files(tmp_path) == ["x_float32_0.npy"]


def test_a_key_leads_to_no_other_folder(tmp_path):
    ts.save(tmp_path / "deep" / "er" / "x", {"../a/b": torch.ones(1)})
    assert files(tmp_path / "deep" / "er") == ["x..._a_b_float32_0.npy"]


def test_threads_get_numbers_of_their_own(tmp_path):
    threads = [threading.Thread(target=ts.save, args=(tmp_path / "x", [torch.ones(1)] * 20)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {int(name.split("_")[-1].removesuffix(".npy")) for name in files(tmp_path)} == set(range(160))


def test_printing_instead(tmp_path, capsys):
    ts.save(tmp_path / "x", {"a": torch.ones(1)}, suffix="s", output_mode="print")
    assert capsys.readouterr().out == "_TS_SAVE_NAME:x.a_s tensor([1.])\n"
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("x", object()), "expected a tensor of PyTorch, MindSpore or MSAdapter, .* got object"),
        (("x", "text"), "got str"),
        (("folder/", torch.ones(1)), "expected a folder and a name"),
        ((None, torch.ones(1)), "expected a folder and a name"),
        (("x", torch.ones(1), None, "csv"), "expected 'npy' or 'print', got 'csv'"),
        (("x", torch.ones(1, device="meta")), "its values cannot be had"),
    ],
)
def test_what_cannot_be_saved_is_refused(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        ts.save(*arguments)
    assert not files(tmp_path)


# --- inside networks --------------------------------------------------------------------------------------------------


class MindSporeNet(mn.Cell):
    def __init__(self, folder):
        super().__init__()
        self.file = str(folder / "x")
        self.fc = mn.Dense(3, 2)

    def construct(self, x):
        y = self.fc(x)
        ts.save(self.file, {"in": x, "out": [y]}, "s")
        return y * 2


@pytest.mark.parametrize("compiled", ["", "graph mode", "jit"])
def test_inside_construct_each_time_that_it_comes_by(tmp_path, pynative, compiled):
    if compiled == "graph mode":
        ms.set_context(mode=ms.GRAPH_MODE)
    net = MindSporeNet(tmp_path)

    def forward(x):
        return net(x).sum()

    run = ms.jit(forward) if compiled == "jit" else forward
    inputs = [X, X + 1, X + 2]
    expected = [x @ net.fc.weight.asnumpy().T + net.fc.bias.asnumpy() for x in inputs]
    for x in inputs[:2]:
        run(ms.Tensor(x)).asnumpy()
    _, gradients = ms.value_and_grad(run, None, net.trainable_params())(ms.Tensor(inputs[2]))
    assert gradients[1].asnumpy().tolist() == [4, 4]
    assert len(files(tmp_path)) == 6
    for number, (x, y) in enumerate(zip(inputs, expected, strict=True)):
        np.testing.assert_array_equal(np.load(tmp_path / f"x.in_s_float32_{2 * number}.npy"), x)
        np.testing.assert_allclose(np.load(tmp_path / f"x.out.0_s_float32_{2 * number + 1}.npy"), y, rtol=1e-5)


class Nests(mn.Cell):
    def __init__(self, folder):
        super().__init__()
        self.file = str(folder / "x")

    def construct(self, x):
        ts.save(self.file, {"a": x, "b": {"c": x + 1, "d": [x + 2, None]}})
        ts.save(self.file, [{"p": x}, ({"q": {3: x}},)], suffix="s", output_mode="npy")
        return x * 2


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_keys_of_dicts_in_dicts_and_lists(tmp_path, pynative, mode):
    """The same names where it is compiled, with and without keywords."""
    ms.set_context(mode=mode)
    Nests(tmp_path)(ms.Tensor([1.0])).asnumpy()
    assert {name: np.load(tmp_path / name).item() for name in files(tmp_path)} == {
        "x.a_float32_0.npy": 1, "x.b.c_float32_1.npy": 2, "x.b.d.0_float32_2.npy": 3,
        "x.0.p_s_float32_3.npy": 1, "x.1.0.q.3_s_float32_4.npy": 1,
    }  # fmt: skip


def test_gradients_in_torch(tmp_path):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = ts.save_grad(tmp_path / "h", x * 3)
    leaf = ts.save_grad(tmp_path / "leaf", x, suffix="g")
    assert leaf is x
    (h * h).sum().backward()
    assert files(tmp_path) == ["h_backward_float32_0.npy", "leaf_g_float32_1.npy"]
    assert np.load(tmp_path / "h_backward_float32_0.npy").tolist() == [6, 12]
    assert np.load(tmp_path / "leaf_g_float32_1.npy").tolist() == [18, 36] == x.grad.tolist()


def test_gradients_in_mindspore(tmp_path, pynative):
    def forward(x):
        x = ts.save_grad(tmp_path / "x", x)
        h = ts.save_grad(tmp_path / "h", x * 3, suffix=None)
        return (h * h).sum()

    value, gradient = ms.value_and_grad(forward, 0)(ms.Tensor([1.0, 2.0]))
    assert value == 45
    assert gradient.asnumpy().tolist() == [18, 36]
    assert files(tmp_path) == ["h_float32_0.npy", "x_backward_float32_1.npy"]
    assert np.load(tmp_path / "h_float32_0.npy").tolist() == [6, 12]
    assert np.load(tmp_path / "x_backward_float32_1.npy").tolist() == [18, 36]


def test_a_gradient_that_nobody_asks_for_is_not_saved(tmp_path, pynative):
    for tensor in (torch.ones(2), ms.Tensor([1.0])):
        assert np.array_equal(ts.save_grad(tmp_path / "x", tensor).numpy(), tensor.numpy())
    assert not files(tmp_path)


class Taps(mn.Cell):
    def __init__(self, folder):
        super().__init__()
        self.folder = str(folder)
        self.fc = mn.Dense(3, 2)

    def construct(self, x):
        h = ts.save_grad(self.folder + "/h", x * 2)
        y = ts.save_grad(self.folder + "/y.npy", self.fc(h.reshape(2, 3)), suffix=None)
        return y.sum()


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_gradients_of_a_network_also_in_graph_mode(tmp_path, pynative, mode):
    """Each time that a backward pass comes by, and not when there is none."""
    ms.set_context(mode=mode)
    net = Taps(tmp_path)

    def run(x):
        return net(x) * 3

    run(ms.Tensor(X)).asnumpy()
    assert not files(tmp_path)
    weight = net.fc.weight.asnumpy().sum(0)
    for number in (0, 2):
        gradient = ms.grad(run)(ms.Tensor(X + number)).asnumpy()
        np.testing.assert_allclose(gradient, np.stack([6 * weight] * 2), rtol=1e-5, atol=1e-6)
        assert np.load(tmp_path / f"y_float32_{number}.npy").tolist() == [[3, 3], [3, 3]]
        np.testing.assert_allclose(
            np.load(tmp_path / f"h_backward_float32_{number + 1}.npy"), gradient / 2, rtol=1e-5, atol=1e-6
        )
    assert len(files(tmp_path)) == 4


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("through", ["compiled", "called"])
def test_a_gradient_in_a_jit_function_is_refused_with_what_to_do(tmp_path, pynative, through, differentiated):
    """Before anything else fails, and also in Python code that the graph calls."""
    net = Taps(tmp_path)
    called = functools.partial(lambda x: ts.save_grad(tmp_path / "x", x))

    @ms.jit
    def forward(x):
        return net(x) if through == "compiled" else called(x * 2)

    with pytest.raises(Exception, match="inside a compiled graph cannot be had from Python"):
        (ms.grad(forward) if differentiated else forward)(ms.Tensor(X)).asnumpy()


def test_a_recorder_does_not_see_what_saving_does(tmp_path, pynative):
    """Only what the network itself calls is in the trace."""

    def sites(name, saves, run):
        with tt.record(tmp_path / name, level="api", framework=name.split()[0]):
            run(saves)
        return [str(call.site) for call in tt.open(tmp_path / name).calls()]

    def in_torch(saves):
        h = torch.ones(2, 3, requires_grad=True).mul(2).t()
        if saves:
            ts.save(tmp_path / "saved" / "h", [h])
        h.sum().backward()

    def in_mindspore(saves):
        def forward(x):
            h = x.mul(2).t()
            if saves:
                ts.save(tmp_path / "saved" / "h", h)
                h = ts.save_grad(tmp_path / "saved" / "g", h)
            return h.sum()

        ms.value_and_grad(forward)(ms.Tensor(X))

    for name, run in (("torch", in_torch), ("mindspore", in_mindspore)):
        assert sites(f"{name} saving", True, run) == sites(f"{name} alone", False, run)
    assert len(files(tmp_path / "saved")) == 3
