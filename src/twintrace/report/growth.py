"""Ranking of calls by their contribution to the difference of two runs: is it normal, and where does it grow most?

float32 | bfloat16: normal. Every result agrees; no call adds more than 0.98 of what its rounding may be.
  adds     comes in  goes out  of bound
  3.2e-03  1.8e-03   3.7e-03   0.98      torch.Tensor.add in 0, f32[8, 32] | bf16[8, 32]
  …

All are relative: root mean squares of the difference, over that of the left result. What goes out is what comes in, carried
through the call, and what the call adds by its own rounding; the two are independent, so their squares add up. The last number
is the rounding of the call in units of its bound: 1 is what a right kernel may have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.pairs import Part
from ..model.results import CallResult, Comparison, TensorResult
from .naming import legible, places

COUNT = 10


@dataclass(frozen=True, slots=True)
class Growth:
    """One result: relative differences of its inputs and of itself, and the used share of the bound."""

    result: CallResult
    tensor: TensorResult
    inherited: float
    total: float
    share: float | None

    @property
    def added(self) -> float:
        """Part of the difference that the call made itself."""
        return math.sqrt(max(self.total**2 - self.inherited**2, 0.0))


def ranking(comparison: Comparison) -> list[Growth]:
    """Results of the forward pass that were recomputed, those first that add most. A value that several calls give counts once."""
    growths: dict[tuple[int, int, int], Growth] = {}
    for result in comparison.results:
        for item in result.tensors:
            known, terms = item.measurement, item.terms
            if item.pair.part is not Part.OUTPUT or known is None or terms is None or terms.inherited is None:
                continue
            if not known.rms_left or known.rmse is None or not math.isfinite(known.rmse / known.rms_left):
                continue
            roundings = [rounding for rounding in (terms.left, terms.right) if rounding is not None]
            key = result.step, result.rank, item.pair.left
            total = known.rmse / known.rms_left
            growths.setdefault(key, Growth(result, item, terms.inherited, total, max(roundings, default=None)))
    return sorted(growths.values(), key=lambda growth: growth.added, reverse=True)


def growth_text(comparison: Comparison, count: int = COUNT) -> str:
    """The sentence whether the difference is normal, and the calls that add most to it."""
    ranked = ranking(comparison)
    sides = f"{comparison.left.path} | {comparison.right.path}"
    if not ranked:
        return legible(
            f"{sides}: no result was recomputed, so that it cannot be told what each call adds. "
            f"Record both with keep='tensor', and compare runs that differ."
        )
    lines = [f"{sides}: {_sentence(comparison, ranked)}", "  adds      comes in  goes out  of bound"]
    for growth in ranked[:count]:
        share = "–" if growth.share is None else f"{growth.share:.2g}"
        step = f"step {growth.result.step}: " if len({each.result.step for each in ranked}) > 1 else ""
        specs = " | ".join(dict.fromkeys((str(growth.tensor.left.spec), str(growth.tensor.right.spec))))
        numbers = f"{growth.added:<9.1e} {growth.inherited:<9.1e} {growth.total:<9.1e} {share:<9}"
        lines.append(f"  {numbers} {step}{places(growth.result)}, {specs}")
    if len(ranked) > count:
        rest = math.sqrt(sum(growth.added**2 for growth in ranked[count:]))
        lines.append(f"  {rest:<9.1e} {'':<29} {len(ranked) - count} more together")
    return "\n".join(legible(line) for line in lines)


def _sentence(comparison: Comparison, ranked: list[Growth]) -> str:
    if comparison.code == 1:
        return "not normal. The two part, and rounding does not explain it: see the verdict."
    shares = [growth.share for growth in ranked if growth.share is not None]
    most = f"no call adds more than {max(shares):.2g} of what its rounding may be" if shares else ""
    if comparison.code == 0:
        return f"normal. Every result agrees; {most or 'nothing is beyond rounding'}."
    return f"normal as far as it could be told{'; ' + most if most else ''}; something that counts could not be: see the verdict."
