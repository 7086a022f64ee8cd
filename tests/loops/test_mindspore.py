"""`twintrace.loops.mindspore`: what the real `Model.train` does is recorded by its steps."""

from __future__ import annotations

import numpy as np
import pytest

import twintrace as tt
from twintrace.model.sites import Kind, Phase

pytestmark = [pytest.mark.needs_mindspore, pytest.mark.filterwarnings("ignore")]  # the library's own
ms = pytest.importorskip("mindspore")


def dataset(count=24):
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=6).astype(np.float32), rng.integers(0, 3, ()).astype(np.int32)) for _ in range(count)]
    return ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(4)


def network(seed=0):
    rng = np.random.default_rng(seed)
    net = ms.nn.SequentialCell(ms.nn.Dense(6, 8), ms.nn.ReLU(), ms.nn.Dense(8, 3))
    for parameter in net.get_parameters():
        parameter.set_data(ms.Tensor(rng.normal(size=parameter.shape).astype(np.float32)))
    return net


def train(path, *, net=None, rate=0.1, epochs=1, initial_epoch=0, amp_level="O0", valid=False, **options):
    from twintrace.loops.mindspore import RecordCallback

    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = net or network()
    optimizer = ms.nn.Momentum(net.trainable_params(), rate, 0.9)
    unscaled = {} if amp_level == "O0" else {"loss_scale_manager": None}  # no other is to be had on the host
    metrics = {"acc"} if valid else None
    model = ms.train.Model(net, ms.nn.CrossEntropyLoss(), optimizer, metrics=metrics, amp_level=amp_level, **unscaled)
    callback = RecordCallback(path, **{"level": "mix", "keep": "tensor", "strict": True} | options)
    if valid:
        model.fit(epochs, dataset(), dataset(), callbacks=[callback], dataset_sink_mode=False)
    else:
        model.train(epochs, dataset(), callbacks=[callback], dataset_sink_mode=False, initial_epoch=initial_epoch)
    assert callback.recorder is None
    return tt.open(path), net


def calls_of(trace, step, name):
    sites = [call.site for call in trace.journal(step).calls()]
    return sum(site.kind is Kind.MODULE and site.name == name and site.phase is Phase.FORWARD for site in sites)


def test_steps_are_those_of_the_model(tmp_path):
    """Evaluation after each epoch is in none of them."""
    trace, _ = train(tmp_path / "t", epochs=2, valid=True)
    assert trace.steps == tuple(range(12))
    assert {calls_of(trace, step, "0") for step in trace.steps} == {1}


def test_a_training_that_goes_on_is_in_the_same_trace(tmp_path):
    _, net = train(tmp_path / "t")
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    later = network(seed=5)
    ms.load_param_into_net(later, ms.load_checkpoint(str(tmp_path / "net.ckpt")))
    trace, _ = train(tmp_path / "t", net=later, epochs=2, initial_epoch=1)
    assert trace.steps == tuple(range(12))


def test_a_planted_mistake_is_named(tmp_path):
    train(tmp_path / "a")
    train(tmp_path / "b", rate=0.2)
    found = tt.compare(tmp_path / "a", tmp_path / "b")
    assert found.code == 1
    assert "0.1 | 0.2" in str(found)


def test_mixed_precision(tmp_path):
    trace, _ = train(tmp_path / "t", amp_level="O2")
    assert "f16" in {tensor.spec.dtype for tensor in trace.journal(0).tensors()}
