"""The same random numbers every time, and everything as it was afterwards."""

import os
import random

import numpy as np
import pytest

from twintrace.api import seed_all, without_dropout
from twintrace.frameworks.reference import miniature as mini
from twintrace.model.errors import UsageError


def draw():
    return random.random(), np.random.rand(), mini.RANDOM.numbers.random()


def test_seeds_repeat_and_differ():
    with seed_all(1):
        first = draw()
    with seed_all(1):
        assert draw() == first
    with seed_all(2):
        assert not set(draw()) & set(first)


def test_leaving_restores_what_was_before():
    hashing = os.environ.get("PYTHONHASHSEED")
    states = random.getstate(), np.random.get_state()[1].tolist(), mini.RANDOM.numbers.bit_generator.state
    undo = seed_all(5)
    draw()
    assert os.environ["PYTHONHASHSEED"] == "5"
    undo()
    undo()
    assert (random.getstate(), np.random.get_state()[1].tolist(), mini.RANDOM.numbers.bit_generator.state) == states
    assert os.environ.get("PYTHONHASHSEED") == hashing


def test_seeds_nest():
    with seed_all(1):
        draw()
        expected = random.getstate()
        with seed_all(2):
            draw()
        assert random.getstate() == expected


def test_dropout_alone_is_taken_out_and_comes_back():
    x, state = mini.Tensor(np.ones(64, np.float32)), mini.RANDOM.numbers.bit_generator.state
    with without_dropout("reference"):
        assert mini.dropout(x, 0.5) is x
    assert mini.RANDOM.numbers.bit_generator.state == state
    assert mini.dropout(x, 0.5) is not x


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "1"])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(UsageError, match=r"seed: expected a number from 0"):
        seed_all(seed)
