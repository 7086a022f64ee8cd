"""The first value that is not finite, in real runs of PyTorch, from statistics alone."""

from __future__ import annotations

import re

import pytest

import twintrace as tt

pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore:var")]
torch = pytest.importorskip("torch")

from .torch_cases import CASES, HARMLESS  # noqa: E402 - behind the skip


def recorded(path, run, **options):
    torch.manual_seed(0)
    with tt.record(path, **{"level": "api", "keep": "statistics", "framework": "torch", "strict": True} | options):
        run()
    return path


@pytest.mark.parametrize("name", CASES)
def test_the_call_and_the_cause_are_named(tmp_path, name):
    case = CASES[name]
    report = tt.first_nonfinite(recorded(tmp_path / "t", case.run))
    found = report.origin
    assert found is not None
    assert found.call.site.name.rpartition(".")[2] == case.call
    assert (found.source, found.when) == (case.source, case.when), found.why
    assert re.search(case.says, found.why), found.why
    assert found.call.stack[0].file.endswith("torch_cases.py")
    assert found.call.stack[0].function == name
    assert report.code == 1


@pytest.mark.parametrize("name", CASES)
def test_kernels_tell_the_same(tmp_path, name):
    """At level op the names are others, and the backward pass has calls of its own: the cause is of the same kind."""
    case = CASES[name]
    found = tt.first_nonfinite(recorded(tmp_path / "t", case.run, level="op")).origin
    assert found is not None
    assert found.when == case.when
    frames = [found.call.stack[0].function if found.call.stack else "", " ".join(found.led)]
    assert any(name in text or "torch_cases.py" in text for text in frames)


@pytest.mark.parametrize("run", HARMLESS)
@pytest.mark.parametrize("level", ["api", "op"])
def test_nothing_is_accused_that_has_no_effect(tmp_path, run, level):
    report = tt.first_nonfinite(recorded(tmp_path / "t", run, level=level))
    assert report.origin is None, str(report)
    assert report.code == 0
