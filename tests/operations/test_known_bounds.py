"""Every kernel, forward and backward, is made of steps whose rounding has a rule: none counts as inexact by a guess.

What has no rule is taken to be eight units of its result off, and what it was given to be exact: a sum that cancels would be
accused, and a composition would forget the errors of what came before.
"""

import pytest
import torch
from operation_samples import VARIANTS, is_differentiable, results_of

from twintrace.operations.catalog import OPERATIONS
from twintrace.operations.listing import listing
from twintrace.operations.rounding import RunningError

KNOWN = {item.name: item for item in listing()}
SINGLE = 2.0**-24
CASES = [(name, {}) for name in OPERATIONS if KNOWN[name].forward] + VARIANTS


@pytest.mark.parametrize(("name", "given_"), CASES, ids=[f"{place}-{name}" for place, (name, _) in enumerate(CASES)])
def test_every_step_of_a_kernel_has_a_rule(name, given_):
    mode = RunningError(SINGLE, SINGLE)
    with mode:
        results = results_of(name, **given_)
    assert not mode.unknown
    if KNOWN[name].backward:
        with mode:
            assert is_differentiable(results)
        assert not mode.unknown


def test_a_step_without_a_rule_is_told():
    """The check can fail."""
    x = torch.rand(3, 3, dtype=torch.float64)
    with RunningError(SINGLE, SINGLE) as mode:
        torch.linalg.matrix_exp(x)
    assert mode.unknown
