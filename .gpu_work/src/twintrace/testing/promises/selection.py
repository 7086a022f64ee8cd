"""Recording less: steps, ranks, names, a range, a direction, a number of calls, a predicate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ...api import open as open_trace
from ...model.records import Role
from ...model.sites import Kind, Phase
from ...model.values import Token
from ..fixtures import Page
from ..reading import Reading, names, shapes
from ..recording import every_level, loss_of, needs_backward, recorder


class SelectionContract:
    """Selections."""

    def run(self, framework: Page, path: Path, model: str = "mlp", **options: Any) -> Reading:
        """Two passes and an update of a model, recorded with these options."""
        net = framework.models[model]()
        with recorder(framework, path, net, **options):
            framework.differentiate(loss_of(framework, net), framework.numbers(2, 3, requires_grad=True), model=net)
            framework.update(net)
        return Reading(path)

    def test_steps(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        before = framework.hook_count(model)
        with recorder(framework, tmp_path / "t", model, steps=[1, 3]) as rec:
            for number in range(5):
                assert (framework.hook_count(model) > before) is (number in (1, 3))
                model(framework.ones(2, 3))
                rec.save("number", number)
                rec.step()
        assert open_trace(tmp_path / "t").steps == (1, 3)
        assert Reading(tmp_path / "t", step=3)["save:number#0"].output == 3

    def test_ranks(self, framework: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = framework.models["mlp"]()
        before = framework.hook_count(model)
        for rank in (0, 1):
            monkeypatch.setattr(framework.adapter, "rank", lambda rank=rank: (rank, 2))
            with recorder(framework, tmp_path / "t", model, ranks=[1]) as rec:
                assert (framework.hook_count(model) > before) is (rank == 1)
                model(framework.ones(2, 3))
                rec.save("rank", rank)
                rec.step()
        trace = open_trace(tmp_path / "t")

        assert trace.places == ((0, 1),)
        assert trace.journal(0, 1).header.world == 2

    @pytest.mark.parametrize(
        ("patterns", "expected"),
        [
            (["norm"], ["norm"]),
            (["*st"], ["first", "last"]),
            (["re:(first|norm)"], ["first", "norm"]),
            (["n?rm", "last"], ["norm", "last"]),
        ],
    )
    def test_names_of_modules(self, framework: Page, tmp_path: Path, patterns: list[str], expected: list[str]) -> None:
        reading = self.run(framework, tmp_path / "t", level="module", names=patterns)
        assert names(reading.sites()) == expected
        assert list(dict.fromkeys(name.split(".")[0] for name in sorted(reading.parameter_gradients()))) == sorted(
            expected
        )

    def test_names_that_fit_nothing_are_told(self, framework: Page, tmp_path: Path) -> None:
        with pytest.warns(RuntimeWarning, match="no call fits the selection"):
            reading = self.run(framework, tmp_path / "t", level="module", names=["nothing"])
        assert not reading.calls

    def test_names_of_functions_and_of_the_modules_around_them(self, framework: Page, tmp_path: Path) -> None:
        relu = framework.functions["relu"].api
        reading = self.run(framework, tmp_path / "t", level="mix", names=[relu, "first*"], forward_only=True)
        assert {call.site.path for call in reading.calls if call.site.kind is Kind.API} == {"first", ""}
        assert [call.site.name for call in reading.calls if call.site.path == "" and call.site.kind is Kind.API] == [
            relu
        ]
        assert reading.sites(Kind.MODULE) == ["forward/module:first#0"]

    def test_between(self, framework: Page, tmp_path: Path) -> None:
        reading = self.run(framework, tmp_path / "t", level="mix", between=("first", "norm"))
        assert names(reading.sites(Kind.MODULE)) == ["first", "norm"]
        assert {call.site.path for call in reading.calls if call.site.kind is Kind.API} == {"first", "norm"}

    def test_between_has_the_gradients_of_its_parameters(self, framework: Page, tmp_path: Path) -> None:
        needs_backward(framework)
        reading = self.run(framework, tmp_path / "t", level="module", between=("first", "norm"))
        assert {name.split(".")[0] for name in reading.parameter_gradients()} == {"first", "norm"}

    def test_between_ends_with_a_module_that_raises(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["broken"]()
        with recorder(framework, tmp_path / "t", model, level="module", between=("bad", "bad")):
            with pytest.raises(RuntimeError, match="bad layer"):
                model(framework.ones(2, 3))
            model.good(framework.ones(2, 3))
        assert names(Reading(tmp_path / "t").sites()) == ["bad"]

    @every_level
    def test_forward_only(self, framework: Page, tmp_path: Path, level: str) -> None:
        reading = self.run(framework, tmp_path / "t", level=level, forward_only=True)
        assert reading.calls
        assert {call.site.phase for call in reading.calls} == {Phase.FORWARD}
        assert not [call for call in reading.calls if call.gradients]
        assert not reading.parameter_gradients()

    def test_inputs_only(self, framework: Page, tmp_path: Path) -> None:
        reading = self.run(framework, tmp_path / "t", inputs_only=True)
        norm = reading["module:norm#0"]
        assert shapes(reading.inputs(norm)) == {"0": (2, 4)}
        assert len(norm.parameters) == 2
        assert isinstance(norm.output, Token)
        assert not [call for call in reading.calls if call.gradients or reading.output_ids(call)]
        assert not reading.parameter_gradients()

    def test_flow_only(self, framework: Page, tmp_path: Path) -> None:
        reading = self.run(framework, tmp_path / "t", flow_only=True)
        norm = reading["module:norm#0"]
        assert shapes(reading.inputs(norm)) == {"0": (2, 4)}
        assert reading.output_ids(norm)
        assert not [call for call in reading.calls if call.parameters or call.buffers]
        assert not reading.parameter_gradients()

    def test_flow_only_has_the_gradients_of_results(self, framework: Page, tmp_path: Path) -> None:
        needs_backward(framework)
        reading = self.run(framework, tmp_path / "t", flow_only=True)
        assert {gradient.role for call in reading.calls for gradient in call.gradients} == {Role.OUTPUT}

    def test_first(self, framework: Page, tmp_path: Path) -> None:
        reading = self.run(framework, tmp_path / "t", "shared", first=1)
        assert names(reading.sites(Kind.MODULE)) == ["", "layer"]
        assert {call.site.call for call in reading.calls} == {0}

    def test_predicate(self, framework: Page, tmp_path: Path) -> None:
        def second_call(site: Any) -> bool:
            return bool(site.kind is Kind.MODULE and site.call == 1)

        reading = self.run(framework, tmp_path / "t", "shared", predicate=second_call)
        assert reading.sites() == ["forward/module:layer#1"], "addresses are those of a full recording"
