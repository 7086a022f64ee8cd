"""The self-check says "same bits" only when it has seen them, and says what it has seen otherwise."""

import numpy as np
import pytest

import twintrace as tt
from twintrace.frameworks.reference import miniature as mini
from twintrace.model.errors import UsageError


@pytest.fixture
def step(page):
    """A step that records by the function that it is given."""

    def run(record):
        model = page.models["mlp"]()
        with record(model):
            found = page.differentiate(lambda x: mini.total(model(x)), page.numbers(2, 3), model=model)
            page.update(model)
        return found.value, model

    return run


def test_a_neutral_recorder_keeps_all_bits(step):
    found = tt.selfcheck(step, level="mix", keep="tensor")
    assert found
    assert (found.compared, found.differences, found.unstable) == (13, (), ())
    assert found.recorded > 8
    assert str(found).startswith("same bits: 13 values")


def test_a_step_may_record_as_in_a_script(page, tmp_path):
    def step():
        model = page.models["mlp"]()
        with tt.record(tmp_path / "never made", model) as rec:
            model(page.ones(2, 3))
            rec.save("x", 1)
            rec.step()
        return model

    assert tt.selfcheck(step)
    assert not (tmp_path / "never made").exists()


def test_a_recorder_that_disturbs_is_caught(step, page, monkeypatch):
    def host(tensor, **_):
        tensor.array += 1
        return np.asarray(tensor.array, order="C")

    monkeypatch.setattr(page.adapter, "host", host)
    monkeypatch.setattr(
        "twintrace.collect.selfcheck._tensor_text", lambda adapter, tensor: tensor.array.tobytes().hex()
    )
    found = tt.selfcheck(step)
    assert not found
    assert found.differences
    assert not found.unstable
    assert "DIFFERENT" in str(found)


def test_one_that_draws_a_random_number_is_caught(page, monkeypatch):
    glance = page.adapter.glance
    monkeypatch.setattr(page.adapter, "glance", lambda tensor: (mini.RANDOM.numbers.random(), glance(tensor))[1])

    def step(record):
        model = page.models["mlp"]()
        with record(model):
            model(page.ones(2, 3))
            return mini.dropout(page.ones(100), 0.5)

    assert tt.selfcheck(step).differences == ("result",)


def test_a_step_that_does_not_repeat_itself_is_said_to(page):
    runs = []

    def step(record):
        runs.append(1)
        with record(page.models["mlp"]()):
            return mini.relu(mini.Tensor([float(len(runs))]))

    found = tt.selfcheck(step)
    assert not found
    assert found.unstable == ("result",)
    assert "cannot tell" in str(found)


def test_nothing_recorded_and_nothing_returned_are_no_answer(page):
    found = tt.selfcheck(lambda: 1.5)
    assert not found
    assert "nothing was recorded" in str(found)
    found = tt.selfcheck(lambda: None)
    assert not found
    assert "nothing to compare" in str(found)


def test_a_step_that_raises_proves_nothing_and_is_told(page):
    def step(record):
        model = page.models["broken"]()
        with record(model):
            model(page.ones(2, 3))

    found = tt.selfcheck(step)
    assert not found
    assert "raises already" in str(found)


def test_a_step_that_raises_only_when_recorded_is_a_difference(page):
    runs = iter(range(3))

    def step(record):
        model = page.models["mlp"]()
        with record(model):
            model(page.ones(2, 3))
        if next(runs) == 2:
            raise ZeroDivisionError
        return model

    found = tt.selfcheck(step)
    assert not found
    assert "ZeroDivisionError" in found.differences[0]


def test_what_is_no_step_is_refused():
    with pytest.raises(UsageError, match="expected a function"):
        tt.selfcheck(3)
