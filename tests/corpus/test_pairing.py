"""The corpora of what real ports do: nearly all tensors paired, none wrongly, the right exit code, the right place.

By default the first pair of each class; twenty, in three types, with `-m slow`.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import twintrace as tt
from corpus.pairing import scoring
from corpus.pairing.cases import CLASSES, draw
from corpus.pairing.corpora import PAIRS, outcomes, table, way_of
from corpus.pairing.running import DTYPES, ends, recorded
from corpus.pairing.scoring import ENOUGH, Outcome, Score
from corpus.pairing.truth import Run, Truth, equal
from twintrace.model.pairs import Layout

pytestmark = pytest.mark.needs_torch

GAPS: dict[str, str] = {}
"""Ways that fall short, and why. One that does not any more has to go."""


def check(found: list[Outcome]) -> None:
    short = [outcome for outcome in found if not outcome.perfect and way_of(outcome.pair) not in GAPS]
    told = "\n".join(map(str, short))
    assert not [
        outcome for outcome in short if outcome.wrong or not (outcome.right and outcome.placed and outcome.said)
    ], told
    score = Score.of(outcome for outcome in found if way_of(outcome.pair) not in GAPS)
    assert score.tensors
    assert score.share >= ENOUGH, told


@pytest.mark.parametrize("number", CLASSES)
def test_one_of_a_class(number):
    check(list(itertools.islice(outcomes(number, 3, ["f32"], without=GAPS), 2)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_cells_by_hand_beside_an_lstms_kernel(tmp_path, dtype):
    """One kernel for a layer, and one for its backward pass, which reads what the first has saved; in f16 PyTorch has none."""
    [pair] = [pair for pair in draw(8, PAIRS) if way_of(pair.name) == "8-kernels-lstm"]
    outcomes = list(scoring.outcomes_of(pair, tmp_path, [dtype]))
    assert all(outcome.perfect for outcome in outcomes), "\n".join(map(str, outcomes))


def test_masks_that_are_filled_and_masks_that_are_added(tmp_path):
    """Both fill where the same mask is: one its scores, the other zeros. That makes no pair of the two."""
    [pair] = [pair for pair in draw(14, PAIRS) if pair.name == "14-effects-added-4"]
    check(list(scoring.outcomes_of(pair, tmp_path, ["f32"])))


def test_labels_in_another_order_without_values(tmp_path):
    """The two losses are near each other by chance; the gradients are not."""
    [pair] = [pair for pair in draw(5, PAIRS) if pair.name == "5-orders-labels-7"]
    check(list(scoring.outcomes_of(pair, tmp_path, ["bf16"])))


@pytest.mark.slow
@pytest.mark.parametrize("number", CLASSES)
def test_all_of_a_class(number):
    found = list(outcomes(number))
    check(found)
    closed = {name for name in GAPS if name.startswith(f"{number}-")} - {
        way_of(item.pair) for item in found if not item.perfect
    }
    assert not closed, "these fall short no more: take them out of GAPS"


# --- the corpora are what they say ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [number for number in CLASSES if number != 13])
def test_a_class_has_pairs_that_agree_and_pairs_that_do_not(number):
    drawn = list(draw(number, PAIRS))
    assert len({pair.name for pair in drawn}) == len(drawn) == PAIRS
    assert len({pair.want for pair in drawn}) > 1
    assert {pair.nested for pair in drawn} == {True, False}
    assert all(pair.place for pair in drawn if pair.want == "part")


def differ(one, two):
    """Do two results differ: tensors by more than rounding, or anything else?"""
    if not isinstance(one, np.ndarray):
        return repr(one) != repr(two)
    return not equal(one, two, Layout())


@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in CLASSES if number != 13])
def test_a_mistake_changes_a_result_and_nothing_else_does(number):
    """In float64, where rounding has no part in it."""
    for pair in draw(number, PAIRS):
        (left, _), (right, weights), (results, after) = (
            ends(pair, *which) for which in ((0, False), (1, False), (1, pair.differs))
        )
        assert not any(map(differ, left, right)), pair.name
        changed = any(map(differ, right, results)) or after.keys() != weights.keys()
        changed = changed or any(differ(after[name], weights[name]) for name in weights)
        assert changed is (pair.want == "part"), pair.name


# --- a score can be bad -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A pair that agrees: its comparison, its truth, its runs."""
    pair = next(draw(7, 1))
    folder = tmp_path_factory.mktemp("pair")
    paths = recorded(pair, folder / "f32", DTYPES["f32"])
    truth = Truth(
        *(Run(tt.open(path).journal(0)) for path in recorded(pair, folder / "sound", scoring.torch.float64, sound=True))
    )
    runs = [{0: Run(tt.open(path).journal(0))} for path in paths]
    return pair, tt.compare(*paths), truth, runs


def outcome_with(compared, change):
    """The outcome if the results of the comparison were these."""
    pair, found, truth, runs = compared
    return scoring._outcome(pair, "f32", "there", replace(found, results=change(list(found.results))), {0: truth}, runs)


def exchanged(results):
    """The right tensors of the first two pairs of two layers, each in the other's place."""
    one, two = [
        item for item in results if item.match.left and item.match.left[0].site.name == "torch.nn.functional.linear"
    ][:2]
    swapped = [
        replace(item, match=replace(item.match, tensors=tuple(
            replace(pair, right=other.right) for pair, other in zip(item.match.tensors, partner.match.tensors, strict=False)
        )))
        for item, partner in ((one, two), (two, one))
    ]  # fmt: skip
    return [*swapped, *(item for item in results if item not in (one, two))]


def test_a_good_alignment_scores_well(compared):
    found = outcome_with(compared, lambda results: results)
    assert found.perfect, found
    assert found.asked > 5


def test_exchanged_tensors_are_wrong_pairs(compared):
    assert len(outcome_with(compared, exchanged).wrong) >= 4


def test_a_layout_counts(compared):
    def transposed(results):
        return [
            replace(item, match=replace(item.match, tensors=tuple(
                replace(pair, layout=Layout((1, 0))) if pair.left_slot == "weight" else pair for pair in item.match.tensors
            )))
            for item in results
        ]  # fmt: skip

    assert outcome_with(compared, transposed).wrong


def test_pairs_that_are_not_made_are_missing(compared):
    found = outcome_with(compared, lambda results: results[: len(results) // 2])
    assert found.missing
    assert not found.wrong


@pytest.mark.parametrize(
    ("want", "code", "right"),
    [("agree", 0, True), ("agree", 1, False), ("agree", 3, False), ("part", 1, True), ("part", 0, False),
     ("part", 3, False), ("remark", 0, True), ("remark", 1, False), ("harmless", 1, False)],
)  # fmt: skip
def test_an_exit_code_is_held_against_what_is_wanted(want, code, right):
    outcome = Outcome("1-some-0", want, "f32", "there", code, "", True, True, 10)
    assert outcome.right is right
    score = Score.of([outcome])
    assert score.codes == right
    assert score.met is right
    assert score.false_agreements == (want == "part" and code == 0)
    assert score.false_alarms == (want != "part" and code == 1)
    assert score.undecided == (code == 3)


def test_a_score_needs_nearly_all_pairs_and_no_wrong_one():
    outcome = Outcome("1-some-0", "agree", "f32", "there", 0, "", True, True, 100)
    assert Score.of([outcome, replace(outcome, missing=("one",))]).met
    assert not Score.of([outcome, replace(outcome, missing=("one", "two", "three"))]).met
    assert not Score.of([outcome, replace(outcome, wrong=("one",))]).met
    assert "| 1 left alone, and does not matter | 1 | 1 | 100 of 100 (100.00%) | 0 |" in table({1: Score.of([outcome])})
