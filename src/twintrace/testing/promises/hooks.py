"""Hooks that are installed are removed; two recorders get on; the run keeps its bits and its memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ...api import compare, selfcheck
from ...api import open as open_trace
from ...model.words import LevelName
from ..fixtures import Page
from ..reading import Reading
from ..recording import LEVELS, api, every_level, loss_of, needs_backward, recorded, recorder, spy


class HooksContract:
    """Coming and going."""

    @every_level
    def test_a_model_that_raises_leaves_no_hook(self, framework: Page, tmp_path: Path, level: str) -> None:
        model = framework.models["broken"]()
        before = framework.hook_count(model)

        def run() -> None:
            with recorder(framework, tmp_path / "t", model, level=level):
                assert framework.hook_count(model) > before, "hook_count does not see this adapter's hooks"
                model(framework.ones(2, 3))

        with pytest.raises(RuntimeError, match="bad layer"):
            run()
        assert framework.hook_count(model) == before

    @pytest.mark.parametrize("level", ["module", "mix"])
    def test_a_module_that_raises_is_recorded_as_such(self, framework: Page, tmp_path: Path, level: str) -> None:
        model = framework.models["broken"]()
        with recorder(framework, tmp_path / "t", model, level=level):
            with pytest.raises(RuntimeError, match="bad layer"):
                model(framework.ones(2, 3))
            model.good(framework.ones(2, 3))
        reading = Reading(tmp_path / "t")

        for address in ("module:#0", "module:bad#0"):
            assert reading[address].raised == "RuntimeError: bad layer"
            assert reading[address].output is None
        assert reading["module:good#0"].raised is None
        assert reading.parent(reading["module:good#1"]) is None, "what raised is over"

    def test_a_function_that_raises_is_recorded_as_such(self, framework: Page, tmp_path: Path) -> None:
        add, relu = framework.functions["add"].call, framework.functions["relu"].call
        with recorder(framework, tmp_path / "t"):
            with pytest.raises(Exception, match=r".") as caught:
                add(framework.ones(2, 3), framework.ones(4, 5))
            relu(framework.ones(2))
        reading = Reading(tmp_path / "t")

        failed = reading[api(framework, "add")].raised
        assert failed is not None
        assert failed.startswith(type(caught.value).__name__)
        assert reading[api(framework, "relu")].raised is None

    @every_level
    def test_stop_removes_everything_and_start_goes_on(self, framework: Page, tmp_path: Path, level: str) -> None:
        model = framework.models["mlp"]()
        before = framework.hook_count(model)
        rec = recorder(framework, tmp_path / "t", model, level=level)
        counts = []
        for _ in range(2):
            rec.start()
            model(framework.ones(2, 3))
            rec.stop()
            counts.append(rec.total_calls)
            assert framework.hook_count(model) == before
            model(framework.ones(2, 3))
            assert rec.total_calls == counts[-1], "recorded after stop"
        rec.close()
        reading = Reading(tmp_path / "t")

        assert counts[1] == 2 * counts[0] > 0
        assert len(set(reading.sites())) == len(reading.calls) == counts[1], "numbers went on"

    @every_level
    def test_nothing_is_heard_after_stop(
        self, framework: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
    ) -> None:
        """Not even of the way back through what was recorded before."""
        needs_backward(framework)
        model = framework.models["mlp"]()
        looked = spy(monkeypatch, framework, "glance")
        rec = recorder(framework, tmp_path / "t", model, level=level)
        rec.start()

        def function(x: Any) -> Any:
            loss = loss_of(framework, model)(x)
            rec.stop()
            assert looked
            looked.clear()
            return loss

        framework.differentiate(function, framework.numbers(2, 3, requires_grad=True), model=model)
        rec.close()

        assert not looked

    @pytest.mark.parametrize("level", ["module", "mix"])
    def test_gradients_may_be_waited_for_after_stop(self, framework: Page, tmp_path: Path, level: str) -> None:
        """With `keep_gradients` the way back through recorded calls is recorded, though nothing is intercepted any more."""
        needs_backward(framework)
        model = framework.models["mlp"]()
        before = framework.hook_count(model)
        gradients = []
        for keep in (False, True):
            rec = recorder(framework, tmp_path / str(keep), model, level=level)
            rec.start()

            def function(x: Any, rec: Any = rec, keep: bool = keep) -> Any:
                loss = loss_of(framework, model)(x)
                rec.stop(keep_gradients=keep)
                assert framework.hook_count(model) == before
                assert rec.awaits_gradients is keep
                return loss

            framework.differentiate(function, framework.numbers(2, 3, requires_grad=True), model=model)
            rec.close()
            assert not rec.awaits_gradients
            gradients.append(sum(len(call.gradients) for call in open_trace(tmp_path / str(keep)).journal(0).calls()))
        assert gradients[0] == 0 < gradients[1]

    def test_a_module_may_be_recorded_under_another_name(self, framework: Page, tmp_path: Path) -> None:
        """Also one that belongs to no model; the result of `rename` ends it."""
        model = framework.models["mlp"]()
        rec = recorder(framework, tmp_path / "t", {}, level="mix")
        rec.start()
        model(framework.ones(2, 3))
        undo = rec.rename(model, "mine")
        model(framework.ones(2, 3))
        undo()
        model(framework.ones(2, 3))
        rec.close()
        modules = [site for site in Reading(tmp_path / "t").sites() if "/module:" in site]
        assert modules == ["forward/module:mine#0"]

    @pytest.mark.parametrize("last_in_first_out", [True, False])
    @every_level
    def test_two_recorders_leave_in_any_order(
        self, framework: Page, tmp_path: Path, level: str, last_in_first_out: bool
    ) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3, requires_grad=True)
        before = framework.hook_count(model)

        def run() -> None:
            framework.differentiate(loss_of(framework, model), x, model=model)

        with recorder(framework, tmp_path / "alone", model, level=level):
            run()
        left, right = (recorder(framework, tmp_path / name, model, level=level) for name in ("left", "right"))
        for rec in (left, right):
            rec.start()
        run()
        early, late = (right, left) if last_in_first_out else (left, right)
        early.close()
        late.step()
        run()
        late.close()

        assert framework.hook_count(model) == before
        assert open_trace(early.path).steps == (0,)
        assert open_trace(late.path).steps == (0, 1)

        def asked_for(sites: Sequence[str]) -> list[str]:
            return [site for site in sites if not any(name in site for name in framework.own_kernels)]

        for path, step in ((early.path, 0), (late.path, 0), (late.path, 1)):
            assert asked_for(Reading(path, step=step).sites()) == asked_for(Reading(tmp_path / "alone").sites())
        for path in (left.path, right.path):
            comparison = compare(tmp_path / "alone", path)
            assert comparison.divergence is None, comparison
            assert not asked_for(
                [str(alone.call.site) for _, _, alone in (*comparison.only_left, *comparison.only_right)]
            ), comparison

    @every_level
    def test_the_run_keeps_its_bits(self, framework: Page, level: LevelName) -> None:
        missing = LEVELS[level] - framework.adapter.capabilities()
        if missing:
            pytest.skip(f"{framework.name} does not offer {', '.join(sorted(missing))}")

        def step(record: Callable[[Any], Any]) -> Any:
            model = framework.models["mlp"]()
            results = []
            with record(model):
                for seed in range(2):
                    x = framework.numbers(2, 3, seed=seed, requires_grad=True)
                    derivatives = framework.differentiate(loss_of(framework, model), x, model=model)
                    results.append([derivatives.value, list(derivatives.inputs), dict(derivatives.parameters)])
                    framework.update(model)
            return results

        check = selfcheck(step, level=level, keep="tensor")
        assert check.same, str(check)
        assert check.recorded > 0

    def test_nothing_is_kept_alive_that_the_framework_would_let_go(self, framework: Page, tmp_path: Path) -> None:
        mul, add, total = (framework.functions[name].call for name in ("mul", "add", "total"))
        alive: list[bool] = []

        def function(x: Any) -> Any:
            h = mul(x, 2.0)
            held = weakref.ref(h)
            y = add(h, 1.0)
            del h
            gc.collect()
            alive.append(held() is not None)
            return total(y)

        x = framework.numbers(2, 3, requires_grad=True)
        framework.differentiate(function, x)
        recorded(framework, tmp_path / "t", function, x)

        if alive[0]:
            pytest.skip(f"{framework.name} keeps it alive by itself")
        assert alive == [False, False]
