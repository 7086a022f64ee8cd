"""Kernels at level `op`: optimizers one by one, in lists and fused; a recurrent layer as one kernel, and written out."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rewrites import side_of  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.align import align  # noqa: E402
from twintrace.model.sites import Phase  # noqa: E402

pytestmark = pytest.mark.needs_torch
KINDS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
OPTIMIZERS = {
    "sgd": lambda parameters, **kind: torch.optim.SGD(parameters, 0.1, momentum=0.9, **kind),
    "adam": lambda parameters, **kind: torch.optim.Adam(parameters, 1e-2, **kind),
    "adamw": lambda parameters, **kind: torch.optim.AdamW(parameters, 1e-2, **kind),
}


def trained(path, optimizer, kind):
    """The second of two steps: the optimizer has a state by then."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    update = OPTIMIZERS[optimizer](net.parameters(), **KINDS[kind])
    for number in range(2):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(number))
        update.zero_grad()
        if number:
            with tt.record(path, net, level="op", keep="tensor"):
                net(x).pow(2).mean().backward()
                update.step()
        else:
            net(x).pow(2).mean().backward()
            update.step()
    return side_of(path)


@pytest.mark.parametrize("kinds", [("single", "foreach"), ("single", "fused"), ("fused", "foreach")])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_kernels_of_an_optimizer_are_regions(optimizer, kinds, tmp_path):
    left, right = (trained(tmp_path / kind, optimizer, kind) for kind in kinds)
    for one, two in ((left, right), (right, left)):
        found = align(one, two)
        updates = [match for match in found.matches if match.left[0].site.phase is Phase.UPDATE]
        written = [pair for match in updates for pair in match.tensors if not pair.part.incoming]
        sizes = {one.tensor(pair.left).spec.shape for pair in written}

        assert {(8, 6), (8,), (3, 8), (3,)} <= sizes
        assert not [str(item.call.site) for item in (*found.only_left, *found.only_right) if not item.skipped]
        for pair in written:
            np.testing.assert_allclose(one.values(pair.left), two.values(pair.right), rtol=1e-4, atol=1e-7)


def test_a_recurrent_layer_written_out_is_a_region(tmp_path):
    def recorded(path, fused):
        torch.manual_seed(0)
        net, x = torch.nn.LSTM(5, 6), torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(1))
        torch.backends.mkldnn.set_flags(fused)
        try:
            with tt.record(path, net, level="op", keep="tensor"), torch.no_grad():
                net(x)[0].tanh()
        finally:
            torch.backends.mkldnn.set_flags(True)
        return side_of(path)

    left, right = recorded(tmp_path / "fused", True), recorded(tmp_path / "plain", False)
    if len(left.calls) > len(right.calls) / 2:
        pytest.skip("this PyTorch has no kernel for the whole layer here")
    found = align(left, right)
    (layer,) = (match for match in found.matches if len(match.right) > 10)

    assert "rnn_layer" in layer.left[0].site.name
    assert not [str(item.call.site) for item in (*found.only_left, *found.only_right) if not item.skipped]
