"""Step numbers, and the right call at the wrong time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ...api import open as open_trace
from ...model.errors import SessionError
from ..fixtures import Page
from ..reading import Reading
from ..recording import api, needs_backward, recorder


class SessionContract:
    """Steps and verbs."""

    def test_steps_are_numbered_and_begin_anew(self, framework: Page, tmp_path: Path) -> None:
        relu = framework.functions["relu"].call
        with recorder(framework, tmp_path / "t") as rec:
            for following in (None, 10, None, 4):
                relu(framework.ones(2))
                rec.step(following)
        assert open_trace(tmp_path / "t").steps == (0, 1, 10, 11)
        assert rec.number == 4
        for step in (0, 1, 10, 11):
            assert Reading(tmp_path / "t", step=step).sites() == [f"forward/{api(framework, 'relu')}"]

    def test_a_step_is_recorded_once(self, framework: Page, tmp_path: Path) -> None:
        relu = framework.functions["relu"].call
        with recorder(framework, tmp_path / "t") as rec:
            relu(framework.ones(2))
            for number in (0, -1, True, "1"):
                with pytest.raises(SessionError, match="step"):
                    rec.step(number)  # type: ignore[arg-type]
            rec.step()
            with pytest.raises(SessionError, match="step 0 is already recorded"):
                rec.step(0)
            relu(framework.ones(2))
        assert open_trace(tmp_path / "t").steps == (0, 1)

    def test_start_and_stop_take_turns(self, framework: Page, tmp_path: Path) -> None:
        rec = recorder(framework, tmp_path / "t")
        with pytest.raises(SessionError, match=r"stop\(\) without start"):
            rec.stop()
        rec.start()
        with pytest.raises(SessionError, match="already started"):
            rec.start()
        rec.stop()
        with pytest.warns(RuntimeWarning, match="nothing was recorded: nothing was called"):
            rec.close()

    def test_after_the_end_there_is_nothing(self, framework: Page, tmp_path: Path) -> None:
        rec = recorder(framework, tmp_path / "t")
        with pytest.warns(RuntimeWarning, match="nothing was recorded: the recorder was never started"):
            rec.close()
        rec.close()
        for verb in (rec.start, rec.step, lambda: rec.save("x", 1)):
            with pytest.raises(SessionError, match="closed"):
                verb()

    def test_a_gradient_of_the_step_before_is_not_written_into_this_one(self, framework: Page, tmp_path: Path) -> None:
        needs_backward(framework)
        mul, total = framework.functions["mul"].call, framework.functions["total"].call
        with recorder(framework, tmp_path / "t") as rec:

            def function(x: Any) -> Any:
                loss = total(mul(x, 2.0))
                rec.step()
                mul(x, 2.0)
                return loss

            framework.differentiate(function, framework.numbers(2, 3, requires_grad=True))
        assert not [call for call in Reading(tmp_path / "t", step=1).calls if call.gradients]
