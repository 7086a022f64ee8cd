"""One line of a journal: JSON that carries its own check.

    {"k":"call","id":7,"name":"torch.relu", … ,"crc":"5f0c2b1a"}

`seal` makes such a line, `unseal` takes it back or says what is wrong with it. Values in it are tagged (model/tagged.py); `text_*`
write them in a hurry.

The hot side (seal) runs on the training thread; it builds no model objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.scanner import make_scanner
from typing import Any
from zlib import crc32

from ..model.errors import TraceFormatError, TraceWriteError
from ..model.tagged import Wire as Wire
from ..model.tagged import float_of
from ..model.tagged import is_number as is_number
from ..model.tagged import value_of as value_of
from ..model.tagged import wire_of as wire_of

MAX_MANIFEST = 1 << 20
MAX_LINE = 4 << 20  # parsed, a hostile line may take a hundred times that
MAX_NESTING = 300  # of the JSON: a level of a value is up to four of JSON
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_TAIL = len(',"crc":"00000000"}')


def _make_encode() -> Callable[[Wire], str]:
    """`JSONEncoder.encode` builds its C encoder anew for every call; built once, a line costs a third less."""
    make, escape = getattr(json.encoder, "c_make_encoder", None), getattr(json.encoder, "encode_basestring", None)
    if make is None or escape is None:
        return _ENCODER.encode
    chunks = make(None, _ENCODER.default, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


encode = _make_encode()
"""JSON text of a value; ValueError for a bare NaN or Inf, which must be tagged."""
_encode_name: Callable[[str], str] = lru_cache(4096)(encode)  # keys and classes come again and again


def seal(line: Mapping[str, Wire]) -> bytes:
    """The bytes of a line, with check and newline."""
    return seal_text(encode(line)[:-1])


def seal_text(body: str) -> bytes:
    """The same for JSON that is written out already, without its closing brace."""
    raw = body.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_LINE - _TAIL:
        raise TraceWriteError(
            f"a record of {len(raw)} bytes ({body[:60]} …): a line of a journal has at most {MAX_LINE}."
        )
    return b'%b,"crc":"%08x"}\n' % (raw, crc32(raw))


def unseal(raw: bytes) -> dict[str, Wire]:
    """The line's content; ValueError with one clause on what is wrong."""
    raw = raw.rstrip(b"\n")
    body, tail = raw[:-_TAIL], raw[-_TAIL:]
    if len(raw) < _TAIL + 8 or not tail.startswith(b',"crc":"') or not tail.endswith(b'"}'):
        raise ValueError("the line has no check at its end: it is torn or was edited")
    try:
        expected = int(tail[8:16], 16)
    except ValueError:
        raise ValueError("the check at the end of the line is not a number") from None
    if crc32(body) != expected:
        raise ValueError(f"the line's check says {expected:08x}, its bytes give {crc32(body):08x}")
    line = decode(body + b"}")
    if not isinstance(line, dict):
        raise ValueError(f"expected a JSON object, got {type(line).__name__}")
    return line


def decode(raw: bytes) -> Wire:
    """JSON that nobody vouches for; ValueError with one clause. NaN, Infinity and 1e999 are not JSON, whatever Python says."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
        try:
            wire, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):  # spaces around it, or an error, which `decode` tells
            wire = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _is_deeper(wire, MAX_NESTING):
        raise ValueError(f"nested deeper than {MAX_NESTING}")
    return wire


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is not finite")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_scan = make_scanner(_DECODER)
"""The inner part of `_DECODER.decode`, without its looks for spaces, which take as long as a short line."""


def _is_deeper(wire: Wire, limit: int) -> bool:
    level = [wire]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, list | dict)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, list | dict) for item in level)


# --- values: the writing side -------------------------------------------------------------------------------------


def text_float(value: float) -> str:
    """A float as JSON: itself when finite, tagged when not."""
    return repr(value) if math.isfinite(value) else f'{{"$float":"{value!r}"}}'


def text_token(kind: str, text: str) -> str:
    """A dtype, a device, a slice, or anything else of which the text is kept."""
    return encode({"$token": [kind, text]})


def text_nest(kind: str, keys: list[str] | None, texts: list[str]) -> str:
    """A container. Lists are bare, tuples and sets have their own tag, the rest keep their class and field names."""
    if keys is None:
        inside = ",".join(texts)
        return f"[{inside}]" if kind == "list" else f'{{"${kind}":[{inside}]}}'
    inside = ",".join([f"[{_encode_name(key)},{text}]" for key, text in zip(keys, texts, strict=True)])
    return f'{{"{"$dict" if kind == "dict" else "$object"}":[{_encode_name(kind)},[{inside}]]}}'


def wire_float(value: float) -> Wire:
    """The same as JSON-able Python, for lines that are not written in a hurry."""
    return value if math.isfinite(value) else {"$float": repr(value)}


# --- values: the reading side -------------------------------------------------------------------------------------


def number_of(wire: Wire) -> float | int | None:
    """A number of a statistics list."""
    if wire is None or (isinstance(wire, int | float) and not isinstance(wire, bool)):
        return wire
    if isinstance(wire, dict) and wire.keys() == {"$float"}:
        return float_of(wire["$float"])
    raise ValueError(f"expected a number, got {str(wire)[:80]}")


def field_of(line: Mapping[str, Wire], name: str, kind: type, where: str) -> Any:
    """`line[name]`, checked; TraceFormatError that names the record and the field. An `int` is a number in the sense above."""
    value = line.get(name)
    if not (is_number(value) if kind is int else isinstance(value, kind)):
        expected = "a number, 0 or more" if kind is int else kind.__name__
        raise TraceFormatError(
            f"{where}: field {name!r}: expected {expected}, got {str(value)[:60]!r}. The line is damaged."
        )
    return value


def optional_of(line: Mapping[str, Wire], name: str, kind: type, default: Any, where: str) -> Any:
    """The same for a field that may be absent or null."""
    return default if line.get(name) is None else field_of(line, name, kind, where)
