"""What a PyTorch trace says, checked against what torch itself computes."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch import relu as imported_before  # noqa: E402
from torch.nn.functional import dropout as imported_dropout  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from zoo import fuses_on_the_host  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.collect.processes import unseen  # noqa: E402
from twintrace.frameworks.torch import tensors  # noqa: E402
from twintrace.frameworks.torch.releases import ENGINE  # noqa: E402
from twintrace.model.errors import TraceWriteError  # noqa: E402
from twintrace.model.records import Role  # noqa: E402
from twintrace.model.values import TensorRef, leaves, tensor_slots  # noqa: E402
from twintrace.store.digest import digest  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def recorded(tmp_path):
    """Run a function under a recorder and open the trace: `calls, journal = recorded(function, model)`."""

    def run(function, model=None, *, level="mix", keep="tensor", strict=True):
        path = tmp_path / f"trace{len(list(tmp_path.iterdir()))}"
        with tt.record(
            path, model, level=level if model is not None else "api", keep=keep, strict=strict, framework="torch"
        ) as rec:
            function(rec) if function.__code__.co_argcount else function()
        journal = tt.open(path).journal(0)
        return list(journal.calls()), journal

    return run


def one(calls, name, number=0):
    """The call of that name and number."""
    (found,) = [call for call in calls if call.site.name == name and call.site.call == number]
    return found


def value(journal, identity):
    """A recorded tensor's values."""
    return journal.array(journal.tensor(identity))


def inputs(call):
    return dict(tensor_slots(call.args, call.kwargs))


def outputs(call):
    return {slot: leaf.id for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef)}


def gradients(journal, call, role):
    return {g.slot: value(journal, g.tensor) for g in call.gradients if g.role is role}


def test_a_tensor_used_twice_shows_each_calls_own_contribution(recorded):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 1.0

    def step():
        (torch.sin(h) + torch.cos(h)).sum().backward()

    calls, journal = recorded(step)
    sine, cosine = one(calls, "torch.sin"), one(calls, "torch.cos")
    expected = h.detach()
    np.testing.assert_array_equal(gradients(journal, sine, Role.INPUT)["0"], torch.cos(expected).numpy())
    np.testing.assert_array_equal(gradients(journal, cosine, Role.INPUT)["0"], (-torch.sin(expected)).numpy())


def test_linear_has_the_gradients_of_all_three_inputs(recorded):
    x = torch.randn(2, 5, 3, requires_grad=True)
    net = nn.Linear(3, 4)
    weight = torch.randn(2, 5, 4)

    def step():
        (net(x) * weight).sum().backward()

    calls, journal = recorded(step, net)
    call = one(calls, "torch.nn.functional.linear")
    found = gradients(journal, call, Role.INPUT)
    np.testing.assert_array_equal(found["0"], x.grad.numpy())
    np.testing.assert_array_equal(found["1"], net.weight.grad.numpy())
    np.testing.assert_array_equal(found["2"], net.bias.grad.numpy())
    np.testing.assert_array_equal(gradients(journal, call, Role.OUTPUT)[""], weight.numpy())
    parameters = {g.slot: value(journal, g.tensor) for g in journal.parameter_gradients()}
    np.testing.assert_array_equal(parameters["weight"], net.weight.grad.numpy())


def test_the_same_tensor_in_two_arguments_has_two_gradients(recorded):
    x = torch.tensor([3.0], requires_grad=True)

    calls, journal = recorded(lambda: torch.sub(x * 2, x * 2).backward())
    found = gradients(journal, one(calls, "torch.sub"), Role.INPUT)
    assert found["0"].item() == 1.0
    assert found["1"].item() == -1.0


def test_a_modules_input_gradient_sums_all_its_paths(recorded):
    class Residual(nn.Module):
        def forward(self, x):
            return x + 2 * x + torch.sin(x)

    x = torch.tensor([0.5], requires_grad=True)
    net = Residual()
    calls, journal = recorded(lambda: net(x * 1.0).backward(), net)
    (call,) = [call for call in calls if call.site.kind == "module"]
    np.testing.assert_allclose(gradients(journal, call, Role.INPUT)["0"], 3 + np.cos(0.5), rtol=1e-6)


def test_an_identity_call_claims_no_gradient_of_its_producer(recorded):
    x = torch.tensor([0.5], requires_grad=True)
    calls, _ = recorded(lambda: torch.sin(x).float().backward())
    assert not one(calls, "torch.Tensor.float").gradients
    assert one(calls, "torch.sin").gradients


def test_in_place_calls_keep_the_value_from_before(recorded):
    x = torch.tensor([1.0, -1.0])

    def step():
        x.mul_(3)
        x[0] = 7
        F.relu(x, inplace=True)

    calls, journal = recorded(step)
    multiply, put, clip = (
        one(calls, "torch.Tensor.mul_"),
        one(calls, "torch.Tensor.__setitem__"),
        one(calls, "torch.nn.functional.relu"),
    )
    assert value(journal, inputs(multiply)["0"]).tolist() == [1.0, -1.0]
    assert value(journal, outputs(multiply)[""]).tolist() == [3.0, -3.0]
    assert value(journal, inputs(put)["0"]).tolist() == [3.0, -3.0]
    assert value(journal, put.after["0"]).tolist() == [7.0, -3.0]
    assert value(journal, inputs(clip)["0"]).tolist() == [7.0, -3.0]
    assert value(journal, outputs(clip)[""]).tolist() == [7.0, 0.0]
    assert clip.mutates


def test_batch_norm_shows_its_running_statistics_before_and_after(recorded):
    net = nn.BatchNorm1d(2)
    data = torch.randn(4, 2) + 5
    calls, journal = recorded(lambda: (net(data), net(data)), net)
    first, second = one(calls, "torch.nn.functional.batch_norm"), one(calls, "torch.nn.functional.batch_norm", 1)
    assert value(journal, inputs(first)["1"]).tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(value(journal, first.after["1"]), value(journal, inputs(second)["1"]))
    assert value(journal, first.after["1"]).tolist() != [0.0, 0.0]


def test_writes_that_no_version_shows_are_noticed(recorded):
    x = torch.ones(1000)

    def step():
        torch.sum(x)
        x.numpy()[:] = 2.0
        torch.sum(x)

    calls, journal = recorded(step)
    assert value(journal, inputs(one(calls, "torch.sum"))["0"])[0] == 1.0
    assert value(journal, inputs(one(calls, "torch.sum", 1))["0"])[0] == 2.0


def test_memory_that_is_used_again_is_not_mistaken_for_the_old_tensor(recorded):
    def step():
        for number in range(50):
            torch.sum(torch.full((1000,), float(number)))

    calls, journal = recorded(step)
    for number in range(50):
        assert value(journal, inputs(one(calls, "torch.sum", number))["0"])[0] == number


@pytest.mark.parametrize("keep", ["statistics", "fingerprint", "tensor"])
def test_views_of_a_known_tensor_say_of_their_values_what_reading_them_would(recorded, keep):
    x = torch.randn(3, 4, 5)
    views = {
        "same": x,
        "flat": x.view(-1),
        "permuted": x.permute(2, 0, 1),
        "transposed": x.transpose(0, 1),
        "part": x[1:],
        "column": x[:, :, 0],
        "stepped": x[::2],
        "strip": x[:, 1:3],
        "strip in another shape": x[:, 1:3].flatten(1),
        "strip in another order": x[:, 1:3].transpose(0, 2),
        "overlapping": x.as_strided((3, 3), (2, 2)),
        "wide": x.expand(2, 3, 4, 5),
        "bits": x.view(torch.int32),
    }

    def step(rec):
        for name, view in views.items():
            rec.save(name, view)

    calls, journal = recorded(step, keep=keep)
    for name, view in views.items():
        found = journal.tensor(outputs(one(calls, name))[""])
        plain = view.contiguous().numpy()
        expected = digest(plain, "i32" if name == "bits" else "f32")
        assert found.spec.shape == tuple(view.shape)
        assert found.fingerprint == (None if keep == "statistics" else expected.fingerprint), name
        assert (found.statistics.min, found.statistics.zero) == (expected.statistics.min, expected.statistics.zero), (
            name
        )
        np.testing.assert_allclose(found.statistics.norm, expected.statistics.norm, rtol=1e-12, err_msg=name)
        if keep == "tensor":
            assert journal.array(found).tobytes() == plain.tobytes(), name


@pytest.mark.parametrize("keep", ["statistics", "fingerprint", "tensor"])
@pytest.mark.parametrize("left", [0, 120])
def test_what_lies_in_a_freed_or_cut_storage_is_missing_and_is_not_touched(recorded, keep, left):
    """Such a tensor has an address, and reading there ends the process."""
    x = torch.arange(100.0)
    views = {"whole": x, "part": x[50:60].view(2, 5), "stepped": x[40:80:2], "turned": x[20:40].view(4, 5).T}

    def step(rec):
        rec.save("before", views["part"])
        x.untyped_storage().resize_(left)
        for name, view in views.items():
            rec.save(name, view)

    calls, journal = recorded(step, keep=keep)
    assert journal.tensor(outputs(one(calls, "before"))[""]).statistics.max == 59
    for name in views:
        assert "freed" in journal.tensor(outputs(one(calls, name))[""]).missing, name


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_each_quantised_tensor_has_its_own_scale(recorded):
    x = torch.ones(4, 4)
    many = {
        "a": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
        "b": torch.quantize_per_tensor(x, 0.5, 7, torch.quint8),
        "c": torch.quantize_per_channel(x, torch.ones(4), torch.zeros(4), 0, torch.quint8),
    }
    calls, journal = recorded(lambda rec: [rec.save(name, each) for name, each in many.items()])
    facts = {name: journal.tensor(outputs(one(calls, name))[""]).facts["quantised"] for name in many}
    assert (facts["a"]["scale"], facts["b"]["scale"], facts["b"]["zero_point"]) == (0.1, 0.5, 7)
    assert facts["c"]["scheme"].startswith("torch.per_channel_affine")


def test_elements_of_a_type_that_no_trace_has_are_missing(recorded):
    odd = torch.zeros(8, dtype=torch.uint8).view(torch.bits8)
    with pytest.raises(TraceWriteError, match="bits8"):
        recorded(lambda rec: rec.save("odd", odd))
    with pytest.warns(RuntimeWarning, match="are not kept: elements of type torch.bits8"):
        calls, journal = recorded(lambda rec: rec.save("odd", odd), strict=False)
    found = journal.tensor(outputs(one(calls, "odd"))[""])
    assert "bits8" in found.missing
    assert found.facts["dtype"] == "torch.bits8"


@pytest.mark.offered("torch.jagged")
def test_a_ragged_tensor_is_its_parts(recorded):
    ragged = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
    calls, journal = recorded(lambda rec: rec.save("ragged", ragged))
    found = journal.tensor(outputs(one(calls, "ragged"))[""])
    assert found.facts["shape"] == "unknown"
    assert journal.array(journal.tensor(found.parts["values"])).shape == (5, 4)
    assert not journal.damage


def test_a_tensor_stays_the_same_after_any_number_of_shapes(recorded, monkeypatch):
    monkeypatch.setattr(tensors, "_MAX_PLANS", len(tensors._PLANS) + 5)

    def step():
        y = torch.ones(3) + 1
        for size in range(20, 40):
            torch.zeros(size)
        torch.exp(y)
        z = torch.ones(50) + 1
        torch.exp(z)

    calls, journal = recorded(step)
    for number in range(2):
        taken = journal.tensor(inputs(one(calls, "torch.exp", number))["0"])
        assert taken.producer == one(calls, "torch.Tensor.add", number).id


def test_a_write_that_an_operator_declares_is_believed(recorded):
    """Its own kernel, which counts no version, writes one row of many."""
    library = torch.library.Library("twintrace_test", "DEF")
    library.define("put(Tensor(a!) cache, Tensor row, int at) -> ()")
    library.impl("put", lambda cache, row, at: cache.numpy().__setitem__(at, row.numpy()), "CPU")
    cache = torch.zeros(1000, 16)

    def step():
        for at in range(3):
            torch.ops.twintrace_test.put(cache, torch.ones(16), 101 + at)
            torch.sum(cache)

    calls, journal = recorded(step)
    zeros = [journal.tensor(inputs(one(calls, "torch.sum", at))["0"]).statistics.zero for at in range(3)]
    assert zeros == [15984, 15968, 15952]


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # torch 2.6 says it of every mesh of CPUs
@pytest.mark.offered("torch.distributed.tensor.Shard")
def test_a_distributed_tensor_that_is_written_through_its_shard_is_read_again(recorded, tmp_path):
    from torch import distributed
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        tensor = distribute_tensor(torch.zeros(40, 40), init_device_mesh("cpu", (1,)), [Shard(0)])

        def step(rec):
            rec.save("before", tensor)
            rec.save("unchanged", tensor)
            tensor.to_local()[20] = 3.0
            rec.save("after", tensor)

        calls, journal = recorded(step)
        numbers = {name: outputs(one(calls, name))[""] for name in ("before", "unchanged", "after")}
        assert numbers["before"] == numbers["unchanged"]
        assert [journal.tensor(number).statistics.max for number in numbers.values()] == [0, 0, 3]
    finally:
        distributed.destroy_process_group()


def _embedding() -> tuple[torch.nn.Embedding, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = torch.nn.Embedding(1000, 16)
    return net, torch.optim.Adam(net.parameters(), fused=True)


@pytest.mark.offered.with_args(fuses_on_the_host)
def test_a_fused_optimizers_state_is_read_again_after_steps_that_nobody_saw(tmp_path):
    """It counts no versions, and writes a few rows."""
    net, optimizer = _embedding()
    with tt.record(tmp_path / "t", net, level="api", keep="statistics", steps=[0, 3]) as rec:
        for step in range(4):
            before = {key: value.clone() for key, value in optimizer.state.get(net.weight, {}).items()}
            net(torch.tensor([123 + step])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            rec.step()
    journal = tt.open(tmp_path / "t").journal(3)
    update = next(call for call in journal.calls() if call.site.name == "torch.optim.Adam.step")
    number = dict(tensor_slots((), {"state": update.kwargs["state"]}))["kw.state.0.exp_avg"]
    assert journal.tensor(number).statistics.norm == pytest.approx(float(before["exp_avg"].norm()))


@pytest.mark.offered.with_args(fuses_on_the_host)
def test_at_level_module_a_fused_update_is_a_new_weight(tmp_path):
    net, optimizer = _embedding()
    with tt.record(tmp_path / "t", net, level="module", keep="fingerprint"):
        for place in range(3):
            net(torch.tensor([123 + place])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    journal = tt.open(tmp_path / "t").journal(0)
    assert len({journal.tensor(call.parameters["weight"]).fingerprint for call in journal.calls()}) == 3


@pytest.mark.parametrize("clear", ["optimizer", "module"])
def test_clearing_gradients_says_the_same_however_it_is_done(clear, tmp_path):
    """Zeros that are written one by one are no calls of the user's; his own are."""
    sites = []
    for set_to_none in (True, False):
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        path = tmp_path / str(set_to_none)
        with tt.record(path, net, level="api", keep="statistics"):
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            (optimizer if clear == "optimizer" else net).zero_grad(set_to_none=set_to_none)
            torch.zeros(2).zero_()
        assert all(p.grad is None if set_to_none else not p.grad.any() for p in net.parameters())
        sites.append([call.site for call in tt.open(path).journal(0).calls()])
    assert sites[0] == sites[1]
    assert [site.name for site in sites[0]][-1] == "torch.Tensor.zero_"


def test_producers_rebuild_the_data_flow(recorded):
    x = torch.ones(2)

    def step():
        y = torch.exp(x)
        z = y.reshape(1, 2)
        torch.add(z, z)

    calls, journal = recorded(step)
    exp, reshape, add = one(calls, "torch.exp"), one(calls, "torch.Tensor.reshape"), one(calls, "torch.add")
    assert journal.tensor(inputs(add)["0"]).producer == reshape.id
    assert journal.tensor(inputs(reshape)["0"]).producer == exp.id
    assert journal.tensor(inputs(exp)["0"]).producer is None


def test_names_imported_before_recording_are_seen(recorded):
    calls, _ = recorded(lambda: imported_before(torch.ones(1)))
    assert one(calls, "torch.relu")


def indexing_is_told():
    """a mode that sees functions, and indexing among them"""
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2)[0]
    return torch.Tensor.__getitem__ in seen


@pytest.mark.offered.with_args(indexing_is_told)
def test_operators_and_indexing_are_calls_and_questions_are_not(recorded):
    def step():
        x = torch.ones(2, 3)
        _ = x.shape, x.dim(), x.dtype, x.is_contiguous(), len(x), x.requires_grad
        _ = (2 - x) @ x.T
        _ = x[0], x > 0, -x

    names = [call.site.name.removeprefix("torch.") for call in recorded(step)[0]]
    assert names == [
        "ones",
        "Tensor.__rsub__",
        "Tensor.T",
        "Tensor.matmul",
        "Tensor.__getitem__",
        "Tensor.gt",
        "Tensor.neg",
    ]


def test_checkpointed_blocks_are_recomputed_under_their_own_address(recorded):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2, requires_grad=True)

    def step():
        checkpoint(lambda t: torch.exp(torch.sin(t)), x, use_reentrant=False).sum().backward()
        torch.exp(x)

    calls, _ = recorded(step)
    assert not [call for call in calls if call.raised], "a recomputation that stops early is no fault"
    addresses = [str(call.site) for call in calls]
    assert addresses.count("forward/api:torch.exp#0") == 1
    assert "recompute/api:torch.sin#0" in addresses
    assert "forward/api:torch.exp#1" in addresses


def test_an_optimizers_step_is_one_call_with_all_that_it_changed(recorded):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.25)
    before = net.weight.detach().clone()

    def step():
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    calls, journal = recorded(step, net)
    (update,) = [call for call in calls if call.site.phase == "update"]
    assert str(update.site) == "update/api:torch.optim.AdamW.step#0"
    np.testing.assert_array_equal(value(journal, inputs(update)["0.0"]), before.numpy())
    np.testing.assert_array_equal(value(journal, inputs(update)["kw.gradients.0"]), net.weight.grad.numpy())
    np.testing.assert_array_equal(value(journal, outputs(update)["parameters.0"]), net.weight.detach().numpy())
    assert "state.0.exp_avg" in outputs(update)
    assert dict(leaves(update.kwargs["groups"]))["0.lr"] == 0.25


@pytest.fixture
def hooks_of_steps(monkeypatch):
    """For tests that use the user's own: an older release has lost them if something was compiled before, in another test."""
    kind = torch.optim.SGD
    kind([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first one marks the class
    with_hooks = torch.optim.Optimizer.profile_hook_step
    if kind.step.__code__ is not with_hooks(lambda: None).__code__:
        monkeypatch.setattr(kind, "step", with_hooks(kind.step))


@pytest.fixture
def hooks_of_steps_are_lost(monkeypatch):
    """As older releases leave it, 2.1 among them, once something was compiled."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # the first one marks the class
    with_hooks = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
    step = torch.optim.SGD.step
    step = step.__wrapped__ if step.__code__ is with_hooks else step

    def bare(*args, **kwargs):
        return step(*args, **kwargs)

    bare.hooked = True
    monkeypatch.setattr(torch.optim.SGD, "step", bare)
    return bare


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_steps_are_seen_where_their_hooks_are_lost(recorded, hooks_of_steps_are_lost, level):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.5)
    told = []
    optimizer.register_step_post_hook(lambda *_: told.append(1))
    optimizer.step(lambda: net(torch.ones(1, 2)).sum().backward())
    assert not told, "the fixture takes no hooks away"

    def step():
        net.weight.grad.fill_(1.0)
        optimizer.step()
        with pytest.raises(ValueError, match="no loss"):
            optimizer.step(raises)
        torch.exp(net(torch.ones(1, 2)))

    def raises():
        raise ValueError("no loss")

    calls, journal = recorded(step, net, level=level)
    assert torch.optim.SGD.step is hooks_of_steps_are_lost
    assert not told, "without a recorder nobody would have called it"
    if level == "mix":
        good, bad = [call for call in calls if call.site.phase == "update"]
        assert str(good.site) == "update/api:torch.optim.SGD.step#0"
        np.testing.assert_array_equal(value(journal, inputs(good)["kw.gradients.0"]), np.ones((2, 2), np.float32))
        assert bad.raised
        assert one(calls, "torch.exp").site.phase == "forward"
    if level == "op":
        assert {call.site.phase for call in calls if "add_" in call.site.name} == {"update"}
        assert one(calls, "aten.exp.default").site.phase == "forward"


def test_a_users_own_optimizer_is_recorded_call_by_call(recorded):
    class Plain(torch.optim.Optimizer):
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(parameter.grad, alpha=group["lr"])

    net = nn.Linear(2, 2)
    optimizer = Plain(net.parameters(), {"lr": 0.1})

    def step():
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    updates = [call.site.name for call in recorded(step, net)[0] if call.site.phase == "update"]
    assert updates == ["torch.Tensor.sub_"] * 2


def test_a_closure_is_a_forward_pass_of_its_own(recorded):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    addresses = [str(call.site) for call in recorded(lambda: optimizer.step(closure), net)[0]]
    assert "forward/api:torch.nn.functional.linear#0" in addresses
    assert "update/api:torch.optim.LBFGS.step#0" in addresses


@pytest.mark.parametrize(("level", "name"), [("mix", "torch.exp"), ("op", "aten.exp.default")])
def test_calls_after_a_step_that_raised_are_recorded_and_forward(recorded, level, name):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def broken():
        raise ZeroDivisionError

    def step():
        with pytest.raises(ZeroDivisionError):
            optimizer.step(broken)
        torch.exp(torch.ones(1))

    calls, _ = recorded(step, net, level=level)
    assert one(calls, name).site.phase == "forward"
    assert level == "op" or one(calls, "torch.optim.SGD.step").raised


def test_a_mode_of_the_users_keeps_its_place_around_a_step(recorded):
    """Ours is taken out from below it while an optimizer works: whoever leaves theirs must not find ours there."""

    class Counting(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.seen += 1
            return func(*args, **(kwargs or {}))

    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        with Counting():
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            torch.exp(torch.ones(1))
        before = Counting.seen
        torch.sin(torch.ones(1))
        assert Counting.seen == before > 0

    calls, _ = recorded(step, net)
    assert {"torch.exp", "torch.sin", "torch.optim.Adam.step"} <= {call.site.name for call in calls}
    assert not torch.overrides._get_current_function_mode_stack()


def test_two_recorders_and_an_optimizer(tmp_path):
    """Both take their modes out while it works, and put them back."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tt.record(tmp_path / "a", net, level="api", strict=True), tt.record(tmp_path / "b", net, strict=True):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.exp(torch.ones(1))
    for name in "ab":
        names = [call.site.name for call in tt.open(tmp_path / name).journal(0).calls()]
        assert {"torch.optim.SGD.step", "torch.exp"} <= set(names)
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("ending", ["stop", "close"])
def test_a_recorder_that_is_ended_within_a_step_leaves_nothing(tmp_path, hooks_of_steps, ending):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    recorder = tt.record(tmp_path / "a", net, strict=True)
    optimizer.register_step_post_hook(lambda *_: getattr(recorder, ending)())
    recorder.start()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.overrides._get_current_function_mode_stack()
    recorder.close()


def test_a_step_in_another_thread_is_its_own_affair(recorded, hooks_of_steps):
    ours, theirs = nn.Linear(2, 1), nn.Linear(2, 1)
    theirs(torch.ones(1, 2)).sum().backward()
    optimizer, other = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (ours, theirs))

    def in_between(*_):
        thread = threading.Thread(target=other.step)
        thread.start()
        thread.join()

    optimizer.register_step_pre_hook(in_between)

    def step():
        ours(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.exp(torch.ones(1))

    calls, _ = recorded(step, ours)
    updates = [call.site.name for call in calls if call.site.phase == "update"]
    assert updates == ["torch.optim.SGD.step"] * 2
    assert one(calls, "torch.exp").site.phase == "forward"


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_the_profilers_range_stays_what_it_is(recorded):
    """It is watched, because a step that raises tells nobody else; TorchScript and others look at it closely."""
    kind = torch.autograd.profiler.record_function
    left = kind.__exit__

    def scaled(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("range"):
            y = x * 2
        return y

    def step():
        assert torch.autograd.profiler.record_function is kind
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert torch.equal(torch.jit.script(scaled)(torch.ones(1)), torch.full((1,), 2.0))
        assert kind("Optimizer.step#mine")(lambda: 5)() == 5

    recorded(step)
    assert kind.__exit__ is left


def test_gradients_of_several_backward_passes_are_numbered(recorded):
    net = nn.Linear(2, 1)
    saved = torch.ones(2, requires_grad=True)

    def step(rec):
        rec.save("kept", saved)
        for _ in range(3):
            net(saved).sum().backward()

    calls, journal = recorded(step, net)
    assert [g.count for g in journal.parameter_gradients() if g.slot == "weight"] == [0, 1, 2]
    assert [g.count for g in one(calls, "kept").gradients] == [0, 1, 2]


@pytest.mark.parametrize("keep", ["statistics", "fingerprint", "tensor"])
def test_a_view_that_no_memory_could_hold_is_missing_and_told(recorded, keep):
    """And nobody tries to write it out: that would end the training."""

    def step():
        torch.ones(1).expand(10**11)[:2].neg()

    with pytest.warns(RuntimeWarning, match="400000000000, which are not written out") as told:
        calls, journal = recorded(step, keep=keep, strict=False)
    assert len(told) == 1
    assert "expanded" in journal.tensor(outputs(one(calls, "torch.Tensor.expand"))[""]).missing
    assert one(calls, "torch.Tensor.neg")
    with pytest.raises(TraceWriteError, match="not written out"):
        recorded(step, keep=keep)


def test_a_large_expanded_view_is_not_written_out(recorded, monkeypatch):
    monkeypatch.setattr(tensors, "_copied", lambda tensor: pytest.fail("400 MB for one element"))
    calls, journal = recorded(lambda: torch.full((1,), 0.5).expand(10**8), keep="fingerprint")
    found = journal.tensor(outputs(one(calls, "torch.Tensor.expand"))[""]).statistics
    assert (found.min, found.max, found.mean, found.norm) == (0.5, 0.5, 0.5, 5000.0)


def test_what_is_written_through_a_view_comes_from_who_wrote_it(recorded):
    x = torch.ones(3)
    turned, rest = x.view(3, 1), x[1:]

    def step():
        x[0].add_(1)
        torch.neg(x)
        torch.neg(turned)
        torch.cos(rest)
        with unseen():
            turned.add_(1)
        torch.sin(x)

    calls, journal = recorded(step)
    apart = journal.tensor(inputs(one(calls, "torch.cos"))["0"])
    assert apart.producer is None, "another part of the same memory"
    seen = journal.tensor(inputs(one(calls, "torch.sin"))["0"])
    assert seen.producer is None, "somebody else has written to it since"
    writer = one(calls, "torch.Tensor.add_")
    for number in (0, 1):
        taken = inputs(one(calls, "torch.neg", number))["0"]
        assert journal.tensor(taken).producer == writer.id
        assert value(journal, taken).max() == 2.0


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_tensor_comes_from_who_put_it_out(recorded, layout):
    def step():
        sparse = torch.eye(3).to_sparse(layout=layout)
        torch.mm(sparse, torch.ones(3, 2))
        sparse.mul_(2.0)
        torch.mm(sparse, torch.ones(3, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its compressed layouts a beta
        calls, journal = recorded(step)
    made, changed = one(calls, "torch.Tensor.to_sparse"), one(calls, "torch.Tensor.mul_")
    products = [call for call in calls if call.site.name == "torch.mm"]
    assert [journal.tensor(inputs(call)["0"]).producer for call in products] == [made.id, changed.id]


def test_a_sparse_tensor_does_not_stand_for_an_expanded_one(recorded):
    """Both have strides of 0."""
    embedding = nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 2, 2])).sum().backward()
    expanded = torch.ones(1).expand(10, 4)
    assert embedding.weight.grad.stride() == expanded.stride()

    def step():
        torch.neg(embedding.weight.grad)
        torch.neg(expanded)

    calls, journal = recorded(step)
    np.testing.assert_array_equal(value(journal, inputs(one(calls, "torch.neg", 1))["0"]), np.ones((10, 4), np.float32))


def test_a_look_at_the_data_does_not_break_the_flow(recorded):
    layer = nn.Linear(3, 3)

    def step():
        y = layer(torch.ones(2, 3))
        y.add_(1.0)
        y.data.sum()  # the same memory, and a version counter of its own
        y.mul(2.0)

    calls, journal = recorded(step, layer, level="api")
    product, sum_ = one(calls, "torch.Tensor.mul"), one(calls, "torch.Tensor.add_")
    assert journal.tensor(inputs(product)["0"]).producer == sum_.id


def test_a_compiled_step_of_an_optimizer_trains(recorded):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    compiled = torch.compile(optimizer.step, backend="eager")
    before = net.weight.detach().clone()

    def step():
        net(torch.ones(1, 2)).sum().backward()
        compiled()
        torch.exp(torch.ones(1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what was compiled is told elsewhere
        calls, _ = recorded(step, net)
    assert torch.equal(net.weight, before - 0.5)
    assert one(calls, "torch.exp")


def test_op_level_sees_forward_backward_and_update_kernels(recorded):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    calls, journal = recorded(step, net, level="op")
    by_phase = {
        phase: {c.site.name for c in calls if c.site.phase == phase} for phase in ("forward", "backward", "update")
    }
    assert "aten.addmm.default" in by_phase["forward"]
    assert "aten.mm.default" in by_phase["backward"]
    assert any("add_" in name for name in by_phase["update"])
    for gradient in journal.parameter_gradients():
        np.testing.assert_array_equal(value(journal, gradient.tensor), net.get_parameter(gradient.slot).grad.numpy())
        made_by = journal.tensor(gradient.tensor).producer
        assert next(c for c in calls if c.id == made_by).site.phase == "backward"
    assert len(list(journal.parameter_gradients())) == 2
    update = next(c for c in calls if c.site.phase == "update" and "add_" in c.site.name)
    assert update.mutates == ("0",)
    assert one(calls, "aten.addmm.default").site.path == ""


@pytest.mark.filterwarnings("ignore:changing options to .torch.compile")
def test_a_compiled_model_is_recorded_from_outside_and_says_so(recorded):
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net = nn.Sequential(torch.compile(inner, backend="aot_eager"), nn.Linear(2, 1))
    x = torch.ones(1, 2)

    def step():
        net(x).sum().backward()

    with pytest.warns(RuntimeWarning, match="is compiled or scripted"):
        calls, journal = recorded(step, net)
    assert one(calls, "0").site.type == "Sequential"
    assert not [c for c in calls if c.site.path.startswith("0")]
    assert one(calls, "torch.nn.functional.linear").site.path == "1"
    assert [note for note in journal.notes() if note.topic == "compiled"]


@pytest.mark.parametrize("level", ["module", "mix"])
def test_what_is_compiled_from_a_model_is_recorded_as_that_model(recorded, level):
    """The recorder was given the model, and the training calls what torch.compile has made of it."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(net, backend="aot_eager")
    x = torch.ones(1, 2, requires_grad=True)

    def step():
        compiled(x).sum().backward()

    with pytest.warns(RuntimeWarning, match="compiled by torch"):
        calls, journal = recorded(step, net, level=level)
    (outermost,) = [call for call in calls if call.site.kind == "module"]
    assert (outermost.site.path, outermost.site.type) == ("", "Sequential")
    np.testing.assert_array_equal(value(journal, outputs(outermost)[""]), net(x).detach().numpy())
    assert gradients(journal, outermost, Role.INPUT)["0"].shape == (1, 2)
    assert [note for note in journal.notes() if note.topic == "compiled"]


def test_a_compiled_function_under_a_recorder_gives_its_result(recorded):
    function = torch.compile(lambda t: torch.sin(t) * 2, backend="aot_eager")
    x = torch.ones(3)
    results = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorded(lambda: results.append(function(x)))
    told = [str(warning.message) for warning in caught if "twintrace" in str(warning.message)]
    assert ["compiled by torch.compile" in told[0], "nothing was recorded: what ran was compiled" in told[1]] == [
        True,
        True,
    ]
    np.testing.assert_allclose(results[0].numpy(), 2 * np.sin(np.ones(3)), rtol=1e-6)


class _Compilable(nn.Module):
    def __init__(self):
        super().__init__()
        self.outer, self.inner = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x):
        return self.inner(self.outer(x)) * 2


@pytest.mark.offered("torch.utils._python_dispatch.is_in_torch_dispatch_mode")
@pytest.mark.parametrize("on_top", [False, True])
def test_after_kernels_were_recorded_no_mode_is_said_to_be_on(recorded, on_top):
    """torch 2.6 compiles nothing while one is; the other mode leaves after the recorder, in whose place it is then."""
    from torch.utils._python_dispatch import TorchDispatchMode, is_in_torch_dispatch_mode

    class Passing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    other = Passing()

    def step():
        torch.ones(2) + 1
        assert is_in_torch_dispatch_mode()
        if on_top:
            other.__enter__()

    calls, _ = recorded(step, nn.Identity(), level="op")
    assert any(call.site.name == "aten.add.Tensor" for call in calls)
    assert is_in_torch_dispatch_mode() is on_top
    if on_top:
        other.__exit__(None, None, None)
    assert not is_in_torch_dispatch_mode()


@pytest.mark.filterwarnings("error:twintrace")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler looks at it
@pytest.mark.parametrize("level", ["module", "mix"])
@pytest.mark.parametrize("how", ["wrapped", "part", "in place", "function", "later"])
@pytest.mark.offered("torch.compiler.set_stance")
def test_with_eager_what_is_compiled_is_seen_from_inside(tmp_path, level, how):
    """The same calls, values and parameters as without torch.compile; afterwards it is compiled as before."""
    compiled_calls = []

    def backend(graph, example_inputs):
        return lambda *args: compiled_calls.append(1) or graph.forward(*args)

    def record(path, compile, eager):
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = _Compilable()
        x, run = torch.ones(1, 2), net
        if compile and how == "part":
            net.inner = torch.compile(net.inner, backend=backend)
        elif compile and how == "in place":
            net.compile(backend=backend)
        elif compile and how in ("wrapped", "function"):
            run = torch.compile(net if how == "wrapped" else lambda x: net(x), backend=backend)
        for _ in range(2):  # compiled by then
            run(x)
        before = len(compiled_calls)
        with tt.record(path, run if how == "wrapped" else net, level=level, keep="fingerprint", eager=eager):
            if compile and how == "later":
                run = torch.compile(net, backend=backend)
            run(x).sum().backward()
        assert len(compiled_calls) == before
        run(x)
        assert (len(compiled_calls) > before) is compile
        journal = tt.open(path).journal(0)
        calls = [
            (call.site, call.args, call.output, call.parameters, [(g.role, g.slot, g.tensor) for g in call.gradients])
            for call in journal.calls()
        ]
        parameters = [(gradient.slot, gradient.tensor) for gradient in journal.parameter_gradients()]
        return calls, parameters, [(tensor.id, tensor.spec, tensor.fingerprint) for tensor in journal.tensors()]

    assert record(tmp_path / "compiled", True, True) == record(tmp_path / "plain", False, False)
    torch._dynamo.reset()


def test_module_configuration_is_complete(recorded):
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.BatchNorm2d(2, eps=1e-3, momentum=0.3), nn.Dropout(0.2)
    )
    calls, _ = recorded(lambda: net.eval()(torch.ones(1, 1, 4, 4)), net)
    configs = {call.site.name: call.config.values for call in calls if call.config}
    assert dict(leaves(configs["0"]["stride"])) == {"0": 2, "1": 2}
    assert (configs["1"]["eps"], configs["1"]["momentum"], configs["1"]["training"]) == (1e-3, 0.3, False)
    assert configs["2"]["p"] == 0.2
    batch_norm = one(calls, "1")
    assert set(batch_norm.parameters) == {"weight", "bias"}
    assert set(batch_norm.buffers) == {"running_mean", "running_var", "num_batches_tracked"}


def test_stacks_lead_to_the_users_own_line(recorded):
    class Net(nn.Module):
        def forward(self, x):
            return torch.tanh(x)  # the line

    net = Net()
    calls, _ = recorded(lambda: net(torch.ones(1)), net)
    frame = one(calls, "torch.tanh").stack[0]
    assert frame.file == __file__
    assert frame.function == "forward"
    assert frame.code.endswith("# the line")


ODD = {
    "f64": lambda: torch.tensor([1.5, float("nan"), float("inf")], dtype=torch.float64),
    "f16": lambda: torch.tensor([1.5, -0.0], dtype=torch.float16),
    "bf16": lambda: torch.tensor([[1.5, 2.5]], dtype=torch.bfloat16),
    "f8e4m3fn": lambda: torch.tensor([1.5, 2.0]).to(torch.float8_e4m3fn),
    "f8e5m2": lambda: torch.tensor([1.5, 2.0]).to(torch.float8_e5m2),
    "c64": lambda: torch.tensor([1 + 2j, -3j]).conj(),
    "c128": lambda: torch.tensor([1 + 2j], dtype=torch.complex128),
    "c32": lambda: torch.view_as_complex(torch.tensor([[1.0, 2.0]], dtype=torch.float16)),
    "b8": lambda: torch.tensor([True, False]),
    "i8": lambda: torch.tensor([-1], dtype=torch.int8),
    "u16": lambda: torch.tensor([65535], dtype=torch.uint16),
    "u64": lambda: torch.tensor([2**63 + 1], dtype=torch.uint64),
    "scalar": lambda: torch.tensor(2.5),
    "empty": lambda: torch.empty(0, 3),
    "strided": lambda: torch.arange(12.0).reshape(3, 4).t()[::2],
    "expanded": lambda: torch.tensor([1.0]).expand(5),
    "negated view": lambda: torch.tensor([1 + 2j]).conj().imag,
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.offered("torch.uint16")) if name in ("u16", "u64") else name for name in ODD],
)
def test_every_kind_of_tensor_travels_bit_by_bit(name, recorded):
    tensor = ODD[name]()
    calls, journal = recorded(lambda rec: rec.save("x", tensor))
    found = journal.tensor(outputs(one(calls, "x"))[""])
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    expected = bytes(plain.untyped_storage().tolist())
    assert journal.array(found).tobytes() == expected
    assert found.spec.shape == tuple(tensor.shape)
    if name in ("f64", "bf16", "c32", "b8"):
        assert found.spec.dtype == name


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant)")
@pytest.mark.filterwarnings("ignore:.*quantize", "ignore:.*[Qq]uantiz")
def test_sparse_and_quantised_tensors_keep_all_that_they_are(recorded):
    sparse = torch.tensor([1.5, 0, 2.5, 0]).to_sparse()
    compressed = torch.eye(3).to_sparse_csr()
    quantised = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.1, 3, torch.qint8)
    calls, journal = recorded(lambda rec: (rec.save("s", sparse), rec.save("c", compressed), rec.save("q", quantised)))
    found = journal.tensor(outputs(one(calls, "s"))[""])
    assert str(found.spec) == "f32[4]"
    assert value(journal, found.parts["indices"]).tolist() == [[0, 2]]
    assert value(journal, found.parts["values"]).tolist() == [1.5, 2.5]
    assert set(journal.tensor(outputs(one(calls, "c"))[""]).parts) == {"crow", "col", "values"}
    integers = journal.tensor(outputs(one(calls, "q"))[""])
    assert integers.facts["quantised"]["scale"] == 0.1
    assert journal.array(integers).tolist() == [8, 13]


def test_a_meta_tensor_is_missing_with_its_reason(recorded):
    calls, journal = recorded(lambda rec: rec.save("x", torch.empty(2, device="meta")))
    found = journal.tensor(outputs(one(calls, "x"))[""])
    assert "meta" in found.missing
    assert str(found.spec) == "f32[2]"


def test_saved_values_have_their_gradient(recorded):
    x = torch.tensor([2.0], requires_grad=True)

    def step(rec):
        y = x * x
        rec.save("y", {"value": y})
        (3 * y).backward()

    calls, journal = recorded(step)
    (gradient,) = one(calls, "y").gradients
    assert (gradient.role, gradient.slot) == (Role.SAVED, "value")
    assert value(journal, gradient.tensor).tolist() == [3.0]


def test_forwards_in_other_threads_are_seen(recorded):
    net = nn.Linear(2, 2)

    def step():
        thread = threading.Thread(target=lambda: net(torch.ones(1, 2)))
        thread.start()
        thread.join()

    calls, _ = recorded(step, net)
    assert one(calls, "torch.nn.functional.linear").site.path == ""


def test_nothing_remains_after_a_model_that_raises(tmp_path):
    class Bad(nn.Module):
        def forward(self, x):
            raise RuntimeError("inside")

    net = nn.Sequential(nn.Linear(1, 1), Bad())
    originals = (
        nn.Module.__call__,
        getattr(*ENGINE),
        torch.overrides.has_torch_function,
        torch.distributed.all_reduce,
    )
    with pytest.raises(RuntimeError, match="inside"), tt.record(tmp_path / "t", net):
        net(torch.ones(1, 1))
    assert originals == (
        nn.Module.__call__, getattr(*ENGINE), torch.overrides.has_torch_function, torch.distributed.all_reduce,
    )  # fmt: skip
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    raised = [call for call in tt.open(tmp_path / "t").calls() if call.raised]
    assert [call.site.name for call in raised] == ["1", ""]
    assert raised[0].raised == "RuntimeError: inside"


def test_functions_that_compute_stay_the_objects_that_they_are(tmp_path):
    """Libraries ask for them: `if activation_func is not F.gelu: raise`."""
    homes = (torch, nn.functional, torch.Tensor)
    before = {(home, name): value for home in homes for name, value in vars(home).items() if callable(value)}
    net = nn.Linear(2, 2)
    with tt.record(tmp_path / "t", net):
        nn.functional.gelu(net(torch.ones(1, 2))).sum().backward()
        replaced = [name for (home, name), value in before.items() if vars(home).get(name) is not value]
    assert set(replaced) <= {"compile"}


def test_closing_in_another_thread_leaves_nothing_that_acts(tmp_path):
    net = nn.Linear(1, 1)
    original = nn.Module.__call__
    rec = tt.record(tmp_path / "t", net)
    rec.start()
    net(torch.ones(1, 1))
    thread = threading.Thread(target=rec.close)
    thread.start()
    thread.join()
    assert nn.Module.__call__ is original
    before = rec.total_calls
    torch.exp(net(torch.ones(1, 1)))
    assert rec.total_calls == before
    torch.overrides._pop_mode()  # it could not be taken out from there; it does nothing
    assert tt.open(tmp_path / "t").journal(0).complete


def test_parameters_that_come_later_have_their_gradients(recorded):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[0].weight.requires_grad_(False)

    def step():
        net[0].weight.requires_grad_(True)
        net.append(nn.Linear(2, 1))
        net.double()
        net(torch.ones(1, 2, dtype=torch.float64)).sum().backward()

    _, journal = recorded(step, net, level="module")
    found = {g.slot: str(journal.tensor(g.tensor).spec) for g in journal.parameter_gradients()}
    assert found["0.weight"] == "f64[2, 2]"
    assert "2.bias" in found


def test_a_setting_that_changes_within_a_step_is_noticed(recorded):
    net = nn.LayerNorm(2)

    def step():
        net(torch.ones(1, 2))
        net.eps = 0.5
        net(torch.ones(1, 2))

    calls, _ = recorded(step, net, level="module")
    assert [call.config.values["eps"] for call in calls] == [1e-05, 0.5]


def test_two_recorders_may_leave_in_any_order(tmp_path):
    net = nn.Linear(1, 1)
    first, second = tt.record(tmp_path / "a", net), tt.record(tmp_path / "b", net)
    original = nn.Module.__call__
    first.start()
    second.start()
    net(torch.ones(1, 1))
    first.close()
    net(torch.ones(1, 1))
    second.close()
    assert nn.Module.__call__ is original
    assert torch.overrides._get_current_function_mode_stack() == []
    counts = [sum(c.site.kind == "module" for c in tt.open(tmp_path / name).calls()) for name in "ab"]
    assert counts == [1, 2]


def test_a_data_loaders_forked_workers_write_nothing(tmp_path):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.sin(torch.full((2,), float(index)))

    with tt.record(tmp_path / "t", level="api", keep="tensor", strict=True, framework="torch"):
        batches = list(torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="fork"))
    assert len(batches) == 2
    journal = tt.open(tmp_path / "t").journal(0)
    assert journal.complete
    assert not [call for call in journal.calls() if call.site.name == "torch.sin"]


def test_seeding_is_undone(tmp_path):
    before = torch.get_rng_state()
    dropout = F.dropout
    with tt.seed_all(3, deterministic=True, disable_dropout=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert F.dropout(torch.ones(100), 0.5).sum() == 100
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert F.dropout is dropout
    with tt.seed_all(3):
        assert torch.equal(torch.rand(3), first)


def test_dropout_is_out_by_whatever_name_and_comes_back():
    x, lstm = torch.ones(4, 50, 8), nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True).train()
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).train()

    def twice(function):
        return torch.equal(function(), function())

    def runs():
        return [
            twice(lambda: imported_dropout(x, 0.5)),
            twice(lambda: nn.AlphaDropout(0.5).train()(x)),
            twice(lambda: torch.dropout_(x.clone(), 0.5, True)),
            twice(lambda: torch.feature_dropout(x, 0.5, True)),
            twice(lambda: lstm(x)[0]),
            twice(lambda: attention(x, x, x)[0]),
            twice(lambda: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)),
        ]

    with tt.seed_all(3, disable_dropout=True):
        assert torch.equal(imported_dropout(x, p=0.9, inplace=True), x)
        assert all(runs())
        with tt.seed_all(4, disable_dropout=True):
            assert all(runs())
        assert all(runs()), "the inner one has left, the outer one is still there"
    assert not any(runs())


def test_a_collective_is_recorded_once(recorded, tmp_path):
    """Some collectives come through torch's function mode as well, and then call themselves again."""
    meeting = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        total, parts = torch.ones(2), [torch.zeros(2)]

        def work():
            torch.distributed.all_reduce(total)
            torch.distributed.all_gather(parts, total)
            torch.distributed.all_reduce(total, async_op=True).wait()

        calls, _ = recorded(work)
    finally:
        torch.distributed.destroy_process_group()
    assert [str(call.site) for call in calls if "distributed" in call.site.name] == [
        "forward/api:torch.distributed.all_reduce#0",
        "forward/api:torch.distributed.all_gather#0",
        "forward/api:torch.distributed.all_reduce#1",
    ]


def test_a_tensor_that_another_process_has_sent_is_no_call(recorded):
    """Putting it together falls into the step in which it happens to arrive."""
    from multiprocessing.reduction import ForkingPickler

    sent = bytes(ForkingPickler.dumps(torch.arange(3.0)))
    calls, journal = recorded(lambda: ForkingPickler.loads(sent).add(1))
    assert [call.site.name for call in calls] == ["torch.Tensor.add"]
    assert journal.tensor(calls[0].args[0].id).producer is None
