"""A recorded step, asked by address.

    reading = Reading(path)
    relu = reading["api:torch.relu#0"]                  a Call; its phase may be left out when it is forward
    reading.inputs(relu)["0"]                           its first argument's values
    reading.gradients(relu, Role.INPUT)["0"]            what it sent back
    reading.producer(relu, "0")                         "forward/module:norm#0": whose result it took

Everything that is asked for and not there is an AssertionError that says what is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..api import open as open_trace
from ..model.records import Call, Role
from ..model.sites import Kind, Phase
from ..model.values import Nest, TensorRef, Value, leaves, tensor_slots
from .fixtures import Array


def check_same_bits(got: Array | None, expected: Array | None, what: str = "array") -> None:
    """AssertionError unless type, shape and every bit agree: NaN equals the same NaN, 0.0 does not equal -0.0."""
    assert got is not None, f"{what}: not there"
    assert expected is not None, f"{what}: nothing to compare with"
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (
        f"{what}: expected {expected.dtype}{list(expected.shape)}, got {got.dtype}{list(got.shape)}"
    )
    assert got.tobytes() == expected.tobytes(), f"{what}: expected {expected}, got {got}"


class Reading:
    """One step of a trace."""

    def __init__(self, path: str | Path, *, step: int = 0, rank: int = 0) -> None:
        self.trace = open_trace(path)
        self.journal = self.trace.journal(step, rank)
        self.calls = sorted(self.journal.calls(), key=lambda call: call.id)
        assert self.journal.complete, f"{path}: step {step} was not closed"
        assert not self.journal.damage, f"{path}: {self.journal.damage}"

    def __getitem__(self, address: str) -> Call:
        wanted = address if address.split(":")[0].count("/") else f"forward/{address}"
        fitting = [call for call in self.calls if str(call.site) == wanted]
        assert fitting, f"{wanted} was not recorded; there are {[str(call.site) for call in self.calls]}"
        assert len(fitting) == 1, f"{wanted} was recorded {len(fitting)} times"
        return fitting[0]

    def sites(self, kind: Kind | None = None, phase: Phase | None = None) -> list[str]:
        """The addresses of the calls of a kind and a phase, in the order in which they began."""
        wanted = (call for call in self.calls if kind in (None, call.site.kind) and phase in (None, call.site.phase))
        return [str(call.site) for call in wanted]

    def values(self, tensor: int) -> Array:
        """The values of a recorded tensor, which is checked against its fingerprint."""
        return self.journal.array(self.journal.tensor(tensor))

    def input_ids(self, call: Call) -> dict[str, int]:
        """The tensors among a call's arguments, by slot."""
        return dict(tensor_slots(call.args, call.kwargs))

    def output_ids(self, call: Call) -> dict[str, int]:
        """The tensors in a call's result, by slot."""
        return {slot: leaf.id for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef)}

    def inputs(self, call: Call) -> dict[str, Array]:
        """The values that a call was given."""
        return {slot: self.values(tensor) for slot, tensor in self.input_ids(call).items()}

    def outputs(self, call: Call) -> dict[str, Array]:
        """The values that a call gave."""
        return {slot: self.values(tensor) for slot, tensor in self.output_ids(call).items()}

    def gradients(self, call: Call, role: Role) -> dict[str, Array]:
        """The gradients of a call's arguments or results, by slot."""
        own = [gradient for gradient in call.gradients if gradient.role is role]
        assert len({gradient.slot for gradient in own}) == len(own), f"{call.site}: a gradient came twice: {own}"
        return {gradient.slot: self.values(gradient.tensor) for gradient in own}

    def parameter_gradients(self) -> dict[str, Array]:
        """The gradients that arrived in the parameters, by name."""
        arrived = list(self.journal.parameter_gradients())
        assert len({gradient.slot for gradient in arrived}) == len(arrived), (
            f"a parameter's gradient came twice: {arrived}"
        )
        return {gradient.slot: self.values(gradient.tensor) for gradient in arrived}

    def producer(self, call: Call, slot: str) -> str | None:
        """The address of the call that put out the tensor in an argument's place; None for a leaf."""
        number = self.journal.tensor(self.input_ids(call)[slot]).producer
        return None if number is None else next(str(other.site) for other in self.calls if other.id == number)

    def parent(self, call: Call) -> str | None:
        """The address of the recorded call that this one was made in."""
        return next((str(other.site) for other in self.calls if other.id == call.parent), None)

    def notes(self) -> dict[str, str]:
        """Remarks of the journal, by topic."""
        return {note.topic: note.text for note in self.journal.notes()}


def names(calls: Iterable[str]) -> list[str]:
    """`forward/module:norm#0` without phase, kind and number: `norm`."""
    return [address.split(":", 1)[1].rpartition("#")[0] for address in calls]


def shapes(values: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shapes of arrays by slot."""
    return {slot: array.shape for slot, array in values.items()}


def form_of(value: Value) -> Any:
    """A recorded value as plain Python, with "tensor" in each tensor's place."""
    if isinstance(value, Nest):
        items = {key: form_of(item) for key, item in value.items}
        if value.kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[value.kind](items.values())
        return items if value.kind == "dict" else (value.kind, items)
    return "tensor" if isinstance(value, TensorRef) else value
