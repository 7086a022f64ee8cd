"""The verbs above the recorder: what two traces have in common, what a trace looks like, what is said of bad input."""

from __future__ import annotations

import json
from unittest import mock

import numpy as np
import pytest

import twintrace as tt
from twintrace import api
from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import LayerNorm, Linear, Module, Tensor
from twintrace.model.pairs import Part
from twintrace.model.verdicts import Outcome


class Net(Module):
    """Two layers with a norm between them."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.first, self.norm, self.last = Linear(3, 4), LayerNorm(4, eps=eps), Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(mini.relu(self.norm(self.first(x))))


def fixed(net: Net) -> Net:
    """The same weights every time."""
    generator = np.random.default_rng(0)
    for layer in net.first, net.last:
        layer.weight.array[...] = generator.normal(size=layer.weight.shape)
    return net


def run(path, *, eps=1e-5, scale=1.0, steps=1, extra=False, factor=1.0, level="mix", keep="fingerprint", unsteady=None):
    """Train the net for some steps, recorded; the differences that a port could have are arguments.

    unsteady   the epsilon that the norm uses whatever it is told: a machine that does not repeat itself
    """
    net = fixed(Net(eps))
    optimizer = mini.Descent([net.first.weight, net.last.weight], 0.1)
    steady, told = mini._normalise, unsteady
    machine = mock.patch.object(mini, "_normalise", lambda a, eps: steady(a, eps if told is None else told))
    with machine, tt.record(path, net, level=level, keep=keep, strict=True, framework="reference") as rec:
        for _ in range(steps):
            x = Tensor(np.ones((2, 3), np.float32) * np.float32(scale))
            loss = mini.total(net(x)) * factor
            if extra:
                mini.relu(loss)
            loss.backward()
            optimizer.step()
            rec.step()
    return path


@pytest.fixture
def left(tmp_path):
    return run(tmp_path / "left")


def test_every_verb_is_where_the_table_says():
    lent = [name for names in api._LENT.values() for name in names]
    assert len(api.__all__) == len(set(api.__all__)) > 60
    assert [name for name in (*api.__all__, *lent) if not hasattr(api, name)] == []
    assert set(lent).isdisjoint(api.__all__)
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = api.unheard_of


@pytest.mark.parametrize("keep", ["statistics", "fingerprint", "tensor"])
def test_two_equal_runs_agree(tmp_path, keep):
    found = api.compare(run(tmp_path / "a", keep=keep), run(tmp_path / "b", keep=keep))
    assert found.agree
    assert found.divergence is None
    assert found.count(Outcome.SAME) == len(found.results) > 5
    assert "agree: all" in api.verdict(found)


@pytest.mark.parametrize("keep", ["statistics", "fingerprint", "tensor"])
def test_the_call_that_parts_is_named_with_the_setting_that_differs(tmp_path, keep):
    found = api.compare(run(tmp_path / "a", keep=keep), run(tmp_path / "b", eps=1e-2, keep=keep))
    assert not found.agree
    assert found.divergence.result.match.left[0].site.path == "norm"
    assert not found.divergence.inherited
    assert found.divergence.result.settings["eps"] == ("1e-05", "0.01")
    text = api.verdict(found)
    assert "norm" in text.splitlines()[0]
    assert "eps: 1e-05 | 0.01" in text
    assert "test_api.py" in text
    assert len(text.splitlines()) <= 15


def test_at_module_level_the_module_is_named(tmp_path):
    found = api.compare(run(tmp_path / "a", level="module"), run(tmp_path / "b", eps=1e-2, level="module"))
    site = found.divergence.result.match.left[0].site
    assert (site.name, site.type) == ("norm", "LayerNorm")


@pytest.mark.needs_torch  # recomputes
def test_inputs_that_differ_from_the_start_are_said_to(tmp_path, left):
    found = api.compare(left, run(tmp_path / "b", scale=2.0))
    assert found.divergence.mistake.kind == "leaf"
    assert "the two start from different data" in api.verdict(found)


def test_a_difference_in_the_backward_pass_alone_is_found_there(tmp_path, left):
    """The forward pass is the same until the loss is scaled; what parts first is that scaling, not a layer's gradient."""
    found = api.compare(left, run(tmp_path / "b", factor=3.0))
    assert "mul" in found.divergence.result.match.left[0].site.name


@pytest.mark.needs_torch  # recomputes
def test_calls_on_one_side_only_are_counted_and_named(tmp_path, left):
    found = api.compare(left, run(tmp_path / "b", extra=True))
    assert not found.only_left
    ((step, rank, alone),) = found.only_right
    assert (step, rank, alone.skipped) == (0, 0, False)
    assert "relu" in alone.call.site.name
    assert alone.because
    assert found.code == 0  # nobody takes what it makes of the loss, and the loss has a backward pass of its own
    assert "Unpaired: 0 left, 1 right" in api.verdict(found)


def test_steps_on_one_side_only_are_remarked(tmp_path, left):
    found = api.compare(left, run(tmp_path / "b", steps=2))
    assert any("step 1" in remark for remark in found.remarks)


def test_nothing_in_common_is_an_error_that_says_so(tmp_path, left):
    net = Linear(1, 1)
    with tt.record(tmp_path / "b", net, framework="reference") as rec:
        rec.step(7)
        net(Tensor(np.ones((1, 1), np.float32)))
    trace = tt.open(tmp_path / "b")
    assert trace.steps == (7,)
    with pytest.raises(tt.TraceError, match="no step and rank in common"):
        api.compare(left, tmp_path / "b")


def test_a_damaged_line_costs_its_record_and_is_reported(tmp_path, left):
    right = run(tmp_path / "b")
    journal = right / "step0" / "rank0" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if line.startswith(b'{"k":"call"'))
    lines[number] = lines[number].replace(b'"call"', b'"calm"', 1)
    journal.write_bytes(b"".join(lines))
    found = api.compare(left, right)
    assert any("damaged" in remark for remark in found.remarks)


def test_a_listing_is_a_tree_in_the_order_of_the_calls(left):
    found = api.listing(left)
    sites = [(row.depth, row.site) for row in found.rows]
    assert sites[0] == (0, "(model)")
    assert (1, "first") in sites
    assert [site for _, site in sites].index("first") < [site for _, site in sites].index("norm")
    assert found.calls == len(found.rows)
    assert found.rows[1].outputs == ("f32[2, 4]",)


def test_a_listing_can_be_cut_and_says_by_how_much(left):
    found = api.listing(left, limit=3)
    assert len(found.rows) == 3
    assert found.hidden == found.calls - 3


def test_the_listing_as_json_is_the_listing(left):
    found = api.listing(left)
    data = json.loads(api.listing_json(found))
    assert data["calls"] == found.calls
    assert data["rows"][0]["site"] == "(model)"


def test_the_doctor_says_what_is_there_and_how_to_get_the_rest():
    found = {finding.subject: finding for finding in api.doctor()}
    assert found["python"].good
    assert found["fast digest"].text
    assert all(finding.remedy for finding in found.values() if not finding.good)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": "deep"}, "level: expected one of 'module', 'api', 'mix', 'op', got 'deep'"),
        ({"keep": "all"}, "keep: expected one of 'statistics', 'fingerprint', 'tensor', got 'all'"),
        ({"first": 0}, "first: expected a positive number"),
        ({"names": "relu"}, "names: expected a list of patterns"),
        ({"names": []}, "names: expected a list of patterns"),
        ({"names": 3}, "names: expected a list of patterns"),
        ({"steps": 1}, "steps: expected a collection of numbers"),
        ({"between": "02"}, "between: expected two module paths"),
        ({"names": ["re:("]}, "not a regular expression"),
        ({"steps": "3"}, "steps: expected a collection of numbers"),
        ({"between": ("a",)}, "between: expected two module paths"),
        ({"predicate": 3}, "predicate: expected a function"),
        ({"buffer": "much"}, "buffer: expected a number of bytes"),
        ({"framework": "caffe"}, "unknown framework 'caffe'"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_anything_is_written(tmp_path, arguments, message):
    with pytest.raises(tt.UsageError, match=message.replace("(", r"\(")):
        tt.record(tmp_path / "t", Net(), **arguments)
    assert not (tmp_path / "t").exists()


def test_a_model_that_is_not_one_is_refused(tmp_path):
    with pytest.raises(tt.UsageError, match="model: expected a module of a known framework"):
        tt.record(tmp_path / "t", object())
    with pytest.raises(tt.UsageError, match=r"model\['1'\]"):
        tt.record(tmp_path / "t", [Net(), 3])


def test_modules_need_a_model(tmp_path):
    with pytest.raises(tt.UsageError, match="no model was given"):
        tt.record(tmp_path / "t", level="mix", framework="reference")


def test_a_trace_is_not_overwritten_unasked(left):
    with pytest.raises(tt.TraceError, match="already holds another trace"):
        tt.record(left, Net())
    assert tt.open(left).steps == (0,)
    tt.record(left, Net(), overwrite=True).close()
    assert tt.open(left).steps == ()


@pytest.mark.needs_torch  # recomputes
def test_a_gradient_that_differs_alone_is_a_difference(tmp_path):
    """Same values everywhere, and yet the two runs would train differently."""

    def train(path, *, detached):
        net = fixed(Net())
        with tt.record(path, net, level="module", strict=True, framework="reference"):
            loss = mini.total(net(Tensor(np.ones((2, 3), np.float32))))
            if not detached:
                loss.backward()
        return path

    found = api.compare(train(tmp_path / "a", detached=False), train(tmp_path / "b", detached=True))
    assert not found.agree
    assert found.strays
    assert not found.count(Outcome.DIFFERENT)
    assert "only the left has a gradient of" in api.verdict(found)


@pytest.mark.needs_torch  # recomputes
def test_the_first_step_that_differs_is_named(tmp_path):
    def train(path, scales):
        net = fixed(Net())
        with tt.record(path, net, level="mix", strict=True, framework="reference") as rec:
            for scale in scales:
                net(Tensor(np.ones((2, 3), np.float32) * np.float32(scale)))
                rec.step()
        return path

    found = api.compare(train(tmp_path / "a", (1, 1, 1, 1)), train(tmp_path / "b", (1, 1, 5, 5)))
    assert (found.divergence.result.step, found.divergence.mistake.kind) == (2, "leaf")


def test_a_layer_with_other_weights_is_named_and_not_the_model_around_it(tmp_path):
    def train(path, weight):
        net = Net()
        net.last.weight.array[...] = weight
        net.first.weight.array[...] = 1.0
        with tt.record(path, net, level="module", strict=True, framework="reference"):
            net(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))
        return path

    found = api.compare(train(tmp_path / "a", 1.0), train(tmp_path / "b", 2.0))
    assert found.divergence.result.match.left[0].site.name == "last"
    assert found.divergence.tensors[0].pair.part is Part.PARAMETER
    assert "different weights" in api.verdict(found)


def test_statistics_alone_do_not_claim_bits(tmp_path):
    text = api.verdict(api.compare(run(tmp_path / "a", keep="statistics"), run(tmp_path / "b", keep="statistics")))
    assert "bit by bit" not in text
    assert "statistics" in text


def test_a_missing_step_is_no_agreement(tmp_path, left):
    found = api.compare(left, run(tmp_path / "b", steps=3))
    assert found.left_out == ((1, 0), (2, 0))
    assert not found.agree


def test_the_trace_stays_where_it_was_begun(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    net = Net()
    with tt.record("trace", net, strict=True, framework="reference") as rec:
        net(Tensor(np.ones((2, 3), np.float32)))
        monkeypatch.chdir(tmp_path / "elsewhere")
        rec.step()
        net(Tensor(np.ones((2, 3), np.float32)))
    assert tt.open(tmp_path / "trace").steps == (0, 1)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_step_that_is_not_there_is_said_to_be(left):
    with pytest.raises(tt.TraceError, match="has no step 9: it has 0"):
        api.listing(left, step=9)


def test_a_warning_points_at_the_users_own_line(tmp_path):
    net = Net()

    def broken(site):
        raise ArithmeticError

    with (
        pytest.warns(RuntimeWarning, match="ArithmeticError") as caught,
        tt.record(tmp_path / "t", net, predicate=broken),
    ):
        net(Tensor(np.ones((2, 3), np.float32)))
    assert {warning.filename for warning in caught} == {__file__}
