"""Steps that repeat are held against a plan: a reader sees the lines that a recorder without plans would have written.

A stand-in plays the device, as in test_digests.py.
"""

import contextlib

import pytest

torch = pytest.importorskip("torch")


import twintrace as tt  # noqa: E402
from twintrace.collect import plans as collected  # noqa: E402
from twintrace.frameworks.torch import adapter, digests, plans, readers, scripts, tensors, writes  # noqa: E402

from . import plan_cases as cases  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def stand_in(monkeypatch):
    """A device on which nothing can be read from the host."""

    def forbidden(tensor):
        raise AssertionError("values of a tensor on a device were asked for on the host")

    monkeypatch.setattr(tensors, "_PLANS", {})
    monkeypatch.setattr(tensors, "_PLACES", {})
    monkeypatch.setattr(tensors, "is_elsewhere", lambda tensor: tensor.dtype != torch.float64)
    monkeypatch.setattr(tensors, "has_device", lambda: True)
    host = adapter.TorchFramework.host
    monkeypatch.setattr(
        adapter.TorchFramework,
        "host",
        staticmethod(lambda tensor: host(tensor) if tensor.dtype == torch.float64 else forbidden(tensor)),
    )
    monkeypatch.setattr(readers, "triton_for", lambda device: None)
    made = digests.DeviceDigests.__init__

    def quietly(self, **given):
        made(self, **given | {"tell": lambda topic, text: None})

    # Else the first step has a note, that Triton is not used, and is not like the others.
    monkeypatch.setattr(digests.DeviceDigests, "__init__", quietly)


@pytest.fixture
def followed(monkeypatch):
    """What became of each step: True if it was as planned to its end."""
    told = []
    finish = collected.Planner.finish

    def watched(self):
        found = finish(self)
        told.append(found is not None)
        return found

    monkeypatch.setattr(collected.Planner, "finish", watched)
    return told


def both(tmp_path, monkeypatch, scenario, **settings):
    """The lines of a recording that makes plans and of one that makes none, and the weights that came out of each."""
    told, made = [], []
    for plan in (True, False):  # from one line: the stack is recorded too
        with monkeypatch.context() as patched:
            if not plan:
                patched.setattr(adapter.TorchFramework, "plans", lambda self: None)
            made.append(cases.record(tmp_path / f"{plan}", scenario, **settings))
        told.append(cases.lines(tmp_path / f"{plan}"))
    return *told, *made


def check(tmp_path, monkeypatch, followed, scenario, level):
    planned, unplanned, made, wanted = both(
        tmp_path, monkeypatch, scenario, level=level, keep="statistics" if level == "mix" else "fingerprint"
    )
    for step, (left, right) in enumerate(zip(planned, unplanned, strict=True)):
        assert left == right, f"step {step}"
    assert all(map(torch.equal, made, wanted))
    assert any(followed), "no step was as planned"


LEVELS = ("api", "mix", "module")
ALL = [(scenario, level) for scenario in cases.SCENARIOS for level in LEVELS]
SOME = [(scenario, LEVELS[place % 3]) for place, scenario in enumerate(cases.SCENARIOS)]


def name_of(value):
    return value if isinstance(value, str) else value.__name__


@pytest.mark.parametrize(("scenario", "level"), SOME, ids=name_of)
def test_a_planned_recording_has_the_same_lines(stand_in, tmp_path, monkeypatch, followed, scenario, level):
    check(tmp_path, monkeypatch, followed, scenario, level)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "level"), [each for each in ALL if each not in SOME], ids=name_of)
def test_at_the_other_levels(stand_in, tmp_path, monkeypatch, followed, scenario, level):
    check(tmp_path, monkeypatch, followed, scenario, level)


def test_a_step_that_repeats_is_followed_to_its_end(stand_in, tmp_path, followed):
    """The first two steps are recorded in full: the optimizer has no state in the first. A learning rate departs from nothing."""
    cases.record(tmp_path / "trace", cases.scheduled, level="api", keep="fingerprint")
    assert followed == [True] * (cases.STEPS - 2)


@pytest.fixture
def one_rank():
    """A group of one process."""
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("this torch has no distributed package")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("level", ["module", "mix"])
def test_ddp_is_followed(stand_in, tmp_path, monkeypatch, followed, one_rank, level):
    """It has tensors among its settings, and calls collectives of its own."""

    def trained(path):
        run = cases.Run("conv")
        net = torch.nn.parallel.DistributedDataParallel(run.net, bucket_cap_mb=0.0001)
        with tt.record(path, net, level=level, keep="fingerprint", strict=True) as rec:
            for _ in range(7):
                net(run.batch()).float().pow(2).mean().backward()
                run.update()
                rec.step()
        return [*run.net.parameters(), *run.net.buffers()]

    made = []
    for plan in (True, False):
        with monkeypatch.context() as patched:
            if not plan:
                patched.setattr(adapter.TorchFramework, "plans", lambda self: None)
            made.append(trained(tmp_path / f"{plan}"))
    assert all(map(torch.equal, *made))
    assert followed[-2:] == [True, True]
    for left, right in zip(cases.lines(tmp_path / "True"), cases.lines(tmp_path / "False"), strict=True):
        assert left == right


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_buffers_that_ddp_takes_from_another_rank_are_read_before(stand_in, tmp_path, monkeypatch, one_rank, level):
    """As on every rank but the first: the buffers are written to before each forward pass, below all modes."""

    def received(group, tensors, *rest):
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for buffer in tensors:
                buffer.fill_(1)

    net = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3))
    monkeypatch.setattr(torch.distributed, "_broadcast_coalesced", received)
    torch.nn.init.zeros_(net.module.running_var)
    with tt.record(tmp_path / "trace", net, level=level, keep="fingerprint", strict=True) as rec:
        rec.save("before", net.module.running_var)
        net(torch.arange(6.0).view(2, 3))
    assert torch.distributed._broadcast_coalesced is received
    journal = tt.open(tmp_path / "trace").journal(0)
    (saved,) = [call for call in journal.calls() if call.site.name == "before"]
    assert journal.tensor(saved.output.id).statistics.max == 0


def test_steps_that_accumulate_change_from_plan_to_plan(stand_in, tmp_path, followed):
    cases.record(tmp_path / "trace", cases.accumulates, level="api", keep="fingerprint")
    assert followed[-2:] == [True, True]


def test_nothing_is_planned_where_all_is_on_the_host(tmp_path, followed):
    cases.record(tmp_path / "trace", cases.plain, level="api", keep="fingerprint")
    assert followed == []


def test_a_tensor_that_was_not_read_is_missing(stand_in, tmp_path, monkeypatch):
    """Not a tensor of zeros."""
    take = digests.DeviceDigests.take

    def lose_one(self, numbers, *columns):
        kept = [place for place, number in enumerate(numbers) if number != 3]
        take(self, *([column[place] for place in kept] for column in (numbers, *columns)))

    monkeypatch.setattr(digests.DeviceDigests, "take", lose_one)
    with pytest.warns(RuntimeWarning, match="it was not read"):
        cases.record(tmp_path / "trace", cases.plain, level="api", keep="fingerprint", strict=False)
    trace = tt.open(tmp_path / "trace")
    for step in trace.steps[2:]:
        missing = [tensor for tensor in trace.journal(step).tensors() if tensor.missing is not None]
        assert {tensor.missing for tensor in missing} == {"it was not read"}


def test_arguments_that_last_are_read_in_one_batch(stand_in, tmp_path, monkeypatch):
    """Weights, and buffers that are written to later: they are there, unchanged, when the step begins."""
    ahead, copied = [], []
    read_ahead, copy = digests.DeviceDigests.read_ahead, digests.DeviceDigests.copy
    monkeypatch.setattr(
        digests.DeviceDigests,
        "read_ahead",
        lambda self, *columns: ahead.append(len(columns[0])) or read_ahead(self, *columns),
    )
    monkeypatch.setattr(
        digests.DeviceDigests, "copy", lambda self, *given: copied.append(given[0]) or copy(self, *given)
    )
    cases.record(tmp_path / "trace", cases.scheduled, level="module", keep="fingerprint")
    # Weight and bias of three layers, mean, variance and count of the batch norm; not the data.
    assert ahead == [0, 0, 0, 9, 9]
    del copied[:]
    cases.record(tmp_path / "stirred", cases.stirred, level="module", keep="fingerprint")
    assert any(copied)


ALIKE = torch.zeros(2, 3)
UNLIKE = {
    "shape": torch.zeros(2, 4),
    "strides": torch.zeros(3, 2).t(),
    "type": torch.zeros(2, 3, dtype=torch.float64),
    "gradient": torch.zeros(2, 3, requires_grad=True),
    "class": torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False),
    "negated": torch._neg_view(torch.zeros(2, 3)),
    "sparse": torch.zeros(2, 3).to_sparse(),
    "device": torch.zeros(2, 3, device="meta"),
    "no tensor": 3,
}


@pytest.mark.parametrize("other", UNLIKE.values(), ids=UNLIKE.keys())
@pytest.mark.parametrize("torchs", [True, False])
def test_a_guard_tells_tensors_apart(monkeypatch, other, torchs):
    if not torchs:
        monkeypatch.setattr(scripts, "_TensorGuards", None)
    is_alike = scripts.guard_of(ALIKE)
    assert is_alike(torch.ones(2, 3))
    assert not is_alike(other)


def test_settings_are_compared_by_value_and_type():
    settings = scripts.Settings({"p": 1.0, "flag": True, "kept": object()})
    assert settings.are_those_of({"p": 1.0, "flag": True, "kept": object()})
    for other in ({"p": 2.0, "flag": True}, {"p": 1.0, "flag": 1}, {"p": 1.0, "flag": True, "more": 1}):
        assert not settings.are_those_of({"kept": object(), **other})
        assert not settings.are_those_of(other)


class Counting(torch.overrides.TorchFunctionMode):
    """A mode of the user's."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_layers_of_torch_are_called_without_the_mode_that_sees_writes(stand_in, tmp_path, monkeypatch):
    """In steps that follow a plan; a mode of the user's sees all that it would see."""
    seen, users = [0], []
    pass_on = writes._WriteMode.__torch_function__

    def counted(self, *given, **named):
        seen[0] += 1
        return pass_on(self, *given, **named)

    monkeypatch.setattr(writes._WriteMode, "__torch_function__", counted)
    run = cases.Run("conv")
    with tt.record(tmp_path / "trace", run.net, level="module", keep="fingerprint") as rec:
        for i in range(6):
            with Counting() if i % 2 else contextlib.nullcontext() as mode:
                seen.append(0)
                run.loss().backward()
                run.update()
            users.append(mode.count if mode else 0)
            rec.step()
            seen[0], seen[-1] = 0, seen[0]
    assert seen[5] < seen[3] - 4  # convolution, norm, count of batches, relu, linear
    assert users[1] == users[3] == users[5]


def test_what_a_layer_writes_to_is_known_only_of_torchs_own():
    x = torch.ones(2, 2)
    norm = torch.nn.BatchNorm1d(2)
    assert [id(each) for each in writes.written_by_layer(norm, (x,))] == [id(each) for each in norm.buffers()]
    assert writes.written_by_layer(torch.nn.ReLU(inplace=True), (x,)) == [x]
    assert writes.written_by_layer(torch.nn.ReLU(), (x,)) == []
    changed = [torch.nn.Linear(2, 2) for _ in range(6)]
    changed[0].register_forward_hook(lambda *_: None)
    changed[1].register_full_backward_hook(lambda *_: None)
    changed[2].forward = lambda x: x
    changed[3].compile(backend="eager")
    changed[4].__class__ = type("Own", (torch.nn.Linear,), {})
    for layer in (*changed[:5], torch.nn.Embedding(2, 2, max_norm=1.0), torch.nn.Sequential(norm)):
        assert writes.written_by_layer(layer, (x,)) is None
    assert writes.written_by_layer(changed[5], (x.as_subclass(type("Mine", (torch.Tensor,), {})),)) is None
    with contextlib.ExitStack() as stack:
        stack.callback(torch.nn.modules.module.register_module_forward_hook(lambda *_: None).remove)
        assert writes.written_by_layer(changed[5], (x,)) is None
    assert writes.written_by_layer(changed[5], (x,)) == []


def test_a_mode_of_the_users_that_is_alone_is_not_switched_off():
    """As in a thread of the user's own, where the recorder has none."""
    watching = writes.Writes(None, calls=True)
    watching._mode = Counting()
    with watching._mode:
        assert watching.may_be_off(torch.nn.Linear(2, 2), (torch.ones(2),))
    with Counting():
        assert not watching.may_be_off(torch.nn.Linear(2, 2), (torch.ones(2),))


def test_the_recorders_own_questions_pass_no_mode(stand_in, tmp_path, monkeypatch):
    """Not when a batch is read at the end of a backward pass, where the engine has the modes on, nor before a write."""
    passed = []
    pass_on = writes._WriteMode.__torch_function__
    monkeypatch.setattr(
        writes._WriteMode,
        "__torch_function__",
        lambda self, func, *given, **named: passed.append(func) or pass_on(self, func, *given, **named),
    )
    run = cases.Run("conv")
    with Counting() as mode:
        run.loss().backward()
    with tt.record(tmp_path / "trace", run.net, level="module", keep="fingerprint") as rec:
        for _ in range(5):
            del passed[:]
            run.loss().backward()
            rec.step()
    assert len(passed) < mode.count


@pytest.mark.parametrize("level", ["module", "api"])
def test_tensors_are_handed_over_many_at_a_time(stand_in, tmp_path, monkeypatch, level):
    taken = []
    take = digests.DeviceDigests.take
    monkeypatch.setattr(
        digests.DeviceDigests, "take", lambda self, *columns: taken.append(len(columns[0])) or take(self, *columns)
    )
    cases.record(tmp_path / "trace", cases.plain, level=level, keep="fingerprint")
    assert 40 < max(taken) <= plans._BEHIND
    assert sum(taken) > 8 * len(taken)


def test_what_is_seen_and_what_waits_share_the_bound(stand_in, tmp_path, monkeypatch):
    """Rows are as long as the bound lets them be."""
    room, rows, held = 16384, [], []
    settle, wait = plans.Follower._settle, plans.Follower._wait

    def waited(self):
        wait(self)
        held.append(self._behind + self._digests.held)

    monkeypatch.setattr(plans.Follower, "_settle", lambda self, *row: rows.append(row) or settle(self, *row))
    monkeypatch.setattr(plans.Follower, "_wait", waited)
    run = cases.Run("block")
    with tt.record(tmp_path / "trace", run.net, level="module", keep="fingerprint", device_buffer=room) as rec:
        for i in range(cases.STEPS):
            cases.plain(run, i, rec)
            rec.step()
    assert room // 2 < max(held) <= room
    assert len(rows) < 8 * (cases.STEPS - 1)


def test_what_is_not_settled_is_found_before_a_write():
    """By its address, among few; among many all are settled. Not if a copy waits in its place, or it has been read."""
    settled = []

    class Behind:
        addresses, _settled, count = [0, 100, 200, 300, 500, 600], 1, 6
        seen, _copies = [torch.ones(1)] * 4 + [torch.ones(1), None], {4: torch.ones(1)}
        is_behind = True
        settle = lambda self: settled.append(True)  # noqa: E731

    for start, end, found in ((0, 100, False), (100, 101, True), (150, 201, True), (350, 700, False)):
        del settled[:]
        plans.Follower.settle_within(Behind(), start, end)
        assert bool(settled) is found
    many = Behind()
    many.addresses, many.count = list(range(100, 100 + 2 * plans._ASKED)), 2 * plans._ASKED
    plans.Follower.settle_within(many, 0, 1)
    assert settled


def test_what_a_plan_knows_to_be_written_to_is_copied_when_it_is_seen(stand_in, tmp_path, monkeypatch):
    """Not searched for among all that waits, when somebody is about to write to it; also if its call writes to buffers."""
    replaced = []
    replace = digests.DeviceDigests._replace
    monkeypatch.setattr(digests.DeviceDigests, "_replace", lambda *given: replaced.append(1) or replace(*given))
    counts, run = [], cases.Run("conv")
    with tt.record(tmp_path / "trace", run.net, level="mix", keep="fingerprint") as rec:
        for i in range(cases.STEPS):
            cases.plain(run, i, rec)
            rec.step()
            counts.append(len(replaced))
    assert counts[0] > 0
    assert counts[3] == counts[-1]


def test_layers_of_torchs_own_and_their_calls_are_followed_as_one(stand_in, tmp_path, monkeypatch):
    """Unless a mode of the user's has to see the calls."""
    seen, run, counts = [], cases.Run("block"), []
    leave = plans.Follower.leave_unit
    monkeypatch.setattr(
        plans.Follower, "leave_unit", lambda self, enter, *given: seen.append(enter.type) or leave(self, enter, *given)
    )
    with tt.record(tmp_path / "trace", run.net, level="mix", keep="fingerprint") as rec:
        for i in range(cases.STEPS):
            with torch.device("cpu") if i == 5 else contextlib.nullcontext():
                cases.plain(run, i, rec)
            rec.step()
            counts.append(len(seen))
    assert seen[:3] == ["LayerNorm", "Linear", "Linear"]
    assert counts[4] - counts[3] == 6
    assert counts[5] == counts[4]


def test_the_mode_that_sees_writes_is_there_only_while_something_waits(stand_in, tmp_path):
    run = cases.Run("conv")
    stack = torch.overrides._get_current_function_mode_stack
    with tt.record(tmp_path / "trace", run.net, level="module", keep="fingerprint") as rec:
        for _ in range(4):
            with torch.device("cpu"):  # a mode of the user's, which is left from the top of the stack
                loss = run.loss()
            assert [type(mode).__name__ for mode in stack()] == ["_WriteMode"]
            loss.backward()
            run.optimizer.step()
            assert stack() == []
            rec.step()
    assert stack() == []
