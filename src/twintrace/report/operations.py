"""Operations that are known, and findings on a machine, as text and as JSON.

gelu          forward backward                    PyTorch gelu, torch.nn.GELU | MindSpore GeLU, Gelu, GeluExt, gelu …
random        draws always                        PyTorch bernoulli, multinomial … | MindSpore …
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence

from ..model.results import Finding, KnownOperation

_WIDTH = 120
_SHOWN = 3
"""Names of a framework on one line; the rest is a matter of `details`."""
_RULES = (
    "A function of PyTorch or mindspore.mint that is not listed is called in float64 as it stands. "
    "Names that end in _ and calls with out= are the same operation, written in place. "
    "A name without a home (torch., mindspore.) is found in all homes of its framework."
)


def operations_text(known: Sequence[KnownOperation], *, details: bool = False) -> str:
    """One line for each operation, or a paragraph with all names and variants; sums and rules at the end."""
    if not known:
        return "No operation of this name is in the table."
    lines = [line for item in known for line in (_paragraph(item) if details else (_line(item),))]
    computed = sum(item.forward for item in known)
    differentiated = sum(item.backward for item in known)
    total = f"{len(known)} known, {computed} recomputed forward, {differentiated} backward."
    return "\n".join([*lines, "", total, *textwrap.wrap(_RULES, _WIDTH)])


def operations_json(known: Sequence[KnownOperation]) -> str:
    """`{"operations": [...]}`, each with the fields of `KnownOperation`."""
    return json.dumps({"operations": [dataclasses.asdict(item) for item in known]}, indent=2, ensure_ascii=False)


def findings_json(findings: Sequence[Finding]) -> str:
    """`{"findings": [...]}`, each with the fields of `Finding`."""
    return json.dumps({"findings": [dataclasses.asdict(item) for item in findings]}, indent=2, ensure_ascii=False)


def _marks(item: KnownOperation) -> str:
    marks = (
        ("forward", item.forward),
        ("backward", item.backward),
        (f"draws {item.draws}", item.draws),
        ("moves", item.moves),
        ("asks", item.asks),
        ("writes", item.writes),
    )
    return " ".join(word for word, given in marks if given)


def _line(item: KnownOperation) -> str:
    names = (
        f"{framework} {', '.join(own[:_SHOWN])}{' …' if len(own) > _SHOWN else ''}"
        for framework, own in (("PyTorch", item.torch), ("MindSpore", item.mindspore))
        if own
    )
    return f"{item.name:29} {_marks(item):32} {' | '.join(names)}".rstrip()


def _paragraph(item: KnownOperation) -> Iterator[str]:
    yield f"{item.name}  {_marks(item)}".rstrip()
    # MSAdapter has PyTorch's names but those of its kernels.
    facts = (
        ("PyTorch", item.torch),
        ("MindSpore", item.mindspore),
        ("MSAdapter", item.msadapter),
        ("writes", item.writes),
        ("variants", item.variants),
    )
    for label, values in facts:
        if values:
            text = ("; " if label == "variants" else ", ").join(values)
            yield from textwrap.wrap(
                text, _WIDTH, initial_indent=f"  {label:11}", subsequent_indent=" " * 13, break_on_hyphens=False
            )
