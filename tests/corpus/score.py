"""How good is an alignment of a pair's two traces? Held against the declared truth and the oracle.

    lenet: 118 of 118 tensors paired rightly (100.0 %), 0 wrong pairs
    gpt: 402 of 411 tensors paired rightly (97.8 %), 1 wrong pair
      wrong    blocks.0 = layers.1: modules that do not correspond
      missing  forward/api:torch.Tensor.split#0 output 1 f32[2, 9, 16]

Asked for: all modules that the truth pairs, call by call; every two calls of functions that make the same value (oracle); and the
gradients of the parameters (truth). Of each, every tensor of the left call that has its value among the right call's, in a layout
that can be told: a *tensor* is one slot of one call. It is paired rightly if the match that holds its call pairs it with a tensor
of the same value.

Wrong is: two tensors whose elements, laid out as the alignment says, differ; two modules, matched one to one, that the truth does
not let correspond (regions of several calls are judged by their tensors); the gradients of two parameters that it does not let
correspond. What is not asked for and has the same values is neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from corpus.notation import ROOT, Truth
from corpus.oracle import Oracle, tensors_of
from twintrace.model.pairs import Alignment, Layout, Match, Part, TensorPair
from twintrace.model.records import Call
from twintrace.model.sites import Kind, Phase

# Left and right may call it otherwise: an argument here, a parameter there.
_GROUPS = {
    Part.INPUT: "in",
    Part.PARAMETER: "in",
    Part.BUFFER: "in",
    Part.OUTPUT: "out",
    Part.AFTER: "out",
    Part.OUTPUT_GRADIENT: "gradient out",
    Part.INPUT_GRADIENT: "gradient in",
    Part.PARAMETER_GRADIENT: "gradient in",
}


@dataclass(frozen=True)
class Score:
    name: str
    asked: int
    missing: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def share(self) -> float:
        return 1.0 if not self.asked else 1 - len(self.missing) / self.asked

    def __str__(self) -> str:
        right = self.asked - len(self.missing)
        pairs = "1 wrong pair" if len(self.wrong) == 1 else f"{len(self.wrong)} wrong pairs"
        head = f"{self.name}: {right} of {self.asked} tensors paired rightly ({self.share:.1%}), {pairs}"
        lines = [*(f"  wrong    {text}" for text in self.wrong), *(f"  missing  {text}" for text in self.missing)]
        return "\n".join([head, *lines])


def score(truth: Truth, alignment: Alignment, oracle: Oracle) -> Score:
    asked, missing = 0, []
    for called, slots, text in _asked(truth, oracle):
        asked += 1
        if not _is_paired([called, *_instead(truth, called, oracle)], slots, alignment, oracle):
            missing.append(text)
    gradients = _parameter_gradients(truth, alignment, oracle)
    return Score(
        truth.name,
        asked + gradients[0],
        (*missing, *gradients[1]),
        (*_wrong(truth, alignment, oracle), *gradients[2]),
    )


def survivors(truth: Truth, alignment: Alignment, oracle: Oracle) -> tuple[list[str], list[str], list[str]]:
    """(modules that are matched as declared, modules that are not matched, modules that are matched with others).

    Values do not count: for traces that differ, where the structure has to carry the alignment.
    """
    kept, lost, wrong = [], [], []
    found = {}
    for match in alignment.matches:
        modules = [[call for call in side if call.site.kind is Kind.MODULE] for side in (match.left, match.right)]
        for call in modules[0]:
            found[call.id] = {(other.site.name or ROOT, other.site.call) for other in modules[1]}
    for call in oracle.left.calls:
        path = call.site.name or ROOT
        partners = truth.partners.get(path, ())
        if call.site.kind is not Kind.MODULE or call.site.phase is not Phase.FORWARD or not partners:
            continue
        instead = [other.id for other in _instead(truth, call, oracle)]
        there = set().union(*(found.get(number, set()) for number in (call.id, *instead)))
        allowed = {(partner, call.site.call) for partner in partners} | {
            (partner, call.site.call) for partner in _loosely(truth, path)
        }
        (kept if there & allowed else wrong if there else lost).append(path)
    return kept, lost, wrong


def _asked(truth: Truth, oracle: Oracle) -> Iterator[tuple[Call, tuple[Part, int], str]]:
    """(left call, (part, tensor), text) of all that is to be paired."""
    calls = {call.id: call for call in oracle.right.calls}
    modules = defaultdict(list)
    for call in oracle.right.calls:
        if call.site.kind is Kind.MODULE and call.site.phase is Phase.FORWARD:
            modules[call.site.name or ROOT].append(call)
    for call in oracle.left.calls:
        if call.site.phase is not Phase.FORWARD:
            continue
        if call.site.kind is Kind.MODULE:
            paths = truth.partners.get(call.site.name or ROOT, ())
            partners = [modules[path][call.site.call] for path in paths if call.site.call < len(modules[path])]
        elif call.site.kind is Kind.API:
            partners = [calls[number] for number in oracle.counterparts(call)]
        else:
            partners = []
        theirs = {(_GROUPS[part], number) for partner in partners for part, _, number in tensors_of(partner)}
        for part, slot, number in tensors_of(call):
            if oracle.says_nothing(number):
                continue
            if any(group == _GROUPS[part] and oracle.can_lie_on(number, other) for group, other in theirs):
                spec = oracle.left.journal.tensor(number).spec
                text = f"{call.site} ({call.site.path}) {part} {slot} {spec}"
                yield call, (part, number), f"{text}, with {', '.join(str(partner.site) for partner in partners)}"


def _instead(truth: Truth, call: Call, oracle: Oracle) -> Iterator[Call]:
    """Calls of modules that may be matched instead of this one."""
    if call.site.kind is Kind.MODULE:
        paths = truth.instead_of(call.site.name or ROOT)
        for other in oracle.left.calls:
            if (
                other.site.kind is Kind.MODULE
                and other.site.call == call.site.call
                and (other.site.name or ROOT) in paths
            ):
                yield other


def _is_paired(calls: list[Call], wanted: tuple[Part, int], alignment: Alignment, oracle: Oracle) -> bool:
    """Does a match that holds one of these calls pair the tensor with one of the same value?"""
    part, number = wanted
    return any(
        pair.left == number and _GROUPS[pair.part] == _GROUPS[part] and oracle.same(number, pair.right)
        for match in alignment.matches
        if any(one.id == call.id for call in calls for one in match.left)
        for pair in match.tensors
    )


def _wrong(truth: Truth, alignment: Alignment, oracle: Oracle) -> Iterator[str]:
    for match in alignment.matches:
        sides = (match.left, match.right)
        if all(len(side) == 1 and side[0].site.kind is Kind.MODULE for side in sides):
            left, right = (side[0].site.name or ROOT for side in sides)
            if right not in (*truth.partners.get(left, ()), *_loosely(truth, left)):
                yield f"{_names(match)}: modules that do not correspond ({match.because})"
        for pair in match.tensors:
            if not _lies(pair, oracle):
                yield f"{_names(match)}: {_described(pair, oracle)} ({match.because}; {pair.because})"


def _loosely(truth: Truth, path: str) -> list[str]:
    return [right for left, right in truth.loose if left == path]


def _lies(pair: TensorPair, oracle: Oracle) -> bool:
    """Is a pair right? Of other shapes and without a layout it says that it cannot be compared element by element."""
    shapes = {half.array(number).shape for half, number in ((oracle.left, pair.left), (oracle.right, pair.right))}
    if len(shapes) == 2 and pair.layout == Layout():
        return oracle.same(pair.left, pair.right)
    return oracle.lies_on(pair.left, pair.right, pair.layout)


def _parameter_gradients(truth: Truth, alignment: Alignment, oracle: Oracle) -> tuple[int, list[str], list[str]]:
    """(how many are asked for, what is missing, what is wrong)."""
    sides = [{gradient.slot for gradient in half.journal.parameter_gradients()} for half in (oracle.left, oracle.right)]
    lines = {(line.left, line.right): line for line in truth.parameters(*sides)}
    found = {(pair.left_slot, pair.right_slot): pair for pair in alignment.parameter_gradients}
    wanted = [key for key, line in lines.items() if line.rows is None and key[0] in sides[0] and key[1] in sides[1]]
    missing = [f"gradient of {left} ~ {right}" for left, right in wanted if (left, right) not in found]
    wrong = [
        f"gradient of {left} ~ {right}: not the same parameter" for left, right in found if (left, right) not in lines
    ]
    wrong += [
        f"gradient of {left} ~ {right}: {_described(pair, oracle)}"
        for (left, right), pair in found.items()
        if (left, right) in lines and not _lies(pair, oracle)
    ]
    return len(wanted), missing, wrong


def _described(pair: TensorPair, oracle: Oracle) -> str:
    specs = oracle.left.journal.tensor(pair.left).spec, oracle.right.journal.tensor(pair.right).spec
    how = "in another layout" if oracle.same(pair.left, pair.right) else "of other values"
    return f"{pair.part} {pair.left_slot} {specs[0]} and {pair.right_slot} {specs[1]}, {pair.layout}: {how}"


def _names(match: Match) -> str:
    return " = ".join(map(_region, (match.left, match.right)))


def _region(calls: tuple[Call, ...]) -> str:
    first, *others = [f"{call.site} ({call.site.path or ROOT})" for call in calls]
    return f"{first} … {others[-1]}, {len(calls)} calls" if others else first
