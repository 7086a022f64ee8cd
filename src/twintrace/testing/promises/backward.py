"""Gradients are the framework's own, for every call, argument, module and parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...model.records import Role
from ..fixtures import Array, Page
from ..reading import Reading, check_same_bits
from ..recording import api, loss_of, needs_backward, needs_function, recorded, recorder


class BackwardContract:
    """Gradients, beside those that the framework itself gives."""

    @pytest.fixture(autouse=True)
    def _offered(self, framework: Page) -> None:
        needs_backward(framework)

    @pytest.mark.parametrize("level", ["module", "mix"])
    def test_modules_show_the_gradients_of_what_they_took_and_gave(
        self, framework: Page, tmp_path: Path, level: str
    ) -> None:
        relu, total = framework.functions["relu"].call, framework.functions["total"].call
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3, requires_grad=True)
        reading, derivatives = recorded(
            framework, tmp_path / "t", loss_of(framework, model), x, model=model, level=level
        )
        root, first, norm = (reading[f"module:{name}#0"] for name in ("", "first", "norm"))

        middle = framework.tensor(reading.outputs(first)[""].copy(), requires_grad=True)
        rest = framework.differentiate(lambda h: total(model.last(relu(model.norm(h)))), middle, model=model)
        check_same_bits(reading.gradients(first, Role.OUTPUT)[""], rest.inputs[0], "what first gave")
        check_same_bits(reading.gradients(norm, Role.INPUT)["0"], rest.inputs[0], "what norm took")
        check_same_bits(reading.gradients(first, Role.INPUT)["0"], derivatives.inputs[0], "what first took")
        check_same_bits(reading.gradients(root, Role.INPUT)["0"], derivatives.inputs[0], "what the model took")
        check_same_bits(reading.gradients(root, Role.OUTPUT)[""], np.ones((2, 2), np.float32), "what the model gave")

    def test_what_flows_out_of_a_value_is_what_flowed_into_it(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3, requires_grad=True)
        reading, _ = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model, level="api")
        taken: dict[int, Array] = {}
        for call in reading.calls:
            for slot, gradient in reading.gradients(call, Role.INPUT).items():
                value = reading.input_ids(call)[slot]
                taken[value] = taken[value] + gradient if value in taken else gradient

        checked = 0
        for call in reading.calls:
            for slot, gradient in reading.gradients(call, Role.OUTPUT).items():
                if reading.output_ids(call)[slot] in taken:
                    check_same_bits(taken[reading.output_ids(call)[slot]], gradient, str(call.site))
                    checked += 1
        assert checked >= 4, "first, norm, relu and last each pass a value on"

    def test_each_call_shows_its_own_part_of_a_shared_gradient(self, framework: Page, tmp_path: Path) -> None:
        mul, add, total = (framework.functions[name].call for name in ("mul", "add", "total"))
        x = framework.numbers(2, 3, requires_grad=True)
        left, right = framework.numbers(2, 3, seed=1), framework.numbers(2, 3, seed=2)

        def function(x: Any) -> Any:
            return total(add(mul(x, left), mul(x, right)))

        reading, derivatives = recorded(framework, tmp_path / "t", function, x)
        parts = [reading.gradients(reading[api(framework, "mul", n)], Role.INPUT) for n in (0, 1)]

        check_same_bits(parts[0]["0"], framework.array(left))
        check_same_bits(parts[1]["0"], framework.array(right))
        assert parts[0].keys() == parts[1].keys() == {"0"}, "the other argument needs no gradient"
        check_same_bits(parts[0]["0"] + parts[1]["0"], derivatives.inputs[0])

    def test_both_places_of_one_tensor_have_a_gradient(self, framework: Page, tmp_path: Path) -> None:
        mul, total = framework.functions["mul"].call, framework.functions["total"].call
        x = framework.numbers(2, 3, requires_grad=True)
        reading, derivatives = recorded(framework, tmp_path / "t", lambda x: total(mul(x, x)), x)
        parts = reading.gradients(reading[api(framework, "mul")], Role.INPUT)

        check_same_bits(parts["0"], framework.array(x))
        check_same_bits(parts["1"], framework.array(x))
        check_same_bits(parts["0"] + parts["1"], derivatives.inputs[0])

    def test_a_module_that_uses_its_input_twice_shows_the_sum(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["forked"]()
        x = framework.numbers(2, 3, requires_grad=True)
        reading, derivatives = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model)
        parts = [reading.gradients(reading[api(framework, name)], Role.INPUT)["0"] for name in ("relu", "mul")]

        check_same_bits(reading.gradients(reading["module:#0"], Role.INPUT)["0"], derivatives.inputs[0])
        check_same_bits(parts[0] + parts[1], derivatives.inputs[0])
        assert parts[1].tolist() == [[2, 2, 2], [2, 2, 2]]

    @pytest.mark.parametrize("level", ["module", "api", "mix"])
    def test_parameters_have_the_gradients_that_arrived(self, framework: Page, tmp_path: Path, level: str) -> None:
        model = framework.models["shared"]()
        x = framework.numbers(2, 3)
        reading, derivatives = recorded(
            framework, tmp_path / "t", loss_of(framework, model), x, model=model, level=level
        )
        gradients = reading.parameter_gradients()

        assert gradients.keys() == derivatives.parameters.keys()
        assert len(gradients) == 2
        for name, gradient in gradients.items():
            check_same_bits(gradient, derivatives.parameters[name], name)

    def test_gradients_go_through_writes_in_place(self, framework: Page, tmp_path: Path) -> None:
        add_, mul, total = needs_function(framework, "add_"), *(framework.functions[n].call for n in ("mul", "total"))

        def function(x: Any) -> Any:
            h = mul(x, 2.0)
            add_(h, x)
            return total(mul(h, h))

        x = framework.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
        reading, derivatives = recorded(framework, tmp_path / "t", function, x)
        written = reading[api(framework, "add_")]
        six = framework.array(x) * np.float32(6)

        check_same_bits(reading.gradients(written, Role.OUTPUT)[""], six)
        check_same_bits(reading.gradients(written, Role.INPUT)["0"], six)
        check_same_bits(reading.gradients(written, Role.INPUT)["1"], six)
        check_same_bits(reading.gradients(reading[api(framework, "mul")], Role.OUTPUT)[""], six)
        check_same_bits(derivatives.inputs[0], six * np.float32(3))

    def test_every_pass_of_a_step_has_its_own_gradients(self, framework: Page, tmp_path: Path) -> None:
        mul, total = framework.functions["mul"].call, framework.functions["total"].call
        x = framework.numbers(2, 3, requires_grad=True)
        with recorder(framework, tmp_path / "t"):
            for factor in (2.0, 3.0):
                framework.differentiate(lambda x, factor=factor: total(mul(x, factor)), x)
        reading = Reading(tmp_path / "t")

        for number, factor in enumerate((2, 3)):
            back = reading.gradients(reading[api(framework, "mul", number)], Role.INPUT)
            check_same_bits(back["0"], np.full((2, 3), factor, np.float32))
