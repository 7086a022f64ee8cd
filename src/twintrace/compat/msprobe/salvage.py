"""Readable parts of a JSON file that is damaged: every member that is whole.

    {"task": "statistics", "data": {"A.0.forward": {…}, "B.0.forward": {"input_ar        the file ends here

    -> {"task": "statistics", "data": {"A.0.forward": {…}}},
       ["the file ends at byte 5321, inside B.0.forward: what follows is lost"]

The file is gone through member by member with json's own decoder. Where a member cannot be read, the next name of a record is
looked for.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[\s,]*")
_KEY = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"\s*:\s*')
_DATA = re.compile(r'"data"\s*:\s*\{')
# Where a record begins, or in stack.json the calls of one stack: `"0": [[names], [frames]]`.
_RECORD = re.compile(
    r'"(?:[^"\\\x00-\x1f]+\.(?:forward|backward|debug|parameters_grad)(?:\.\d+)?"\s*:|\d+"\s*:\s*\[\s*\[)'
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
    members: dict[str, Any] = {}
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if at >= len(text):
            problems.append(f"the file ends at byte {len(text)}, where a record was expected: what follows is lost")
            return members, at
        if text[at] == "}":
            return members, at + 1
        key = _KEY.match(text, at)
        try:
            if key is None:
                raise ValueError(f"expected a key, got {text[at : at + 20]!r}")
            members[json.loads(f'"{key[1]}"')], at = _DECODER.raw_decode(text, key.end())
        except (ValueError, RecursionError) as error:
            name, begin = (key[1], key.end()) if key else ("a record", at + 1)
            place = getattr(error, "pos", len(text))
            why = "nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", str(error))
            following = _RECORD.search(text, begin)
            if following is not None:
                problems.append(f"{name} at byte {at} cannot be read ({why})")
                at = following.start()
                continue
            ends = "Unterminated" in why or not text[place + 1 :].strip()
            problems.append(
                f"the file ends at byte {len(text)}, inside {name}: what follows is lost"
                if ends
                else f"{name} at byte {at} cannot be read ({why}), nor what follows"
            )
            return members, len(text)
