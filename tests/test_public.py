"""docs/reference/public.md and the package say the same: no promised name is missing, and none is there without a promise."""

import inspect
import re
from pathlib import Path

import pytest

import twintrace as tt
from twintrace.model import errors

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "reference" / "public.md").read_text(encoding="utf-8")
PROMISES = PAGE.split("These names were listed at the top once.")
RESULTS = [tt.Comparison, tt.WeightMap, tt.Conversion, tt.WeightComparison, tt.Certificate, tt.Trace]


def named(text: str) -> set[str]:
    """Names after `tt.` in code, `tt.errors.X` as `errors`."""
    return set(re.findall(r"\btt\.(\w+)", text)) - {"__all__"}


def test_the_page_lists_what_the_package_lists():
    assert named(PROMISES[0]) == set(tt.__all__)


def test_names_that_have_moved_are_told_and_there():
    moved = named(PROMISES[1]) - {"errors"}
    assert moved == set(tt._MOVED)
    assert moved.isdisjoint(tt.__all__)
    assert all(getattr(tt, name) for name in moved)
    assert tt.UsageError is tt.errors.UsageError


def test_the_errors_are_those_of_the_tree():
    tree = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert set(tt.errors.__all__) == tree
    assert (
        set(re.findall(r"\b\w+Error\b", inspect.getdoc(errors))) - {"ValueError", "ArithmeticError", "OSError"} == tree
    )


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_a_result_has_what_the_table_promises(kind):
    table = re.search(r"### Results\n\n(.*?)\n\n", PAGE, re.DOTALL)[1]
    promised = set(re.findall(r"`(to_\w+|first|guilty|worst|_repr_html_)\b", table))
    assert {
        "first",
        "guilty",
        "worst",
        "to_html",
        "to_json",
        "to_csv",
        "to_xlsx",
        "to_frame",
        "_repr_html_",
    } == promised
    assert [name for name in promised if not hasattr(kind, name)] == []
    assert hasattr(kind, "code") is (kind is not tt.Trace)
    assert hasattr(kind, "__bool__") is (kind is not tt.Trace)


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_what_is_public_in_a_result_has_a_docstring(kind):
    members = [name for name in dir(kind) if not name.startswith("_") and not name.isdigit()]
    fields = getattr(kind, "__dataclass_fields__", {})
    assert inspect.getdoc(kind)
    assert [name for name in members if name not in fields and not inspect.getdoc(getattr(kind, name))] == []


def test_every_verb_has_a_docstring_and_annotations():
    verbs = [getattr(tt, name) for name in tt.__all__ if inspect.isfunction(getattr(tt, name))]
    assert len(verbs) > 10
    for verb in verbs:
        assert inspect.getdoc(verb), verb
        assert "return" in verb.__annotations__, verb
