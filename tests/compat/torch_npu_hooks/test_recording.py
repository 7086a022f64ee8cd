"""Recording into a dump: what the lines say, where they go, and that the run is not changed."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.compat.torch_npu_hooks.dumps import names, read_dump

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.compat.torch_npu_hooks import recording, register_acc_cmp_hook, seed_all, set_dump_path  # noqa: E402
from twintrace.model.errors import TraceExistsError, TraceWriteError, UsageError  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 3)
        self.two = nn.Linear(3, 1)

    def forward(self, x):
        return self.two(F.relu(self.one(x)))


def run(net, x):
    loss = net(x).sum()
    loss.backward()
    return loss


def test_the_lines_of_a_step(tmp_path):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 2)
    register_acc_cmp_hook(net)
    set_dump_path(tmp_path / "a.pkl")
    run(net, x)
    recording.close()
    linear = [*(f"Functional_linear_forward_input.{i}" for i in range(3)), "Functional_linear_forward_output"]
    module = ["Module_Linear_forward_input.0", "Module_Linear_forward_output"]
    forward = [
        *linear, *module,
        "Functional_relu_forward_input.0", "Functional_relu_forward_output",
        *linear, *module,
        "Tensor_sum_forward_input.0", "Tensor_sum_forward_output",
    ]  # fmt: skip
    found = read_dump(tmp_path / "a.pkl")
    assert [line[0] for line in found[: len(forward)]] == forward
    assert found[0] == ["Functional_linear_forward_input.0", x.flatten().tolist(), "torch.float32", [2, 2]]
    backward = [line for line in found if "_backward_" in line[0]]
    sums = backward[:2]
    assert [line[0] for line in sums] == ["Tensor_sum_backward_input.0", "Tensor_sum_backward_output.0"]
    assert sums[1][1:] == [[1.0], "torch.float32", []]
    by_name = [line for line in backward if line[0] == "Functional_linear_backward_input.1"]
    assert [line[1] for line in by_name] == [
        net.two.weight.grad.flatten().tolist(),
        net.one.weight.grad.flatten().tolist(),
    ]


def test_a_call_is_one_chunk_that_ends_with_its_outputs(tmp_path):
    """What the old reader relies on: all inputs, then the outputs, in both directions."""
    net = Net()
    register_acc_cmp_hook(net)
    set_dump_path(tmp_path / "a.pkl")
    run(net, torch.randn(2, 2, requires_grad=True))
    recording.close()
    stem = ends = None
    for name in names(tmp_path / "a.pkl"):
        base, _, part = name.rpartition("put")[0].rpartition("_")
        assert ends in (None, True) or base == stem, f"{name} comes before the outputs of {stem}"
        stem, ends = base, part == "out"
    assert ends


def test_gradients_are_the_same_bits_as_without(tmp_path):
    def gradients(record):
        torch.manual_seed(0)
        net, x = Net(), torch.randn(2, 2)
        if record:
            register_acc_cmp_hook(net)
            set_dump_path(tmp_path / "a.pkl")
        loss = run(net, x)
        return [loss.detach(), *(p.grad for p in net.parameters())]

    without, with_recording = gradients(False), gradients(True)
    assert names(tmp_path / "a.pkl")
    assert all(torch.equal(a, b) for a, b in zip(without, with_recording, strict=True))


def test_several_models_and_a_switch_in_mid_run(tmp_path):
    one, two, x = Net(), Net(), torch.randn(2, 2)
    register_acc_cmp_hook(one)
    register_acc_cmp_hook(two)
    register_acc_cmp_hook(two)
    set_dump_path(tmp_path / "one.pkl")
    run(one, x)
    set_dump_path(tmp_path / "two.pkl")
    run(two, x)
    set_dump_path(tmp_path / "one.pkl")
    run(one, x)
    recording.close()
    first, second = names(tmp_path / "one.pkl"), names(tmp_path / "two.pkl")
    assert "Module_Linear_backward_output.0" in second
    assert first == second * 2


def test_a_gradient_goes_where_the_path_points_when_it_comes(tmp_path):
    net = Net()
    register_acc_cmp_hook(net)
    set_dump_path(tmp_path / "forward.pkl")
    loss = net(torch.randn(2, 2)).sum()
    set_dump_path(tmp_path / "backward.pkl")
    loss.backward()
    recording.close()
    assert all("_forward_" in name for name in names(tmp_path / "forward.pkl"))
    assert all("_backward_" in name for name in names(tmp_path / "backward.pkl"))
    assert "Functional_linear_backward_input.1" in names(tmp_path / "backward.pkl")


def test_a_model_may_come_late_and_functions_need_none(tmp_path):
    x = torch.randn(2, 2)
    set_dump_path(tmp_path / "a.pkl")
    torch.relu(x)
    net = Net()
    register_acc_cmp_hook(net)
    run(net, x)
    recording.close()
    found = names(tmp_path / "a.pkl")
    assert found[:2] == ["Torch_relu_forward_input.0", "Torch_relu_forward_output"]
    assert "Module_Linear_forward_output" in found


def test_only_leaf_modules_and_no_device_moves(tmp_path):
    net = nn.Sequential(Net(), nn.ReLU())
    register_acc_cmp_hook(net)
    x = torch.randn(2, 2)
    set_dump_path(tmp_path / "a.pkl")
    run(net, x.to(torch.float64).to(torch.float32).contiguous())
    recording.close()
    operations = {name.split("_forward_")[0] for name in names(tmp_path / "a.pkl") if "_forward_" in name}
    assert operations == {"Functional_linear", "Functional_relu", "Module_Linear", "Module_ReLU", "Tensor_sum"}


def test_element_types_keep_their_values(tmp_path):
    whole, real = torch.tensor([1 << 60]), torch.tensor([0.1], dtype=torch.float64)
    truth, complex = torch.tensor([True, False]), torch.tensor([1 + 2j])
    set_dump_path(tmp_path / "a.pkl")
    torch.add(whole, 1)
    torch.mul(real, 1)
    torch.logical_not(truth)
    torch.sub(real, real)
    torch.sub(whole, whole)  # the same eight bytes as another type
    torch.conj_physical(complex)
    recording.close()
    outputs = [line[1:] for line in read_dump(tmp_path / "a.pkl") if line[0].endswith("output")]
    assert outputs == [
        [[(1 << 60) + 1], "torch.int64", [1]],
        [[0.1], "torch.float64", [1]],
        [[0.0, 1.0], "torch.bool", [2]],
        [[0.0], "torch.float64", [1]],
        [[0], "torch.int64", [1]],
        [[1.0, -2.0], "torch.complex64", [1]],
    ]


def test_in_place_writes_are_seen_before_and_after(tmp_path):
    set_dump_path(tmp_path / "a.pkl")
    x = torch.ones(2)
    x.add_(1)
    recording.close()
    assert [line[1] for line in read_dump(tmp_path / "a.pkl") if line[0].startswith("Tensor_add_")] == [
        [1.0, 1.0],
        [2.0, 2.0],
    ]


def test_what_never_gets_a_gradient_does_not_hold_the_rest(tmp_path):
    """`y` wants a gradient and gets none here; the next forward call lets the rest of that call go."""
    set_dump_path(tmp_path / "a.pkl")
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    torch.autograd.grad(torch.mul(x, y).sum(), x)
    torch.relu(torch.ones(1))
    found = names(tmp_path / "a.pkl")
    assert found.index("Torch_mul_backward_input.0") < found.index("Torch_relu_forward_input.0")


def test_an_old_dump_is_replaced_and_anything_else_is_not(tmp_path):
    (tmp_path / "old.pkl").write_text('["Torch_relu_forward_output", [1.0], "torch.float32", [1]]\n')
    set_dump_path(tmp_path / "old.pkl")
    recording.close()
    assert names(tmp_path / "old.pkl") == []
    (tmp_path / "weights.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(TraceExistsError, match="is no dump of this tool, so it is not overwritten"):
        set_dump_path(tmp_path / "weights.pkl")
    assert (tmp_path / "weights.pkl").read_bytes() == b"\x80\x04N."


def test_arguments_that_cannot_work(tmp_path):
    with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module, got builtins\.int"):
        register_acc_cmp_hook(3)
    with pytest.raises(UsageError, match="expected the name of a file, got None"):
        set_dump_path(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceWriteError, match="cannot be written"):
        set_dump_path(tmp_path / "file" / "a.pkl")


def test_seed_all_gives_the_same_numbers_again():
    seed_all()
    first = torch.randn(3)
    seed_all()
    assert torch.equal(first, torch.randn(3))
    seed_all(7)
    assert not torch.equal(first, torch.randn(3))


def test_a_trace_of_ours_is_written_as_a_dump(tmp_path):
    """The layout writes what it reads: a native trace becomes a dump with the same lines as one recorded so."""
    from twintrace.store.registry import layout_of

    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 2)
    leaves = {"one", "two"}
    with tt.record(
        tmp_path / "t", net, keep="tensor", predicate=lambda site: site.kind != "module" or site.name in leaves
    ):
        run(net, x)
    layout_of("torch_npu").write(tt.open(tmp_path / "t"), tmp_path / "written.pkl")
    register_acc_cmp_hook(net)
    set_dump_path(tmp_path / "recorded.pkl")
    run(net, x)
    recording.close()
    assert sorted(map(json.dumps, read_dump(tmp_path / "written.pkl"))) == sorted(
        map(json.dumps, read_dump(tmp_path / "recorded.pkl"))
    )


ENDLESS = """
import sys, torch
from torch import nn
from twintrace.compat.torch_npu_hooks import register_acc_cmp_hook, set_dump_path
net = nn.Linear(50, 50)
register_acc_cmp_hook(net)
set_dump_path(sys.argv[1])
while True:
    net(torch.randn(4, 50)).sum().backward()
"""


def test_what_was_recorded_survives_kill_9(tmp_path, checkout_env):
    dump = tmp_path / "a.pkl"
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(dump)], env=checkout_env)
    try:
        deadline = time.monotonic() + 90
        while not (dump.exists() and dump.stat().st_size > 2_000_000):
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    journal = tt.open(dump, tolerant=True).journal(0)
    calls = list(journal.calls())
    assert len(calls) > 30
    assert len(journal.damage) <= 1, "at most the last line is torn"
    whole = [call for call in calls if call.site.name == "torch.nn.functional.linear"][:-1]
    assert all({"1", "2"} <= {g.slot for g in call.gradients if g.role == "input"} for call in whole)
