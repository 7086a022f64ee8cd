"""The cases of a seed.

    found = cases(seed=3)                  Sample(mistakes, rewrites, gaps)

Every two choices of family, net, dtype, direction, frameworks, names and side meet in a mistake, unless a gap says why not; then
more are drawn until there are enough. Sites, wrong values and weights are random. PyTorch is needed: which knobs a net has, and
whether a mistake changes anything, is seen by running it.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .cases import PAIRS, Case, Place, Side, Truth
from .families import FAMILIES, REWRITES, Family, Rewrite
from .kit import renamed_path
from .pairwise import cover, pairs_of
from .soundness import NOISE, changes, means

MISTAKES, RIGHT = 400, 80
DTYPES = ("f32", "bf16", "f16")
NET_NAMES = ("mlp", "cnn", "resnet", "encoder", "gpt", "llama", "vit", "unet", "recurrent", "mixture")

GAPS = {
    "bf16 beside MindSpore and MSAdapter": "MindSpore's CPU kernels refuse bf16 (matrix products, softmax, norms, convolutions)",
    "kernels of MindSpore and MSAdapter": "only PyTorch lets one be replaced below the recorder: the left side has the fault",
    "fused attention, sums in place, checkpoints, compiled helpers beyond PyTorch": "no CPU kernel, or no such function",
    "trainings beside MSAdapter": "its optimizers read gradients that its backward pass does not set",
    "missing biases of keys": "they add one number to all scores of a query, which the softmax takes out again",
    "trainings in f16": "Adam's second moment underflows, and nobody trains so",
}
"""What is left out, and why. What a net has no knob for is listed by `Sample.gaps`, too."""


@dataclass(frozen=True)
class Sample:
    mistakes: tuple[Case, ...]
    rewrites: tuple[Case, ...]
    gaps: tuple[str, ...]

    @property
    def all(self) -> tuple[Case, ...]:
        return (*self.mistakes, *self.rewrites)


@functools.cache
def knobs(net: str) -> dict[tuple[str, str], Any]:
    from .running import knobs_of

    return knobs_of(net)


def sites(net: str, family: Family | Rewrite) -> list[tuple[str, Any]]:
    """(site, right value) where a family can be in a net."""
    return [
        (site, right)
        for (site, knob), right in knobs(net).items()
        if knob == family.knob and family.where(site) and family.values(right)
    ]


def cases(seed: int, mistakes: int = MISTAKES, rewrites: int = RIGHT) -> Sample:
    """The cases of a seed, each with a name of its own."""
    rng = random.Random(seed)
    gaps = [f"{what}: {why}" for what, why in GAPS.items()]
    gaps += [f"{net} in {dtype} beside {pair}: {why}" for (pair, net, dtype), why in REFUSED.items()]
    wrong = list(_mistakes(rng, seed, mistakes, gaps))
    right = list(_rewrites(rng, seed, rewrites, gaps))
    return Sample(tuple(wrong), tuple(right), tuple(dict.fromkeys(gaps)))


_NO_CONVOLUTION = "mindtorch's convolution keeps its weight in float32, and its kernel refuses the mixture"
REFUSED = {
    ("mindspore", "resnet", "f16"): "its batch norm does not update statistics that are in f16",
    ("mindspore", "recurrent", "f16"): "its LSTM sends gradients of zeros back in f16",
    ("msadapter", "resnet", "f32"): "mindtorch's batch norm gives wrong results on a CPU",
    ("msadapter", "resnet", "f16"): "mindtorch's batch norm gives wrong results on a CPU",
    ("msadapter", "recurrent", "f32"): "mindtorch's GRU has no CPU kernel: it fails with an AttributeError",
    ("msadapter", "recurrent", "f16"): "mindtorch's GRU has no CPU kernel: it fails with an AttributeError",
    ("msadapter", "cnn", "f16"): _NO_CONVOLUTION,
    ("msadapter", "vit", "f16"): _NO_CONVOLUTION,
    ("msadapter", "unet", "f16"): _NO_CONVOLUTION,
    ("msadapter", "unet", "f32"): "its gradients are all zero under mindtorch",
    ("msadapter", "mixture", "f16"): "gradients of two dtypes meet in one sum, which MindSpore refuses",
}
"""(right side, net, dtype) that a framework cannot run on a CPU, and why."""


def allowed(pair: str, dtype: str, net: str) -> bool:
    """Can both frameworks run this?"""
    return pair == "torch" or (dtype != "bf16" and (pair, net, dtype) not in REFUSED)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def _combinations() -> Iterator[tuple[Any, ...]]:
    for family, net in itertools.product(FAMILIES, NET_NAMES):
        if not sites(net, family):
            continue
        for dtype, mode, pair, names, side in itertools.product(
            DTYPES, family.modes, PAIRS, ("same", "other"), ("left", "right")
        ):
            if not allowed(pair, dtype, net) or (family.only_torch and pair != "torch" and side == "right"):
                continue
            if family.train and (pair == "msadapter" or dtype == "f16"):
                continue
            for style in ("as it is", "rewritten"):
                yield family.name, net, dtype, mode, pair, names, side, style


def _mistakes(rng: random.Random, seed: int, count: int, gaps: list[str]) -> Iterator[Case]:
    combinations = list(_combinations())
    by_name = {family.name: family for family in FAMILIES}
    gaps += [
        f"{family.name} in {net}: the net has nothing of the kind"
        for family, net in itertools.product(FAMILIES, NET_NAMES)
        if not sites(net, family)
    ]
    made, number = 0, itertools.count()
    seen: set[tuple[Any, ...]] = set()
    open_pairs = {pair for combination in combinations for pair in pairs_of(combination)}

    def tried(combination: tuple[Any, ...]) -> Case | None:
        nonlocal made, open_pairs
        if combination in seen:
            return None
        seen.add(combination)
        # Its own random numbers: what becomes of one case changes no other.
        own = random.Random(f"{seed} {combination}")
        case = _effective(own, seed, by_name[combination[0]], combination, f"{next(number):03}")
        if case is not None:
            made += 1
            open_pairs -= set(pairs_of(combination))
        return case

    queue = cover(combinations, rng)
    rng.shuffle(queue)
    for combination in queue:
        if made >= count < MISTAKES:  # fewer are a sample in which not every two choices meet
            return
        if (case := tried(combination)) is not None:
            yield case
    for pair in sorted(open_pairs, key=str):  # what had no effect there may have one elsewhere
        others = (
            [combination for combination in combinations if pair in pairs_of(combination)] if pair in open_pairs else []
        )
        for combination in rng.sample(others, min(6, len(others))):
            if (case := tried(combination)) is not None:
                yield case
                break
        else:
            if pair in open_pairs:
                gaps.append(f"{pair[1]} with {pair[3]}: without effect on these inputs, in {min(6, len(others))} tries")
    while made < count:
        if (case := tried(rng.choice(combinations))) is not None:
            yield case


def _effective(rng: random.Random, seed: int, family: Family, combination: tuple[Any, ...], number: str) -> Case | None:
    """A case of this combination that changes a result; None if a few tries give none."""
    choices = [(site, value) for site, right in sites(combination[1], family) for value in family.values(right)]
    wrong_side = PAIRS[combination[4]][combination[6] == "right"]
    if wrong_side != "torch":  # where bf16 is refused
        choices = [(site, value) for site, value in choices if not str(value).endswith("bf16")]
    for site, value in rng.sample(choices, min(4, len(choices))):
        case = _mistake(rng, seed, family, combination, site, value, number)
        plain = replace(case.left, set=())
        alone = replace(case, left=plain, right=plain.with_knobs((site, family.sets or family.knob, value)))
        try:  # alone: a rewrite beside it rounds otherwise, and would pass for an effect; and beside it: it may undo the mistake
            if changes(alone) and (combination[-1] == "as it is" or means(case) > NOISE):
                return case
        except (StopIteration, ValueError, IndexError, RuntimeError):  # no other layer of that shape, no product there
            continue
    return None


def _mistake(
    rng: random.Random, seed: int, family: Family, combination: tuple[Any, ...], site: str, value: Any, number: str
) -> Case:
    name, net, dtype, direction, pair, names, side, style = combination
    mode = "train" if family.train else direction
    left, right = (Side(framework, net, (), dtype, mode, "same", seed) for framework in PAIRS[pair])
    right = Side(right.framework, net, (), dtype, mode, names, seed)
    if style == "rewritten":
        left, right = _rewritten(rng, left, right, site, family)
    if value == "fused" and (left, right)[side == "right"].framework != "torch":
        value = None  # the cap is missing all the same
    fault = (site, family.sets or family.knob, value)
    left, right = (left.with_knobs(fault), right) if side == "left" else (left, right.with_knobs(fault))
    in_16_bits = family.name == "sums_in_16_bits" and dtype != "f32"
    truth = Truth(
        "remark" if in_16_bits else "part",
        places(site, family, left),
        places(site, family, right),
        family.cause,
        family.lone,
    )
    return Case(f"{number}-{name}-{net}-{dtype}-{direction}-{pair}", name, left, right, truth)


_BESIDE = ("attention", "fused", "layout", "projected", "fill", "fill_form", "residual")
"""Rewrites of the very module that has the mistake; of other layers the one with the mistake stays as it is."""


def _rewritten(rng: random.Random, left: Side, right: Side, site: str, family: Family) -> tuple[Side, Side]:
    """One of the sides with a rewrite somewhere; in attention by preference where the mistake is there."""
    path = site.partition("#")[0]
    options = []
    for rewrite in REWRITES:
        if rewrite.train or left.mode not in (*rewrite.modes, "train") or rewrite.name == "checkpointed":
            continue
        for where, value in sites(left.net, rewrite):
            near = where.partition("#")[0] == path
            if near and rewrite.knob not in _BESIDE:
                continue
            if rewrite.knob == family.knob and where == site:
                continue
            options += [(where, rewrite, new, near) for new in rewrite.values(value)]
    nearby = [option for option in options if option[3] and option[1].knob in ("attention", "fused")]
    if not options:
        return left, right
    where, rewrite, new, _ = rng.choice(nearby or options)
    if (rewrite.only_torch and right.framework != "torch") or rng.random() < 0.5:
        return left.with_knobs((where, rewrite.knob, new)), right
    return left, right.with_knobs((where, rewrite.knob, new))


def places(site: str, family: Family, side: Side) -> tuple[Place, ...]:
    """Where a mistake of that family at that site is, in the names of that side."""
    path, _, label = site.partition("#")

    def named(*parts: str) -> str:
        return renamed_path(".".join(filter(None, parts)), side.names)

    if site == "#optimizer":
        return (Place("", update=True),)
    if family.knob == "first":
        return (Place(named("places"), deep=True), Place("", family.calls))
    if family.knob == "tied":
        return (Place(named("tokens"), deep=True), Place(named("head"), deep=True), Place("", "linear|matmul|dense"))
    if label:
        # A call that one side alone makes may be told as a difference of the module that makes it.
        whole = (Place(named(path), module=True),) if family.lone and path else ()
        return (Place(named(path), family.calls), *whole)
    if family.knob in ("kind", "slope"):
        return (Place(named(path), deep=True), Place(named(path.rpartition(".")[0]), family.calls))
    return (Place(named(path), deep=not path.endswith("attn")),)


# --- rewrites ---------------------------------------------------------------------------------------------------------


def _rewrites(rng: random.Random, seed: int, count: int, gaps: list[str]) -> Iterator[Case]:
    """Plain ports, runs in another precision, and rewrites until there are enough."""
    number = itertools.count()
    agree = Truth("agree")

    def made(what: str, left: Side, right: Side) -> Case:
        name = f"r{next(number):03}-{what}-{left.net}-{left.dtype}-{left.mode}-{right.framework}"
        return Case(name, what, left, right, agree)

    ports = [
        (net, pair, dtype)
        for net, pair, dtype in itertools.product(NET_NAMES, ("mindspore", "msadapter"), ("f32", "f16"))
        if allowed(pair, dtype, net)
    ]
    plain = rng.sample(ports, min(len(ports), max(count // 4, 1)))
    for net, pair, dtype in plain:
        mode = rng.choice(("forward", "backward"))
        left, right = PAIRS[pair]
        names = rng.choice(("same", "other"))
        yield made(
            "port", Side(left, net, (), dtype, mode, "same", seed), Side(right, net, (), dtype, mode, names, seed)
        )
    for net in rng.sample(NET_NAMES, max(1, min(6, count // 10))):
        dtype, mode = rng.choice(("bf16", "f16")), rng.choice(("forward", "backward"))
        sides = [Side("torch", net, (), kind, mode, "same", seed) for kind in ("f32", dtype)]
        yield made("other_precision", *sides)
    combinations = list(_right_combinations())
    queue = cover(combinations, rng)
    rng.shuffle(queue)
    seen: set[tuple[Any, ...]] = set()
    rest = count - len(plain) - max(1, min(6, count // 10))
    while rest > 0 and len(seen) < len(combinations):
        combination = queue.pop() if queue else rng.choice(combinations)
        if combination in seen:
            continue
        seen.add(combination)
        rest -= 1
        name, net, dtype, direction, pair, side = combination
        rewrite = next(rewrite for rewrite in REWRITES if rewrite.name == name)
        mode = "train" if rewrite.train else direction
        names = "same" if rewrite.train else rng.choice(("same", "other"))
        frameworks = PAIRS[pair]
        left = Side(frameworks[0], net, (), dtype, mode, "same", seed)
        right = Side(frameworks[1], net, (), dtype, mode, names, seed)
        places_of_it = sites(net, rewrite)
        chosen = places_of_it if rng.random() < 0.5 else [rng.choice(places_of_it)]
        changed = [(site, rewrite.knob, rng.choice(rewrite.values(value))) for site, value in chosen]
        left, right = (left.with_knobs(*changed), right) if side == "left" else (left, right.with_knobs(*changed))
        yield made(rewrite.name, left, right)


def _right_combinations() -> Iterator[tuple[Any, ...]]:
    for rewrite, net in itertools.product(REWRITES, NET_NAMES):
        if not sites(net, rewrite):
            continue
        for dtype, mode, pair, side in itertools.product(DTYPES, rewrite.modes, PAIRS, ("left", "right")):
            if not allowed(pair, dtype, net) or (rewrite.only_torch and pair != "torch" and side == "right"):
                continue
            if rewrite.train and (pair != "torch" or dtype == "f16"):
                continue
            yield rewrite.name, net, dtype, mode, pair, side


def by_name(sample: Sample, names: Sequence[str]) -> list[Case]:
    return [case for case in sample.all if not names or case.name in names]
