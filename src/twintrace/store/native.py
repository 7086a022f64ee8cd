"""Our own layout, as the registry wants it: recognise, read, write.

`write` copies any trace into a directory of our own layout, so that a foreign dump becomes one of ours.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..model.choices import Progress
from ..model.errors import TraceError
from ..model.records import Call, Gradient, Role
from ..model.tensors import CRC, Tensor
from ..model.values import TensorRef, leaves, tensor_slots
from .digest import fingerprint
from .lines import Wire, wire_float, wire_of
from .reader import is_native, open_native
from .trace import Journal, Trace
from .writer import TraceWriter, Writer

Tell = Progress
recognises = is_native


def read(path: Path, *, tolerant: bool) -> Trace:
    """Open a directory of our own layout."""
    return open_native(path, tolerant=tolerant)


def write(trace: Trace, path: Path, *, tell: Tell | None = None) -> None:
    """Copy `trace` into a new directory. Values that cannot be read are marked missing, with the reason."""
    ranks = trace.ranks or (0,)
    manifest = {key: value for key, value in trace.manifest.items() if key not in ("format", "version", "created")}
    manifest.setdefault("world", len(ranks))
    for rank in ranks:
        writer = TraceWriter.create(path, manifest, rank=rank, world=len(ranks), keep_payload=True)
        write_rank(writer, trace, rank, tell=tell)


def write_rank(writer: Writer, trace: Trace, rank: int, *, tell: Tell | None = None) -> None:
    """Say all steps of one rank to a writer, and close it."""
    try:
        for step, own in trace.places:
            if own == rank:
                write_journal(writer, trace.journal(step, rank), tell=tell)
    finally:
        writer.close()


def write_journal(writer: Writer, source: Journal, *, tell: Tell | None = None) -> None:
    """Say everything that a journal holds to a writer, as a recorder would have said it: a tensor when it is first used."""
    head = source.header
    journal = writer.begin_step(
        head.step,
        {
            "rank": head.rank,
            "world": head.world,
            "framework": head.framework,
            "settings": dict(head.settings),
            "environment": dict(head.environment),
            "groups": [list(group) for group in head.groups],
            **({"precision": dict(head.precision)} if head.precision else {}),
        },
    )
    tensors, said = source.tensors(), set[int]()

    def say(identities: Iterable[int]) -> None:
        """All tensors up to the last of these: in their order, and no earlier than they are needed."""
        wanted = set(identities) - said
        while wanted and (tensor := next(tensors, None)) is not None:
            journal.take(_tensor_line(writer, source, tensor))
            said.add(tensor.id)
            wanted.discard(tensor.id)

    stacks: dict[object, int] = {}
    configs: dict[object, int] = {}
    # In the order of observation. Gradients are known when their call is, so only they have to wait for their place.
    number = itertools.count()  # so that two of the same order are never compared further
    waiting: list[tuple[int, int, Wire]] = [
        (note.order, next(number), {"k": "note", "topic": note.topic, "text": note.text}) for note in source.notes()
    ]
    waiting += [(gradient.order, next(number), _gradient_line(gradient)) for gradient in source.parameter_gradients()]
    heapq.heapify(waiting)

    def go_on() -> None:
        line = heapq.heappop(waiting)[2]
        if line["k"] == "grad":
            say([line["t"]])
        journal.take(line)

    where = f"step {head.step}, rank {head.rank}"
    for done, call in enumerate(source.calls()):
        if tell is not None:
            tell(where, done, len(source))
        while waiting and waiting[0][0] < call.order:
            go_on()
        say(_tensors_of(call))
        for line in _call_lines(call, stacks, configs):
            journal.take(line)
        for gradient in call.gradients:
            heapq.heappush(waiting, (gradient.order, next(number), _gradient_line(gradient)))
        journal.commit()
    while waiting:
        go_on()
    for tensor in tensors:
        journal.take(_tensor_line(writer, source, tensor))
    if tell is not None:
        tell(where, len(source), len(source))
    if source.complete:  # otherwise that it was cut short says what is to be said
        for damage in source.damage:
            journal.take({"k": "note", "topic": "damaged", "text": str(damage)})
        journal.take({"k": "end"})
    writer.end_step()


def _tensors_of(call: Call) -> Iterator[int]:
    for _, identity in tensor_slots(call.args, call.kwargs):
        yield identity
    yield from (*call.parameters.values(), *call.buffers.values())
    yield from (leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef))
    yield from call.after.values()


def statistics_wire(tensor: Tensor) -> Wire:
    """The eight numbers of a tensor line."""
    s = tensor.statistics
    if s is None:
        return None
    numbers = [wire_float(n) if isinstance(n, float) else n for n in (s.min, s.max, s.mean, s.norm)]
    return [*numbers, s.nan, s.posinf, s.neginf, s.zero]


def _tensor_line(writer: Writer, source: Journal, tensor: Tensor) -> Wire:
    line: dict[str, Wire] = {
        "k": "tensor",
        "id": tensor.id,
        "dtype": tensor.spec.dtype,
        "shape": list(tensor.spec.shape),
    }
    line |= {"device": tensor.device, "grad": tensor.requires_grad, "by": tensor.producer}
    line |= {"stats": statistics_wire(tensor), "fp": tensor.fingerprint}
    if tensor.statistics is not None and tensor.statistics.order is not None:
        line["order"] = list(tensor.statistics.order)
    missing = tensor.missing
    if tensor.payload is not None:
        try:
            array = np.ascontiguousarray(source.array(tensor))
            known = tensor.fingerprint
            line["fp"] = known if known and not known.startswith(CRC) else fingerprint(array)
            place = writer.store(array.reshape(-1).view(np.uint8), line["fp"])
            line["at"] = [place.offset, place.nbytes] + ([] if place.step is None else [place.step])
        except TraceError as error:
            missing = str(error)
    if missing:
        line["missing"] = missing
    line |= {name: dict(values) for name, values in (("facts", tensor.facts), ("parts", tensor.parts)) if values}
    return line


def _call_lines(call: Call, stacks: dict[object, int], configs: dict[object, int]) -> Iterator[Wire]:
    site = call.site
    line: dict[str, Wire] = {"k": "call", "id": call.id, "kind": site.kind, "name": site.name, "n": site.call}
    line |= {"phase": site.phase, "path": site.path, "type": site.type, "up": call.parent}
    line |= {"in": [wire_of(v) for v in call.args], "kw": {k: wire_of(v) for k, v in call.kwargs.items()}}
    line |= {"out": wire_of(call.output), "params": dict(call.parameters), "buffers": dict(call.buffers)}
    if call.stack:
        if call.stack not in stacks:
            stacks[call.stack] = len(stacks)
            frames = [[f.file, f.line, f.function, f.code] for f in call.stack]
            yield {"k": "stack", "id": stacks[call.stack], "frames": frames}
        line["stack"] = stacks[call.stack]
    if call.config:
        key = (call.config.path, call.config.type, repr(call.config.values))
        if key not in configs:
            configs[key] = len(configs)
            values = {k: wire_of(v) for k, v in call.config.values.items()}
            yield {
                "k": "module",
                "id": configs[key],
                "path": call.config.path,
                "type": call.config.type,
                "values": values,
            }
        line["config"] = configs[key]
    optional = {
        "raised": call.raised,
        "mutates": list(call.mutates),
        "after": dict(call.after),
        "missing": list(call.missing),
        "precision": dict(call.precision),
    }
    line |= {name: value for name, value in optional.items() if value}
    yield line


def _gradient_line(gradient: Gradient) -> Wire:
    line: dict[str, Wire] = {
        "k": "grad",
        "role": gradient.role,
        "slot": gradient.slot,
        "t": gradient.tensor,
        "n": gradient.count,
    }
    if gradient.role is not Role.PARAMETER:
        line["of"] = gradient.of
    return line
