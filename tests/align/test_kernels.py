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


def trained(path, optimizer, kind, **settings):
    """The second of two steps: the optimizer has a state by then."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    update = OPTIMIZERS[optimizer](net.parameters(), **KINDS[kind], **settings)
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


def test_kernels_behind_a_setting_that_differs_have_their_results_paired(tmp_path):
    """A list's kernel puts out tensors by the number with which they came in, and what takes them next has a number of its own."""
    left = trained(tmp_path / "single", "adam", "single")
    right = trained(tmp_path / "foreach", "adam", "foreach", betas=(0.9, 0.99))
    for one, two in ((left, right), (right, left)):
        found = align(one, two)
        updates = [match for match in found.matches if match.left[0].site.phase is Phase.UPDATE]
        products = [match for match in updates if "mul_" in match.left[0].site.name]

        assert len(products) >= 8
        assert all(any(not pair.part.incoming for pair in match.tensors) for match in products)


def test_the_backward_pass_of_a_recurrent_layer_is_a_region(tmp_path):
    """Its kernel takes a workspace, the steps by hand take gates of every step: what the forward pass saves belongs to its way."""

    def cells(net, x):
        h = c = x.new_zeros(x.shape[1], 6)
        steps = []
        for row in x.unbind(0):
            gates = row @ net.weight_ih_l0.t() + net.bias_ih_l0 + h @ net.weight_hh_l0.t() + net.bias_hh_l0
            i, f, g, o = gates.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            steps.append(h)
        return torch.stack(steps)

    def recorded(path, by_hand):
        torch.manual_seed(0)
        net, x = torch.nn.LSTM(5, 6), torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(1))
        x.requires_grad_()
        with tt.record(path, net, level="op", keep="tensor"):
            (cells(net, x * 2) if by_hand else net(x * 2)[0]).tanh().sum().backward()
        return side_of(path)

    left, right = recorded(tmp_path / "layer", False), recorded(tmp_path / "cells", True)
    if not any("rnn_layer" in call.site.name for call in left.calls):
        pytest.skip("this PyTorch has no kernel for the whole layer here")
    for one, two in ((left, right), (right, left)):
        found = align(one, two)
        layers = [match for match in found.matches if max(len(match.left), len(match.right)) > 10]

        assert [match.left[0].site.phase for match in layers] == [Phase.FORWARD, Phase.BACKWARD]
        written = [pair for pair in layers[1].tensors if not pair.part.incoming]
        assert {one.tensor(pair.left).spec.shape for pair in written} >= {(24, 5), (24, 6), (24,)}
        for pair in written:
            values = np.sort(one.values(pair.left), axis=None), np.sort(two.values(pair.right), axis=None)
            np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-6)
