"""Differences that the user has accepted, for CI: a TOML file with a table for each.

    [[accept]]
    place = "encoder.*.norm*"          # glob over names and module paths of either side; "*" where it is left out
    cause = "eps"                      # a kind of mistake (kernel, random, leaf, …) or words that its cause has
    reason = "eps is 1e-07 in production"

    entries = read_accepted("accept.toml")
    comparison = accept(comparison, entries)       accepted mistakes are remarks and do not cost the exit code
    write_accepted(comparison, "accept.toml")      an entry for each mistake that counts, to be edited

An entry that fits nothing is told, so that the file does not outlive its purpose.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from ..judge import first_mistake
from ..judge.divergences import counting_equal_steps
from ..model.errors import UsageError
from ..model.results import CallResult, Comparison, Mistake, StepResults

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_Kind = TypeVar("_Kind", bound=Comparison)
_KEYS = {"place", "cause", "reason"}
_KINDS = ("meaning", "kernel", "range", "leaf", "weights", "random", "gradient", "alone", "unproven")


@dataclass(frozen=True, slots=True)
class Accepted:
    """One difference that the user has accepted."""

    place: str = "*"
    cause: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"place {self.place!r}" + (f", cause {self.cause!r}" if self.cause else "")

    def fits(self, result: CallResult, mistake: Mistake) -> bool:
        """True if this is the mistake that was accepted."""
        if self.cause in _KINDS:
            if mistake.kind != self.cause:
                return False
        elif self.cause.casefold() not in f"{mistake.what}\n{mistake.why}".casefold():
            return False
        return any(fnmatchcase(name, self.place) for name in _names(result))

    def fits_result(self, text: str) -> bool:
        """True if a result that one side alone has was accepted."""
        fits = self.cause == "alone" or (self.cause not in _KINDS and self.cause.casefold() in text.casefold())
        return fits and fnmatchcase(text, f"*{self.place}*")


def _names(result: CallResult) -> Iterator[str]:
    """Names under which a place may be given: of a call, of its module, both as the verdict writes them; of a parameter its own."""
    from ..report.naming import single_place

    for call in (*result.match.left, *result.match.right):
        yield from (call.site.name, call.site.path, str(call.site), single_place(call))
    if not result.match.left:
        for item in result.tensors:
            yield from (item.pair.left_slot, item.pair.right_slot)


def read_accepted(path: str | os.PathLike[str]) -> tuple[Accepted, ...]:
    """Entries of an accept file.

    Raises:
        UsageError: it cannot be read, or says something else; the message names the key.
    """
    try:
        content: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected TOML with [[accept]] tables, got something else ({error}).") from None
    unknown = sorted(content.keys() - {"accept"})
    tables = content.get("accept", [])
    if unknown or not isinstance(tables, list):
        raise UsageError(
            f"{path}: expected [[accept]] tables and nothing else, got {', '.join(unknown) or 'accept = …'}."
        )
    entries = []
    for number, table in enumerate(tables, 1):
        wrong = sorted(table.keys() - _KEYS) if isinstance(table, dict) else ["no table"]
        if wrong or not all(isinstance(value, str) for value in table.values()):
            said = ", ".join(wrong) or "a value that is no text"
            raise UsageError(f"{path}: entry {number}: expected the texts place, cause and reason, got {said}.")
        if not table.get("place") and not table.get("cause"):
            raise UsageError(f"{path}: entry {number} would accept everything: give a place or a cause.")
        entries.append(Accepted(table.get("place", "*"), table.get("cause", ""), table.get("reason", "")))
    return tuple(entries)


def accept(comparison: _Kind, entries: Sequence[Accepted]) -> _Kind:
    """The comparison with the accepted mistakes as remarks; entries that fit nothing are told."""
    used: set[int] = set()

    def entry_for(fits: Any) -> Accepted | None:
        numbers = [number for number, entry in enumerate(entries) if fits(entry)]
        used.update(numbers)
        return entries[numbers[0]] if numbers else None

    taken: dict[tuple[int, int, Mistake], Accepted] = {}
    for result in comparison.judged:
        for mistake in result.mistakes:
            entry = entry_for(lambda entry, result=result, mistake=mistake: entry.fits(result, mistake))
            if entry is not None:
                taken.setdefault((result.step, result.rank, mistake), entry)
    results = []
    for result in comparison.judged:  # a mistake shows in several calls: accepted in one, it is in all
        own = []
        for mistake in result.mistakes:
            entry = taken.get((result.step, result.rank, mistake))
            reason = "" if entry is None else entry.reason or "accepted"
            own.append(replace(mistake, effective=mistake.effective and not reason, accepted=reason))
        results.append(replace(result, mistakes=tuple(own)) if own else result)
    lone = tuple(
        text for text in comparison.lone if entry_for(lambda entry, text=text: entry.fits_result(text)) is None
    )
    unused = [
        f"The accept file has an entry that fits no difference ({entry}): remove it."
        for number, entry in enumerate(entries)
        if number not in used
    ]
    known = any(mistake.effective for result in comparison.judged for mistake in result.mistakes) or comparison.lone
    left = any(mistake.effective for result in results for mistake in result.mistakes) or bool(lone)
    shares = {id(item.mistake): item.share for item in (comparison.forward, comparison.backward) if item is not None}
    steps = comparison.results
    changed = replace(
        comparison,
        results=steps.with_judged(results) if isinstance(steps, StepResults) else tuple(results),
        lone=lone,
        parted=left if known else comparison.parted,
        remarks=(*comparison.remarks, *unused),
    )
    if not comparison.recomputed:
        return changed
    partings = [first_mistake(changed.judged, backward=backward) for backward in (False, True)]
    counted = [item and counting_equal_steps(item, changed.equal_steps) for item in partings]
    told = [item and replace(item, share=shares.get(id(item.mistake), "")) for item in counted]
    return replace(changed, forward=told[0], backward=told[1])


def write_accepted(comparison: Comparison, path: str | os.PathLike[str]) -> int:
    """An accept file for the mistakes that cost the exit code. Returns how many entries it has."""
    from ..report.files import written
    from ..report.naming import single_place
    from ..report.text import cause_of

    entries: dict[tuple[str, str], None] = {}
    for result, mistake in comparison.mistakes:
        if mistake.effective:
            calls = result.match.left or result.match.right
            place = single_place(calls[0]) if calls else result.tensors[0].pair.left_slot
            cause = cause_of(mistake) if mistake.kind == "meaning" and mistake.why else mistake.kind
            entries[_literal(place), cause] = None
    entries.update({(_literal(text), "alone"): None for text in comparison.lone})
    with written(path) as file:
        file.write("# Differences that are accepted: twintrace compare --accept takes this file. Place is a glob.\n")
        for place, cause in entries:
            file.write(f'\n[[accept]]\nplace = {_quoted(place)}\ncause = {_quoted(cause)}\nreason = ""\n')
    return len(entries)


def _literal(text: str) -> str:
    """A text as a glob that fits it alone."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
