"""Recording, as the contract does it: everything kept, nothing hidden, skipped where the framework does not offer it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..api import Recorder, record
from ..frameworks.protocol import Capability
from .fixtures import Derivatives, Page
from .reading import Reading

LEVELS = {
    "module": {Capability.MODULE},
    "api": {Capability.API},
    "mix": {Capability.MODULE, Capability.API},
    "op": {Capability.OP},
}
every_level = pytest.mark.parametrize("level", LEVELS)


def recorder(framework: Page, path: Path, model: Any = None, **options: Any) -> Recorder:
    """A recorder that keeps everything and hides nothing, unless told otherwise."""
    defaults = {"level": "mix" if model is not None else "api", "keep": "tensor", "strict": True, "buffer": "1 MB"}
    chosen = defaults | {"framework": framework.name} | options
    missing = LEVELS[chosen["level"]] - framework.adapter.capabilities()
    if missing:
        pytest.skip(f"{framework.name} does not offer {', '.join(sorted(missing))}")
    return record(path, model, **chosen)


def recorded(
    framework: Page, path: Path, function: Callable[..., Any], *inputs: Any, model: Any = None, **options: Any
) -> tuple[Reading, Derivatives]:
    """Record `function` forward and backward; what was recorded, and what the framework computed."""
    with recorder(framework, path, model, **options):
        derivatives = framework.differentiate(function, *inputs, model=model)
    return Reading(path), derivatives


def loss_of(framework: Page, model: Any) -> Callable[[Any], Any]:
    """The sum of a model's output."""
    return lambda x: framework.functions["total"].call(model(x))


def api(framework: Page, function: str, number: int = 0) -> str:
    """The address of a function's call."""
    return f"api:{framework.functions[function].api}#{number}"


def needs_backward(framework: Page) -> None:
    """Skip where gradients are not offered."""
    if Capability.BACKWARD not in framework.adapter.capabilities():
        pytest.skip(f"{framework.name} does not offer backward")


def needs_function(framework: Page, name: str) -> Callable[..., Any]:
    """The function of that name; skip where the framework has none."""
    if name not in framework.functions:
        pytest.skip(f"{framework.name} has no {name}")
    return framework.functions[name].call


def spy(monkeypatch: pytest.MonkeyPatch, framework: Page, question: str) -> list[Any]:
    """Each tensor about which the adapter is asked this question is added to the list."""
    asked: list[Any] = []
    answer = getattr(framework.adapter, question)

    def watched(tensor: Any, **how: Any) -> Any:
        asked.append(tensor)
        return answer(tensor, **how)

    monkeypatch.setattr(framework.adapter, question, watched)
    return asked
