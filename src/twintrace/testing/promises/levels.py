"""Contents of each level: addresses, paths, parents, configuration, stacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ...model.records import Role
from ...model.sites import Kind, Phase
from ..fixtures import Page
from ..reading import Reading, check_same_bits, names
from ..recording import api, loss_of, needs_backward, needs_function, recorded, recorder


class LevelsContract:
    """Levels."""

    def test_level_module_records_modules_and_nothing_else(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3)
        reading, _ = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model, level="module")

        assert reading.sites() == [f"forward/module:{name}#0" for name in ("", "first", "norm", "last")]
        assert [reading.parent(call) for call in reading.calls] == [None, *["forward/module:#0"] * 3]

    def test_level_api_records_functions_and_the_modules_they_are_in(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        with recorder(framework, tmp_path / "t", {"net": model}, level="api"):
            framework.differentiate(loss_of(framework, model), framework.numbers(2, 3), model=model)
        reading = Reading(tmp_path / "t")

        assert {call.site.kind for call in reading.calls} == {Kind.API}
        assert {call.site.path for call in reading.calls} == {"net.first", "net.norm", "net", "net.last", ""}
        assert reading[api(framework, "relu")].site.path == "net"
        assert reading[api(framework, "total")].site.path == ""
        assert {call.parent for call in reading.calls} == {None}

    def test_level_mix_hangs_functions_below_the_modules_that_called_them(
        self, framework: Page, tmp_path: Path
    ) -> None:
        model = framework.models["mlp"]()
        with recorder(framework, tmp_path / "t", {"net": model}, level="mix"):
            framework.differentiate(loss_of(framework, model), framework.numbers(2, 3), model=model)
        reading = Reading(tmp_path / "t")

        modules = [f"forward/module:net{name}#0" for name in ("", ".first", ".norm", ".last")]
        assert reading.sites(Kind.MODULE) == modules
        assert reading.parent(reading[api(framework, "relu")]) == "forward/module:net#0"
        assert reading.parent(reading[api(framework, "total")]) is None
        inside = {reading.parent(call) for call in reading.calls if call.site.kind is Kind.API}
        assert inside == {*modules, None}

    def test_level_op_records_kernels_of_both_directions(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        with recorder(framework, tmp_path / "t", {"net": model}, level="op"):
            framework.differentiate(loss_of(framework, model), framework.numbers(2, 3), model=model)
        reading = Reading(tmp_path / "t")

        assert {call.site.kind for call in reading.calls} == {Kind.OP}
        assert reading[f"op:{framework.functions['relu'].kernel}#0"].site.path == "net"
        forward = {call.site.path for call in reading.calls if call.site.phase is Phase.FORWARD}
        assert {"net.first", "net.norm", "net.last"} <= forward
        assert {call.site.phase for call in reading.calls} == {Phase.FORWARD, Phase.BACKWARD}

    @pytest.mark.parametrize("level", ["api", "op"])
    def test_the_optimizer_has_a_phase_of_its_own(self, framework: Page, tmp_path: Path, level: str) -> None:
        model = framework.models["mlp"]()
        with recorder(framework, tmp_path / "t", model, level=level) as rec:
            framework.differentiate(loss_of(framework, model), framework.numbers(2, 3), model=model)
            before = rec.total_calls
            framework.update(model)
            after = rec.total_calls
            framework.functions["relu"].call(framework.ones(2))
        reading = Reading(tmp_path / "t")

        assert after > before
        assert {call.site.phase for call in reading.calls if before <= call.id < after} == {Phase.UPDATE}
        assert Phase.UPDATE not in {call.site.phase for call in reading.calls if not before <= call.id < after}

    def test_modules_tell_their_class_settings_and_parameters(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3)
        reading, _ = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model, level="module")
        norm = reading["module:norm#0"]

        assert norm.site.type == type(model.norm).__name__
        assert norm.config is not None
        assert (norm.config.path, norm.config.type) == ("norm", norm.site.type)
        assert 1e-5 in norm.config.values.values()
        assert norm.config.values["training"] in (True, False)
        own = {
            name.removeprefix("norm."): tensor
            for name, tensor in framework.adapter.named_parameters(model)
            if name.startswith("norm.")
        }
        assert len(own) == 2
        assert norm.parameters.keys() == own.keys()
        for name, tensor in own.items():
            check_same_bits(reading.values(norm.parameters[name]), framework.array(tensor), name)
        assert not reading["module:#0"].parameters, "the root has none of its own"

    def test_buffers_have_the_values_from_before_the_call(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["buffered"]()
        with recorder(framework, tmp_path / "t", model, level="module"):
            model(framework.ones(3))
            model(framework.ones(3))
        reading = Reading(tmp_path / "t")

        seen = [reading.values(reading[f"module:#{n}"].buffers["seen"]).tolist() for n in (0, 1)]
        assert seen == [[0, 0, 0], [1, 1, 1]]

    def test_stacks_lead_to_the_users_file(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3)
        reading, _ = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model)

        for address in (api(framework, "relu"), "module:norm#0"):
            innermost = reading[address].stack[0]
            assert innermost.file == framework.file
            assert "norm" in innermost.code
        hidden = (*framework.adapter.internal_paths(), str(Path(__file__).parent))
        for call in reading.calls:
            assert not [frame.file for frame in call.stack if frame.file.startswith(hidden)]

    def test_a_module_that_is_called_twice_is_recorded_twice(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["shared"]()
        x = framework.numbers(2, 3, requires_grad=True)
        reading, derivatives = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model)

        assert names(reading.sites(Kind.MODULE)) == ["", "layer", "layer"]
        first, second = reading["module:layer#0"], reading["module:layer#1"]
        check_same_bits(reading.inputs(first)["0"], framework.array(x))
        check_same_bits(reading.inputs(second)["0"], reading.outputs(reading[api(framework, "relu")])[""])
        check_same_bits(reading.gradients(first, Role.INPUT)["0"], derivatives.inputs[0])
        check_same_bits(reading.gradients(second, Role.OUTPUT)[""], np.ones((2, 3), np.float32))

    def test_a_module_that_is_put_in_later_is_seen(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["shared"]()
        with recorder(framework, tmp_path / "t", model, level="module"):
            model(framework.ones(2, 3))
            model.layer = framework.models["shared"]().layer
            model(framework.ones(2, 3))
        assert names(Reading(tmp_path / "t").sites()) == ["", "layer", "layer"] * 2

    def test_recomputed_calls_have_a_phase_of_their_own(self, framework: Page, tmp_path: Path) -> None:
        needs_backward(framework)
        checkpoint = needs_function(framework, "checkpoint")
        relu, mul, total = (framework.functions[name].call for name in ("relu", "mul", "total"))
        x = framework.numbers(2, 3, requires_grad=True)
        reading, _ = recorded(framework, tmp_path / "t", lambda x: total(checkpoint(lambda h: relu(mul(h, 2.0)), x)), x)

        again = reading[f"recompute/{api(framework, 'relu')}"]
        check_same_bits(reading.inputs(again)["0"], reading.inputs(reading[api(framework, "relu")])["0"])
