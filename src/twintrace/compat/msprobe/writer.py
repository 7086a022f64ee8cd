"""Record straight into a dump: each journal line becomes records of dump.json, stack.json and construct.json as it comes.

    step0/rank/dump.json           {"task", "level", "framework", "dump_data_dir", "data": {record: {…}}}
    step0/rank/stack.json          {record: [frames, the innermost first]}
    step0/rank/construct.json      {record: the module's record around it, or null}; empty at level L1
    step0/rank/debug.json          what was given to `save`; there if there is any
    step0/rank/dump_tensor_data/   values, with task tensor

A backward pass gives a call's gradients one by one. Until all have come its record is open: in the file with what is known, and
said again when more is known. One that comes very late, or a second time, is put in its place when the step ends.

The root module is not recorded, nor the optimizer: as in msprobe the one, and the other because msprobe records hundreds of
functions there, which a trace has as one call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...model.errors import TraceWriteError
from ...model.records import Role
from ...model.sites import Kind, Phase
from ...model.tensors import Location
from ...model.values import Nest, TensorRef, Value, mapped, tensor_slots
from ...store.lines import Wire
from ..documents import Document, quote
from ..translating import Translator, frame_text
from .config import Settings
from .elements import Elements, Gap, Growing, gaps_in, with_gaps
from .names import FRAMEWORKS, Numbers, backward_of, gradients_name, record_name, saved_name, stem
from .selection import Selection
from .values import Values, clear

FILES = ("dump.json", "stack.json", "construct.json", "debug.json")
VALUES = "dump_tensor_data"
# Records that wait for gradients, said again with each commit; beyond, the oldest is taken to be complete.
_MOST_OPEN = 64


@dataclass(slots=True)
class _Call:
    """Facts about a call that its gradients need."""

    stem: str
    number: int
    parent: int | None
    inputs: list[Any]
    """The arguments with gaps in the places of tensors; of a function only those."""
    wanting: frozenset[str]
    outputs: list[Any]


class DumpWriter(Translator):
    """Writes the journal of a recorder, or of a trace, as a dump."""

    def __init__(self, settings: Settings, chosen: Selection | None = None, *, portable: bool = False) -> None:
        """`portable`: the dump does not say where it was written, because it will be moved."""
        super().__init__()
        self._settings, self._portable = settings, portable
        self._chosen = chosen or Selection()
        self._steps: set[int] = set()
        self._step = -1
        self._directory: Path | None = None
        self._documents: dict[str, Document] = {}
        self._values: Values | None = None
        self._framework, self._dialect = "", ""
        self._numbers = Numbers()
        self._said_again: dict[str, int] | None = None  # while values are saved again: how many of each name
        self._turns: dict[str, int] = {}  # how many gradients each parameter has had in this step
        self._forget()

    def _forget(self) -> None:
        """Numbers of tensors, calls and stacks begin anew."""
        self._stacks: dict[int, tuple[str, str]] = {}  # as text, and the line of the call
        self._calls: dict[int, _Call] = {}
        self._modules: dict[int, str] = {}
        self._children: dict[int, list[tuple[str, bool]]] = {}  # of modules that have not returned yet
        self._owners: dict[str, tuple[str, frozenset[str]]] = {}  # module -> stem, parameters that learn
        self._backward: dict[int, Growing] = {}
        self._finished: dict[int, Growing] = {}
        self._again: dict[str, Growing] = {}  # what was finished, and is to be said once more
        self._parameters: dict[tuple[str, int], Growing] = {}
        self._saved: dict[int, Growing] = {}
        self._places = {}
        self._data: np.ndarray[Any, Any] | None = None
        self._elements = Elements(self._dialect, self._settings, self._values)

    def choose(self, chosen: Selection) -> None:
        """Ask this selection from here on."""
        self._chosen = chosen

    @contextlib.contextmanager
    def saving_again(self) -> Iterator[None]:
        """Takes values that were saved in this step before, in this order, by a recorder that has ended.

        They are in debug.json; only their gradients are still to come.
        """
        self._said_again = {}
        try:
            yield
        finally:
            self._said_again = None

    # --- what a recorder calls ----------------------------------------------------------------------------------

    def has_step(self, step: int) -> bool:
        """True if this run has recorded that step and gone on. One of an earlier run is replaced."""
        return step in self._steps and step != self._step

    def begin_step(self, step: int, header: Mapping[str, Wire]) -> DumpWriter:
        """Begin the files of a step, or go on with them if the last recorder of this run has stopped there."""
        rank = f"rank{header.get('rank', 0)}" if header.get("world", 1) > 1 else "rank"
        directory = self._settings.dump_path / f"step{step}" / rank
        self._framework = str(header.get("framework", ""))
        self._dialect = FRAMEWORKS.get(self._framework, "pytorch")
        if directory == self._directory:
            for file in self._files():
                file.resume()
        else:
            self._begin_files(directory)
            self._step = step
            self._steps.add(step)
            self._numbers, self._turns = Numbers(), {}
        self._elements = Elements(self._dialect, self._settings, self._values)
        return self

    def store(self, data: np.ndarray[Any, Any], fingerprint: str) -> Location:
        """Location of these bytes; they are written or summed up when their tensor's line comes, which is next."""
        if self._elements.failure is not None:
            raise self._elements.failure
        place = self._places.setdefault(f"{fingerprint}{len(data)}", len(self._places))
        self._data = data
        return Location(place, len(data))

    def commit(self) -> None:
        """All that is known by now is in the files."""
        opened = () if self._settings.task == "structure" else (self._backward, self._parameters)
        growing = [(record.name, record.text) for records in opened for record in records.values()]
        saved = [(record.name, record.text) for record in self._saved.values() if record.text]
        for name, document in self._documents.items():
            document.commit({"dump.json": growing, "debug.json": saved}.get(name, ()))

    def end_step(self) -> None:
        """The step is over, what is open is as complete as it will be. Another recorder of this run may still go on with it."""
        if not self._documents:
            return
        try:
            for key in list(self._backward):
                self._close_backward(key)
            for owner in list(self._parameters):
                self._close_parameters(owner)
            for growing in self._saved.values():
                if growing.text:
                    self._documents["debug.json"].add(growing.name, growing.text)
            for children in self._children.values():
                for name, _ in children:
                    self._construct(name, None)
            if self._settings.task != "structure":
                self._documents["dump.json"].replace({name: growing.text for name, growing in self._again.items()})
        finally:
            self._forget()
            with contextlib.ExitStack() as closing:  # each, whatever happens to the others
                for file in self._files():
                    closing.callback(file.close)

    def close(self) -> None:
        """End the dump; the files are closed by then."""
        self.end_step()

    def abandon(self) -> None:
        """In a forked child: let go of the files."""
        for document in self._documents.values():
            document.abandon()
        self._documents.clear()
        self._values = None

    # --- files --------------------------------------------------------------------------------------------------

    def _begin_files(self, directory: Path) -> None:
        """New files for a step; those of an earlier run are replaced, and whatever else is there stays."""
        settings = self._settings
        keeps = settings.task == "tensor" or bool(settings.tensor_list)
        values = directory / VALUES
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                (directory / name).unlink(missing_ok=True)
            clear(values)
        except OSError as error:
            raise TraceWriteError(
                f"{directory} is not writable ({error.strerror}). Choose another dump_path."
            ) from error
        place = quote(VALUES if self._portable else str(values)) if keeps else "null"
        self._head = (
            f'{{\n "task": {quote(settings.task)},\n "level": {quote(settings.level)},\n'
            f' "framework": {quote(self._dialect)},\n "recorder": "twintrace",\n "dump_data_dir": {place},\n "data": {{'
        )
        self._directory, self._documents = directory, {}
        self._begin_document("dump.json", self._head, "\n }\n}\n")
        for name in ("stack.json", "construct.json") if settings.extra_info else ():
            self._begin_document(name)
        self._values = Values(values, ".pt" if self._dialect == "pytorch" else ".npy") if keeps else None

    def _files(self) -> list[Document | Values]:
        return [*self._documents.values(), *([] if self._values is None else [self._values])]

    def _begin_document(self, name: str, *around: str) -> Document:
        assert self._directory is not None
        document = self._documents[name] = Document(self._directory / name, *around)
        return document

    # --- tensors ------------------------------------------------------------------------------------------------

    def _add_tensor(self, record: Mapping[str, Wire]) -> None:
        data, self._data = self._data, None
        self._elements.add(record, data)

    def _add_stack(self, record: Mapping[str, Wire]) -> None:
        frames = record["frames"]
        self._stacks[record["id"]] = (
            f"[{', '.join(quote(frame_text(frame)) for frame in frames)}]",
            frames[0][3] if frames else "",
        )

    # --- calls --------------------------------------------------------------------------------------------------

    def _add_call(self, record: Mapping[str, Wire]) -> None:
        kind, phase = record["kind"], record.get("phase", Phase.FORWARD)
        if phase == Phase.UPDATE:
            return
        if kind == Kind.SAVE:
            self._add_saved(record)
            return
        if kind == Kind.MODULE and self._chosen.leaves_out(record["name"], record.get("up")):
            return
        stack, code = self._stacks.get(record.get("stack", -1), ("[]", ""))
        begin = stem(kind, record["name"], record.get("type") or "", self._framework, code)
        if phase == Phase.BACKWARD and kind != Kind.OP:
            self._add_lone_backward(record, record_name(begin, record["n"], backward=True))
            return
        turn = record["n"] if kind == Kind.MODULE else record["n"] - self._chosen.uncounted(record["name"])
        number = self._numbers.of(kind, begin, phase, record["name"], turn)
        name = record_name(begin, number)
        args, named = self._arguments(record, begin)
        self._remember(record, begin, number)
        if kind == Kind.MODULE:
            self._add_module(record, begin, name)
        if not self._chosen.forgoes(record_name(begin, turn)):
            self._write_forward(record, name, args, named)
            if "stack.json" in self._documents:
                self._documents["stack.json"].add(name, stack)
            self._place_in_tree(name, record.get("up"), backward=False)
        self._chosen.ends(name)

    def _add_lone_backward(self, record: Mapping[str, Wire], name: str) -> None:
        """A backward whose forward was not recorded: it takes gradients and gives gradients."""
        if self._chosen.forgoes(name):
            return
        ends = (("input", record["in"]), ("output", _results(record, name)))
        texts = [f'"{end}": {self._elements.list_of(wires, name, end)}' for end, wires in ends]
        self._write(name, f"{{{', '.join(texts)}}}")
        self._place_in_tree(name, record.get("up"), backward=True)

    def _arguments(self, record: Mapping[str, Wire], begin: str) -> tuple[list[Wire], dict[str, Wire]]:
        """torch.nn.functional hands on its arguments by name, however it was called: tensors go back to their places."""
        args, named = list(record["in"]), dict(record["kw"])
        if begin.startswith("Functional.") and self._framework == "torch":
            tensors = [position for position, wire in enumerate(named.values()) if isinstance(wire, TensorRef)]
            for key in list(named)[: tensors[-1] + 1] if tensors else ():
                args.append(named.pop(key))
        return args, named

    def _write_forward(self, record: Mapping[str, Wire], name: str, args: list[Wire], named: dict[str, Wire]) -> None:
        settings, elements = self._settings, self._elements
        fields = []
        if settings.wants("forward", "input"):
            fields.append(f'"input_args": {elements.list_of(args, name, "input")}')
            fields.append(f'"input_kwargs": {elements.object_of(named, name, "kwargs")}')
        if settings.wants("forward", "output") and "raised" not in record:
            fields.append(f'"output": {elements.list_of(_results(record, name), name, "output")}')
        if not fields:
            return
        if record["kind"] == Kind.MODULE:
            held = {key: TensorRef(number) for key, number in (record.get("params") or {}).items()}
            fields.append(f'"parameters": {elements.object_of(held, name, "parameters")}')
        self._write(name, f"{{{', '.join(fields)}}}")

    def _write(self, name: str, text: str) -> None:
        if self._settings.task != "structure":
            self._documents["dump.json"].add(name, text)

    def _remember(self, record: Mapping[str, Wire], begin: str, number: int) -> None:
        """Facts that the call's gradients will need."""
        if "raised" in record or not (
            self._settings.wants("backward", "input") or self._settings.wants("backward", "output")
        ):
            return
        positional = [with_gaps(value, str(i)) for i, value in enumerate(record["in"])]
        by_name = [with_gaps(value, f"kw.{key}") for key, value in record["kw"].items()]
        wanting = frozenset(
            slot
            for slot, identity in tensor_slots(record["in"], record["kw"])
            if self._elements.wants_gradient(identity)
        )
        if record["kind"] == Kind.MODULE:
            inputs = positional + [value for value in by_name if gaps_in(value)]
        else:
            inputs = [gap for value in positional + by_name for gap in gaps_in(value)]
        outputs = gaps_in(with_gaps(record["out"], ""))
        self._calls[record["id"]] = _Call(begin, number, record.get("up"), inputs, wanting, outputs)

    def _add_module(self, record: Mapping[str, Wire], begin: str, name: str) -> None:
        self._modules[record["id"]] = name
        for child, backward in self._children.pop(record["id"], ()):
            self._construct(child, backward_of(name) if backward else name)
        held = record.get("params") or {}
        learning = frozenset(key for key, number in held.items() if self._elements.wants_gradient(number))
        self._owners[record["name"]] = begin, learning or frozenset(held)

    def _place_in_tree(self, name: str, up: int | None, *, backward: bool) -> None:
        """Say which module is around; the module's own line comes when it returns."""
        if up is None:
            self._construct(name, None)
        elif up in self._modules:
            self._construct(name, backward_of(self._modules[up]) if backward else self._modules[up])
        else:
            self._children.setdefault(up, []).append((name, backward))

    def _construct(self, name: str, parent: str | None) -> None:
        if "construct.json" in self._documents and self._settings.level != "L1":
            self._documents["construct.json"].add(name, "null" if parent is None else quote(parent))

    # --- gradients ----------------------------------------------------------------------------------------------

    def _add_gradient(self, record: Mapping[str, Wire]) -> None:
        match record["role"]:
            case Role.PARAMETER:
                self._add_parameter_gradient(record)
            case Role.SAVED:
                self._add_saved_gradient(record)
            case _:
                self._add_call_gradient(record)

    def _add_call_gradient(self, record: Mapping[str, Wire]) -> None:
        """msprobe's `input` of a backward is the gradient of the results, its `output` that of the arguments."""
        key, slot = record["of"], record["slot"]
        call = self._calls.get(key)
        growing = call and (self._backward.get(key) or self._begin_backward(key, call))
        if not call or not growing:
            return
        # Of several passes through the same call the last one counts.
        state, tensors = ("output", growing.inputs) if record["role"] == Role.INPUT else ("input", growing.outputs)
        tensors[slot] = record["t"]
        growing.elements.pop((state, slot), None)
        fields = []
        if self._settings.wants("backward", "input"):
            fields.append(f'"input": {self._elements.grown(call.outputs, growing, "input", growing.outputs)}')
        if self._settings.wants("backward", "output"):
            nodes = [slot for slot in growing.inputs if slot.startswith("node.")]
            wires = (
                [Gap(f"node.{i}") for i in range(max(int(slot[5:]) for slot in nodes) + 1)] if nodes else call.inputs
            )
            fields.append(f'"output": {self._elements.grown(wires, growing, "output", growing.inputs)}')
            if nodes:  # out of a dump of msprobe's: they are what a node gave, not the arguments'
                fields.append('"by_node": true')
        growing.text = f"{{{', '.join(fields)}}}"
        if key in self._backward and growing.outputs and growing.inputs.keys() >= call.wanting:
            self._close_backward(key)

    def _begin_backward(self, key: int, call: _Call) -> Growing | None:
        late = self._finished.get(key)
        if late is not None:
            self._again[late.name] = late
            return late
        name = record_name(call.stem, call.number, backward=True)
        if not self._chosen.begins(name, self._around(call)):
            return None
        if len(self._backward) >= _MOST_OPEN:
            self._close_backward(next(iter(self._backward)))
        growing = self._backward[key] = Growing(name)
        return growing

    def _around(self, call: _Call) -> Iterator[str]:
        """The backward records of the modules around a call, the nearest first."""
        up = call.parent
        while up is not None and up in self._modules:
            yield backward_of(self._modules[up])
            up = self._calls[up].parent if up in self._calls else None

    def _close_backward(self, key: int) -> None:
        """The record is complete, as far as can be known."""
        growing = self._finished[key] = self._backward.pop(key)
        self._write(growing.name, growing.text)
        growing.text = ""
        growing.elements.clear()  # made again, should there be more to say
        self._place_in_tree(growing.name, self._calls[key].parent, backward=True)
        self._chosen.ends(growing.name)

    def _add_parameter_gradient(self, record: Mapping[str, Wire]) -> None:
        path, _, parameter = record["slot"].rpartition(".")
        if path not in self._owners or not self._settings.wants("backward", "output"):
            return
        begin, learning = self._owners[path]
        turn = self._turns[record["slot"]] = self._turns.get(record["slot"], -1) + 1
        growing = self._parameters.get((path, turn))
        if growing is None:
            growing = self._parameters[path, turn] = Growing(gradients_name(begin) + (f".{turn}" if turn else ""))
        element = self._elements.of(record["t"], growing.name, "", parameter)
        growing.elements["", parameter] = f"{quote(parameter)}: [{element}]"
        growing.text = f"{{{', '.join(growing.elements.values())}}}"
        if {name for _, name in growing.elements} >= learning:
            self._close_parameters((path, turn))
        elif len(self._parameters) > _MOST_OPEN:
            self._close_parameters(next(iter(self._parameters)))

    def _close_parameters(self, owner: tuple[str, int]) -> None:
        growing = self._parameters.pop(owner)
        self._write(growing.name, growing.text)

    # --- what was given to `save` -------------------------------------------------------------------------------

    def _add_saved(self, record: Mapping[str, Wire]) -> None:
        value = record["out"]
        if self._said_again is not None:
            number = self._said_again.get(record["name"], 0)
            self._said_again[record["name"]] = number + 1
        else:
            number = self._numbers.of(Kind.SAVE, record["name"], Phase.FORWARD, record["name"], record["n"])
            name = saved_name(record["name"], number)
            document = self._documents.get("debug.json") or self._begin_document("debug.json", self._head, "\n }\n}\n")
            document.add(name, self._elements.value_of(value, name))
        gradient = saved_name(record["name"], number, gradient=True)
        self._saved[record["id"]] = Growing(gradient, (with_gaps(value, ""),))

    def _add_saved_gradient(self, record: Mapping[str, Wire]) -> None:
        growing = self._saved.get(record["of"])
        if growing is not None:
            growing.inputs[record["slot"]] = record["t"]
            (growing.text,) = self._elements.grown_items(growing.wires, growing, "", growing.inputs)


def _results(record: Mapping[str, Any], name: str) -> list[Value]:
    """A tuple's items, or the one result. A collective's results are its arguments after it."""
    if name.startswith(("Distributed.", "MintDistributed.")):
        after = record.get("after") or {}
        places = [*map(str, range(len(record["in"]))), *(f"kw.{key}" for key in record["kw"])]

        def afterwards(leaf: Value, slot: str) -> Value:
            return TensorRef(after.get(slot, leaf.id)) if isinstance(leaf, TensorRef) else leaf

        arguments = zip((*record["in"], *record["kw"].values()), places, strict=True)
        return [mapped(value, afterwards, place) for value, place in arguments]
    output = record["out"]
    return [item for _, item in output.items] if isinstance(output, Nest) and output.kind == "tuple" else [output]
