"""Numbers and a policy in; verdicts with reasons out.

    recomputed.py    verdicts by recomputation
      state.py         what has been judged: the Standing of each pair of values and gradients
      values.py        the forward pass: leaves.py (counters.py), equal_results.py, detours.py (part and meet again), fallback.py
      backward.py      gradients: gradient_parts.py, gradient_rounding.py, ways_back.py, cuts.py
      explanations.py  causes; ranges.py: infinite, NaN or lost on one side alone
      conclusion.py    which mistakes reach a result: ends.py, unpaired.py, split_parameters.py, lone.py, effects.py
    policies.py      what is allowed: auto | msprobe | troubleshooter | torch_testing | rtol and atol by hand
    tolerances.py    rtol and atol per dtype and per name, from a TOML file
    rounding.py      what rounding can explain, from dtypes, reduction lengths and magnitudes
    settings.py      what was set differently, whatever the two sides call it
    bounds.py        one pair of calls after the other, in the order of the data flow: verdicts, introduced or inherited
    optimizers.py    what a record of an optimizer's step says
    carried.py       what one step leaves to the next
    cases.py         a match that is judged by bounds: introduced, inherited, without effect
    divergences.py   which difference is the first
    changed_gradients.py what happens to gradients between the backward pass and the optimizer

In: `model` types (pairs, measurements). Out: `model.verdicts` and `model.results`. Not here: opening tensors or computing errors
(`measure`), or computing anything again (`operations`). Surprising: there is no threshold. Differing results are computed again in
float64 on both sides; where that cannot be done, `bounds.py` estimates what rounding explains, and nothing is called agreement.
"""

from __future__ import annotations

from .bounds import BoundsJudge
from .carried import CarriedBounds
from .cases import Case
from .divergences import first_backward, first_forward, first_mistake
from .policies import POLICIES, Policy, policy_named

__all__ = [
    "POLICIES",
    "BoundsJudge",
    "CarriedBounds",
    "Case",
    "Policy",
    "first_backward",
    "first_forward",
    "first_mistake",
    "policy_named",
]
