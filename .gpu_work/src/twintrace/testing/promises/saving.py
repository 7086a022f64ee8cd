"""Single values, inside and outside a recorded region."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...model.records import Role
from ...model.sites import Kind
from ..fixtures import Page
from ..reading import Reading, check_same_bits, form_of
from ..recording import api, needs_backward, recorder


class SavingContract:
    """`save`."""

    @pytest.mark.parametrize("inside", [True, False], ids=["inside a region", "outside"])
    def test_a_saved_value_has_its_gradient(self, framework: Page, tmp_path: Path, inside: bool) -> None:
        needs_backward(framework)
        relu, mul, total = (framework.functions[name].call for name in ("relu", "mul", "total"))
        rec = recorder(framework, tmp_path / "t")
        if inside:
            rec.start()

        def function(x: Any) -> Any:
            h = relu(x)
            rec.save("hidden", {"deep": [h]})
            return total(mul(h, h))

        x = framework.numbers(2, 3, requires_grad=True)
        framework.differentiate(function, x)
        rec.close()
        reading = Reading(tmp_path / "t")
        saved = reading["save:hidden#0"]
        expected = np.maximum(framework.array(x), 0)

        assert bool(reading.sites(Kind.API)) is inside
        assert form_of(saved.output) == {"deep": ["tensor"]}
        check_same_bits(reading.outputs(saved)["deep.0"], expected)
        check_same_bits(reading.gradients(saved, Role.SAVED)["deep.0"], expected * np.float32(2))

    def test_saved_values_know_where_they_are_and_are_counted(self, framework: Page, tmp_path: Path) -> None:
        relu = framework.functions["relu"].call
        with recorder(framework, tmp_path / "t") as rec:
            y = relu(framework.ones(2))
            for _ in range(2):
                rec.save("y", y)
            rec.save("plain", 1.5)
        reading = Reading(tmp_path / "t")

        assert reading.sites(Kind.SAVE) == ["forward/save:y#0", "forward/save:y#1", "forward/save:plain#0"]
        assert reading["save:plain#0"].output == 1.5
        result = reading.output_ids(reading[api(framework, "relu")])
        assert reading.output_ids(reading["save:y#0"]) == reading.output_ids(reading["save:y#1"]) == result

    def test_a_saved_value_leaves_no_hook(
        self, framework: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        needs_backward(framework)
        relu, total = framework.functions["relu"].call, framework.functions["total"].call
        installed, removed, heard = [0], [0], [0]
        on_gradient = framework.adapter.on_gradient

        def counted(tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
            def heard_of(gradient: Any) -> None:
                heard[0] += 1
                callback(gradient)

            def remove() -> None:
                removed[0] += 1
                undo()

            undo = on_gradient(tensor, heard_of)
            installed[0] += 1
            return remove

        monkeypatch.setattr(framework.adapter, "on_gradient", counted)
        rec = recorder(framework, tmp_path / "t")

        def function(x: Any) -> Any:
            h = relu(x)
            rec.save("h", h)
            rec.close()
            return total(h)

        framework.differentiate(function, framework.numbers(2, 3, requires_grad=True))
        assert (installed[0], removed[0], heard[0]) == (1, 1, 0)

    def test_a_tapped_value_tells_its_gradient_and_changes_nothing(self, framework: Page) -> None:
        needs_backward(framework)
        relu, mul, total = (framework.functions[name].call for name in ("relu", "mul", "total"))
        heard: dict[str, list[Any]] = {"leaf": [], "inner": []}

        def function(x: Any) -> Any:
            x = framework.adapter.tap(x, lambda gradient: heard["leaf"].append(framework.array(gradient)))
            h = framework.adapter.tap(relu(x), lambda gradient: heard["inner"].append(framework.array(gradient)))
            return total(mul(h, h))

        x = framework.numbers(2, 3, requires_grad=True)
        framework.differentiate(function, x)
        expected = np.maximum(framework.array(x), 0) * np.float32(2)
        for name in ("leaf", "inner"):
            [gradient] = heard[name]
            check_same_bits(gradient, expected)
