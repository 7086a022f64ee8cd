"""`compare` over recorded runs: policies, noise, selection, damage; what is said when something does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

import twintrace as tt
from tests.test_api import Net, fixed, run
from twintrace import api
from twintrace.frameworks.reference import miniature
from twintrace.frameworks.reference.miniature import Linear, Module, Tensor
from twintrace.model.verdicts import Outcome


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs with another epsilon, every value kept."""
    root = tmp_path_factory.mktemp("pair")
    return run(root / "left", keep="tensor"), run(root / "right", keep="tensor", eps=1e-2)


@pytest.fixture(scope="module")
def rounding(tmp_path_factory):
    """Two runs that differ by an epsilon that hardly matters: the last bits of what the norm puts out."""
    root = tmp_path_factory.mktemp("rounding")
    return run(root / "left", keep="tensor"), run(root / "right", keep="tensor", eps=1.1e-5)


def test_what_rounding_explains_is_agreement_and_bits_are_not_claimed(rounding):
    found = api.compare(*rounding, recompute=False)
    assert found.agree
    assert found.count(Outcome.ROUNDING) > 0
    assert "bit by bit." not in api.verdict(found)


@pytest.mark.needs_torch  # recomputes
def test_what_differs_and_cannot_be_recomputed_is_no_agreement(rounding):
    """The miniature's operations have no meaning outside of its tests."""
    found = api.compare(*rounding)
    assert found.code == 3
    assert not found
    assert found.count(Outcome.DIFFERENT) == 0
    assert "cannot be recomputed" in api.verdict(found)


@pytest.mark.parametrize("policy", ["auto", "torch_testing", "troubleshooter"])
def test_every_policy_sees_a_wrong_epsilon(pair, policy):
    found = api.compare(*pair, policy=policy)
    assert not found.agree
    assert found.policy == policy
    assert found.divergence.result.match.left[0].site.path == "norm"


def test_tolerances_by_hand_may_be_wide(pair, tmp_path):
    assert api.compare(*pair, rtol=10.0, atol=10.0).agree
    (tmp_path / "t.toml").write_text('rtol = 10.0\natol = 10.0\n[name."*layer_norm*"]\nrtol = 0\natol = 0\n')
    found = api.compare(*pair, tolerances=tmp_path / "t.toml")
    assert found.policy == "tolerances"
    parted = [result for result in found.results if result.verdict.outcome is Outcome.DIFFERENT]
    assert {call.site.path for result in parted for call in result.match.left} >= {"norm"}
    assert not [call for result in parted for call in result.match.left if call.site.name == "first"]


def test_the_noise_of_a_repeated_run_is_not_held_against_the_other(pair, tmp_path):
    left, right = pair
    assert not api.compare(left, right, noise=left).agree
    again = run(tmp_path / "again", keep="tensor", unsteady=1e-2)
    assert api.compare(left, right, noise=again).count(Outcome.DIFFERENT) == 0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"eps": 1e-2}, r"norm.* has eps: 1e-05 \| 0.01"),
        ({"extra": True}, "only the second calls forward/api:reference.relu#1"),
        ({"factor": 2.0}, "has argument 1: 1.0 . 2.0"),
        ({"level": "module"}, "only the first calls"),
        ({"scale": 5.0}, "the input 0 of .* has other values: it was given other data or weights"),
    ],
    ids=["a setting", "a call more", "an argument", "another level", "other data"],
)
def test_what_is_no_repeated_run_is_no_measure_of_noise(pair, tmp_path, changed, why):
    """Else the very difference that is looked for would be taken for noise."""
    with pytest.raises(tt.UsageError, match=rf"other is no repeated run of .*left, .* in step 0 of rank 0 .*{why}"):
        api.compare(*pair, noise=run(tmp_path / "other", **({"keep": "tensor"} | changed)))


def test_a_repeated_run_without_the_step_is_refused(pair, tmp_path):
    net = fixed(Net())
    with tt.record(tmp_path / "other", net, framework="reference") as rec:
        rec.step(5)
        net(Tensor(np.ones((2, 3), np.float32)))
    (tmp_path / "other" / "step0" / "rank0" / "journal.jsonl").unlink(missing_ok=True)
    with pytest.raises(tt.UsageError, match=r"noise: .* has no step 0 of rank 0"):
        api.compare(*pair, noise=tmp_path / "other")


def test_steps_can_be_chosen(tmp_path):
    left, right = run(tmp_path / "a", steps=3), run(tmp_path / "b", steps=3)
    found = api.compare(left, right, steps=[1])
    assert {result.step for result in found.results} == {1}
    assert found.agree
    with pytest.raises(tt.TraceError, match="among those that were asked for"):
        api.compare(left, right, steps=[9])


def test_a_damaged_tensor_costs_its_row_and_not_the_comparison(tmp_path):
    left, right = run(tmp_path / "a", keep="tensor"), run(tmp_path / "b", keep="tensor", eps=1e-2)
    payload = right / "step0" / "rank0" / "payload.bin"
    data = bytearray(payload.read_bytes())
    data[:] = bytes(byte ^ 0xFF for byte in data)
    payload.write_bytes(data)
    found = api.compare(left, right)
    assert found.count(Outcome.UNKNOWN) > 0
    assert found.count(Outcome.SAME, Outcome.ROUNDING) > 0
    assert any("could not be compared" in remark for remark in found.remarks)


def test_different_models_are_told_apart(tmp_path, pair):
    class Other(Module):
        def __init__(self):
            self.layer = Linear(5, 5)

        def forward(self, x):
            return self.layer(x)

    net = Other()
    net.layer.weight.array[...] = np.random.default_rng(1).normal(size=net.layer.weight.shape)
    with tt.record(tmp_path / "other", net, framework="reference"):
        net(Tensor(np.random.default_rng(2).normal(size=(7, 5)).astype(np.float32)))
    found = api.compare(pair[0], tmp_path / "other")
    assert not found.agree
    text = api.verdict(found)
    assert len(text.splitlines()) <= 15
    assert found.only_left
    assert not found.count(Outcome.SAME, Outcome.ROUNDING)


def test_progress_is_told(pair):
    told = []
    api.compare(*pair, progress=lambda what, done, total: told.append((what, done, total)))
    assert told[0][0].startswith("step 0, rank 0")
    assert told[-1][1] == told[-1][2] > 0


def test_records_are_parsed_once(pair, monkeypatch):
    from twintrace.store import parsing

    parsed, original = [], parsing.call_of
    monkeypatch.setattr(parsing, "call_of", lambda *args: parsed.append(args[0]["id"]) or original(*args))
    found = tt.compare(*pair, recompute=False)
    assert len(parsed) == sum(len(trace.journal(0)) for trace in map(tt.open, pair))
    assert found.results


def test_one_worker_finds_the_same(pair):
    assert api.compare(*pair, workers=1) == api.compare(*pair)


def test_a_run_with_itself_agrees_whatever_is_kept(pair):
    for trace in pair:
        found = api.compare(trace, trace)
        assert found.agree
        assert found.count(Outcome.SAME) == len(found.results)


def test_pairs_that_differ_have_a_picture(pair):
    found = api.compare(*pair)
    assert found.divergence.tensors[0].measurement.heat is not None


def test_a_line_of_the_journal_that_is_damaged_is_no_difference(tmp_path):
    """Not even the shape of such a tensor is known: it agrees with nothing and differs from nothing."""
    left, right = run(tmp_path / "a", keep="tensor"), run(tmp_path / "b", keep="tensor")
    journal = right / "step0" / "rank0" / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")
    last = max(number for number, line in enumerate(lines) if line.startswith(b'{"k":"tensor"'))
    lines[last] = lines[last][:-8] + b"\xff" * 8
    journal.write_bytes(b"\n".join(lines))
    found = api.compare(left, right)
    assert found.count(Outcome.DIFFERENT) == 0
    assert found.count(Outcome.UNKNOWN) > 0
    assert not found.agree
    assert "nothing differs where it could be told" in api.verdict(found)
    (damage,) = (remark for remark in found.remarks if "is damaged in 1 place," in remark)
    assert damage.count("journal.jsonl") == 1


@pytest.mark.needs_torch  # recomputes
def test_a_call_that_only_one_side_makes_is_named(tmp_path):
    class Halving(Module):
        def __init__(self, halves):
            self.halves = halves
            self.first, self.last = Linear(3, 4), Linear(4, 2)

        def forward(self, x):
            x = self.first(x)
            return self.last(miniature.mul(x, 0.5) if self.halves else x)

    for name in ("plain", "halved"):
        net = Halving(name == "halved")
        for layer, seed in ((net.first, 1), (net.last, 2)):
            layer.weight.array[...] = np.random.default_rng(seed).normal(size=layer.weight.shape)
        with tt.record(tmp_path / name, net, level="mix", keep="tensor", framework="reference"):
            net(Tensor(np.ones((2, 3), np.float32)))
    text = api.verdict(api.compare(tmp_path / "plain", tmp_path / "halved"))
    assert "only the right calls reference.mul before it" in text


def test_results_of_another_precision_are_told_though_rounding_explains_them(tmp_path):
    class Coarse(Module):
        def __init__(self, dtype):
            self.dtype = dtype

        def forward(self, x):
            return miniature.add(Tensor(x.array.astype(self.dtype)), 1.0)

    for dtype in ("float32", "float16"):
        with tt.record(tmp_path / dtype, net := Coarse(dtype), level="mix", keep="tensor", framework="reference"):
            net(Tensor(np.linspace(0, 1, 6, dtype=np.float32)))
    found = api.compare(tmp_path / "float32", tmp_path / "float16")
    assert any("of different precision, first f32 | f16" in remark for remark in found.remarks)


def test_names_from_a_trace_do_not_command_the_terminal(tmp_path, capsys):
    class Odd(Module):
        def forward(self, x):
            return self.__dict__["bad\n\x1b[31mname"](x)

    for name, bias in (("left", 0.0), ("right", 1.0)):
        net, layer = Odd(), Linear(3, 3)
        layer.bias.array[...] = bias
        setattr(net, "bad\n\x1b[31mname", layer)
        with tt.record(tmp_path / name, net, level="module", keep="tensor", framework="reference"):
            net(Tensor(np.ones((2, 3), np.float32)))
    found = api.compare(tmp_path / "left", tmp_path / "right")
    api.print_pairs(found, Console(width=200))
    for text in (api.verdict(found), capsys.readouterr().out):
        assert "\x1b" not in text
        assert r"bad\n\x1b[31mname" in text


def test_two_runs_of_nan_agree_and_are_told_of(tmp_path):
    found = api.compare(run(tmp_path / "a", scale=np.nan), run(tmp_path / "b", scale=np.nan))
    assert found.agree
    assert any("NaN on both sides, first: reference.linear" in remark for remark in found.remarks)


@pytest.mark.needs_torch
@pytest.mark.parametrize("keep", ["tensor", "statistics"])
def test_a_mistake_before_a_mask_is_named_and_not_the_softmax_after_it(tmp_path, keep):
    torch = pytest.importorskip("torch")

    def run(name, scale):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(6, 8, generator=generator)
        hidden = torch.triu(torch.full((6, 6), -1e9), 1)
        with tt.record(tmp_path / name, level="api", keep=keep, framework="torch"):
            scores = torch.matmul(x, x.T)
            scores = scores / scale
            torch.matmul(torch.softmax(scores + hidden, -1), x)

    run("left", 8**0.5)
    run("right", 8**0.5 * 1.01)
    comparison = tt.compare(tmp_path / "left", tmp_path / "right")
    assert not comparison.agree
    assert comparison.forward.result.match.left[0].site.name == "torch.Tensor.div"


@pytest.mark.needs_torch
def test_other_weights_are_told_as_that_also_where_a_function_takes_them(tmp_path):
    torch = pytest.importorskip("torch")
    for name, seed in (("left", 0), ("right", 1)):
        torch.manual_seed(seed)
        net = torch.nn.Linear(4, 3)
        with tt.record(tmp_path / name, net, level="mix", keep="statistics"):
            net(torch.ones(2, 4)).sum().backward()
    told = tt.verdict(tt.compare(tmp_path / "left", tmp_path / "right"))
    assert "the two start from different weights" in told
    assert "give both sides the same weights" in told


@pytest.mark.needs_torch
def test_another_smoothing_of_the_labels_is_named(tmp_path):
    """The loss is hardly moved by it, and its gradient by a tenth."""
    torch = pytest.importorskip("torch")
    logits = torch.randn(48, 60, generator=torch.Generator().manual_seed(0)) * 0.3
    labels = torch.arange(48)
    for name, smoothing in (("left", 0.0), ("right", 0.1)):
        x = logits.clone().requires_grad_()
        with tt.record(tmp_path / name, level="api", keep="tensor", framework="torch"):
            torch.nn.functional.cross_entropy(x, labels, label_smoothing=smoothing).backward()
    comparison = tt.compare(tmp_path / "left", tmp_path / "right")
    assert comparison.divergence.result.settings == {"label_smoothing": ("0.0", "0.1")}


@pytest.mark.needs_torch
def test_a_padding_of_another_kind_parts_together_with_the_convolution_that_takes_it(tmp_path):
    torch = pytest.importorskip("torch")
    x, weight = torch.randn(1, 2, 8), torch.randn(2, 2, 3)
    for name in ("left", "right"):
        with tt.record(tmp_path / name, level="api", keep="tensor", framework="torch"):
            y = torch.relu(x)
            if name == "right":
                y = torch.nn.functional.pad(y, (1, 1), mode="circular")
            torch.nn.functional.conv1d(y, weight, padding=0 if name == "right" else 1)
    told = tt.verdict(tt.compare(tmp_path / "left", tmp_path / "right"))
    assert "part at torch.nn.functional.conv1d | torch.nn.functional.pad" in told


@pytest.mark.needs_torch
def test_a_parameter_that_one_side_does_not_train_is_named(tmp_path):
    torch = pytest.importorskip("torch")
    for name in ("left", "right"):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
        net[0].weight.requires_grad_(name == "left")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with tt.record(tmp_path / name, net, level="mix", keep="statistics"):
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    told = tt.verdict(tt.compare(tmp_path / "left", tmp_path / "right"))
    assert "the output parameters.0 (0.weight)" in told
    assert "only the left has a gradient of 0.weight: is it frozen, or out of the loss, on the right?" in told


def test_modules_that_belong_together_may_be_said(pair):
    found = api.pair_up(*pair, modules={"first": "last"})[0, 0]
    said = {
        match.left[0].site.name: match.right[0].site.name
        for match in found.matches
        if match.because == "the mapping says so"
    }
    assert said == {"first": "last"}
    assert not any(match.because == "the mapping says so" for match in api.pair_up(*pair)[0, 0].matches)


def test_modules_and_a_mapping_file_are_one_too_many(pair, tmp_path):
    with pytest.raises(tt.UsageError, match="mapping and modules were both given"):
        api.pair_up(*pair, modules={}, mapping=tmp_path / "map.yaml")


def test_what_operations_and_parameters_are():
    assert api.same_operation("Dense", "Linear")
    assert api.same_operation("mindspore.ops.BatchMatMul", "torch.bmm")
    assert not api.same_operation("Dense", "LayerNorm")
    assert [api.parameter_role(name) for name in ("gamma", "embedding_table", "beta", "kernel")] == [
        "weight",
        "weight",
        "bias",
        "kernel",
    ]
