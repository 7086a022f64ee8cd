"""The ports are correct and the truths complete: without a recorder, both sides of each pair give the same numbers."""

import numpy as np
import pytest

from corpus.notation import pair_names, parse, truth_of
from corpus.ports import faults, run_sides, same_values

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

NAMES = pair_names()


@pytest.fixture(scope="module")
def steps(shared):
    """What came out of one training step of every pair."""
    return run_sides(NAMES, shared / "ports")


def test_there_are_many_pairs():
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_a_port_is_correct_and_its_truth_complete(name, steps):
    assert faults(truth_of(name), *steps[name]) == []


# --- a port that is not correct, and a truth that is not complete, are noticed --------------------------------------------


@pytest.fixture
def lenet(steps):
    return truth_of("lenet"), dict(steps["lenet"][0]), dict(steps["lenet"][1])


def test_another_loss_is_noticed(lenet):
    truth, left, right = lenet
    right["loss"] = right["loss"] * 1.001
    assert [text.split(":")[0] for text in faults(truth, left, right)] == ["loss"]


def test_another_gradient_is_noticed(lenet):
    truth, left, right = lenet
    right["grad:classifier.2.weight"] = right["grad:classifier.2.weight"].T.copy().reshape(84, 120)
    assert "fc2.weight ~ classifier.2.weight" in faults(truth, left, right)[0]


def test_modules_that_do_not_correspond_are_noticed(lenet):
    truth, left, right = lenet
    key = "module:features.3#0:0"
    right[key] = right[key][::-1] + 0.01
    assert faults(truth, left, right) == ["conv2 = features.3: call 0 puts out other values"]


def test_what_no_line_speaks_of_is_noticed(lenet):
    truth, left, right = lenet
    left["module:new#0:0"] = right["grad:extra.weight"] = np.ones(3)
    found = faults(truth, left, right)
    assert "module new of the left side is called and in no line" in found
    assert "parameter extra.weight of the right side is in no line" in found


def test_the_same_values_in_another_layout_are_the_same(steps):
    value = steps["lenet"][0]["module:conv1#0:0"]
    assert same_values(value, value.transpose(0, 2, 3, 1).reshape(-1, 6))
    assert not same_values(value, value * 1.001)


def test_lines_are_read():
    modules, parameters = parse("# a remark\n a.{0..1} = b{x,y}\n c = d | e\n f ? g\n h | i = -\n w[0:4] ~ v (1 0)\n")
    assert [(line.left, line.right, line.loose) for line in modules] == [
        (("a.0",), ("bx",), False),
        (("a.1",), ("by",), False),
        (("c",), ("d", "e"), False),
        (("f",), ("g",), True),
        (("h", "i"), (), False),
    ]
    (line,) = parameters
    assert line.carry(np.arange(12.0).reshape(6, 2), (2, 4)).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize(
    "text", ["a - b", "a = b\na = c", "a = c\nb = c", "a.{0,1} = b.{0,1,2}", "w[1] ~ v", " = b", "- = -"]
)
def test_lines_that_cannot_be_right_are_refused(text):
    with pytest.raises(ValueError, match=r"neither|none of|twice|braces|expected|empty"):
        parse(text)
