"""docs/reference/public.md and the package say the same: no promised name is missing, and none is there without a promise."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import twintrace as tt
from twintrace.frameworks.reference import miniature as mini
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


def types_for_checkers(source: str) -> dict[str, object]:
    """Classes under TYPE_CHECKING: what a type checker, and the reference, take a name of the package for."""
    block = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {}
    for line in (node for node in block.body if isinstance(node, ast.ImportFrom)):
        home = importlib.import_module("." * line.level + (line.module or ""), "twintrace")
        found |= {alias.asname or alias.name: (home, getattr(home, alias.name)) for alias in line.names}
    return {
        name: kind for name, (home, kind) in found.items() if inspect.isclass(kind) and home.__name__ == kind.__module__
    }


def test_type_checkers_find_the_classes_that_are_there():
    """By way of `api`, which imports several modules whole, they took `Comparison` for the one that has no `to_html`."""
    source = Path(tt.__file__).read_text(encoding="utf-8")
    classes = {name: getattr(tt, name) for name in tt.__all__ if inspect.isclass(getattr(tt, name))}
    assert {tt.Comparison, tt.Trace, tt.Recorder} <= {*classes.values()}
    assert types_for_checkers(source).items() >= classes.items()
    assert types_for_checkers("if TYPE_CHECKING:\n    from .api import Comparison, compare\n") == {}


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


def test_every_verb_has_an_example_and_tells_of_its_arguments_and_result():
    verbs = [getattr(tt, name) for name in tt.__all__ if inspect.isfunction(getattr(tt, name))]
    assert len(verbs) > 10
    for verb in verbs:
        assert "Returns:" in inspect.getdoc(verb), verb
        assert f"tt.{verb.__name__}(" in inspect.getdoc(verb), f"{verb} has no example"
        assert "return" in verb.__annotations__, verb
        given = {name for name in inspect.signature(verb).parameters if name not in ("args", "kwargs")}
        told = set(re.findall(r"^    (\w+): ", inspect.getdoc(verb).partition("Args:")[2], re.MULTILINE))
        assert given <= told, f"{verb} does not tell of {given - told}"


# --- documented errors ------------------------------------------------------------------------------------------------

NOT_PROVOKED = {
    ("record", "MissingPackageError"): "every framework that the tests know is installed where they run",
}
MISTAKES = {
    ("record", "UsageError"): lambda: tt.record("new", framework="reference", level="nothing"),
    ("record", "TraceExistsError"): lambda: tt.record("trace", mini.Linear(2, 2), framework="reference"),
    ("record", "TraceWriteError"): lambda: tt.record("/proc/self/none/trace", mini.Linear(2, 2), framework="reference"),
    ("open", "TraceNotFoundError"): lambda: tt.open("nowhere"),
    ("open", "TraceFormatError"): lambda: tt.open("future"),
    ("compare", "TraceNotFoundError"): lambda: tt.compare("trace", "nowhere"),
    ("compare", "TraceFormatError"): lambda: tt.compare("trace", "future"),
    ("compare", "UsageError"): lambda: tt.compare("trace", "trace", policy="msprobe", rtol=1e-3),
    ("compare_arrays", "TraceNotFoundError"): lambda: tt.compare_arrays("arrays", "nowhere"),
    ("compare_arrays", "UsageError"): lambda: tt.compare_arrays("arrays", "arrays", by="colour"),
    ("convert_trace", "UsageError"): lambda: tt.convert_trace("trace", "copy", to="nothing"),
    ("convert_trace", "TraceExistsError"): lambda: tt.convert_trace("trace", "arrays"),
    ("convert_trace", "TraceNotFoundError"): lambda: tt.convert_trace("nowhere", "copy"),
    ("map_weights", "UsageError"): lambda: tt.map_weights({"a": np.ones(2)}, to="nothing"),
    ("map_weights", "CheckpointError"): lambda: tt.map_weights("damaged.pth"),
    ("convert_weights", "WeightsError"): lambda: tt.convert_weights({"a": np.ones(2)}, "new.ckpt", map="damaged.pth"),
    ("convert_weights", "CheckpointError"): lambda: tt.convert_weights("damaged.pth", "new.ckpt"),
    ("convert_weights", "UsageError"): lambda: tt.convert_weights({"a": np.ones(2)}, "damaged.pth"),
    ("compare_weights", "WeightsError"): lambda: tt.compare_weights({}, {}, map="damaged.pth"),
    ("compare_weights", "CheckpointError"): lambda: tt.compare_weights("damaged.pth", {}),
    ("certify_weights", "WeightsError"): lambda: tt.certify_weights({}, {}, map="damaged.pth"),
    ("certify_weights", "CheckpointError"): lambda: tt.certify_weights("damaged.pth", {}),
    ("first_nonfinite", "TraceNotFoundError"): lambda: tt.first_nonfinite("trace", steps=[9]),
    ("zoom", "TraceNotFoundError"): lambda: tt.zoom("nowhere"),
    ("zoom", "ReportError"): lambda: tt.zoom("damaged.pth"),
    ("selfcheck", "UsageError"): lambda: tt.selfcheck(lambda: None, level="nothing"),
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    """A folder with a trace, one of a version to come, arrays, and a file that is none."""
    folder = tmp_path_factory.mktemp("mistaken")
    with tt.record(folder / "trace", mini.Linear(2, 2), framework="reference") as rec:
        rec.save("x", mini.Tensor(np.ones(2, np.float32)))
    for name in ("future", "arrays"):
        (folder / name).mkdir()
    (folder / "future" / "manifest.json").write_text('{"format": "twintrace", "version": 99}', encoding="utf-8")
    np.save(folder / "arrays" / "x.npy", np.ones(2))
    (folder / "damaged.pth").write_bytes(b"no checkpoint" * 9)
    return folder


@pytest.mark.parametrize(("verb", "error"), MISTAKES)
def test_a_documented_error_is_raised(verb, error, mistaken, monkeypatch):
    monkeypatch.chdir(mistaken)
    with pytest.raises(getattr(tt.errors, error)) as raised:
        MISTAKES[verb, error]()
    assert type(raised.value).__name__ == error


def test_every_documented_error_is_provoked():
    told = {
        (name, error)
        for name in tt.__all__
        if inspect.isfunction(getattr(tt, name))
        for error in re.findall(r"^    (\w+Error):", inspect.getdoc(getattr(tt, name)), re.MULTILINE)
    }
    assert told == {*MISTAKES, *NOT_PROVOKED}
