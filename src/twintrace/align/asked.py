"""Bind what a mapping says, before anything is looked for.

Names that do not occur in these two records have no effect: one file serves all steps and ranks of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.sites import Kind, Phase
from .mappings import Mapping
from .strands import Strand
from .webs import Bond, Web

ASKED = "the mapping says so"


def follow_mapping(web: Web, mapping: Mapping) -> None:
    """Leave out what is to be ignored, and bind the regions, calls and modules that belong together."""
    for which, strand in enumerate(web.strands):
        for index, call in enumerate(strand.calls):
            if strand.parent[index] in web.left_out[which] or mapping.ignores(which, call):
                web.left_out[which].add(index)
    if not (mapping.regions or mapping.calls or mapping.modules):
        return
    addresses = [{str(call.site): index for index, call in enumerate(strand.calls)} for strand in web.strands]
    groups = [(region.left, region.right) for region in mapping.regions]
    groups += [((left,), (right,)) for left, right in mapping.calls.items()]
    for left, right in groups:
        ours, theirs = (_found(addresses[which], names) for which, names in ((0, left), (1, right)))
        if len(ours) == len(left) and len(theirs) == len(right):
            _bind(web, ours, theirs)
    paths = [_by_path(strand) for strand in web.strands]
    for one, two in mapping.modules.items():
        for phase in Phase:
            for i, j in zip(paths[0].get((phase, one), ()), paths[1].get((phase, two), ()), strict=False):
                _bind(web, (i,), (j,))


def _bind(web: Web, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if all(web.is_free(0, index) for index in left) and all(web.is_free(1, index) for index in right):
        web.bind(Bond(tuple(sorted(left)), tuple(sorted(right)), ASKED, 1.0), as_it_is=True)


def _found(addresses: dict[str, int], names: Iterable[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(addresses[name] for name in names if name in addresses))


def _by_path(strand: Strand) -> dict[tuple[Phase, str], list[int]]:
    found: dict[tuple[Phase, str], list[int]] = {}
    for index, call in enumerate(strand.calls):
        if call.site.kind is Kind.MODULE:
            found.setdefault((call.site.phase, call.site.name), []).append(index)
    return found
