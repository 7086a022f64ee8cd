"""Numbers of one journal: of its calls, stacks, configurations and backward passes; and the beginning of each call's line.

numbering.count(Kind.FUNCTION, "torch.add", Phase.FORWARD)      2: the third call of this name
numbering.begin(Kind.FUNCTION, "torch.add", 2, …)               14, '{"k":"call","id":14,"kind":"function",…'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..frameworks.protocol import Framework
from ..model.sites import Kind, Phase
from ..store.lines import encode
from .configurations import Configurations
from .flatten import Flattener
from .plans import Mark
from .stacks import Stacks


class _Texts(dict[str, str]):
    """Names as JSON, each made once."""

    def __missing__(self, name: str) -> str:
        text = self[name] = encode(name)
        return text


class CallState:
    """State of an open call: the line as far as it is written, and where the call stands."""

    __slots__ = ("before", "depth", "epoch", "mutates", "text", "written")

    def __init__(self, epoch: int, text: str | None, depth: int, mutates: Sequence[str] = ()) -> None:
        self.epoch, self.text, self.depth, self.mutates = epoch, text, depth, mutates
        self.written = ""  # the whole line, which a draft of the step asks for
        # By slot, while values that are not finite are watched for: look and copy.
        self.before: dict[str, tuple[Any, Any]] = {}

    def mutated(self, slots: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Tensors, by slot, that the call writes to: in one of the places that it names, or inside one."""
        inside = tuple(f"{place}." for place in self.mutates)
        return [(slot, tensor) for slot, tensor in slots if slot in self.mutates or slot.startswith(inside)]


class Numbering:
    """Counts what is written into one journal after another."""

    def __init__(
        self, framework: Framework, observe: Callable[[Any], int], write_stack: Callable[[int, str], None]
    ) -> None:
        self.stacks = Stacks(framework.internal_paths(), write_stack)
        self.texts = _Texts()
        self.calls = 0
        """Number of calls in this journal."""
        self.configurations = Configurations(Flattener(framework, observe))
        self._counts: dict[tuple[Phase, Kind], dict[str, int]] = {(p, k): {} for p in Phase for k in Kind}
        self._passes: dict[str, int] = {}  # backward passes, by parameter
        self.precision: Mapping[str, Any] = {}
        """Settings that the head of the present journal says."""
        # By object: settings other than the journal's, as a field of a call.
        self._precisions: dict[int, tuple[Mapping[str, Any], str]] = {}

    def count(self, kind: Kind, name: str, phase: Phase) -> int:
        """Number of calls of this name so far; one more from now on. Calls count that are not recorded, too."""
        counts = self._counts[phase, kind]
        number = counts.get(name, 0)
        counts[name] = number + 1
        return number

    def count_pass(self, name: str) -> int:
        """Number of gradients of this parameter so far; one more from now on."""
        count = self._passes.get(name, 0)
        self._passes[name] = count + 1
        return count

    def begin(self, kind: Kind, name: str, number: int, phase: Phase, path: str, up: int | None) -> tuple[int, str]:
        """The identity of a call, and its line up to the place in the model."""
        identity = self.calls
        self.calls = identity + 1
        return identity, (
            f'{{"k":"call","id":{identity},"kind":"{kind}","name":{self.texts[name]},"n":{number},"phase":"{phase}",'
            f'"path":{self.texts[path]},"up":{"null" if up is None else up}'
        )

    def begin_journal(self, precision: Mapping[str, Any]) -> None:
        """A new journal, whose head says these settings."""
        self.precision = precision
        self._precisions.clear()

    def precision_text(self, settings: Mapping[str, Any]) -> str:
        """The settings of a call that are not those of the journal, as a field of its line."""
        known = self._precisions.get(id(settings))
        if known is None or known[0] is not settings:
            nothing = object()
            other = {name: value for name, value in settings.items() if self.precision.get(name, nothing) != value}
            text = f',"precision":{encode(other)}' if other else ""
            known = self._precisions[id(settings)] = settings, text
        return known[1]

    def reset(self) -> None:
        """The next step has a journal of its own."""
        self.calls = 0
        for counts in self._counts.values():
            counts.clear()
        self._passes.clear()
        self.configurations.reset()
        self.stacks.reset()

    # --- steps that follow a plan (plans.py) --------------------------------------------------------------------------

    def mark(self, lines: int, tensors: int) -> Mark:
        """Position in a journal of so many lines and tensors."""
        return Mark(lines, self.calls, tensors, self.stacks.count, self.configurations.count)

    def snapshot(self) -> Any:
        """Numbers of stacks and configurations, for `go_on_from`."""
        return self.stacks.numbers(), self.configurations.numbers()

    def go_on_from(
        self, mark: Mark, calls: Iterable[tuple[Phase, Kind, str]], passes: Mapping[str, int], snapshot: Any
    ) -> None:
        """Count on as if these calls and passes had been recorded, and all that was numbered before the mark."""
        self.calls = mark.calls
        for phase, kind, name in calls:
            self.count(kind, name, phase)
        self._passes = dict(passes)
        self.stacks.go_on_from(snapshot[0], mark.stacks)
        self.configurations.go_on_from(snapshot[1], mark.configurations)
