"""Fold a step's journal onto an earlier one of the same structure: what repeats is named, the numbers are kept.

    fold(body)               Folded: the pattern (all lines, with a mark for each set of numbers) and the numbers, packed
    unfold(pattern, packed)  the body again, byte for byte

A step of a training loop makes the calls of the step before, with other values. Its journal without statistics, fingerprints, order
sums and checks is the *pattern*; two steps with one pattern differ in their numbers alone, which take 60 bytes a tensor instead
of 300. FORMAT.md describes the bytes.

Folding loses nothing: a body whose numbers are not written as they would be written again is not folded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from .lines import seal_text

_HOLE = re.compile(rb',"stats":\[([-+.0-9e,]+)\](?:,"fp":"([0-9a-f]{32})")?(?:,"order":\[([-+.0-9e,]+)\])?')
_CHECK = re.compile(rb',"crc":"[0-9a-f]{8}"\}\n')
_MARK = re.compile(rb"[\x10-\x1f]")
_TENSOR = re.compile(rb'\{"k":"tensor","id":([0-9]{1,15}),')
_STACK = re.compile(rb',"stack":[0-9]+')
_ADDRESS = re.compile(rb" at 0x[0-9a-fA-F]+")
_FLOAT = re.compile(rb"-?[0-9]+\.[0-9]+(?:e[-+]?[0-9]+)?|-?[0-9]+e[-+]?[0-9]+")
_END = b'{"k":"end"'

HAS_FINGERPRINT: Final = 1
HAS_ORDER: Final = 2
WHOLE_MIN: Final = 4
WHOLE_MAX: Final = 8
"""Bits of a mark: which fields follow the statistics, and whether the smallest and the largest are JSON integers."""
_FIRST_MARK = 0x10  # control characters do not occur in JSON, so a mark is no text
COUNTS: Final = ("nan", "posinf", "neginf", "zero")
IDENTITY_BYTES: Final = 16
MAX_CHANGED: Final = 32
"""Lines of a folded step that may be others than those of the step it refers to: a learning rate, a saved number."""


class NotFoldable(ValueError):
    """A body that would not come back as it was."""


@dataclass(frozen=True)
class Pattern:
    """The lines of a step without its numbers, one after the other, each with a newline; without the head."""

    text: bytes
    base: Pattern | None = None
    """Another one, of which this is a copy with other lines in some places."""
    changed: Mapping[int, bytes] = field(default_factory=dict)

    @cached_property
    def identity(self) -> str:
        return hashlib.blake2b(self.text, digest_size=IDENTITY_BYTES).hexdigest()

    @cached_property
    def lines(self) -> list[bytes]:
        return self.text.split(b"\n")[:-1]

    @cached_property
    def calls(self) -> int:
        """Number of calls."""
        return sum(line.startswith(b'{"k":"call",') for line in self.lines)

    @cached_property
    def marks(self) -> bytes:
        """The marks in their order, one byte for each set of numbers."""
        return b"".join(_MARK.findall(self.text))

    @cached_property
    def _calls(self) -> bytes:
        """Calls and tensors alone: without the places in the source where they were made, and in memory where objects lay."""
        kept = [_STACK.sub(b"", line) for line in self.lines if not line.startswith(b'{"k":"stack"')]
        return _ADDRESS.sub(b" at 0x", b"\n".join(kept))

    @cached_property
    def program(self) -> str:
        """Identity of the calls and tensors."""
        return hashlib.blake2b(self._calls, digest_size=IDENTITY_BYTES).hexdigest()

    @cached_property
    def skeleton(self) -> str:
        """The same without numbers that a schedule changes from step to step: a learning rate, a temperature."""
        return hashlib.blake2b(_FLOAT.sub(b"0.0", self._calls), digest_size=IDENTITY_BYTES).hexdigest()

    @cached_property
    def says_values(self) -> bool:
        """True if there are statistics that have no mark: of tensors without a finite value."""
        return b',"stats":[' in self.text

    @cached_property
    def tensors(self) -> dict[int, int]:
        """Tensor to its place among the numbers. Of two lines with one number the first counts."""
        places: dict[int, int] = {}
        place = 0
        for line in self.lines:
            marks = len(_MARK.findall(line))
            match = _TENSOR.match(line) if marks == 1 else None
            if match:
                places.setdefault(int(match[1]), place)
            place += marks
        return places

    @cached_property
    def plain(self) -> bool:
        """True if all numbers are those of tensors, and of each tensor once."""
        return len(self.tensors) == len(self.marks)

    @cached_property
    def all_fingerprints(self) -> bool:
        """True if there is a fingerprint with every set of numbers."""
        return all(mark & HAS_FINGERPRINT for mark in self.marks)

    def with_lines(self, changed: dict[int, bytes]) -> Pattern:
        """The same with other lines in some places."""
        lines = list(self.lines)
        for place, line in changed.items():
            lines[place] = line
        return Pattern(b"".join(line + b"\n" for line in lines), self, changed)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a step, by their place in the pattern."""

    fingerprints: np.ndarray[Any, Any]
    """u1[n, 16]; zeros where there is none."""
    ends: np.ndarray[Any, Any]
    """f4 or f8[2, n]: the smallest, the largest."""
    means: np.ndarray[Any, Any]
    """f8[4, n]: mean, norm, the two order sums."""
    counts: np.ndarray[Any, Any]
    """u4[4, n]: nan, posinf, neginf, zero."""

    def __len__(self) -> int:
        return len(self.fingerprints)

    def pack(self) -> tuple[bytes, str, list[str]]:
        """The bytes, the type of the ends, and the names of the counts that are among them: those that are not all zero."""
        present = [which for which in range(4) if self.counts[which].any()]
        parts = [self.fingerprints, self.ends, self.means, *(self.counts[which] for which in present)]
        return (
            b"".join(part.tobytes() for part in parts),
            "f32" if self.ends.dtype.itemsize == 4 else "f64",
            [COUNTS[which] for which in present],
        )

    @classmethod
    def unpack(cls, raw: bytes, size: int, ends: str, counts: Sequence[str]) -> Numbers:
        """From bytes; ValueError where there are not as many as there should be."""
        width = {"f32": 4, "f64": 8}[ends]
        expected = size * (16 + 2 * width + 32 + 4 * len(counts))
        if len(raw) != expected:
            raise ValueError(f"expected {expected} bytes of numbers, got {len(raw)}")
        places = np.cumsum([0, 16 * size, 2 * width * size, 32 * size])
        integers = np.zeros((4, size), np.uint32)
        for number, name in enumerate(counts):
            integers[COUNTS.index(name)] = np.frombuffer(raw, "<u4", size, int(places[3]) + 4 * size * number)
        return cls(
            np.frombuffer(raw, np.uint8, 16 * size).reshape(size, 16),
            np.frombuffer(raw, f"<f{width}", 2 * size, int(places[1])).reshape(2, size),
            np.frombuffer(raw, "<f8", 4 * size, int(places[2])).reshape(4, size),
            integers,
        )


@dataclass(frozen=True)
class Outline:
    """A step as two steps are told apart: its structure and its numbers."""

    pattern: Pattern
    numbers: Numbers


def fold(body: bytes, *, canonical: bool = False) -> tuple[Pattern, Numbers]:
    """Pattern and numbers of all lines of a closed journal but its head.

    Args:
        body: the lines.
        canonical: all numbers are known to be written as Python writes them, which need not be checked then: that takes a third of
            the time.

    Raises:
        NotFoldable: it would not come back byte for byte, or is not a journal that was closed.
    """
    parts = _HOLE.split(body)
    literals, statistics, fingerprints, orders = parts[0::4], parts[1::4], parts[2::4], parts[3::4]
    size = len(statistics)
    table = _decode(statistics, 8, canonical)
    sums = _decode([order or b"0.0,0.0" for order in orders], 2, canonical)
    whole = [[type(number) is int for number in table[column::8]] for column in range(8)]
    if any(any(kinds) for kinds in whole[2:4]) or not all(map(all, whole[4:])) or any(type(n) is int for n in sums):
        raise NotFoldable("numbers of another type than expected")
    columns = np.array(table, np.float64).reshape(size, 8).T
    for column in (0, 1):
        if any(kind and abs(number) > 2**53 for kind, number in zip(whole[column], table[column::8], strict=True)):
            raise NotFoldable("an integer beyond float64")
    if size and columns[4:].max() >= 2**32:
        raise NotFoldable("a count beyond 32 bits")
    marks = [
        bytes(
            (
                _FIRST_MARK
                + HAS_FINGERPRINT * (fingerprint is not None)
                + HAS_ORDER * (order is not None)
                + WHOLE_MIN * low
                + WHOLE_MAX * high,
            )
        )
        for fingerprint, order, low, high in zip(fingerprints, orders, whole[0], whole[1], strict=True)
    ]
    woven = [b""] * (2 * size + 1)
    woven[0::2], woven[1::2] = literals, marks
    text = _CHECK.sub(b"\n", b"".join(woven))
    if text.rfind(b"\n", 0, -1) + 1 != text.rfind(_END) or text.count(b"\n") != body.count(b"\n"):
        raise NotFoldable("not a journal that was closed")
    with np.errstate(over="ignore"):
        ends = columns[:2].astype("<f4")
    if not np.array_equal(ends.astype("<f8"), columns[:2]):
        ends = np.ascontiguousarray(columns[:2], "<f8")
    bits = b"".join(bytes(16) if item is None else bytes.fromhex(item.decode()) for item in fingerprints)
    return Pattern(text), Numbers(
        np.frombuffer(bits, np.uint8).reshape(size, 16),
        ends,
        np.ascontiguousarray(np.vstack([columns[2:4], np.array(sums, np.float64).reshape(size, 2).T]), "<f8"),
        np.ascontiguousarray(columns[4:], "<u4"),
    )


def unfold(pattern: Pattern, numbers: Numbers) -> bytes:
    """The body that was folded."""
    size = len(numbers)
    if size != len(pattern.marks):
        raise ValueError(f"expected numbers for {len(pattern.marks)} tensors, got {size}")
    ends, means = numbers.ends.tolist(), numbers.means.tolist()
    counts, bits = numbers.counts.tolist(), numbers.fingerprints.tobytes().hex()
    texts = []
    for place, mark in enumerate(pattern.marks):
        flags = mark - _FIRST_MARK
        low, high = ends[0][place], ends[1][place]
        text = (
            f',"stats":[{int(low) if flags & WHOLE_MIN else low!r},{int(high) if flags & WHOLE_MAX else high!r},'
            f"{means[0][place]!r},{means[1][place]!r},"
            f"{counts[0][place]},{counts[1][place]},{counts[2][place]},{counts[3][place]}]"
        )
        if flags & HAS_FINGERPRINT:
            text += f',"fp":"{bits[32 * place : 32 * place + 32]}"'
        if flags & HAS_ORDER:
            text += f',"order":[{means[2][place]!r},{means[3][place]!r}]'
        texts.append(text)
    woven: list[str] = [""] * (2 * size + 1)
    woven[0::2] = _MARK.sub(b"\x10", pattern.text).decode("utf-8", "surrogatepass").split("\x10")
    woven[1::2] = texts
    return b"".join(map(seal_text, "".join(woven).split("\n")[:-1]))


def changed_lines(reference: Pattern, pattern: Pattern) -> dict[int, bytes] | None:
    """Lines of a pattern that are others than the reference's, by place; None where there are too many, or more or fewer lines."""
    if len(reference.lines) != len(pattern.lines):
        return None
    changed = {
        place: line
        for place, (known, line) in enumerate(zip(reference.lines, pattern.lines, strict=True))
        if known != line
    }
    return changed if len(changed) <= MAX_CHANGED else None


def _decode(texts: list[bytes], width: int, canonical: bool) -> list[Any]:
    """Numbers of lists of numbers, all in a row; NotFoldable where they would be written otherwise."""
    joined = b",".join(texts).decode()
    try:
        numbers: list[Any] = json.loads(f"[{joined}]")
    except ValueError:
        raise NotFoldable("not numbers") from None
    if len(numbers) != width * len(texts):
        raise NotFoldable("lists of another length than expected")
    if not canonical and json.dumps(numbers, separators=(",", ":"))[1:-1] != joined:
        raise NotFoldable("numbers that would be written otherwise")
    return numbers
