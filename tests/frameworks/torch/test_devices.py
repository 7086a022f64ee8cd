"""A device that is not here, played by one that is."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

from twintrace import api  # noqa: E402
from twintrace.model.errors import UsageError  # noqa: E402


def test_the_methods_come_warn_once_and_go():
    undo = api.stand_in("npu", "cpu", framework="torch", remedy="SAY_SO names another.")
    try:
        with pytest.warns(
            UserWarning, match=r"there is no npu here; \.npu\(\) means cpu\. SAY_SO names another\."
        ) as told:
            moved = torch.ones(2).npu()
        assert len(told) == 1
        assert told[0].filename == __file__
        assert moved.device.type == "cpu"
        net = torch.nn.Linear(1, 1)
        assert net.npu(0) is net  # the second time without a word: warnings are errors here
        assert torch.ones(1).npu(device=3, non_blocking=True).device.type == "cpu"
    finally:
        undo()
        undo()
    assert not hasattr(torch.Tensor, "npu")
    assert not hasattr(torch.nn.Module, "npu")


def test_what_is_there_stays():
    before = torch.Tensor.cuda
    api.stand_in("cuda", "cpu", framework="torch")()
    assert torch.Tensor.cuda is before


def test_a_device_that_torch_cannot_use():
    with pytest.raises(UsageError, match="torch cannot use 'tpu:9' here"):
        api.stand_in("npu", "tpu:9", framework="torch")
