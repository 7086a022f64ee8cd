"""A record with nothing in it, or with less than was asked for, is told, with the reason."""

import warnings

import pytest

from twintrace.frameworks.reference import miniature


@pytest.fixture
def net(page):
    return page.models["mlp"]()


@pytest.fixture
def told(record, page, net):
    """`told(call=…, rounds=1, level=…, …)`: what is warned of when a model is recorded so."""

    def run(call=net, *, level="module", rounds=1, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with record(net, level=level, **options) as rec:
                for number in range(rounds):
                    if number:
                        rec.step()
                    if call is not None:
                        call(page.numbers(2, 3))
        return " | ".join(str(warning.message) for warning in caught)

    return run


def test_what_is_recorded_is_not_told(told):
    assert told() == ""


@pytest.mark.parametrize("options", [{"names": ["first", "n*"]}, {"between": ("first", "norm")}, {"rounds": 3}])
def test_what_fits_is_not_told(told, options):
    assert told(**options) == ""


def test_a_name_among_others_that_fits_nothing(told):
    assert "names: no call fits 'nrom'" in told(names=["first", "nrom"])


def test_names_that_fit_nothing(told):
    text = told(names=["nrom"])
    assert "nothing was recorded: no call fits the selection (names: no call fits 'nrom')" in text


@pytest.mark.parametrize(
    ("between", "text"),
    [
        (("frist", "norm"), "no module 'frist' was called, with which the range begins"),
        (("first", "nrom"), "no module 'nrom' was called, with which the range ends: the range goes on to the end"),
    ],
)
def test_an_end_of_a_range_that_is_not_there(told, between, text):
    assert text in told(between=between)


@pytest.mark.parametrize(("steps", "ran"), [(1, "step 0 ran"), (3, "the steps 0 to 2 ran")])
def test_steps_that_never_come(told, steps, ran):
    text = told(rounds=steps, steps=[7, 9])
    assert f"nothing was recorded: {ran}, and none of them is among steps=[7, 9]" in text


def test_no_steps_at_all_is_what_was_asked_for(record, page, net):
    with record(net, level="module", steps=()):
        net(page.numbers(2, 3))


def test_a_rank_that_is_not_there(told):
    assert "nothing was recorded: ranks=[3], and the run has rank 0 alone" in told(ranks=[3])


def test_another_rank_is_not_told(told, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert told(ranks=[1]) == ""


@pytest.mark.parametrize("level", ["module", "mix", "api"])
def test_another_model(told, page, level):
    other = page.models["mlp"]()
    assert f"no module of the model was called, but others were ({type(other).__name__}" in told(other, level=level)


def test_a_model_that_is_not_called(told):
    assert "nothing was recorded: the model was not called between start() and stop()" in told(None)


def test_functions_without_a_model_are_enough(record):
    with record(level="api"):
        miniature.relu(miniature.Tensor([1.0]))


def test_a_recorder_that_was_never_started(record, net):
    rec = record(net, level="module")
    with pytest.warns(RuntimeWarning, match="nothing was recorded: the recorder was never started"):
        rec.close()


def test_one_that_saves_without_being_started_has_something(record):
    rec = record(level="api")
    rec.save("x", miniature.Tensor([1.0]))
    rec.close()


def test_who_fails_is_not_told_of_silence_as_well(record, net):
    with pytest.raises(ZeroDivisionError), record(net, level="module"):
        raise ZeroDivisionError
