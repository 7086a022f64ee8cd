"""A comparison in at most 15 lines: what, where, what was set differently, what to look at next.

runs/a and runs/b part at block.norm (LayerNorm), step 0, forward

  left    model.py:21 in forward: x = self.norm(x)
  right   model.py:21 in forward: x = self.norm(x)
  what    the inputs agree, the output does not: f32[4, 16]
  set     eps: 1e-05 | 1e-06
"""

from __future__ import annotations

from pathlib import PurePath

from ..model.records import Call
from ..model.results import Comparison, Difference, Divergence
from ..model.sites import Kind
from ..model.tensors import Tensor

MAX_LINES = 15


def verdict(result: Comparison) -> str:
    """The comparison as text."""
    found = result.divergence
    lines = _parting(result, found) if found else _agreement(result)
    lines += [f"  {remark}" for remark in result.remarks]
    return "\n".join(lines[:MAX_LINES])


def _agreement(result: Comparison) -> list[str]:
    if result.agree:
        how = "bit by bit" if result.exact else "as far as their statistics tell; keep='fingerprint' would tell more"
        return [f"{result.left} and {result.right} agree: all {result.same} pairs are the same, {how}."]
    if not result.same and not result.different:
        return [
            f"{result.left} and {result.right} have nothing in common: no call of one has the address of a call of the other."
        ]
    lines = [
        f"{result.left} and {result.right} agree where both have a record ({result.same} pairs), but not everywhere:"
    ]
    for side, alone in (("left", result.only_left), ("right", result.only_right)):
        if alone:
            call = alone[0].left or alone[0].right
            assert call is not None
            lines.append(f"  only {side}: {len(alone)} calls, first {_place(call)}")
    return lines


def _parting(result: Comparison, found: Divergence) -> list[str]:
    phase = "backward" if found.backward else str(found.left.site.phase)
    where = f"step {found.step}, {phase}" + (f", rank {found.rank}" if found.rank else "")
    lines = [f"{result.left} and {result.right} part at {_place(found.left)}, {where}", ""]
    lines.append(f"  left    {_source(found.left)}")
    lines.append(f"  right   {_source(found.right)}")
    first = found.differences[0]
    spec = first.right.spec if first.left.id < 0 else first.left.spec
    if found.left.id < 0:
        lines.append(f"  what    {_name(first)} differs: {spec}")
    elif found.inherited:
        lines.append(f"  what    {_name(first)} differs already: {spec}. The cause lies before this call")
    else:
        lines.append(f"  what    what comes in agrees, {_name(first)} does not: {spec}")
    lines.append(f"          left  {_numbers(first.left)}")
    lines.append(f"          right {_numbers(first.right)}")
    for name, (left, right) in list(found.settings.items())[:3]:
        lines.append(f"  set     {name}: {left} | {right}")
    alone = (
        f"; alone: {len(result.only_left)} left, {len(result.only_right)} right"
        if result.only_left or result.only_right
        else ""
    )
    lines += ["", f"  {result.same} pairs have the same values, {result.different} do not{alone}."]
    return lines


def _place(call: Call) -> str:
    site = call.site
    count = f" (call {site.call + 1} of the step)" if site.call else ""
    if site.kind is Kind.MODULE:
        return f"{site.name or 'the model'} ({site.type}){count}"
    inside = f" in {site.path}" if site.path else ""
    return f"{site.name}{inside}{count}"


def _source(call: Call) -> str:
    if not call.stack:
        return "(a gradient that reached a parameter)" if call.id < 0 else "(no source line was recorded)"
    frame = call.stack[0]
    return f"{PurePath(frame.file).name}:{frame.line} in {frame.function}: {frame.code}"[:110]


def _name(found: Difference) -> str:
    return f"the {found.role} {found.slot}".rstrip()


def _numbers(tensor: Tensor) -> str:
    s = tensor.statistics
    if s is None:
        return tensor.missing or "no statistics"
    bad = f"  nan {s.nan}  inf {s.posinf + s.neginf}" if s.nan or s.posinf or s.neginf else ""
    if s.min is None or s.max is None or s.mean is None or s.norm is None:
        return f"no finite value{bad}"
    return f"min {s.min:.9g}  max {s.max:.9g}  mean {s.mean:.9g}  norm {s.norm:.9g}{bad}"
