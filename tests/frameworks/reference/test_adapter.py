"""What the reference adapter does beyond the contract."""

import json

import numpy as np
import pytest

from twintrace.api import seed_all
from twintrace.frameworks import registry
from twintrace.frameworks.reference import FRAMEWORK
from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import HOOKS, Linear, Module, Parameter, Tensor
from twintrace.model.records import Role
from twintrace.testing.reading import Reading, check_same_bits
from twintrace.testing.recording import recorder

from .test_contract import ReferencePage


@pytest.fixture
def page():
    return ReferencePage()


def test_the_registry_finds_it():
    assert registry.by_name("reference") is FRAMEWORK
    assert registry.framework_of(Tensor([1.0])) is FRAMEWORK
    assert registry.framework_of(Linear(1, 1)) is FRAMEWORK
    assert registry.framework_of(np.zeros(1)) is not FRAMEWORK


def test_two_passes_through_one_tape_are_counted(page, tmp_path):
    x = page.ones(2, requires_grad=True)
    with recorder(page, tmp_path / "t"):
        loss = mini.total(mini.mul(x, 3.0))
        loss.backward()
        loss.backward()
    call = Reading(tmp_path / "t")["api:reference.mul#0"]
    assert [(g.slot, g.count) for g in call.gradients if g.role is Role.INPUT] == [("0", 0), ("0", 1)]


def test_a_sum_whose_parts_do_not_all_come_is_given_at_the_end(page, tmp_path):
    """A module uses its input twice, and only one of its two results is used."""

    class Two(Module):
        def forward(self, x):
            return mini.mul(x, 2.0), mini.mul(x, 5.0)

    net, x = Two(), page.ones(2, requires_grad=True)
    with recorder(page, tmp_path / "t", net, level="module"):
        mini.total(net(x)[0]).backward()
    reading = Reading(tmp_path / "t")
    check_same_bits(reading.gradients(reading["module:#0"], Role.INPUT)["0"], np.full(2, 2, np.float32))


def test_recomputation_inside_a_pass_does_not_give_sums_too_early(page, tmp_path):
    class Forked(Module):
        def forward(self, x):
            return mini.add(mini.mul(x, 2.0), mini.checkpoint(mini.relu, x))

    net, x = Forked(), page.ones(2, requires_grad=True)
    with recorder(page, tmp_path / "t", net, level="module"):
        mini.total(net(x)).backward()
    reading = Reading(tmp_path / "t")
    check_same_bits(reading.gradients(reading["module:#0"], Role.INPUT)["0"], np.full(2, 3, np.float32))


def test_modules_of_another_model_are_not_ours(page, tmp_path):
    ours, other = page.models["shared"](), page.models["shared"]()
    with recorder(page, tmp_path / "t", {"ours": ours}, level="module"):
        other(page.ones(2, 3))
        ours(page.ones(2, 3))
    assert Reading(tmp_path / "t").sites() == [
        "forward/module:ours#0", "forward/module:ours.layer#0", "forward/module:ours.layer#1",
    ]  # fmt: skip


def test_a_start_that_fails_leaves_nothing(page, tmp_path, monkeypatch):
    from twintrace.frameworks.reference.calls import Updates

    def broken(self):
        raise RuntimeError("no room")
        yield

    monkeypatch.setattr(Updates, "install", broken)
    model = page.models["mlp"]()
    before = page.hook_count(model)
    rec = recorder(page, tmp_path / "t", model)
    with pytest.raises(RuntimeError, match="no room"):
        rec.start()
    assert page.hook_count(model) == before
    rec.close()


def test_identities():
    x = Tensor(np.arange(6.0))
    y = mini.reshape(x, (2, 3))
    assert FRAMEWORK.glance(x)[:3] != FRAMEWORK.glance(y)[:3]
    assert FRAMEWORK.storage(x) == FRAMEWORK.storage(y) == FRAMEWORK.glance(x)[0]
    before = FRAMEWORK.glance(y)[:3]
    mini.add_(x, 1.0)
    assert FRAMEWORK.glance(y)[:3] != before
    hold = FRAMEWORK.hold(x)
    assert not FRAMEWORK.released(hold)
    del x, y
    assert FRAMEWORK.released(hold)


def test_reading_copies_only_what_it_must():
    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert FRAMEWORK.host(x) is x.array
    turned = Tensor(x.array.T)
    assert FRAMEWORK.host(turned).flags.c_contiguous
    assert FRAMEWORK.host(turned).tolist() == x.array.T.tolist()


def test_seeding_and_its_undoing():
    x = Tensor(np.ones(64, np.float32))
    state = mini.RANDOM.numbers.bit_generator.state
    runs = []
    for _ in range(2):
        with seed_all(7):
            runs.append(mini.dropout(x, 0.5).array.tolist())
    assert runs[0] == runs[1]
    assert mini.RANDOM.numbers.bit_generator.state == state
    with seed_all(8):
        assert mini.dropout(x, 0.5).array.tolist() != runs[0]
    with seed_all(7, disable_dropout=True):
        assert mini.dropout(x, 0.5) is x
    assert mini.dropout(x, 0.5) is not x


def test_a_snapshot_is_a_copy():
    net = Linear(2, 2)
    net.weight.grad = Tensor(np.ones((2, 2), np.float32))
    found = FRAMEWORK.snapshot(net)
    net.weight.array += 1
    assert set(found) == {"weight", "weight.grad", "bias"}
    assert not np.array_equal(found["weight"].array, net.weight.array)


def test_what_it_says_of_itself_can_be_written_down():
    assert json.loads(json.dumps(dict(FRAMEWORK.environment())))["numpy"] == np.__version__
    assert FRAMEWORK.groups() == ()


def test_on_gradient_hears_once_and_can_be_taken_back():
    x, heard = Parameter([1.0]), []
    undo = FRAMEWORK.on_gradient(x, heard.append)
    mini.total(x * 2.0).backward()
    undo()
    mini.total(x * 2.0).backward()
    assert [gradient.array.tolist() for gradient in heard] == [[2]]
    FRAMEWORK.on_gradient(Tensor([1.0]), heard.append)()
    assert not any(vars(HOOKS).values())
