"""Carry weights over: into a file, or into a net.

    convert(open_state("net.pth"), "net.ckpt", map)      file to file, a megabyte at a time
    convert(open_state(torch_net), mindspore_net, map)   from net to net

Everything is checked before the first byte is written: that the map names existing weights, that nothing that matters is left
behind, that shapes and element types fit. Weights whose bytes do not change are copied in blocks and never held whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..model.errors import UsageError, WeightsError
from ..model.tensors import Spec
from ..model.weights import Conversion, Pair, WeightMap, WeightRow
from ..model.words import Progress, some
from ..store.arrays import nbytes
from .checkpoints import format_of, writing
from .extents import pieces
from .states import State
from .transforms import apply, keeps_bytes, result

# DistributedDataParallel, torch.compile.
_WRAPPERS = ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")


def metered(pairs: Iterable[Pair], specs: Mapping[str, Spec], what: str, progress: Progress | None) -> Iterator[Pair]:
    """The pairs one by one; after each, `progress` is told how many bytes of the right side are done."""
    total, done = sum(nbytes(spec) for spec in specs.values()), 0
    for pair in pairs:
        yield pair
        if progress and pair.right in specs:
            done += nbytes(specs[pair.right])
            progress(what, done, total)


def convert(
    source: State,
    target: str | os.PathLike[str] | State,
    map: WeightMap,
    *,
    framework: str = "mindspore",
    partial: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Carry the weights over. `partial` lets open weights stay behind; they are listed all the same."""
    map, notes = fit_names(map, source)
    specs = _checked(source, map, partial)
    pairs = metered(map.pairs, specs, "carrying weights over", progress)
    if isinstance(target, State):
        _load(source, target, map, specs, partial, pairs)
        where = target.label
    else:
        where = os.fspath(target)
        format_of(where)
        if source.source is not None and Path(where).exists():
            files = {extent.file for item in source.source.stored.values() for extent in item.extents}
            if any(Path(where).samefile(file) for file in files):
                raise UsageError(f"{where}: is the file that is read. Write to another one.")
        with writing(where, specs, framework=framework) as out:
            for pair in pairs:
                if source.source is not None and len(pair.left) == 1 and keeps_bytes(pair.steps):
                    out.copy(pair.right, source.source, pair.left[0])
                else:
                    out.put(pair.right, pieces(value(source, pair)))
    rows = []
    for pair in map.pairs:
        specs_of = (source.items[pair.left[-1]].spec, specs[pair.right])
        rows.append(WeightRow(" + ".join(pair.left), pair.right, *specs_of, pair.transform, "carried"))
    total = sum(nbytes(spec) for spec in specs.values())
    return Conversion(source.label, where, map, tuple(rows), total, (*source.notes, *notes))


def fit_names(map: WeightMap, source: State) -> tuple[WeightMap, list[str]]:
    """The map for a source whose names all have, or lack, the prefix of a wrapper (`module.`)."""
    names = {name for pair in map.pairs for name in pair.left}
    if any(name in source for name in names):
        return map, []
    for wrapper in _WRAPPERS:
        for change in (wrapper.__add__, lambda name, wrapper=wrapper: name.removeprefix(wrapper)):
            if all(change(name) in source for name in names):
                pairs = tuple(replace(pair, left=tuple(change(name) for name in pair.left)) for pair in map.pairs)
                alone = tuple(replace(item, name=change(item.name)) for item in map.only_left)
                return replace(map, pairs=pairs, only_left=alone), [
                    f"names fit but for the prefix {wrapper!r}, which is a wrapper's"
                ]
    return map, []


def made(source: State, pair: Pair) -> Spec:
    """Result of a pair's steps by shape and element type."""
    try:
        return result(pair.steps, [source.items[name].spec for name in pair.left])
    except WeightsError as error:
        raise WeightsError(f"{' + '.join(pair.left)} -> {pair.right}: {error}") from None


def value(source: State, pair: Pair) -> Any:
    """Result of a pair's steps, in memory."""
    return apply(pair.steps, [source.read(name) for name in pair.left], [source.items[name].spec for name in pair.left])


def _checked(source: State, map: WeightMap, partial: bool) -> dict[str, Spec]:
    gone = [name for pair in map.pairs for name in pair.left if name not in source]
    if gone:
        raise WeightsError(
            f"the map names {len(gone)} weights that {source.label} does not have: {some(gone)}. It has {some(source.items)}. "
            f"Was the map made for another net?"
        )
    told = {name for pair in map.pairs for name in pair.left} | {item.name for item in map.only_left}
    told |= {name for item in map.ambiguous for name in item.left}
    untold = [item.name for item in source.items.values() if item.name not in told and item.same_as is None]
    problems = []
    if untold:
        problems.append(f"{len(untold)} weights of {source.label} are not in the map: {some(untold)}")
    problems += [f"it is not clear where {some(item.left)} belong: {item.because}" for item in map.ambiguous]
    problems += list(map.misfits)
    left_behind = [item for item in map.only_left if not item.harmless]
    unfilled = [item for item in map.only_right if not item.harmless]
    problems += [f"{item.name} has no place on the right: {item.because}" for item in left_behind]
    problems += [f"nothing fills {item.name} on the right: {item.because}" for item in unfilled]
    if problems and not partial:
        raise WeightsError(
            f"{source.label} cannot be carried over completely:\n  "
            + "\n  ".join(problems[:8])
            + (f"\n  … and {len(problems) - 8} more" if len(problems) > 8 else "")
            + "\nGive a map that settles this (twintrace weights map -o map.json, edit, --map map.json), or allow it: partial=True "
            "(--partial)."
        )
    return {pair.right: made(source, pair) for pair in map.pairs}


def _load(
    source: State, target: State, map: WeightMap, specs: dict[str, Spec], partial: bool, pairs: Iterable[Pair]
) -> None:
    if target.net is None or target.adapter is None:
        raise UsageError(f"{target.label} is not a net; give a file name to write to.")
    # A counter, or another name of a weight that has one already: a net need not have it.
    spare = {name for name, item in source.items.items() if item.counter or item.same_as is not None}
    idle = {pair.right for pair in map.pairs if spare.issuperset(pair.left)}
    gone = [name for name in specs if name not in target and name not in idle]
    if gone and not partial:
        raise WeightsError(
            f"{target.label} has no {some(gone)}. It has {some(target.items)}. Map the two nets with each other: "
            f"tt.map_weights(left, right)."
        )
    for pair in map.pairs:
        wanted = target.items[pair.right].spec if pair.right in target else specs[pair.right]
        if specs[pair.right].shape != wanted.shape:
            raise WeightsError(
                f"{' + '.join(pair.left)} becomes {specs[pair.right]}, but {pair.right} of {target.label} is {wanted}. "
                f"Nothing was loaded."
            )
    filled = {pair.right for pair in map.pairs} | {item.name for item in map.only_right if item.harmless}
    wanting = [item for item in target.items.values() if not item.counter and item.role not in item.rule.neutral]
    empty = [item.name for item in wanting if item.name not in filled and item.same_as not in filled]
    if empty and not partial:
        raise WeightsError(
            f"nothing fills {some(empty)} of {target.label}. Nothing was loaded. Map the two nets with each other "
            f"(tt.map_weights(left, right)), or allow it: partial=True."
        )
    if source.source is not None:  # a damaged file is found out before the net is touched
        for name in {name for pair in map.pairs for name in pair.left}:
            source.source.verify(name)
    for pair in pairs:
        if pair.right in target:
            wanted = target.items[pair.right].spec
            steps = pair.steps if specs[pair.right].dtype == wanted.dtype else (*pair.steps, f"cast {wanted.dtype}")
            array = value(source, replace(pair, steps=steps))
            target.adapter.load(target.net, {pair.right: (wanted.dtype, array)})
