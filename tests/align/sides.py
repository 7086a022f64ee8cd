"""Records made by hand, with values that are really computed: what the tests of the aligning align.

    left = Maker("torch")
    x = left.given(noise(4, 8))                                      an input of the network
    with left.module("fc", "Linear", [x], weight=w) as fc:           a module call that holds a parameter
        y = left.call("torch.nn.functional.linear", [x, fc.weight], value(x) @ value(w).T)
        fc.gives(y)
    align(left.side(), right.side())

A `Value` is a tensor of one record: a number in its journal, and the array that it stands for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twintrace.model.pairs import Alignment, Part, Side
from twintrace.model.records import Call, Frame, Gradient, Role
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.tensors import Spec, Statistics, Tensor
from twintrace.model.values import Nest, TensorRef
from twintrace.store.digest import fingerprint

DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "b8"}


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers that are the same in every record."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


class Value:
    """A tensor of one record."""

    def __init__(self, number: int, array: np.ndarray) -> None:
        self.number, self.array = number, array


class Module:
    """A module call that is going on."""

    def __init__(self, held: Mapping[str, Value]) -> None:
        self.held = held
        self.result: Any = None

    def __getattr__(self, name: str) -> Value:
        return self.held[name]

    def gives(self, result: Any) -> Any:
        self.result = result
        return result


class Maker:
    """Makes a record. `known=False` leaves out statistics and fingerprints, `marks=False` the fingerprints; `kept` keeps values,
    `ordered` the sums that depend on the order of elements.
    """

    def __init__(
        self,
        framework: str = "torch",
        *,
        known: bool = True,
        marks: bool = True,
        kept: bool = False,
        ordered: bool = False,
        phase: Phase = Phase.FORWARD,
    ):
        self.ordered = ordered
        self.framework, self.known, self.marks, self.kept, self.phase = framework, known, marks, kept, phase
        self.arrays: list[np.ndarray] = []
        self.asked: list[int] = []
        """The tensors whose values were asked for."""
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self.gradients: list[Gradient] = []
        self._around: list[tuple[int, str]] = []
        self._counts: dict[tuple[Phase, Kind, str], int] = {}
        self._held: dict[int, Value] = {}
        self._next = 0

    def given(self, array: np.ndarray) -> Value:
        """An input of the network."""
        return self._tensor(array, None)

    def parameter(self, array: np.ndarray) -> Value:
        """A parameter: the same array is the same parameter each time."""
        if id(array) not in self._held:
            self._held[id(array)] = self._tensor(array, None, held=True)
        return self._held[id(array)]

    def call(
        self, name: str, arguments: Sequence[Any], result: Any, *, line: str = "", kind: Kind = Kind.API, **named: Any
    ) -> Any:
        """A call of a function; its result (an array, or several in a tuple) as values."""
        number = self._begin()
        given = self._value(result, number)
        self._end(number, kind, name, "", arguments, named, given, {}, line)
        return given

    @contextlib.contextmanager
    def module(self, path: str, type: str, arguments: Sequence[Any], **held: np.ndarray) -> Iterator[Module]:
        """A module call, and what is called inside it."""
        number = self._begin()
        open_module = Module({name: self.parameter(array) for name, array in held.items()})
        self._around.append((number, path))
        try:
            yield open_module
        finally:
            self._around.pop()
        self._end(number, Kind.MODULE, path, type, arguments, {}, open_module.result, open_module.held)

    def layer(
        self, path: str, type: str, x: Value, result: np.ndarray, function: str = "", **held: np.ndarray
    ) -> Value:
        """A module with one function inside, or none."""
        with self.module(path, type, [x], **held) as module:
            number = self._next - 1
            if function:
                return module.gives(self.call(function, [x, *module.held.values()], result))
            return module.gives(self._tensor(result, number))

    def gradient(self, name: str, array: np.ndarray) -> None:
        """The gradient of a parameter, by its full name."""
        self.gradients.append(Gradient(Role.PARAMETER, name, self._tensor(array, None).number))

    def gradient_of(self, index: int, role: Role, slot: str, array: np.ndarray) -> None:
        """A gradient of a call that is over, by its place in `calls`."""
        call = self.calls[index]
        found = Gradient(role, slot, self._tensor(array, None).number, call.id)
        fields = {name: getattr(call, name) for name in Call.__dataclass_fields__}
        self.calls[index] = Call(**fields | {"gradients": (*call.gradients, found)})

    def side(self) -> Side:
        return Side(
            self.framework,
            sorted(self.calls, key=lambda call: call.id),
            self.tensors.__getitem__,
            tuple(self.gradients),
            self._values,
        )

    def _values(self, number: int) -> np.ndarray | None:
        self.asked.append(number)
        return self.arrays[number] if self.kept else None

    # --- how ------------------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        self._next += 1
        return self._next - 1

    def _end(
        self,
        number: int,
        kind: Kind,
        name: str,
        type: str,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        given: Any,
        held: Mapping[str, Value],
        line: str = "",
    ) -> None:
        up, path = self._around[-1] if self._around else (None, "")
        key = self.phase, kind, name
        count = self._counts[key] = self._counts.get(key, -1) + 1
        self.calls.append(
            Call(
                number,
                Site(kind, name, count, self.phase, path, type),
                up,
                tuple(map(_written, arguments)),
                {key: _written(value) for key, value in named.items()},
                _written(given),
                {key: value.number for key, value in held.items()},
                stack=(Frame("net.py", 1, "forward", line),) if line else (),
            )
        )

    def _value(self, result: Any, producer: int) -> Any:
        if isinstance(result, tuple):
            return tuple(self._value(item, producer) for item in result)
        return result if isinstance(result, Value) or result is None else self._tensor(result, producer)

    def _tensor(self, array: np.ndarray, producer: int | None, *, held: bool = False) -> Value:
        array = np.asarray(array)
        spec = Spec(DTYPES[str(array.dtype)], array.shape)
        mark = fingerprint(np.ascontiguousarray(array)) if self.known and self.marks else None
        statistics = _statistics(array, self.ordered) if self.known else None
        self.tensors.append(Tensor(len(self.tensors), spec, "cpu", held, producer, statistics, mark))
        self.arrays.append(array)
        return Value(len(self.tensors) - 1, array)


def _statistics(array: np.ndarray, ordered: bool = False) -> Statistics:
    wide = array.astype(np.float64).ravel()
    return Statistics(
        float(wide.min()),
        float(wide.max()),
        float(wide.mean()),
        float(np.sqrt((wide**2).sum())),
        0,
        0,
        0,
        int((wide == 0).sum()),
        _order(wide) if ordered else None,
    )


def _order(flat: np.ndarray) -> tuple[float, float]:
    """Two sums with weights of mean square 1/9, as a trace has them."""
    weights = np.random.default_rng(7).uniform(-(3**-0.5), 3**-0.5, (2, flat.size))
    return float(weights[0] @ flat), float(weights[1] @ flat)


def _written(value: Any) -> Any:
    if isinstance(value, Value):
        return TensorRef(value.number)
    if isinstance(value, tuple | list):
        return Nest("tuple", tuple((str(place), _written(item)) for place, item in enumerate(value)))
    return value


def pairs(alignment: Alignment) -> dict[str, str]:
    """Addresses of calls that belong together; regions as `a + b`."""
    return {
        " + ".join(str(call.site) for call in match.left): " + ".join(str(call.site) for call in match.right)
        for match in alignment.matches
    }


def names(alignment: Alignment) -> dict[str, str]:
    """The same without phase and kind: `fc#0`."""
    return {_bare(left): _bare(right) for left, right in pairs(alignment).items()}


def alone(alignment: Alignment, *, skipped: bool | None = None) -> tuple[list[str], list[str]]:
    """Addresses of the calls without a partner."""
    left, right = (
        [_bare(str(item.call.site)) for item in side if skipped is None or item.skipped is skipped]
        for side in (alignment.only_left, alignment.only_right)
    )
    return left, right


def slots(alignment: Alignment, left: str, part: Part | None = None) -> dict[str, str]:
    """The tensors of one match, by the bare address of its first left call: left slot to right slot."""
    match = next(match for match in alignment.matches if _bare(str(match.left[0].site)) == left)
    return {pair.left_slot: pair.right_slot for pair in match.tensors if part is None or pair.part is part}


def _bare(addresses: str) -> str:
    return " + ".join(address.partition(":")[2] for address in addresses.split(" + "))
