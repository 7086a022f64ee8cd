"""Two slices between which a cause is looked for: their calls, which of these belong together, and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...model.records import Call
from ..candidates import Candidate, Cause, exchanged, with_substitute
from ..evaluation import run
from ..meanings import Argument, Meaning, Operand
from ..optimizers import of_one_parameter
from ..sides import Bound, Slice
from ..traits import traits_of

if TYPE_CHECKING:
    from ..recomputation import Recomputation

Tensor = torch.Tensor


class Search:
    """Changes worth trying for two slices."""

    def __init__(self, recomputation: Recomputation, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> None:
        self.recomputation = recomputation
        self.slices = left, right
        self.bound = bound
        self.left, self.right = (  # optimizers may have their parameters in another order
            [of_one_parameter(meaning, part.tensor) for meaning in recomputation.meanings(which, part)]
            for which, part in enumerate((left, right))
        )
        self.pairs = list(_partners(self.left, self.right))

    def at(self, one: Meaning, two: Meaning, candidate: Candidate) -> Candidate:
        """A change of two calls, with these to blame."""
        cause = replace(candidate.cause, left=(self.call(0, one),), right=(self.call(1, two),))
        return replace(candidate, cause=cause)

    def call(self, which: int, meaning: Meaning) -> Call:
        """The recorded call of a meaning."""
        meanings = self.meanings(which)
        return self.slices[which].calls[next(place for place, item in enumerate(meanings) if item is meaning)]

    def values(self, which: int) -> Callable[[Operand], Tensor]:
        """Values of one side's operands, both from the values that the left begins with. Raises NotRecomputable."""
        part = self.slices[which]
        given = self.recomputation.from_left(self.bound) if which else self.recomputation.values[0]
        with torch.no_grad():
            made = run(self.meanings(which), given, part.copies, self.recomputation.values[which].spec)

        def value(operand: Operand) -> Tensor:
            number = part.copies.get(operand.tensor, operand.tensor)
            return made[number] if number in made else given(number)

        return value

    def meanings(self, which: int) -> list[Meaning]:
        """Meanings of one side's calls, in their order."""
        return self.right if which else self.left

    def taking_an_input(self, which: int, cause: Cause) -> Iterator[Candidate]:
        """One side with a value that it begins with, as it is or moved, in place of its result, each that has its shape."""
        part, spec = self.slices[which], self.recomputation.values[which].spec
        begun = dict.fromkeys(part.edge)
        for meaning in self.meanings(which):
            if traits_of(meaning).moves and all(operand.tensor in begun for _, operand in meaning.operands()):
                begun.update(dict.fromkeys(meaning.results))
        for number in begun:
            if spec(number).shape == spec(part.tensor).shape and number != part.tensor:
                copy = Meaning("torch.Tensor.clone", {"0": Operand(number)}, {part.tensor: 0}, "clone")
                yield Candidate.on(which, cause, [*self.makers(which, number), copy])

    def makers(self, which: int, number: int) -> list[Meaning]:
        """Calls of a slice that make a value, in their order."""
        part, needed, found = self.slices[which], {number}, []
        for meaning in reversed(self.meanings(which)):
            made = {part.copies.get(result, result) for result in meaning.results}
            if needed & (made | meaning.results.keys()):
                needed |= {part.copies.get(operand.tensor, operand.tensor) for _, operand in meaning.operands()}
                found.append(meaning)
        return found[::-1]

    def with_operands(self, meaning: Meaning, operands: Mapping[int, Tensor], cause: Cause) -> Candidate:
        """The right's calls, one of which takes other values."""
        changed = [meaning]
        for number, value in operands.items():
            changed = with_substitute(changed, number, Operand(self.recomputation.constant(value)))
        arguments = {**changed[0].arguments, **({"enable_gqa": False} if "enable_gqa" in meaning.arguments else {})}
        return Candidate(cause, right=exchanged(self.right, meaning, replace(changed[0], arguments=arguments)))

    def changed(self, cause: Cause, which: int, old: Meaning, new: Meaning) -> Candidate:
        """The calls of one side with another in the place of one."""
        return Candidate.on(which, cause, exchanged(self.meanings(which), old, new))

    def changed_right(self, cause: Cause, meaning: Meaning, arguments: Mapping[str, Argument]) -> Candidate:
        """The calls of the right with other arguments of one."""
        return self.changed(cause, 1, meaning, replace(meaning, arguments={**meaning.arguments, **arguments}))


def _partners(ours: Sequence[Meaning], theirs: Sequence[Meaning]) -> Iterator[tuple[Meaning, Meaning]]:
    """Meanings of both sides that may be each other's: of one operation in order, or the only ones left."""
    free, rest = list(theirs), list(ours)
    # An epsilon that is added is no residual that is added.
    for alike in (_signature, lambda meaning: meaning.operation):
        for one in tuple(rest):
            other = next((two for two in free if alike(two) == alike(one)), None)
            if other is not None:
                rest.remove(one)
                free.remove(other)
                yield one, other
    ours, theirs = ([item for item in left if not traits_of(item).moves] for left in (rest, free))
    if len(ours) == len(theirs) == 1:
        yield ours[0], theirs[0]


def _signature(meaning: Meaning) -> object:
    return meaning.operation, tuple(path for path, _ in meaning.operands())
