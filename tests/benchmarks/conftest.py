"""What the tests of all benchmarks ask of their targets."""

from dataclasses import replace

import pytest


@pytest.fixture
def words():
    """`words(judge(rows))`: what is said of each target."""
    return lambda verdicts: {verdict.target: verdict.word for verdict in verdicts}


@pytest.fixture
def missed(words):
    """`missed(judge, rows, key, figures)`: the targets that are missed when the row of this key has these figures."""

    def names(judge, rows, key, figures):
        changed = [replace(row, **figures) if row.key == key else row for row in rows]
        assert changed != rows
        return [target for target, word in words(judge(changed)).items() if word == "MISSED"]

    return names
