"""Configurations of modules: a line and a number for each configuration, written again only when it may have changed.

{"k": "module", "id": 0, "path": "norm", "type": "LayerNorm", "values": {"eps": 1e-05, …}}
{"k": "module", "id": 1, "path": "", "type": "mindspore.ops.MatMul", "values": {"transpose_b": true, …}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frameworks.protocol import ModuleView
from ..store.lines import encode, seal_text
from ..store.writer import Lines
from .flatten import Flattener


class Configurations:
    """The configurations of one step's journal."""

    def __init__(self, flattener: Flattener) -> None:
        self._flatten = flattener.flatten
        self._known: dict[str, tuple[Any, int]] = {}
        self._settings: dict[tuple[str, str], int] = {}
        self._count = 0

    def number_of(self, module: ModuleView, journal: Lines) -> int:
        """The number of this module's configuration, which is in the journal by then."""
        state = module.state()
        known = self._known.get(module.path)
        if known is not None and known[0] == state:
            return known[1]
        values = ",".join(
            f"{encode(str(name))}:{self._flatten(value, '', [])}" for name, value in module.configuration().items()
        )
        number = self.add(module.path, module.type, f"{{{values}}}", journal)
        self._known[module.path] = (state, number)
        return number

    def number_of_settings(self, name: str, settings: Mapping[str, Any], journal: Lines) -> int:
        """The number of a function's own settings. Equal ones share a line, whichever object has them."""
        key = name, repr(settings)
        number = self._settings.get(key)
        if number is None:
            values = ",".join(f"{encode(str(key))}:{self._flatten(value, '', [])}" for key, value in settings.items())
            number = self._settings[key] = self.add("", name, f"{{{values}}}", journal)
        return number

    def add(self, path: str, kind: str, values: str, journal: Lines) -> int:
        """Write one down, and give its number."""
        number = self._count
        self._count += 1
        head = f'{{"k":"module","id":{number},"path":{encode(path)},"type":{encode(kind)}'
        journal.add(seal_text(f'{head},"values":{values}'))
        return number

    @property
    def count(self) -> int:
        """Number of configurations in this journal."""
        return self._count

    def numbers(self) -> tuple[dict[str, tuple[Any, int]], dict[tuple[str, str], int]]:
        """The numbers of modules' configurations, and of functions' settings."""
        return dict(self._known), dict(self._settings)

    def go_on_from(
        self, numbers: tuple[Mapping[str, tuple[Any, int]], Mapping[tuple[str, str], int]], count: int
    ) -> None:
        """As if the first `count` of these had been written into this journal."""
        self._known = {path: known for path, known in numbers[0].items() if known[1] < count}
        self._settings = {key: number for key, number in numbers[1].items() if number < count}
        self._count = count

    def reset(self) -> None:
        """The next step has a journal of its own."""
        self._known.clear()
        self._settings.clear()
        self._count = 0
