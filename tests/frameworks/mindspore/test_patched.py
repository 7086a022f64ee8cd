"""Ports patch MindSpore's tensors; what is recorded of them stays what it is."""

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, ops  # noqa: E402

import twintrace as tt  # noqa: E402
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


def test_functions_have_the_name_of_their_home():
    names = {api.name for _, api in functions()}
    assert "mindspore.ops.cat" in names
    assert "mindspore.communication.comm_func.cat" not in names
    assert "mindspore.communication.comm_func.all_reduce" in names
    assert "mindspore.mint.distributed.all_reduce" in names
