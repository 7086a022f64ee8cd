"""The benchmark of judging: the rules of other tools are theirs, and its targets can be missed."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.judge import families_table, rules_table, scores_table, targets
from benchmarks.rules import RULES, Accusation, laid
from tests.corpus.generator.cases import Case, Side, Truth
from tests.corpus.generator.scoring import Outcome
from twintrace.model.pairs import Layout

X = np.linspace(-2, 2, 101)


@pytest.mark.parametrize(
    ("rule", "right", "same"),
    [
        ("msprobe", X * 1.05, True),
        ("msprobe", X + 1.5, False),
        ("msprobe", -X, False),
        ("msprobe", X * 0, False),
        ("troubleshooter", X * 1.00005, True),
        ("troubleshooter", X * 1.001, False),
        ("allclose", X * (1 + 1e-6), True),
        ("allclose", X * (1 + 1e-4), False),
        ("assert_close", X * (1 + 1e-6), True),
        ("assert_close", X * (1 + 1e-4), False),
    ],
)
def test_a_rule_is_the_other_tools(rule, right, same):
    assert RULES[rule](X, right, "f32") is same


def test_tolerances_depend_on_the_dtype():
    assert RULES["assert_close"](X, X * 1.01, "bf16")
    assert not RULES["assert_close"](X, X * 1.01, "f16")


def test_axes_are_laid_as_the_pair_says():
    array = np.arange(6).reshape(2, 3)
    assert laid(array, Layout(axes=(1, 0))).tolist() == array.T.tolist()
    assert laid(array, Layout()) is array


def _outcome(want="part", dtype="f32", *, code=1, placed=True, caused=True):
    side = Side("torch", "mlp", (), dtype, "forward", "same", 0)
    return Outcome(Case("a", "epsilon", side, side, Truth(want)), code, "", ("", ""), placed, caused)


GOOD = [
    *(_outcome(dtype=dtype) for dtype in ("f32", "bf16", "f16") for _ in range(100)),
    *(_outcome("agree", code=0) for _ in range(20)),
]


def test_a_good_run_meets_every_target(words):
    assert set(words(targets(GOOD)).values()) == {"met"}


@pytest.mark.parametrize(
    ("bad", "count", "target"),
    [
        (_outcome(placed=False), 3, "place missed, f32"),
        (_outcome(dtype="bf16", placed=False), 6, "place missed, bf16"),
        (_outcome(dtype="f16", placed=False), 6, "place missed, f16"),
        (_outcome(caused=False), 34, "cause missed"),
        (_outcome("agree", code=3), 1, "false alarms"),
        (_outcome(code=0), 1, "false agreements"),
    ],
)
def test_each_target_can_be_missed(words, bad, count, target):
    found = words(targets([*GOOD, *[bad] * count]))
    assert [name for name, word in found.items() if word == "MISSED"] == [target]


def test_what_was_not_judged_is_not_met(words):
    assert set(words(targets([])).values()) == {"not measured"}


def test_the_tables_have_a_line_for_each_group():
    assert len(scores_table(GOOD).splitlines()) == 1 + 3 + 1
    assert "epsilon" not in families_table(GOOD)
    assert "epsilon" in families_table([*GOOD, replace(GOOD[0], caused=False)])
    told = [dict.fromkeys(RULES, Accusation(None)) for _ in GOOD]
    assert len(rules_table(GOOD, told).splitlines()) == 2 + len(RULES)
