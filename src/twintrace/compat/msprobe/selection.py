"""Selection of records: `scope`, `list` and `support_wrap_ops` of a config.json, asked for each call when it begins.

    "scope": ["Module.conv1.Conv2d.forward.0", "Module.fc.Linear.forward.0"]     from the one to the other, both included
    "list": ["relu", "name-regex(fc\\\\d)"]                                         names that hold a text, or a pattern

At level mix a module whose record is listed is wanted with all that it calls: `….forward.0` in the forward pass, `….backward.0` in
the backward pass, and a name that is in both, in both. A scope is open or closed: what comes back in the
backward pass is in it if it is open then, so two forward names select no gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ...model.sites import Kind, Phase, Site
from .config import Settings, is_allowed, pattern_of
from .names import gradients_name, parse, record_name, stems


class Selection:
    """Questions that a writer asks; without a condition: all that a trace holds, but root modules."""

    def leaves_out(self, module: str, up: int | None) -> bool:
        """True for a root module. The only one has no name; those of a list have numbers, and nothing around them."""
        return not module or (up is None and module.isdecimal())

    def uncounted(self, function: str) -> int:
        """Number of calls of this function, of those so far in the step, that have no number in the dump."""
        return 0

    def forgoes(self, name: str) -> bool:
        """True for a forward record that is not written, although its call is recorded (for its gradients)."""
        return False

    def begins(self, name: str, around: Iterable[str]) -> bool:
        """True if a backward record that begins is wanted. `around`: the backward records of the modules around it."""
        return True

    def ends(self, name: str) -> None:
        """A record is complete."""


class Selected(Selection):
    """The conditions of some settings, for one framework and its models."""

    def __init__(self, settings: Settings, framework: str, roots: Collection[str]) -> None:
        self._scope, self._allowed, self._level = settings.scope, settings.allowed, settings.level
        self._framework, self._roots = framework, frozenset(roots)
        self._patterns = [pattern_of(name) for name in settings.names]
        self._everything = not (settings.scope or settings.names or settings.allowed is not None)
        self._open = settings.scope is None
        # A scope that ends or begins in the backward pass needs the calls before it, for their gradients.
        bounds = [parse(name) for name in settings.scope or ()]
        self._needs_all = any(bound is not None and bound.what == "backward" for bound in bounds)
        self.paused = False
        """Nothing new is wanted; what comes of the backward pass still is."""
        self._forgone: set[str] = set()
        self._listed: dict[bool, set[str]] = {False: set(), True: set()}
        """Modules that are wanted with all that they call: in the forward pass, in the backward pass."""
        self._wanted: set[str] = set()  # modules whose parameters' gradients are wanted
        self.alone: frozenset[str] | None = None
        """Between `module_dump` and `module_dump_end`: the names of the only modules that are wanted."""
        self._uncounted: Counter[str] = Counter()
        """Functions that were called between the two: the tool does not see them, and does not count them."""

    def __call__(self, site: Site) -> bool:
        """True if this call is to be recorded."""
        if site.phase is Phase.UPDATE or (self.paused and site.phase is Phase.FORWARD):
            return False
        if self.alone is not None and site.phase is not Phase.BACKWARD:
            if site.kind is not Kind.MODULE:
                self._uncounted[site.name] += 1
            return site.kind is Kind.MODULE and site.name in self.alone
        if site.kind is Kind.MODULE:
            if self._level == "L1":
                return False
            if site.phase is Phase.BACKWARD:  # the gradient of one of its parameters
                return site.name in self._wanted
            if site.name in self._roots:
                return False
        if self._everything:
            if site.kind is Kind.MODULE:
                self._wanted.add(site.name)
            return True
        begins = stems(site.kind, site.name, site.type, self._framework)
        if self._allowed is not None and site.kind is Kind.API:
            begins = tuple(begin for begin in begins if is_allowed(begin, self._allowed))
        module = site.name if site.kind is Kind.MODULE else None
        call = site.call - self.uncounted(site.name) if module is None else site.call
        names = [record_name(begin, call) for begin in begins]
        wanted = any([self._begins(name) and self._is_listed([name], site.path, module) for name in names])
        backward = [record_name(begin, call, backward=True) for begin in begins]
        later = wanted
        if self._patterns:
            later = self._open and self._is_listed(backward, site.path, module, backward=True)
        if module is not None and self._scope is None and (later or self._fits(map(gradients_name, begins))):
            self._wanted.add(module)
        if wanted or not (later or self._needs_all) or not names:
            return wanted
        self._forgone.update(names)
        return True

    def reset(self) -> None:
        """A new step."""
        self._open = self._scope is None
        for names in (self._forgone, *self._listed.values(), self._wanted):
            names.clear()
        self._uncounted.clear()

    def leaves_out(self, module: str, up: int | None) -> bool:
        return False  # they were not recorded

    def uncounted(self, function: str) -> int:
        return self._uncounted[function] if self._uncounted else 0

    def forgoes(self, name: str) -> bool:
        if name not in self._forgone:
            return False
        self._forgone.discard(name)
        return True

    def begins(self, name: str, around: Iterable[str]) -> bool:
        wanted = self._begins(name) and (
            not self._patterns or self._fits([name]) or (self._level == "mix" and self._fits(around))
        )
        if wanted and self._scope is not None:
            record = parse(name)
            if record is not None and record.kind is Kind.MODULE:
                self._wanted.add(record.name)
        return wanted

    def ends(self, name: str) -> None:
        if self._scope is not None and name == self._scope[1]:
            self._open = False

    def _begins(self, name: str) -> bool:
        """True if the scope is open, with this record."""
        if self._scope is not None and name == self._scope[0]:
            self._open = True
        return self._open

    def _fits(self, names: Iterable[str]) -> bool:
        return any(pattern.search(name) for name in names for pattern in self._patterns)

    def _is_listed(self, names: list[str], path: str, module: str | None, *, backward: bool = False) -> bool:
        if not self._patterns:
            return True
        by_name = self._fits(names)
        if self._level != "mix":
            return by_name
        listed = self._listed[backward]
        if module is not None:
            (listed.add if by_name else listed.discard)(module)
        return by_name or _is_inside(path, listed)


def _is_inside(path: str, modules: Collection[str]) -> bool:
    while path:
        if path in modules:
            return True
        path = path.rpartition(".")[0]
    return False
