"""Lines of a journal (FORMAT.md) as the records of the model, each field checked.

    call_of(line, where, order, …)      Call            stack_of(line, where, order)     (number, frames)
    tensor_of(line, where, order)       Tensor          config_of(line, where, order)    (number, Config)
    gradient_of(line, where, order)     Gradient        note_of(line, where, order)      Note
    header_of(line, where, step, rank)  Header, and the place of its payload in the ring

`where` names file and line for errors, `order` is the place of the line in its journal. What does not fit is a TraceFormatError
that names the field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..model.errors import TraceFormatError
from ..model.records import Call, Config, Frame, Gradient, Header, Note, Role
from ..model.sites import Kind, Phase, Site
from ..model.tensors import DTYPES, Location, Spec, Statistics, Tensor
from ..model.values import Value
from . import layout
from .arrays import nbytes
from .lines import Wire, field_of, is_number, number_of, optional_of, value_of
from .payloads import Stage

MAX_RANK = 64


def check_version(found: object, where: str, field: str) -> None:
    """TraceFormatError for a version that this release does not read."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise TraceFormatError(f"{where}: field {field!r}: expected a positive number, got {str(found)[:40]!r}.")
    if found > layout.VERSION:
        raise TraceFormatError(
            f"{where}: field {field!r}: trace format version {found}, but this release reads up to {layout.VERSION}. "
            f"Update twintrace, or record the trace again with this release."
        )


def header_of(line: Mapping[str, Wire], where: str, step: int, rank: int) -> tuple[Header, Stage]:
    """The header, and where the ring of the payload began and how large it was, if there was one."""
    if line.get("k") != "head":
        raise TraceFormatError(f"{where}: field 'k': the first line must be 'head', got {str(line.get('k'))[:40]!r}.")
    check_version(line.get("format"), where, "format")
    for name, expected in (("step", step), ("rank", rank)):
        if field_of(line, name, int, where) != expected:
            raise TraceFormatError(
                f"{where}: field {name!r}: expected {expected}, as the directory says, got {line[name]}."
            )
    stage = optional_of(line, "stage", list, None, where)
    if stage is not None and not (len(stage) == 2 and all(map(is_number, stage))):
        raise TraceFormatError(f"{where}: field 'stage': expected two numbers or null, got {str(stage)[:60]!r}.")
    groups = optional_of(line, "groups", list, [], where)
    if not all(isinstance(group, list) and all(map(is_number, group)) for group in groups):
        raise TraceFormatError(f"{where}: field 'groups': expected lists of ranks, got {str(groups)[:60]!r}.")
    header = Header(
        step=step,
        rank=rank,
        world=optional_of(line, "world", int, 1, where),
        framework=optional_of(line, "framework", str, "unknown", where),
        settings=optional_of(line, "settings", dict, {}, where),
        environment=optional_of(line, "environment", dict, {}, where),
        groups=tuple(map(tuple, groups)),
        precision=optional_of(line, "precision", dict, {}, where),
    )
    return header, (stage[0], stage[1]) if stage else None


def stack_of(line: Mapping[str, Wire], where: str, order: int) -> tuple[int, tuple[Frame, ...]]:
    """Number of a stack, and its frames, the innermost first."""
    frames = []
    for frame in field_of(line, "frames", list, where):
        if not (isinstance(frame, list) and list(map(type, frame)) == [str, int, str, str]):
            raise TraceFormatError(
                f"{where}: field 'frames': expected [file, line, function, code], got {str(frame)[:60]!r}."
            )
        frames.append(Frame(*frame))
    return field_of(line, "id", int, where), tuple(frames)


def config_of(line: Mapping[str, Wire], where: str, order: int) -> tuple[int, Config]:
    """Number of a configuration, and itself."""
    values = field_of(line, "values", dict, where)
    config = Config(
        field_of(line, "path", str, where),
        field_of(line, "type", str, where),
        {str(k): _value(v, where, f"values.{k}") for k, v in values.items()},
    )
    return field_of(line, "id", int, where), config


def tensor_of(line: Mapping[str, Wire], where: str, order: int) -> Tensor:
    """One tensor."""
    dtype = field_of(line, "dtype", str, where)
    shape = field_of(line, "shape", list, where)
    if dtype not in DTYPES:
        raise TraceFormatError(
            f"{where}: field 'dtype': {dtype[:40]!r} is not a known element type ({', '.join(DTYPES)})."
        )
    if len(shape) > MAX_RANK or not all(map(is_number, shape)):
        raise TraceFormatError(f"{where}: field 'shape': expected up to {MAX_RANK} sizes, got {str(shape)[:60]!r}.")
    spec = Spec(dtype, tuple(shape))
    return Tensor(
        id=field_of(line, "id", int, where),
        spec=spec,
        device=optional_of(line, "device", str, "cpu", where),
        requires_grad=optional_of(line, "grad", bool, False, where),
        producer=optional_of(line, "by", int, None, where),
        statistics=_statistics(line.get("stats"), line.get("order"), where),
        fingerprint=_fingerprint(line.get("fp"), where),
        payload=_location(line.get("at"), spec, where),
        missing=optional_of(line, "missing", str, None, where),
        facts=optional_of(line, "facts", dict, {}, where),
        parts=_numbers(line, "parts", where),
    )


def _value(wire: Wire, where: str, field: str) -> Value:
    try:
        return value_of(wire)
    except ValueError as error:
        raise TraceFormatError(f"{where}: field {field!r}: {error}. The line is damaged.") from None


# Enumerations by value: looking a member up takes a tenth of the time of calling its class.
_kind: Callable[[Any], Kind] = functools.cache(Kind)
_phase: Callable[[Any], Phase] = functools.cache(Phase)


def call_of(
    line: Mapping[str, Wire],
    where: str,
    order: int,
    gradients: Mapping[int | None, list[Gradient]],
    stacks: Mapping[int, tuple[Frame, ...]],
    configs: Mapping[int, Config],
) -> Call:
    """One call; stacks and configurations are looked up by their numbers, gradients by that of the call."""
    identity = field_of(line, "id", int, where)
    try:
        kind, phase = _kind(line.get("kind")), _phase(line.get("phase", "forward"))
    except (ValueError, TypeError) as error:
        raise TraceFormatError(f"{where}: field 'kind' or 'phase': {error}.") from None
    site = Site(
        kind,
        field_of(line, "name", str, where),
        field_of(line, "n", int, where),
        phase,
        optional_of(line, "path", str, "", where),
        optional_of(line, "type", str, "", where),
    )
    return Call(
        id=identity,
        site=site,
        parent=optional_of(line, "up", int, None, where),
        args=tuple(_value(v, where, f"in.{i}") for i, v in enumerate(field_of(line, "in", list, where))),
        kwargs={str(k): _value(v, where, f"kw.{k}") for k, v in field_of(line, "kw", dict, where).items()},
        output=_value(line.get("out"), where, "out"),
        parameters=_numbers(line, "params", where),
        buffers=_numbers(line, "buffers", where),
        mutates=_texts(line, "mutates", where),
        after=_numbers(line, "after", where),
        stack=stacks.get(optional_of(line, "stack", int, -1, where), ()),
        config=configs.get(optional_of(line, "config", int, -1, where)),
        gradients=tuple(gradients.get(identity, ())),
        raised=optional_of(line, "raised", str, None, where),
        missing=_texts(line, "missing", where),
        precision=optional_of(line, "precision", dict, {}, where),
        order=order,
    )


def gradient_of(line: Mapping[str, Wire], where: str, order: int) -> Gradient:
    """One gradient."""
    try:
        role = Role(line.get("role"))
    except ValueError as error:
        raise TraceFormatError(f"{where}: field 'role': {error}.") from None
    return Gradient(
        role,
        field_of(line, "slot", str, where),
        field_of(line, "t", int, where),
        optional_of(line, "of", int, None, where),
        optional_of(line, "n", int, 0, where),
        order,
    )


def note_of(line: Mapping[str, Wire], where: str, order: int) -> Note:
    """One note."""
    return Note(field_of(line, "topic", str, where), field_of(line, "text", str, where), order)


def _numbers(line: Mapping[str, Wire], field: str, where: str) -> Mapping[str, int]:
    if field not in line:
        return {}
    wire = line[field]
    if not isinstance(wire, dict) or not all(map(is_number, wire.values())):
        raise TraceFormatError(f"{where}: field {field!r}: expected names and tensor numbers, got {str(wire)[:60]!r}.")
    return wire


def _texts(line: Mapping[str, Wire], field: str, where: str) -> tuple[str, ...]:
    if field not in line:
        return ()
    wire = line[field]
    if not isinstance(wire, list) or not all(isinstance(text, str) for text in wire):
        raise TraceFormatError(f"{where}: field {field!r}: expected a list of texts, got {str(wire)[:60]!r}.")
    return tuple(wire)


_PLAIN = frozenset((int, float, type(None)))
"""Types of numbers that are written as they are."""


def _statistics(wire: Wire, order: Wire, where: str) -> Statistics | None:
    if wire is None:
        return None
    try:
        if not isinstance(wire, list) or len(wire) != 8:
            raise ValueError(f"expected eight numbers, got {str(wire)[:80]}")
        low, high, mean, norm, *counts = wire if _PLAIN.issuperset(map(type, wire)) else map(number_of, wire)
        if not all(map(is_number, counts)):
            raise ValueError("the last four must be counts")
    except ValueError as error:
        raise TraceFormatError(f"{where}: field 'stats': {error}.") from None
    if order is not None and not (isinstance(order, list) and len(order) == 2 and all(map(_is_real, order))):
        raise TraceFormatError(f"{where}: field 'order': expected two numbers, got {str(order)[:60]!r}.")
    places = None if order is None else (float(order[0]), float(order[1]))
    nan, posinf, neginf, zero = counts
    return Statistics(low, high, mean, norm, nan, posinf, neginf, zero, places)  # type: ignore[arg-type]  # checked: counts are int


def _is_real(wire: Wire) -> bool:
    return isinstance(wire, int | float) and not isinstance(wire, bool)


def _fingerprint(wire: Wire, where: str) -> str | None:
    if wire is None or (isinstance(wire, str) and re.fullmatch("[0-9a-f]{32}", wire)):
        return wire
    raise TraceFormatError(f"{where}: field 'fp': expected 32 hex digits, got {str(wire)[:60]!r}.")


def _location(wire: Wire, spec: Spec, where: str) -> Location | None:
    if wire is None:
        return None
    if not (isinstance(wire, list) and len(wire) in (2, 3) and all(map(is_number, wire))):
        raise TraceFormatError(f"{where}: field 'at': expected [offset, bytes(, step)], got {str(wire)[:60]!r}.")
    if wire[1] != nbytes(spec):
        raise TraceFormatError(f"{where}: field 'at': {spec} needs {nbytes(spec)} bytes, the line says {wire[1]}.")
    return Location(wire[0], wire[1], wire[2] if len(wire) == 3 else None)
