"""What the contract checks with can itself say no; and nobody gets pytest who did not ask for it."""

import numpy as np
import pytest

from tests.frameworks.reference.test_contract import ReferencePage
from twintrace.frameworks.protocol import Capability
from twintrace.frameworks.reference import miniature as mini
from twintrace.model.records import Role
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.testing import recording
from twintrace.testing.fixtures import Page
from twintrace.testing.reading import Reading, check_same_bits, form_of, names, shapes

ONE = np.array([1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ONE, ONE.copy()),
        (np.array([np.nan]), np.array([np.nan])),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T.copy()),
    ],
)
def test_same_bits_are_accepted(found, expected):
    check_same_bits(found, expected)


@pytest.mark.parametrize(
    ("found", "expected", "why"),
    [
        (None, ONE, "not there"),
        (ONE, None, "nothing to compare with"),
        (ONE, ONE.astype(np.float64), "expected float64"),
        (ONE, ONE.reshape(1, 2), r"expected float32\[1, 2\]"),
        (ONE, np.nextafter(ONE, 9), "expected"),
        (np.array([0.0]), np.array([-0.0]), "expected"),
        (np.zeros((0, 3)), np.zeros((3, 0)), "expected"),
    ],
)
def test_other_bits_are_rejected(found, expected, why):
    with pytest.raises(AssertionError, match=f"it: .*{why}"):
        check_same_bits(found, expected, "it")


@pytest.fixture
def page():
    return ReferencePage()


@pytest.fixture
def reading(page, tmp_path):
    model = page.models["mlp"]()
    x = page.numbers(2, 3, requires_grad=True)
    return recording.recorded(page, tmp_path / "t", recording.loss_of(page, model), x, model=model)[0]


def test_a_reading_is_asked_by_address(reading):
    assert reading["module:norm#0"] == reading["forward/module:norm#0"]
    with pytest.raises(
        AssertionError, match=r"forward/module:gone#0 was not recorded; there are \['forward/module:#0'"
    ):
        reading["module:gone#0"]
    reading.calls.append(reading["module:norm#0"])
    with pytest.raises(AssertionError, match="recorded 2 times"):
        reading["module:norm#0"]


def test_a_reading_refuses_a_gradient_that_came_twice(page, tmp_path):
    model, x = page.models["shared"](), page.ones(2, 3, requires_grad=True)
    with recording.recorder(page, tmp_path / "t", model):
        loss = recording.loss_of(page, model)(x)
        loss.backward()
        loss.backward()
    found = Reading(tmp_path / "t")
    with pytest.raises(AssertionError, match="came twice"):
        found.gradients(found["module:#0"], Role.INPUT)
    with pytest.raises(AssertionError, match="came twice"):
        found.parameter_gradients()


def test_a_reading_refuses_a_step_that_was_not_closed(page, tmp_path):
    rec = recording.recorder(page, tmp_path / "t")
    rec.start()
    mini.relu(page.ones(2))
    with pytest.raises(AssertionError, match="not closed"):
        Reading(tmp_path / "t")
    rec.close()
    Reading(tmp_path / "t")


def test_forms_names_and_shapes():
    value = Nest("list", (("0", TensorRef(1)), ("1", Nest("P", (("x", 1), ("y", Token("dtype", "f32")))))))
    assert form_of(value) == ["tensor", ("P", {"x": 1, "y": Token("dtype", "f32")})]
    assert form_of(Nest("dict", (("a", Nest("tuple", ())),))) == {"a": ()}
    assert names(["forward/module:a.b#0", "update/api:x:y#12"]) == ["a.b", "x:y"]
    assert shapes({"0": ONE}) == {"0": (2,)}


def test_what_is_not_offered_is_skipped(page, tmp_path, monkeypatch):
    monkeypatch.setattr(page.adapter, "capabilities", lambda: frozenset((Capability.MODULE,)))
    with pytest.raises(pytest.skip.Exception, match="reference does not offer api"):
        recording.recorder(page, tmp_path / "t")
    with pytest.raises(pytest.skip.Exception, match="backward"):
        recording.needs_backward(page)
    with pytest.raises(pytest.skip.Exception, match="has no fly"):
        recording.needs_function(page, "fly")
    with pytest.warns(RuntimeWarning, match="never started"):
        recording.recorder(page, tmp_path / "t", page.models["mlp"](), level="module").close()


def test_a_page_must_be_complete():
    class Half(Page):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()


QUIET = """
import sys
import twintrace.api, twintrace.cli, twintrace.frameworks.reference
print([name for name in ("pytest", "_pytest", "twintrace.testing") if name in sys.modules])
{more}
print([name for name in ("pytest", "_pytest", "twintrace.testing") if name in sys.modules])
"""


def test_importing_twintrace_imports_no_tests(python):
    run = python(QUIET.format(more="import twintrace.testing.contract"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:2] == ["[]", "['pytest', '_pytest', 'twintrace.testing']"]
