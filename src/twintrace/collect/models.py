"""Which models are to be recorded, and whose they are.

named_models(net)             {"": net}
named_models([gen, disc])     {"0": gen, "1": disc}
framework_for(models)         the adapter that owns them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frameworks import registry
from ..frameworks.protocol import Framework
from ..model.errors import UsageError


def named_models(model: Any) -> dict[str, Any]:
    """The models by name; a single one is called by the empty name, those of a list by their numbers."""
    if model is None:
        return {}
    if isinstance(model, Mapping) and not registry.framework_of(model):
        models = {str(name): item for name, item in model.items()}
    elif isinstance(model, list | tuple):
        models = {str(number): item for number, item in enumerate(model)}
    else:
        models = {"": model}
    for name, item in models.items():
        adapter = registry.framework_of(item)
        if adapter is None or not adapter.is_module(item):
            known = ", ".join(f.name for f in registry.loaded()) or "none is imported"
            which = f"model[{name!r}]" if name else "model"
            raise UsageError(
                f"{which}: expected a module of a known framework ({known}), got "
                f"{type(item).__module__}.{type(item).__qualname__}. "
                f"Give the model itself; functions alone are recorded without one, at level='api'."
            )
    return models


def framework_for(models: Mapping[str, Any], name: str | None = None) -> Framework:
    """The adapter that owns the models, or the one called `name`, or the only one that is imported."""
    owners = {owner.name: owner for owner in map(registry.framework_of, models.values()) if owner is not None}
    if len(owners) > 1:
        raise UsageError(
            f"model: expected modules of one framework, got {', '.join(sorted(owners))}. Record them separately."
        )
    if name is not None:
        chosen = registry.by_name(name)
        if owners and chosen.name not in owners:
            raise UsageError(f"framework={name!r}, but the model belongs to {next(iter(owners))}.")
        return chosen
    if owners:
        return next(iter(owners.values()))
    possible = registry.foremost()
    if len(possible) == 1:
        return possible[0]
    names = ", ".join(registry.names())
    state = "none is imported" if not possible else "several are imported"
    raise UsageError(
        f"framework: {state} and no model was given. Import one before recording, or say framework= one of {names}."
    )
