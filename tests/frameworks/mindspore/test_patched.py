"""Ports patch MindSpore's tensors; what is recorded of them stays what it is."""

import sys

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks.mindspore import tensors  # noqa: E402
from twintrace.frameworks.mindspore.names import functions  # noqa: E402

pytestmark = pytest.mark.needs_mindspore


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float16])
def test_another_stride_changes_no_record(tmp_path, monkeypatch, dtype):
    """Strides in bytes divided by four, as of a framework that knows only f32."""
    monkeypatch.setattr(Tensor, "stride", lambda self: [step // 4 for step in self.strides])
    monkeypatch.setattr(Tensor, "is_contiguous", lambda self: True)
    values = np.arange(6).reshape(2, 3).astype(dtype)
    with tt.record(tmp_path / "t", level="api", keep="tensor", framework="mindspore"):
        turned = ops.transpose(Tensor(values), (1, 0))
        ops.relu(turned)
    journal = tt.open(tmp_path / "t").journal(0)
    found = [journal.array(journal.tensor(call.output.id)) for call in journal.calls()]
    assert [array.tolist() for array in found] == [values.T.tolist()] * 2


def test_a_surface_like_that_of_torch_changes_no_record(tmp_path, monkeypatch):
    """Attributes of other types and meanings, put in their places before anything is recorded."""

    def record(path):
        ms.set_seed(0)
        net = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
        optimizer = nn.Adam(net.trainable_params(), 0.5)
        step = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)
        with tt.record(path, net, level="mix", keep="tensor", strict=True):
            optimizer(step(Tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3)))[1])
        journal = tt.open(path).journal(0)
        return [(str(call.site), call.args, call.kwargs) for call in journal.calls()], [
            (tensor, journal.array(tensor).tolist()) for tensor in journal.tensors()
        ]

    bare = record(tmp_path / "bare")
    shape, dtype = Tensor.shape.fget, Tensor.dtype.fget
    monkeypatch.setattr(tensors, "_LOOKS", {})
    for name, meaning in {
        "shape": property(lambda self: Size(shape(self))),
        "dtype": property(lambda self: Dtype(dtype(self))),
        "device": property(lambda self: ("npu", 0)),
        "size": lambda self, dim=None: shape(self) if dim is None else shape(self)[dim],
        "has_init": property(lambda self: True),
        "asnumpy": lambda self: None,
    }.items():
        within_recorder(monkeypatch, name, meaning)
    assert record(tmp_path / "patched") == bare


class Size(list):
    """Has no hash, unlike a tuple."""


class Dtype(str):
    pass


def within_recorder(monkeypatch, name, meaning):
    """Patch an attribute for those who ask from inside twintrace: MindSpore's own Python needs it as it was."""
    original = getattr(Tensor, name)

    def asked_by_us():
        return sys._getframe(2).f_globals.get("__name__", "").startswith("twintrace.")

    if isinstance(meaning, property):
        patched = property(lambda self: (meaning if asked_by_us() else original).__get__(self))
    elif isinstance(original, property):
        patched = property(lambda self: (lambda *a: meaning(self, *a)) if asked_by_us() else original.__get__(self))
    else:

        def patched(self, *args):
            return (meaning if asked_by_us() else original)(self, *args)

    monkeypatch.setattr(Tensor, name, patched, raising=True)


def test_functions_have_the_name_of_their_home():
    names = {api.name for _, api in functions()}
    assert "mindspore.communication.comm_func.all_reduce" in names
    assert "mindspore.mint.distributed.all_reduce" in names


@pytest.mark.parametrize("name", ["cat", "clamp", "cdist", "silu", "softshrink", "hardswish", "broadcast_to"])
def test_a_function_has_the_name_under_which_it_is_offered_not_that_of_a_namespace_that_uses_it(name):
    function = getattr(ops, name)
    home = "mint" if getattr(ms.mint, name, None) is function else "ops"  # 2.7 has one broadcast_to for both
    found = {id(known): api for known, api in functions()}[id(function)]
    assert (found.name, found.writes) == (f"mindspore.{home}.{name}", ())


def test_what_mint_offers_is_called_by_mints_name():
    names = {id(function): api.name for function, api in functions()}
    assert names[id(ms.mint.nn.functional.softmax)] == "mindspore.mint.nn.functional.softmax"
    assert names[id(ms.mint.abs)] == "mindspore.mint.abs"
