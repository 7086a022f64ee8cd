"""Calls and modules that one side alone makes, or makes otherwise.

lone_calls(search, 1)              candidates: "only the right multiplies by 0.125 (torch.Tensor.mul)"
opposite_sign(search)              candidates: "the right's result has the opposite sign"
operations_of(search, one, two)    candidates: "the left computes gelu, the right silu"
variants_of(search, 0)             candidates: known variants of the calls of one side
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...model.records import Call
from ...model.values import tensor_slots
from ..candidates import SIDES, Candidate, Cause, call_text, exchanged, with_substitute
from ..meanings import Argument, Meaning, Operand, told
from ..sides import outputs_of
from ..steps import STEPS
from ..variants import variants

if TYPE_CHECKING:
    from .search import Search

_DEEDS = {
    "mul": "multiplies by", "div": "divides by", "add": "adds", "sub": "subtracts", "pow": "raises to the power",
}  # fmt: skip
_ADVICE = (
    "add it on the right, or see why the left has it",
    "remove it from the right, or see why the left does without",
)
"""Advice for a call that the left makes alone, and for one of the right."""
_EPSILON = 1e-2
"""Constants that are added and smaller than this keep a division from failing."""


def lone_calls(search: Search, which: int, every: bool = False) -> Iterator[Candidate]:
    """Calls that one side alone makes (or `every` call), left out: one of their operands is handed on. The last one first: what
    it does with the result is what those before it were made for.
    """
    meanings, others = search.meanings(which), search.meanings(1 - which)
    more = Counter(item.operation for item in meanings) - Counter(item.operation for item in others)
    for place, meaning in reversed([*enumerate(meanings)]):
        if not every and meaning.operation not in more and any(meaning is pair[which] for pair in search.pairs):
            continue
        text, advice = f"only the {SIDES[which]} {_deed(search, which, meaning)}", _ADVICE[which]
        calls = (search.slices[which].calls[place],)
        if meaning.operation in STEPS:  # of a step's kernels each is a call of its own
            text = f"only the {SIDES[which]} updates it: with a gradient of zeros too it decays, and the other side has none"
            advice = f"leave it out of the {SIDES[which]}'s optimizer, or give it a gradient of zeros on the other side"
        at = ((), calls) if which else (calls, ())
        cause = Cause(text, "", meaning.operation, advice, True, at[0], at[1], "without it")
        for rest in _left_out(meanings, place):
            yield Candidate.on(which, cause, rest)


def opposite_sign(search: Search) -> Iterator[Candidate]:
    """The right's result with its sign changed: the other half of a rotation is negated, a difference is taken the other way."""
    number = search.slices[1].tensor
    cause = Cause(
        "the right's result has the opposite sign",
        setting="sign",
        advice="change the sign on the right",
        how="with it changed",
    )
    changed = Meaning("neg", {"input": Operand(number)}, {number: 0}, "neg")
    yield Candidate.on(1, cause, [*search.right, changed])


def lone_modules(search: Search, which: int) -> Iterator[Candidate]:
    """Modules of several calls, left out with all that is in them: what they were given is handed on. A norm that is written
    out is no single call.
    """
    side, calls = search.recomputation.sides[which], search.slices[which].calls
    meanings = search.meanings(which)
    modules = {call.parent: side.around(call) for call in reversed(calls)}
    for module in modules.values():
        inside = {call.id for call in calls if module is not None and call.parent == module.id}
        given = [number for _, number in tensor_slots(module.args, module.kwargs)] if module is not None else []
        made = list(outputs_of(module).values()) if module is not None else []
        if len(inside) < 2 or len(made) != 1 or len(given) != 1:
            continue
        assert module is not None
        if (
            search.recomputation.values[which].spec(made[0]).shape
            != search.recomputation.values[which].spec(given[0]).shape
        ):
            continue
        rest = [item for item, call in zip(meanings, calls, strict=True) if call.id not in inside]
        for result in (made[0], *side.originals(made[0])):
            rest = with_substitute(rest, result, Operand(given[0]))
            if result == search.slices[which].tensor:
                rest.append(Meaning("torch.Tensor.clone", {"0": Operand(given[0])}, {result: 0}, "clone"))
        at = ((), (module,)) if which else ((module,), ())
        text = f"only the {SIDES[which]} calls {module.site.name} ({module.site.type})"
        cause = Cause(text, "", module.site.type or "", _ADVICE[which], True, at[0], at[1], "without it")
        yield Candidate.on(which, cause, rest)


def _deed(search: Search, which: int, meaning: Meaning) -> str:
    """An operation as people would say it: multiplies by 0.125 (torch.Tensor.mul)."""
    called = meaning.called or meaning.operation
    other = meaning.arguments.get("other", meaning.arguments.get("exponent"))
    if meaning.operation == "add" and isinstance(other, float) and 0 < other < _EPSILON:
        return f"adds an epsilon of {told(other)} ({called})"
    if meaning.operation in _DEEDS and isinstance(other, int | float):
        return f"{_DEEDS[meaning.operation]} {told(other)} ({called})"
    if meaning.operation in ("add", "sub") and isinstance(other, Operand):
        spec = search.recomputation.values[which].spec(other.tensor)
        role = (
            "a bias, " if len(spec.shape) == 1 and search.recomputation.sides[which].maker(other.tensor) is None else ""
        )
        return f"{_DEEDS[meaning.operation]} {role}{spec} ({called})"
    bias = meaning.arguments.get("bias")
    if meaning.operation == "bias_add" and isinstance(bias, Operand):
        return f"adds a bias, {search.recomputation.values[which].spec(bias.tensor)} ({called})"
    if meaning.operation == "cast":
        return f"casts to {told(meaning.arguments.get('dtype'))} ({called})"
    return f"calls {called}"


def operations_of(search: Search, one: Meaning, two: Meaning) -> Iterator[Candidate]:
    """The left's operation on the right's operands."""
    if one.operation == two.operation or not set(dict(one.operands())) & set(dict(two.operands())):
        return
    swapped = _as_other(two, one)
    if swapped is not None:
        text = f"the left computes {call_text(one)}, the right {call_text(two)}"
        cause = Cause(text, setting=one.operation, advice=f"call {one.operation} on the right")
        yield Candidate(cause, right=exchanged(search.right, two, swapped))


def variants_of(search: Search, which: int) -> Iterator[Candidate]:
    """Known variants of the calls of one side: the one that gives the other's result is what the other computes."""
    for meaning in search.meanings(which):
        for text, variant in variants(meaning, search.recomputation.values[which].spec):
            name = meaning.called or meaning.operation
            said = f"{name}: {text} on the {SIDES[1 - which]}, not on the {SIDES[which]}"
            blamed = _blamed(search, which, meaning)
            cause = Cause(said, setting=meaning.operation, how="with it on both sides", left=blamed[0], right=blamed[1])
            yield search.changed(cause, which, meaning, variant)


def _blamed(search: Search, which: int, meaning: Meaning) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """The call of a meaning and its counterpart: its partner, or the last call of the other side."""
    partner = next((pair[1 - which] for pair in search.pairs if pair[which] is meaning), None)
    own = (search.call(which, meaning),)
    other = search.slices[1 - which].calls[-1:] if partner is None else (search.call(1 - which, partner),)
    return (tuple(other), own) if which else (own, tuple(other))


def _as_other(meaning: Meaning, other: Meaning) -> Meaning | None:
    """The operation of `other` on the operands of `meaning`."""
    ours = dict(meaning.operands())
    arguments: dict[str, Argument] = dict(other.arguments)
    for path, _ in other.operands():
        if path not in ours or "." in path:
            return None
        arguments[path] = ours[path]
    return replace(meaning, operation=other.operation, arguments=arguments)


def _left_out(meanings: Sequence[Meaning], place: int) -> Iterator[list[Meaning]]:
    """The calls without one of them, which hands one of its operands on: of several results each that of its own place in a list;
    nothing where there is no such list.
    """
    meaning = meanings[place]
    kept = [item for number, item in enumerate(meanings) if number != place]
    ways: list[dict[int, Operand]] = [dict.fromkeys(meaning.results, operand) for _, operand in meaning.operands()]
    if len(meaning.results) > 1:
        lists = [value for value in meaning.arguments.values() if isinstance(value, tuple)]
        ways = [
            {number: value[key] for number, key in meaning.results.items() if isinstance(key, int)}  # type: ignore[misc]
            for value in lists
            if len(value) == len(meaning.results) and all(isinstance(item, Operand) for item in value)
        ]
    for way in ways:
        changed = kept
        for result, substitute in way.items():
            changed = with_substitute(changed, result, substitute)
        last = [
            Meaning("torch.Tensor.clone", {"0": substitute}, {result: 0}, "clone")
            for result, substitute in way.items()
            if not any(result == operand.tensor for item in kept for _, operand in item.operands())
        ]
        yield [*changed, *last]
