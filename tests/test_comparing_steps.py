"""Many steps: short cuts change no verdict, the first bit that differs is named, and memory does not grow with the steps."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise

import pytest

import twintrace as tt
from twintrace.api import places, stepping, walking
from twintrace.collect.processes import unseen
from twintrace.model.pairs import Alignment
from twintrace.model.results import Comparison, StepResults
from twintrace.model.verdicts import Outcome
from twintrace.report import document
from twintrace.report.comparison_sheet import comparison_sheet

pytestmark = pytest.mark.needs_torch

STEPS = 12
PLANTED = 5
"""The step in which the right run differs."""


def train(
    path, *, level="module", keep="fingerprint", steps=STEPS, plant=None, plant_in=PLANTED, every=None, rate=None
):
    """A small training with dropout; `plant(kind of place, objects)` is called in the step `plant_in`."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(1)
    with tt.record(path, net, level=level, keep=keep) as recorder:
        for step in range(steps):
            rows = torch.randn(4, 6, generator=data)
            labels = torch.randint(0, 3, (4,), generator=data)
            with unseen():  # no call that the other side does not make
                rows = rows.clone()
                if plant is not None and step == plant_in:
                    plant(torch, rows, net, optimizer)
            if rate is not None:
                optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(rows), labels).backward()
            optimizer.step()
            if every is not None and step % every == every - 1:
                net.eval()
                net(torch.ones(2, 6))
                net.train()
            recorder.step()
    return path


def other_data(torch, rows, net, optimizer):
    rows[1, 2] += 0.25


def other_weights(torch, rows, net, optimizer):
    with torch.no_grad():
        net[4].weight[0, 0] += 0.25


def other_state(torch, rows, net, optimizer):
    if optimizer.state:
        optimizer.state[net[4].weight]["exp_avg"] += 0.25
    else:
        other_weights(torch, rows, net, optimizer)


def other_random_numbers(torch, rows, net, optimizer):
    torch.manual_seed(17)


def one_last_bit(torch, rows, net, optimizer):
    rows[0, 0] = torch.nextafter(rows[0, 0], torch.tensor(9.0))


PLANTS = {
    "nothing": None,
    "data": other_data,
    "weights": other_weights,
    "optimizer": other_state,
    "random": other_random_numbers,
    "a last bit": one_last_bit,
}


def described(found: Comparison, upto: int | None = None) -> list[object]:
    """Everything that a user reads of a comparison; of its results those up to a step."""
    first = [
        item and (str(item.result.match.left), item.result.step, item.because, item.advice, item.after, item.share)
        for item in (found.forward, found.backward)
    ]
    results = [result for result in found.results if upto is None or result.step <= upto]
    return [found.code, found.parted, first, results, found.only_left, found.only_right, found.strays]


@pytest.fixture(scope="module")
def lefts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("left")
    return {level: train(folder / level, level=level) for level in ("module", "mix")}


@pytest.mark.parametrize("level", ["module", "mix"])
@pytest.mark.parametrize("plant_in", [0, PLANTED, STEPS - 1])
@pytest.mark.parametrize("plant", PLANTS)
def test_short_cuts_change_no_verdict(tmp_path, lefts, level, plant, plant_in):
    right = train(tmp_path / "right", level=level, plant=PLANTS[plant], plant_in=plant_in)
    short, long = (tt.compare(lefts[level], right, every_step=every) for every in (False, True))
    last = None if not short.followed else short.followed[0].step - 1
    assert described(short, last) == described(long, last)
    assert not long.followed
    assert long.equal_steps == ()
    if plant == "nothing":
        assert short.code == 0
        assert len(short.equal_steps) >= STEPS - 3
    elif plant == "a last bit":
        assert short.code != 0
    elif plant == "optimizer" and level == "module" and plant_in == STEPS - 1:
        assert short.code == 0  # nothing that was recorded comes of it
    else:
        assert short.code == 1
        assert short.divergence.result.step == long.divergence.result.step <= plant_in + 1
    heads = [str(tt.verdict(found)).splitlines()[0] for found in (short, long)]
    assert heads[0] == heads[1]


@pytest.mark.parametrize("plant", ["data", "weights", "random"])
@pytest.mark.parametrize("level", ["module", "mix"])
def test_the_first_bit_and_where_it_comes_from(tmp_path, lefts, level, plant):
    right = train(tmp_path / "right", level=level, plant=PLANTS[plant])
    found = tt.compare(lefts[level], right)
    assert found.first_bit.step == PLANTED
    # At level module the optimizer's step is not recorded: of equal gradients another weight was made.
    expected = "optimizer" if (plant, level) == ("weights", "module") else plant
    assert found.first_bit.origin == expected
    assert f"The first bit that differs is in step {PLANTED}" in str(tt.verdict(found))


def test_weights_that_differ_from_the_start_are_weights(tmp_path, lefts):
    right = train(tmp_path / "right", plant=other_weights, plant_in=0)
    found = tt.compare(lefts["module"], right)
    assert (found.first_bit.step, found.first_bit.origin) == (0, "weights")
    assert "parameter weight" in found.first_bit.where


@pytest.mark.parametrize(("level", "step"), [("module", PLANTED + 1), ("mix", PLANTED)])
def test_another_state_of_the_optimizer_is_the_optimizer(tmp_path, lefts, level, step):
    """At level module it shows in the weights of the next step; at level mix the optimizer's step itself is recorded."""
    found = tt.compare(lefts[level], train(tmp_path / "right", level=level, plant=other_state))
    assert (found.first_bit.step, found.first_bit.origin) == (step, "optimizer")


def test_no_bit_differs_in_equal_runs(tmp_path, lefts):
    found = tt.compare(lefts["module"], train(tmp_path / "right"))
    assert found.first_bit is None
    assert "first bit" not in str(tt.verdict(found))


def test_equal_steps_are_not_held(tmp_path, lefts):
    found = tt.compare(lefts["module"], train(tmp_path / "right"))
    assert isinstance(found.results, StepResults)
    assert len(found.results) == found.count(Outcome.SAME, Outcome.UNKNOWN) == sum(1 for _ in found.results)
    assert {result.step for result in found.judged} == {0}
    order = [(result.step, result.rank) for result in found.results]
    assert order == sorted(order)
    assert {result.step for result in found.at(7, 0)} == {7}
    statistics = {result.tensors[0].left.statistics for result in found.results if result.match.left}
    assert len(statistics) > STEPS  # each step has its own numbers


def test_what_comes_long_after_the_parting_is_followed(tmp_path, lefts):
    found = tt.compare(lefts["module"], train(tmp_path / "right", plant=other_data))
    assert [item.step for item in found.followed] == list(range(PLANTED + 4, STEPS))
    assert all(0 < item.different <= item.tensors for item in found.followed)
    assert f"step{'s'} {PLANTED + 4}-{STEPS - 1}" in " ".join(found.remarks)
    alone = tt.compare(lefts["module"], tmp_path / "right", steps=[STEPS - 1])
    assert alone.code == 1
    assert not alone.followed


def test_accepting_the_parting_is_no_agreement_about_what_was_not_judged(tmp_path, lefts):
    """A second mistake may be among the steps that were only followed."""
    from twintrace.api.accepting import Accepted, accept

    found = tt.compare(lefts["module"], train(tmp_path / "right", plant=other_data))
    accepted = accept(found, [Accepted("*")])
    assert not any(mistake.effective for _, mistake in accepted.mistakes)
    assert accepted.code == 3


def test_a_step_and_the_whole_agree(tmp_path, lefts):
    """A step that the whole comparison passes over is the same alone; one that it follows differs alone."""
    right = train(tmp_path / "right", plant=other_data)
    whole = tt.compare(lefts["module"], right)
    for step in range(STEPS):
        alone = tt.compare(lefts["module"], right, steps=[step])
        differs = step in {item.step for item in whole.followed if item.different} or any(
            result.verdict.outcome is not Outcome.SAME for result in whole.at(step, 0)
        )
        assert (alone.code == 0) == (not differs), step
        assert any("not compared" in remark for remark in alone.remarks) == (differs and step > 0)


def test_evaluation_between_the_steps_and_a_rate_that_changes(tmp_path):
    """Two structures in turn, and a line that is another in each step: all the same, nothing is missed."""
    options = {"level": "mix", "every": 3, "rate": lambda step: 0.01 / (step + 1)}
    left, right = train(tmp_path / "a", **options), train(tmp_path / "b", **options)
    third = train(tmp_path / "c", **options, plant=other_data, plant_in=8)
    assert len(list(left.rglob("numbers.bin"))) >= STEPS - 4
    for other in (right, third):
        short, long = (tt.compare(left, other, every_step=every) for every in (False, True))
        last = short.followed[0].step - 1 if short.followed else None
        assert described(short, last) == described(long, last)
    assert tt.compare(left, third).first_bit.step == 8


def test_nan_in_equal_steps_is_told(tmp_path):
    def broken(torch, rows, net, optimizer):
        rows[0, 0] = float("nan")

    left, right = (train(tmp_path / name, plant=broken) for name in "ab")
    short, long = (tt.compare(left, right, every_step=every) for every in (False, True))
    told = [[remark for remark in found.remarks if "NaN on both sides" in remark] for found in (short, long)]
    assert told[0] == told[1] != []
    assert len(short.equal_steps) == PLANTED - 1
    assert (
        tt.compare(left, right, equal_nan=False).code == tt.compare(left, right, equal_nan=False, every_step=True).code
    )


@pytest.mark.parametrize("policy", ["msprobe", "torch_testing", "troubleshooter"])
def test_other_policies_take_the_same_short_cuts(tmp_path, lefts, policy):
    right = train(tmp_path / "right", plant=other_data)
    short, long = (tt.compare(lefts["module"], right, policy=policy, every_step=every) for every in (False, True))
    assert short.code == long.code
    assert short.divergence.result.step == long.divergence.result.step


def test_statistics_alone_are_not_passed_over_by_fingerprint(tmp_path):
    """Without fingerprints, steps are equal if all numbers are; and that is not told to be bit by bit."""
    left, same, other = (
        train(tmp_path / name, keep="statistics", plant=plant)
        for name, plant in (("a", None), ("b", None), ("c", other_data))
    )
    assert "bit by bit" not in str(tt.verdict(tt.compare(left, same))).splitlines()[0]
    short, long = (tt.compare(left, other, every_step=every) for every in (False, True))
    assert short.code == long.code == 1
    assert short.divergence.result.step == long.divergence.result.step == PLANTED


@pytest.mark.parametrize("plant", ["nothing", "data"])
def test_reports_are_the_same(tmp_path, lefts, plant):
    """Documents and pages have every pair of steps that were passed over, and point to the same ones."""
    right = train(tmp_path / "right", plant=PLANTS[plant], plant_in=STEPS - 2)
    short, long = (replace(tt.compare(lefts["module"], right, every_step=every), remarks=()) for every in (False, True))
    assert short.equal_steps
    assert "".join(document.comparison_json(short)) == "".join(document.comparison_json(long))
    pages = [comparison_sheet(found) for found in (short, long)]
    assert pages[0].index == pages[1].index


class Pairer:
    """Gives the alignments it was made with, one after the other, and counts."""

    def __init__(self, *alignments):
        self.left = list(alignments)

    def __call__(self, left, right):
        return self.left.pop(0)


def paired(traces, alignments, steps):
    """Alignments that are used for so many steps of one structure."""
    walk = walking.Walk(places.Request(traces, None, Pairer(*alignments), shortcuts=True))
    journals = [(traces[0].journal(step), traces[1].journal(step)) for step in range(1, steps + 1)]
    return [walk._paired(stepping.outlines_of(both), None, None) for both in journals]


def test_a_structure_is_paired_once(lefts):
    one, two = (Alignment((), (), (), stray_left=(stray,)) for stray in ("one", "two"))
    traces = (tt.open(lefts["module"]), tt.open(lefts["module"]))
    assert paired(traces, [one, two], 4) == [one] * 4


def test_the_pairing_of_two_programs_must_come_twice(tmp_path, lefts):
    """Values may be alike by chance in one step."""
    one, two = (Alignment((), (), (), stray_left=(stray,)) for stray in ("one", "two"))
    traces = (tt.open(lefts["mix"]), tt.open(lefts["module"]))
    assert paired(traces, [one, two, two, one], 4) == [one, two, two, two]
    assert paired(traces, [one, one, two, two], 4) == [one] * 4


def test_memory_does_not_grow_with_the_steps(tmp_path):
    """What is held of a comparison is the same for 10 and for 40 equal steps."""
    import pickle

    sizes = []
    for steps in (10, 40):
        left, right = (train(tmp_path / f"{name}{steps}", steps=steps) for name in "ab")
        found = tt.compare(left, right)
        held = [copy.copy(result) for result in found.judged]
        sizes.append(len(pickle.dumps(held)))
    assert all(later <= 1.05 * earlier for earlier, later in pairwise(sizes))
