"""A text that is one of a few: an enum whose members are their own values everywhere, in text and as keys."""

from __future__ import annotations

import enum


class Word(str, enum.Enum):
    """Members print, format and hash as plain text, and as fast."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # the same, but for the name of its argument
    __hash__ = str.__hash__
