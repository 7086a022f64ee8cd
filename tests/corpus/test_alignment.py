"""What belongs together in two traces of a correct port is found, without a mapping file, and nothing else is.

By default a few pairs that are hard in different ways; all of them, and the other levels, with `-m slow`.
"""

from dataclasses import replace

import pytest

from corpus.notation import pair_names, truth_of
from corpus.oracle import Oracle
from corpus.record import SOME, aligned, journals, recordings, scored
from corpus.score import score
from twintrace.model.pairs import Layout

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

NAMES = pair_names()
FRESH = ["gpt", "resnet"]
ENOUGH = 0.98


@pytest.mark.parametrize("name", SOME)
def test_what_corresponds_is_paired(name, shared):
    found = scored(name, recordings(SOME, shared / "mix")[name])
    assert not found.wrong, str(found)
    assert found.share >= ENOUGH, str(found)


@pytest.mark.parametrize("name", SOME)
def test_statistics_are_enough(name, shared):
    """No fingerprint is needed: between two frameworks few bits are equal anyway."""
    found = scored(name, recordings(SOME, shared / "mix")[name], fingerprints=False)
    assert not found.wrong, str(found)
    assert found.share >= ENOUGH, str(found)


@pytest.mark.parametrize("name", FRESH)
def test_weights_that_are_all_alike_mislead_nobody(name, shared):
    """Right after construction all norms have the same ones and zeros."""
    found = scored(name, recordings(FRESH, shared / "fresh", fresh=True)[name])
    assert not found.wrong, str(found)
    assert found.share >= ENOUGH, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_all_alike_mislead_nobody_anywhere(name, shared):
    found = scored(name, recordings(NAMES, shared / "all-fresh", fresh=True)[name])
    assert not found.wrong, str(found)
    assert found.share >= ENOUGH, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["mix", "module", "api"])
@pytest.mark.parametrize("name", NAMES)
def test_what_corresponds_is_paired_at_every_level(name, level, shared):
    found = scored(name, recordings(NAMES, shared / f"all-{level}", level=level)[name])
    assert not found.wrong, str(found)
    assert found.share >= ENOUGH, str(found)


# --- a score that cannot be fooled ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlp(shared):
    left, right = journals(recordings(SOME, shared / "mix")["mlp"])
    return truth_of("mlp"), aligned(left, right), Oracle(left, right)


def matched(alignment, name):
    """Where in the alignment the left call of that name is."""
    return next(
        place for place, match in enumerate(alignment.matches) for call in match.left if str(call.site).endswith(name)
    )


def changed(alignment, place, **new):
    matches = list(alignment.matches)
    matches[place] = replace(matches[place], **new)
    return replace(alignment, matches=tuple(matches))


def test_a_match_that_was_forgotten_is_missed(mlp):
    truth, alignment, oracle = mlp
    place = matched(alignment, "module:layers.3#0")
    fewer = replace(alignment, matches=alignment.matches[:place] + alignment.matches[place + 1 :])
    before, after = score(truth, alignment, oracle), score(truth, fewer, oracle)
    assert before.asked == after.asked
    assert {text.split(" (")[0] for text in {*after.missing} - {*before.missing}} == {"forward/module:layers.3#0"}


def test_modules_that_do_not_correspond_are_wrong(mlp):
    truth, alignment, oracle = mlp
    places = [matched(alignment, f"module:layers.{number}#0") for number in (3, 5)]
    other = alignment.matches[places[1]].right
    found = score(truth, changed(alignment, places[0], right=other), oracle)
    assert "modules that do not correspond" in found.wrong[-1]


def test_tensors_of_other_values_are_wrong(mlp):
    truth, alignment, oracle = mlp
    places = [matched(alignment, f"module:layers.{number}#0") for number in (3, 5)]
    other = alignment.matches[places[1]].tensors
    found = score(
        truth, changed(alignment, places[0], tensors=tuple(replace(pair, left=pair.left) for pair in other)), oracle
    )
    assert found.share < 1
    pair = alignment.matches[places[0]].tensors[0]
    found = score(truth, changed(alignment, places[0], tensors=(replace(pair, right=other[0].right),)), oracle)
    assert "of other values" in found.wrong[0]


def test_another_layout_is_wrong(mlp):
    truth, alignment, oracle = mlp
    place = matched(alignment, "module:layers.3#0")
    (weight,) = (pair for pair in alignment.matches[place].tensors if pair.left_slot == "weight")
    found = score(truth, changed(alignment, place, tensors=(replace(weight, layout=Layout((1, 0), True)),)), oracle)
    assert "in another layout" in found.wrong[0]


def test_gradients_of_other_parameters_are_wrong(mlp):
    truth, alignment, oracle = mlp
    first, second, *rest = alignment.parameter_gradients
    crossed = (replace(first, right=second.right, right_slot=second.right_slot), *rest)
    found = score(truth, replace(alignment, parameter_gradients=crossed), oracle)
    assert "not the same parameter" in found.wrong[-1]
    assert len(found.missing) == 2


def test_a_reshape_makes_nothing(mlp):
    _, _, oracle = mlp
    flatten = next(call for call in oracle.left.calls if call.site.name.endswith("flatten"))
    linear = next(call for call in oracle.left.calls if call.site.name.endswith("linear"))
    assert not oracle.counterparts(flatten)
    assert len(oracle.counterparts(linear)) == 1
