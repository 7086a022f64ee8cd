"""Plan of a second recording: the steps, the calls and the modules around a place that the first run showed.

    Zoom(steps=(400,), ranks=(0,), sides=(ZoomSide("torch", "mix", calls=("forward/api:torch.relu#3", …), modules=()), …))

Addresses mean the same call in a full and in a selective recording, as calls are counted whether they are recorded or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import UsageError
from .sites import Kind, Phase, Site

FORMAT, VERSION = "twintrace-zoom", 1
_LEVELS = ("module", "api", "mix", "op")


@dataclass(frozen=True, slots=True)
class ZoomSide:
    """One run's part: `calls` are addresses, `modules` paths of which everything inside is wanted; `""` is the whole step."""

    framework: str
    level: str
    calls: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Zoom:
    """A place to look at closely, of one run or of two."""

    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    sides: tuple[ZoomSide, ...]
    because: str
    """Finding of the first run there, one sentence."""

    def level(self, framework: str) -> str:
        """The level to record at: the deepest that a side of this framework asks for."""
        return max((side.level for side in self._sides(framework)), key=_LEVELS.index)

    def wants(self, framework: str, site: Site) -> bool:
        """Is this call to be recorded?"""
        return any(_within(side, site) for side in self._sides(framework))

    def _sides(self, framework: str) -> tuple[ZoomSide, ...]:
        """The sides of a framework. Two runs of one framework are asked for the same, so that either file serves both."""
        own = tuple(side for side in self.sides if side.framework == framework)
        if not own:
            known = " and ".join(sorted({side.framework for side in self.sides}))
            raise UsageError(
                f"zoom: made of a run of {known}, and this is one of {framework}. Zoom into runs of {framework}."
            )
        return own

    def document(self) -> dict[str, object]:
        """The zoom as JSON has it."""
        sides = [
            {"framework": side.framework, "level": side.level, "calls": list(side.calls), "modules": list(side.modules)}
            for side in self.sides
        ]
        return {
            "format": FORMAT, "version": VERSION, "because": self.because, "steps": list(self.steps), "ranks": list(self.ranks),
            "keep": "tensor", "sides": sides,
        }  # fmt: skip


def zoom_of(document: object, where: str) -> Zoom:
    """The zoom that a JSON document says. Raises UsageError if it is none."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise UsageError(f"{where}: expected a file that `twintrace zoom` wrote, and it is none.")
    if document.get("version") != VERSION:
        raise UsageError(
            f"{where}: a zoom of version {document.get('version')}, and this release reads version {VERSION}."
        )
    try:
        sides = tuple(
            ZoomSide(str(side["framework"]), _level(side["level"]), _texts(side["calls"]), _texts(side["modules"]))
            for side in document["sides"]
        )
        return Zoom(_numbers(document["steps"]), _numbers(document["ranks"]), sides, str(document["because"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: damaged ({error!r}). Write it again with `twintrace zoom`.") from None


def _level(value: object) -> str:
    if value not in _LEVELS:
        raise ValueError(f"level {value!r}")
    return str(value)


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of texts was expected")
    return tuple(values)


def _numbers(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(isinstance(value, int) and value >= 0 for value in values):
        raise TypeError("a list of numbers was expected")
    return tuple(values)


def _within(side: ZoomSide, site: Site) -> bool:
    if str(site) in side.calls or "" in side.modules:
        return True
    if site.kind is Kind.MODULE and site.phase is Phase.BACKWARD:  # the gradients of its parameters
        return f"{Phase.FORWARD}/{Kind.MODULE}:{site.name}#0" in side.calls or _is_inside(site.name, side.modules)
    return _is_inside(site.name if site.kind is Kind.MODULE else site.path, side.modules)


def _is_inside(path: str, modules: tuple[str, ...]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)
