"""The pytest plugin: golden traces. Loaded by pytest wherever twintrace is installed; it imports nothing until it is used.

def test_a_training_step(golden_trace):
    with golden_trace(net) as rec:
        loss = criterion(net(x), y); loss.backward(); optimizer.step()
        rec.step()

pytest --twintrace-update      writes golden/<file>/<test>/, to be committed
pytest                         records again, compares, and fails with the verdict
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..api import Recorder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --twintrace-update."""
    parser.getgroup("twintrace").addoption(
        "--twintrace-update", action="store_true", help="write golden traces anew instead of comparing with them"
    )


class GoldenTrace:
    """Records what happens in a `with` block, and compares it with the trace that is stored beside the test."""

    def __init__(self, folder: Path, root: Path, scratch: Path, *, update: bool) -> None:
        self._folder, self._root, self._scratch, self._update = folder, root, scratch, update

    @contextlib.contextmanager
    def __call__(
        self, model: Any = None, *, name: str = "", compare: dict[str, Any] | None = None, **options: Any
    ) -> Iterator[Recorder]:
        """Record, and compare when the block ends without an error.

        Args:
            model: as for `tt.record`.
            name: tells several golden traces of one test apart.
            compare: options of `tt.compare`: `{"rtol": 1e-5}`.
            options: those of `tt.record`. `keep="fingerprint"` if nothing is said: equal bits are wanted. With `keep="tensor"` the
                golden is as large as the values, and what rounding explains (another machine) is told from what it does not.
        """
        __tracebackhide__ = True
        from ..api import record
        from .golden import portable_copy
        from .runs import assert_same_run

        golden = self._folder / _file_name(name) if name else self._folder
        new = self._scratch / (_file_name(name) or "trace")
        chosen = {"level": "api" if model is None else "mix", "keep": "fingerprint"} | options
        with record(new, model, **chosen) as recorder:
            yield recorder
        if self._update:
            portable_copy(new, golden, self._root)
        elif not (golden / "manifest.json").is_file():
            where = golden.relative_to(self._root) if golden.is_relative_to(self._root) else golden
            how = "Write it with pytest --twintrace-update, and commit it."
            pytest.fail(f"there is no golden trace at {where}. {how}", pytrace=False)
        else:
            verdict = ""
            try:
                assert_same_run(golden, new, **compare or {})
            except AssertionError as error:
                verdict = str(error)
            if verdict:  # outside, so that it is not told twice
                pytest.fail(f"{verdict}\n\n  If the new run is right: pytest --twintrace-update.", pytrace=False)


def _file_name(text: str) -> str:
    """A test's name as the name of a folder: `test_net[f16-cpu]` is `test_net_f16-cpu`."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_.")


@pytest.fixture
def golden_trace(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenTrace:
    """`with golden_trace(net) as rec: …`: the run is the one that was stored, or the test fails with the verdict."""
    folder = request.path.parent / "golden" / request.path.stem / _file_name(request.node.name)
    update = bool(request.config.getoption("--twintrace-update"))
    return GoldenTrace(folder, request.config.rootpath, tmp_path / "golden_trace", update=update)
