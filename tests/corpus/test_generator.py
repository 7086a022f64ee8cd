"""The generator is honest: a mistake changes a result, a rewrite changes none, every two choices meet, and a place can be wrong."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corpus.generator.cases import Case, Place, Side, Truth, is_blamed
from corpus.generator.families import FAMILIES, REWRITES, Family
from corpus.generator.pairwise import cover, pairs_of
from corpus.generator.scoring import CAUSE, PLACE_16, PLACE_F32, judge, outcome_of, summary, told
from twintrace.model.records import Call
from twintrace.model.sites import Kind, Phase, Site

pytestmark = [pytest.mark.needs_torch]

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (40231,)
"""For the scores; others are drawn by `python -m benchmarks.judge`."""


@pytest.fixture(scope="module")
def generator():
    """What needs PyTorch."""
    pytest.importorskip("torch")
    from corpus.generator import sampling, soundness

    return sampling, soundness


# --- what there is ----------------------------------------------------------------------------------------------------


def test_there_are_many_families_and_nets(generator):
    sampling, _ = generator
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) >= 20
    assert len({rewrite.name for rewrite in REWRITES}) == len(REWRITES) >= 20
    assert len(sampling.NET_NAMES) == 10
    assert sampling.MISTAKES >= 400
    assert sampling.RIGHT >= 60


@pytest.mark.parametrize("family", [*FAMILIES, *REWRITES], ids=lambda family: family.name)
def test_every_family_is_in_some_net(family, generator):
    sampling, _ = generator
    assert any(sampling.sites(net, family) for net in sampling.NET_NAMES)


def test_the_same_seed_gives_the_same_cases(generator):
    sampling, _ = generator
    once, other = (sampling.cases(seed, 12, 12) for seed in (5, 6))
    assert once.all != other.all
    assert len(once.mistakes) == 12
    assert len(once.rewrites) == 12
    # In another process, where sets have another order.
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "corpus.generator",
        "--seed",
        "5",
        "--mistakes",
        "12",
        "--rewrites",
        "12",
    ]
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests")))
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "7"}, capture_output=True, text=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()[:24]] == [case.name for case in once.all], done.stderr


def test_a_side_survives_json():
    side = Side(
        "torch", "gpt", (("blocks.0#choice", "order", (3, 1)), ("", "checkpointed", True)), "f32", "train", "same", 3
    )
    assert Side.from_json(json.loads(json.dumps(side.to_json()))) == side


# --- every two choices meet -------------------------------------------------------------------------------------------


def test_a_cover_has_every_pair_and_is_small():
    valid = [item for item in itertools.product("abcde", range(4), "xyz", (True, False)) if item[:2] != ("a", 0)]
    chosen = cover(valid, random.Random(0))
    assert set(chosen) <= set(valid)
    assert {pair for item in chosen for pair in pairs_of(item)} == {pair for item in valid for pair in pairs_of(item)}
    assert len(chosen) <= 2 * 5 * 4


# --- the truth is honest ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_mistake_changes_a_result_also_in_float64(family, generator):
    """Of each family one mistake, in a net that is drawn: rounding has no part in what it does."""
    sampling, soundness = generator
    rng = random.Random(family.name)
    nets = [net for net in sampling.NET_NAMES if sampling.sites(net, family)]
    for net in rng.sample(nets, len(nets)):
        combination = (family.name, net, "f32", family.modes[-1], "torch", "same", "right", "as it is")
        case = sampling._effective(rng, 7, family, combination, "0")
        if case is not None:
            assert soundness.means(case) > soundness.NOISE
            return
    pytest.fail(f"{family.name} changes nothing anywhere")


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_changes_nothing_but_rounding(rewrite, generator):
    """Everywhere in a net at once."""
    sampling, soundness = generator
    nets = [net for net in sampling.NET_NAMES if sampling.sites(net, rewrite)]
    net = random.Random(rewrite.name).choice(nets)
    mode = "train" if rewrite.train else rewrite.modes[-1]
    for number in range(2):
        plain = Side("torch", net, (), "f64", mode, "same", 7)
        sites = sampling.sites(net, rewrite)
        values = [
            (site, rewrite.knob, rewrite.values(right)[number % len(rewrite.values(right))]) for site, right in sites
        ]
        assert soundness.means(Case("", "", plain, plain.with_knobs(*values), Truth("agree"))) < soundness.NOISE


def test_a_rewrite_beside_it_does_not_pass_for_an_effect(generator):
    """A "mistake" that sets what is set already, beside rewrites that round otherwise."""
    sampling, _ = generator
    family = Family("none", "eps", lambda right: (right,), "", where=lambda site: site != "#optimizer")
    combination = (family.name, "gpt", "bf16", "forward", "torch", "same", "right", "rewritten")
    for number in range(4):
        assert sampling._effective(random.Random(number), 7, family, combination, "0") is None


def test_a_mistake_that_a_rewrite_undoes_is_none(generator):
    """A fused kernel knows no axis: beside it a wrong one is without effect."""
    _, soundness = generator
    plain = Side("torch", "encoder", (), "f64", "forward", "same", 7)
    wrong = plain.with_knobs(("blocks.0.attn", "axis", -2))
    fused = wrong.with_knobs(("blocks.0.attn", "fused", True))
    assert soundness.means(Case("", "", plain, wrong, Truth("part"))) > soundness.NOISE
    assert soundness.means(Case("", "", plain, fused, Truth("part"))) < soundness.NOISE


def test_what_has_no_effect_is_no_mistake(generator):
    """The check itself: the same side twice, and a knob that is not used."""
    _, soundness = generator
    plain = Side("torch", "mlp", (), "f32", "backward", "same", 7)
    assert soundness.changes(Case("", "", plain, plain, Truth("part"))) == 0
    assert soundness.changes(Case("", "", plain, plain.with_knobs(("fc1", "nothing", 1)), Truth("part"))) == 0
    assert soundness.changes(Case("", "", plain, plain.with_knobs(("fc1", "gain", 1.0 + 1e-6)), Truth("part"))) > 0


# --- a place, a cause and a verdict can be wrong ----------------------------------------------------------------------


def _call(name, path="", kind=Kind.API, phase=Phase.FORWARD):
    return Call(0, Site(kind, name, 0, phase, path), None, (), {}, None, {})


LINEAR = _call("torch.nn.functional.linear", "blocks.0.fc1")


@pytest.mark.parametrize(
    ("place", "call", "held"),
    [
        (Place("blocks.0.fc1"), LINEAR, True),
        (Place("blocks.0.fc1"), _call("blocks.0.fc1", kind=Kind.MODULE), True),
        (Place("blocks.0.fc1", "gelu"), LINEAR, False),
        (Place("blocks.0.fc1", "linear"), LINEAR, True),
        (Place("blocks.0.fc1", "linear"), _call("blocks.0.fc1", kind=Kind.MODULE), False),
        (Place("blocks.0.fc1", module=True), LINEAR, False),
        (Place("blocks.0.fc1", module=True), _call("blocks.0.fc1", kind=Kind.MODULE), True),
        (Place("blocks.0.fc2"), LINEAR, False),
        (Place("blocks.0"), LINEAR, False),
        (Place("blocks.0", deep=True), LINEAR, True),
        (Place("blocks.0.fc", deep=True), LINEAR, False),
        (Place("", update=True), LINEAR, False),
        (Place("", update=True), _call("torch.optim.Adam.step", phase=Phase.UPDATE), True),
        (Place(""), _call("torch.optim.Adam.step", phase=Phase.UPDATE), False),
    ],
)
def test_a_place_holds_its_own_calls(place, call, held):
    assert place.holds(call) is held


def test_both_sides_have_to_be_right():
    truth = Truth("part", (Place("blocks.0.fc1"),), (Place("layers.0.up"),))
    there = _call("mindspore.ops.MatMul", "layers.0.up")
    assert is_blamed(truth, [LINEAR], [there])
    assert is_blamed(truth, [LINEAR], [])
    assert not is_blamed(truth, [], [])
    assert not is_blamed(truth, [LINEAR], [LINEAR])
    assert is_blamed(Truth("part", truth.left, truth.right, lone=True), [LINEAR], [LINEAR])
    assert is_blamed(truth, [], [], ("blocks.0.fc1.weight", "layers.0.up.weight"))
    assert not is_blamed(truth, [], [], ("blocks.0.fc2.weight", "layers.0.up.weight"))


@pytest.mark.parametrize(
    ("want", "code", "text", "calls", "right", "placed", "caused"),
    [
        ("part", 1, "why: eps", [LINEAR], True, True, True),
        ("part", 1, "no idea", [LINEAR], True, True, False),
        ("part", 1, "why: eps", [_call("torch.relu")], True, False, True),
        ("part", 0, "why: eps", [], False, False, True),
        ("part", 3, "why: eps", [LINEAR], False, False, False),
        ("part", 1, "  left   nn.LayerNorm(8, eps=1)\n  next: `eps`", [LINEAR], True, True, False),
        ("agree", 0, "", [], True, True, True),
        ("agree", 1, "", [LINEAR], False, False, True),
        ("agree", 3, "", [], False, False, True),
        ("remark", 0, "remark: eps", [], True, True, True),
        ("remark", 0, "", [], False, True, False),
        ("remark", 1, "eps", [LINEAR], True, True, True),
    ],
)
def test_a_verdict_is_held_against_the_truth(want, code, text, calls, right, placed, caused):
    side = Side("torch", "mlp", (), "f32", "forward", "same", 0)
    places = (Place("blocks.0.fc1"),)
    case = Case("", "", side, side, Truth(want, places, places, r"\beps\b"))
    found = outcome_of(case, code, text, (calls, calls, ("", "")))
    assert (found.right, found.placed, found.caused) == (right, placed, caused)
    assert found.false_alarm is (want == "agree" and code != 0)
    assert found.false_agreement is (want == "part" and code == 0)


def test_quoted_source_is_no_cause():
    assert "eps" not in told("  left   x = norm(x, eps=1)\n  next   look at `eps`")


# --- slow: the whole sample, other frameworks, and the scores ---------------------------------------------------------


@pytest.mark.slow
def test_every_two_choices_meet_or_a_gap_says_why_not(generator):
    sampling, _ = generator
    sample = sampling.cases(SEEDS[0])
    assert len(sample.mistakes) >= 400
    assert len(sample.rewrites) >= 60
    assert len({case.name for case in sample.all}) == len(sample.all)
    drawn = {
        pair
        for case in sample.mistakes
        for pair in itertools.combinations((case.family, case.left.net, case.dtype, case.pair), 2)
    }
    possible = {
        pair
        for family, net, dtype, _, right, *_ in sampling._combinations()
        for pair in itertools.combinations((family, net, dtype, right), 2)
    }
    told_of = {f"{one} with {two}" for one, two in possible - drawn}
    assert {gap.partition(":")[0] for gap in sample.gaps} >= told_of


@pytest.mark.slow
@pytest.mark.needs_mindspore
def test_the_nets_compute_the_same_in_every_framework(generator, tmp_path):
    """Without a mistake: loss, output and gradients, in float32."""
    from corpus.generator.recording import record

    sampling, _ = generator
    cases = []
    for net, pair in itertools.product(sampling.NET_NAMES, ("mindspore", "msadapter")):
        if sampling.allowed(pair, "f32", net):
            left, right = (Side(framework, net, (), "f32", "backward", "same", 3) for framework in ("torch", pair))
            cases.append(Case(f"{net}-{pair}", "port", left, right, Truth("agree")))
    assert record(cases, tmp_path) == {}
    for case in cases:
        one, two = (dict(np.load(tmp_path / case.name / f"{side}.npz")) for side in ("left", "right"))
        for name in ("loss", "output"):
            np.testing.assert_allclose(one[name], two[name], rtol=1e-4, atol=1e-5, err_msg=f"{case.name} {name}")
        sums = [
            sorted(float(np.abs(value).sum()) for name, value in side.items() if name.startswith("grad:"))
            for side in (one, two)
        ]
        np.testing.assert_allclose(*sums, rtol=1e-3, atol=1e-4, err_msg=f"{case.name}: gradients")


@pytest.mark.slow
@pytest.mark.needs_mindspore
@pytest.mark.parametrize("seed", SEEDS)
def test_the_judge_reaches_its_scores(seed, generator, tmp_path):
    """No false alarm, no false agreement; places and causes as in scoring.py."""
    from corpus.generator.recording import record

    sampling, _ = generator
    sample = sampling.cases(seed)
    assert record(sample.all, tmp_path) == {}
    outcomes = [judge(case, tmp_path / case.name / "left", tmp_path / case.name / "right") for case in sample.all]
    assert [item.case.name for item in outcomes if item.false_alarm] == []
    assert [item.case.name for item in outcomes if item.false_agreement] == []
    missed = [f"{item.case.name}: {item.headline}" for item in outcomes if not (item.placed and item.caused)]
    for dtypes, share in ((("f32",), PLACE_F32), (("bf16", "f16"), PLACE_16)):
        assert summary(item for item in outcomes if item.case.dtype in dtypes).placed >= share, missed
    assert summary(outcomes).caused >= CAUSE, missed
