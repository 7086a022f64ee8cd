"""All adapters have the names and signatures of the protocol, and the same floor plan; the checks can fail."""

from typing import Protocol

import pytest

from tests.testing.parity import (
    OPTIONAL,
    adapter_faults,
    floor_plan,
    floor_plan_faults,
    floor_plans,
    protocol_faults,
)
from twintrace.frameworks import registry

INSTALLED = [name for name in registry.names() if registry.installed(name)]


@pytest.mark.parametrize("name", INSTALLED)
def test_an_adapter_fits_the_protocol(name):
    assert adapter_faults(registry.by_name(name)) == []


def test_all_adapters_have_the_same_floor_plan():
    plans = floor_plans()
    assert set(plans) == set(registry.names())
    assert all("adapter.py" in plan for plan in plans.values())
    assert floor_plan_faults(plans) == []


def test_every_exception_has_a_reason():
    assert all(len(reason.split()) > 3 for reason in OPTIONAL.values())


# --- the checks can fail ----------------------------------------------------------------------------------------------


class Wanted(Protocol):
    name: str

    def look(self, tensor): ...
    def seed(self, number, *, hard): ...


class Right:
    name = "right"

    @staticmethod
    def look(tensor): ...
    def seed(self, number, *, hard): ...
    def _own(self): ...


class Wrong:
    def look(self, it): ...
    def seed(self, number, hard): ...
    def more(self): ...


def test_what_fits_has_no_faults():
    assert protocol_faults(Right(), Wanted, "right") == []


def test_the_check_of_signatures_can_fail():
    assert protocol_faults(Wrong(), Wanted, "wrong") == [
        "wrong.name is missing",
        "wrong.more is not in the protocol",
        "wrong.look: expected (tensor), got (it)",
        "wrong.seed: expected (number, *, hard), got (number, hard)",
    ]


def test_an_adapters_watch_is_checked_too(monkeypatch):
    adapter = registry.by_name("reference")
    monkeypatch.setattr(adapter, "watch", lambda models, level, sink: Right())
    assert "reference.watch[module].end_step is missing" in adapter_faults(adapter)


@pytest.fixture
def plans(tmp_path):
    """Two adapters that differ in a file, a function, and nothing else."""
    files = {
        "torch/adapter.py": "class TorchWatch: ...\nFRAMEWORK = 1\ndef _own(): ...",
        "torch/names.py": "class Api: ...\ndef describe(): ...",
        "torch/patches.py": "def patch(): ...",
        "reference/adapter.py": "class ReferenceWatch: ...",
        "reference/names.py": "class Api: ...",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    return {name: floor_plan(tmp_path / name) for name in ("torch", "reference")}


def test_the_check_of_floor_plans_can_fail(plans):
    assert floor_plan_faults(plans, {}) == [
        "names.py:describe is in torch and not in reference",
        "patches.py is in torch and not in reference",
    ]


def test_exceptions_are_accepted_only_while_they_apply(plans):
    reasons = {"names.py:describe": "has none", "patches.py": "needs none"}
    assert floor_plan_faults(plans, reasons) == []
    assert floor_plan_faults(plans, reasons | {"names.py:Api": "had none"}) == [
        "names.py:Api is listed as optional and is not: had none"
    ]
