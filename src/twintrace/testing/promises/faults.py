"""Faults of the recorder do not reach the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ...model.sites import Phase
from ..fixtures import Page
from ..reading import Reading, check_same_bits
from ..recording import api, loss_of, needs_backward, recorder


class FaultsContract:
    """Faults."""

    @pytest.fixture(params=["glance", "host"])
    def fault(self, request: pytest.FixtureRequest, framework: Page, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The adapter fails as often as the list says."""
        left = [0]
        original = getattr(framework.adapter, request.param)

        def failing(tensor: Any, **how: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise ArithmeticError("a fault in the adapter")
            return original(tensor, **how)

        monkeypatch.setattr(framework.adapter, request.param, failing)
        return left

    def test_strict_raises_and_leaves_no_hook(self, framework: Page, tmp_path: Path, fault: list[int]) -> None:
        model = framework.models["mlp"]()
        before = framework.hook_count(model)
        fault[0] = 1
        with (
            pytest.raises(ArithmeticError, match="a fault"),
            recorder(framework, tmp_path / "t", model, strict=True),
        ):
            model(framework.ones(2, 3))
        assert framework.hook_count(model) == before

    def test_otherwise_the_training_goes_on_with_one_warning(
        self, framework: Page, tmp_path: Path, fault: list[int]
    ) -> None:
        relu, total = framework.functions["relu"].call, framework.functions["total"].call
        x = framework.numbers(2, 3, requires_grad=True)

        def function(x: Any) -> Any:
            return total(relu(relu(x)))

        expected = framework.differentiate(function, x)
        rec = recorder(framework, tmp_path / "t", names=[framework.functions["relu"].api], strict=False)
        fault[0] = 1_000_000
        with pytest.warns(RuntimeWarning, match="twintrace: .*a fault in the adapter") as told, rec:
            derivatives = framework.differentiate(function, x)
        fault[0] = 0
        reading = Reading(tmp_path / "t")

        assert len(told) == 1
        check_same_bits(derivatives.value, expected.value)
        check_same_bits(derivatives.inputs[0], expected.inputs[0])
        assert "a fault in the adapter" in reading.notes()["unrecorded"]
        assert not reading.calls

    def test_a_fault_in_a_module_does_not_shift_what_follows(
        self, framework: Page, tmp_path: Path, fault: list[int]
    ) -> None:
        """The module is not recorded; paths and parents of all other calls are as ever."""
        model, x = framework.models["mlp"](), framework.numbers(2, 3)
        rec = recorder(framework, tmp_path / "t", {"net": model}, strict=False)
        fault[0] = 1

        def run() -> None:
            model(x)
            framework.functions["total"].call(x)
            model(x)

        with pytest.warns(RuntimeWarning, match="a fault"), rec:
            run()
        reading = Reading(tmp_path / "t")

        outside = reading[api(framework, "total")]
        assert (outside.site.path, reading.parent(outside)) == ("", None)
        inside = reading[api(framework, "relu", 0)]
        assert inside.site.path == "net"
        assert reading.parent(reading[api(framework, "relu", 1)]) == "forward/module:net#1"

    def test_a_fault_on_the_way_back_does_not_end_the_training(
        self, framework: Page, tmp_path: Path, fault: list[int]
    ) -> None:
        needs_backward(framework)
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3, requires_grad=True)

        def function(x: Any, faults: int) -> Any:
            loss = loss_of(framework, model)(x)
            fault[0] = faults
            return loss

        expected = framework.differentiate(lambda x: function(x, 0), x, model=model)
        rec = recorder(framework, tmp_path / "t", model, strict=False)
        with pytest.warns(RuntimeWarning, match="a fault"), rec:
            derivatives = framework.differentiate(lambda x: function(x, 1_000_000), x, model=model)
        fault[0] = 0
        reading = Reading(tmp_path / "t")

        for name, gradient in expected.parameters.items():
            check_same_bits(derivatives.parameters[name], gradient, name)
        assert reading["module:last#0"].raised is None
        assert not [call for call in reading.calls if call.gradients]

    @pytest.mark.parametrize("phase", list(Phase)[:2])
    def test_a_predicate_that_fails_does_not_end_the_training(
        self, framework: Page, tmp_path: Path, phase: Phase
    ) -> None:
        model = framework.models["mlp"]()

        def predicate(site: Any) -> bool:
            if site.phase is phase:
                raise ArithmeticError("a fault in the predicate")
            return True

        x = framework.numbers(2, 3, requires_grad=True)
        expected = framework.differentiate(loss_of(framework, model), x, model=model)
        rec = recorder(framework, tmp_path / "t", model, strict=False, predicate=predicate, level="module")
        with pytest.warns(RuntimeWarning, match="a fault"), rec:
            derivatives = framework.differentiate(loss_of(framework, model), x, model=model)
        check_same_bits(derivatives.inputs[0], expected.inputs[0])
