"""Readable parts of a JSON file that is damaged: every member that is whole.

    {"task": "statistics", "data": {"A.0.forward": {…}, "B.0.forward": {"input_ar        the file ends here

    -> {"task": "statistics", "data": {"A.0.forward": {…}}},
       ["the file ends at byte 5321, inside B.0.forward: what follows is lost"]

The file is gone through member by member with json's own decoder. Where a member cannot be read, the next place that looks like the
beginning of one is looked for: a key at the same indentation, or one that is called like a record.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[\s,]*")
_KEY = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"\s*:\s*')
_DATA = re.compile(r'"data"\s*:\s*\{')
# Where a record begins, whatever the indentation: its name, then an object with one of a record's keys, or a parameter's list.
_RECORD = re.compile(
    r'"[^"\\\x00-\x1f]{1,1000}"\s*:\s*\{\s*(?:\}|"(?:input_args|input_kwargs|input|output|parameters|[^"\\\x00-\x1f]{1,200}"\s*:\s*\[\s*(?:\{|null)))'
)
_SHOWN = 20


def salvage(raw: bytes) -> tuple[dict[str, Any], list[str]]:
    """The members that can be read, those of `data` one by one; and what cannot, a clause each."""
    problems: list[str] = []
    text = raw.decode("utf-8", errors="replace")
    if "\ufffd" in text:
        problems.append("some bytes are not UTF-8")
    inside = _DATA.search(text)
    if inside is None:
        document, _ = _members(text, text.find("{") + 1, problems)
        return document, problems
    document, _ = _members(f"{text[: inside.start()]}}}", text.find("{") + 1, problems)
    document["data"], end = _members(text, inside.end(), problems)
    behind, _ = _members(text, end, [])  # some write what they are behind the data
    document |= {key: value for key, value in behind.items() if key not in document}
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"and {len(problems) - _SHOWN} places more"]
    return document, problems


def _members(text: str, at: int, problems: list[str]) -> tuple[dict[str, Any], int]:
    """The members of the object whose contents begin at `at`, and where it ends."""
    found: dict[str, Any] = {}
    known = 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if at >= len(text):
            problems.append(f"the file ends at byte {len(text)}, where a record was expected: what follows is lost")
            return found, at
        if text[at] == "}":
            return found, at + 1
        key = _KEY.match(text, at)
        try:
            if key is None:
                raise ValueError(f"expected a key, got {text[at : at + 20]!r}")
            found[_DECODER.decode(text[key.start() : key.start(1) + len(key[1]) + 1])], at = _DECODER.raw_decode(
                text, key.end()
            )
            known += 1
        except (ValueError, RecursionError) as error:
            name = key[1] if key else "a record"
            following = _next(text, at, key.end() if key else at + 1)
            if following is None:
                problems.append(
                    f"the file ends at byte {len(text)}, inside {name}: what follows is lost"
                    if _ends(text, error)
                    else f"{name} at byte {at} cannot be read ({_clause(error)}), nor what follows"
                )
                return found, len(text)
            problems.append(f"{name} at byte {at} cannot be read ({_clause(error)})")
            at = following


def _next(text: str, key: int, behind: int) -> int | None:
    """Start of the next member: at the same indentation, or else where something looks like a record."""
    indentation = text[text.rfind("\n", 0, key) + 1 : key]
    if "\n" in text[:key] and not indentation.strip():
        match = re.compile(rf'\n{indentation}(?=")').search(text, behind)
        return match.end() if match else None
    match = _RECORD.search(text, behind)
    return match.start() if match else None


def _ends(text: str, error: Exception) -> bool:
    position = getattr(error, "pos", len(text))
    return bool(position >= len(text) - 1 or "Unterminated" in str(error) or not text[position:].strip())


def _clause(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
