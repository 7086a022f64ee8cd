"""Results as Python holds them: truth, text, notebooks, tables and files of what the verbs give back."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import openpyxl
import pytest

import twintrace as tt
from twintrace import api
from twintrace.api.results import made_of
from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import LayerNorm, Linear, Module, Tensor
from twintrace.judge.policies import POLICIES
from twintrace.model import words
from twintrace.model.records import Keep, Level
from twintrace.model.results import CallResult, Divergence
from twintrace.report import notebook, tables
from twintrace.report.frames import frame

ASSETS = Path(notebook.__file__).parent / "assets"
SMALL = 30_000
"""Bytes that a notebook's cell may have: a hundred results in a notebook stay below what its viewers cut."""


class Net(Module):
    def __init__(self, eps=1e-5):
        self.first, self.norm, self.last = Linear(3, 4), LayerNorm(4, eps=eps), Linear(4, 2)
        generator = np.random.default_rng(0)
        for layer in (self.first, self.last):
            layer.weight.array[...] = generator.normal(size=layer.weight.shape)

    def forward(self, x):
        return self.last(mini.relu(self.norm(self.first(x))))


def recorded(path, *, eps=1e-5, scale=1.0):
    net = Net(eps)
    with tt.record(path, net, keep="tensor", strict=True, framework="reference"):
        mini.total(net(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) * np.float32(scale)))).backward()
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return recorded(folder / "a"), recorded(folder / "b"), recorded(folder / "eps", eps=1e-2)


@pytest.fixture(scope="module")
def parting(runs):
    return tt.compare(runs[0], runs[2])


@pytest.fixture(scope="module")
def agreeing(runs):
    return tt.compare(runs[0], runs[1])


def weights(**changed):
    generator = np.random.default_rng(1)
    found = {"fc.weight": generator.normal(size=(3, 4)), "fc.bias": generator.normal(size=3)}
    return {name: np.float32(value) for name, value in {**found, **changed}.items()}


OTHER = np.full((3,), 7.0)


@pytest.fixture(scope="module")
def reports(parting, agreeing, runs, tmp_path_factory):
    """Every kind of result, good and bad: (result, exit code)."""
    target = tmp_path_factory.mktemp("weights") / "net.safetensors"
    return {
        "parting": (parting, 1),
        "agreeing": (agreeing, 0),
        "complete map": (tt.map_weights(weights(), weights()), 0),
        "incomplete map": (tt.map_weights(weights(extra=np.ones(9)), weights()), 1),
        "conversion": (tt.convert_weights(weights(), target, to="torch"), 0),
        "equal weights": (tt.compare_weights(weights(), weights()), 0),
        "other weights": (tt.compare_weights(weights(), weights(**{"fc.bias": OTHER})), 1),
        "certificate": (tt.certify_weights(weights(), weights()), 0),
        "no certificate": (tt.certify_weights(weights(), weights(**{"fc.bias": OTHER})), 1),
        "trace": (tt.open(runs[0]), None),
    }


KINDS = [
    "parting", "agreeing", "complete map", "incomplete map", "conversion", "equal weights", "other weights", "certificate",
    "no certificate", "trace",
]  # fmt: skip
JUDGED = [kind for kind in KINDS if kind != "trace"]


@pytest.mark.parametrize("kind", JUDGED)
def test_a_result_is_true_for_exit_code_0_alone(reports, kind):
    found, code = reports[kind]
    assert found.code == code
    assert bool(found) is (code == 0)


def test_what_could_not_be_told_and_nothing_in_common_are_not_true(agreeing):
    untold = replace(agreeing, untold=("the output of norm could not be told",))
    nothing = replace(agreeing, results=())
    assert (untold.code, nothing.code) == (3, 2)
    assert not untold
    assert not nothing


@pytest.mark.parametrize("kind", KINDS)
def test_a_repr_is_one_short_line(reports, kind):
    found, _ = reports[kind]
    assert repr(found).startswith(f"<{type(found).__name__} ")
    assert "\n" not in repr(found)
    assert len(repr(found)) < 400


@pytest.mark.needs_torch  # recomputes
def test_parts_of_a_comparison_have_short_reprs_too(parting):
    first = parting.first
    assert repr(first).startswith("<Divergence step 0, forward, ")
    assert first.mistake.what in repr(first)
    assert repr(parting.worst(1)[0]).endswith(": different>")
    assert all(len(repr(item)) < 300 for item in (*parting.worst(3), *first.tensors))


def test_printing_a_comparison_prints_the_verdict(parting, agreeing):
    assert str(parting) == api.verdict(parting)
    assert "norm" in str(parting).splitlines()[0]
    assert " agree: " in str(agreeing)


def test_printing_a_trace_says_what_was_recorded_and_whether_it_is_finite(reports):
    head, told = str(reports["trace"][0]).splitlines()
    assert re.search(r"reference, steps 0, ranks 0>, \d+ calls", head)
    assert told.endswith("every recorded value is finite, in 1 step.")


def test_printing_a_weight_report_prints_one_line(reports):
    assert str(reports["certificate"][0]).endswith("certified, 2 weights")
    assert "not certified: " in str(reports["no certificate"][0])


@pytest.mark.needs_torch  # recomputes
def test_the_first_the_guilty_and_the_worst_of_a_comparison(parting, agreeing):
    assert isinstance(parting.first, Divergence)
    assert parting.first is parting.divergence
    assert parting.guilty[0] is parting.first.result
    assert all(any(mistake.effective for mistake in result.mistakes) for result in parting.guilty)
    ten = parting.worst(10)
    assert len(ten) == min(10, len(parting.results))
    assert all(isinstance(result, CallResult) for result in ten)
    scores = [result.verdict.score for result in ten if not result.harmless]
    assert scores == sorted(scores, reverse=True)
    assert len(parting.worst(2)) == 2
    assert (agreeing.first, agreeing.guilty) == (None, ())


def test_without_recomputation_the_guilty_are_where_differences_arise(runs):
    found = tt.compare(runs[0], runs[2], recompute=False)
    assert not found.recomputed
    assert found.guilty[0] is found.first.result
    assert all(result.introduced_forward or result.introduced_backward for result in found.guilty)


@pytest.mark.needs_torch  # recomputes
def test_an_accepted_mistake_is_not_guilty(parting):
    results = tuple(
        replace(item, mistakes=tuple(replace(mistake, effective=False, accepted="known") for mistake in item.mistakes))
        for item in parting.results
    )
    assert replace(parting, results=results, forward=None, backward=None).guilty == ()


def test_the_first_the_guilty_and_the_worst_of_weights(reports):
    for kind in ("complete map", "conversion", "equal weights", "certificate"):
        assert (reports[kind][0].first, reports[kind][0].guilty) == (None, ()), kind
    for kind, name in (("incomplete map", "extra"), ("other weights", "fc.bias"), ("no certificate", "fc.bias")):
        found = reports[kind][0]
        assert name in found.first, kind
        assert found.guilty[0] == found.first
    assert reports["other weights"][0].worst(1)[0].left == "fc.bias"
    assert reports["no certificate"][0].worst(1)[0].left == "fc.bias"
    assert len(reports["equal weights"][0].worst(1)) == 1
    confidences = [pair.confidence for pair in reports["complete map"][0].worst(10)]
    assert confidences == sorted(confidences)


def test_the_first_the_guilty_and_the_worst_of_a_trace(runs, tmp_path):
    assert (tt.open(runs[0]).first, tt.open(runs[0]).guilty) == (None, ())
    with np.errstate(all="ignore"):
        broken = tt.open(recorded(tmp_path / "inf", scale=1e38))
    assert broken.first is not None
    assert broken.guilty == (broken.first.call,)
    worst = broken.worst(3)
    assert len(worst) == 3
    journal = broken.journal(0)
    counts = [journal.tensor(call.output.id).statistics for call in worst]
    assert counts[0].nan + counts[0].posinf + counts[0].neginf > 0


# --- notebooks --------------------------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    """Fails on an element that is not closed; collects tags and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_the_verdict_and_no_script(reports, kind):
    found, _ = reports[kind]
    shown = found._repr_html_()
    page = Balanced(shown)
    assert len(shown) < SMALL
    assert {tag for tag, _ in page.tags} <= {"div", "pre", "svg", "title", "path"}
    assert "".join(page.texts).strip()
    drawn = [attributes for tag, attributes in page.tags if tag == "path"]
    assert bool(drawn) is (kind in ("parting", "agreeing", "trace"))


def test_the_notebook_has_the_text_of_the_verdict(parting):
    assert str(parting) in "".join(Balanced(parting._repr_html_()).texts)


def test_the_ribbon_of_many_rows_is_as_small_and_keeps_the_worst(parting):
    calm = [result for result in parting.results if result.harmless]
    guilty = parting.guilty[0]
    many = replace(parting, results=(*calm * 3000, guilty, *calm * 3000), forward=None, backward=None)
    assert len(many.results) > 10_000
    shown = many._repr_html_()
    assert len(shown) < SMALL
    width = next(dict(attributes)["viewbox"] for tag, attributes in Balanced(shown).tags if tag == "svg").split()[2]
    assert int(width) == notebook.WIDTH
    reds = [colour for colour in re.findall(r'fill="(#\w+)"', shown) if colour not in _calm_colours()]
    assert len(reds) == 1


def _calm_colours():
    cells = [notebook.Cell("rounding", score / 200) for score in range(101)]
    return {
        notebook._colour(cell) for cell in (*cells, notebook.Cell(), notebook.Cell("same"), notebook.Cell("unknown"))
    }


def test_markup_in_a_path_is_text(parting):
    left = replace(parting.left, path="<img src=x onerror=alert(1)>")
    shown = replace(parting, left=left)._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown


def test_colours_and_heights_are_those_of_the_page():
    style = (ASSETS / "page.css").read_text(encoding="utf-8").split("@media")[0]
    page = dict(re.findall(r"--([\w-]+): (#\w{6})", style))
    assert page["same"] == notebook.SAME
    assert (page["rounding-low"], page["rounding-high"]) == notebook.ROUNDING
    assert (page["different-low"], page["different"]) == notebook.DIFFERENT
    assert (page["unknown"], page["nothing"]) == (notebook.UNTOLD, notebook.NOTHING)
    ribbon = (ASSETS / "ribbon.js").read_text(encoding="utf-8")
    heights = [float(item) for item in re.search(r"HEIGHTS = \[([^\]]*)\]", ribbon)[1].split(",")]
    assert heights == list(notebook.HEIGHTS.values())


# --- files and tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["html", "json", "csv"])
def test_a_file_and_the_text_are_the_same(reports, tmp_path, kind, form):
    found, _ = reports[kind]
    write = getattr(found, f"to_{form}")
    assert write(tmp_path / "report") is None
    assert (tmp_path / "report").read_bytes().decode() == write()


def test_the_files_of_a_comparison_are_those_of_the_command_line(parting, tmp_path):
    for form, write in (("html", api.write_html), ("json", api.write_json)):
        write(parting, tmp_path / form)
        assert (tmp_path / form).read_bytes().decode() == getattr(parting, f"to_{form}")()
    for columns in ("main", "all"):
        api.write_csv(parting, tmp_path / "csv", columns=columns)
        assert (tmp_path / "csv").read_bytes().decode() == parting.to_csv(columns=columns)
    assert api.read_report(tmp_path / "json").first.mistake == parting.first.mistake
    assert isinstance(api.read_report(tmp_path / "json"), tt.Comparison)


@pytest.mark.parametrize("kind", KINDS)
def test_the_spreadsheet_opens_and_the_csv_has_as_many_rows(reports, tmp_path, kind):
    found, _ = reports[kind]
    found.to_xlsx(tmp_path / "report.xlsx")
    book = openpyxl.load_workbook(tmp_path / "report.xlsx", read_only=True)
    sheet = book["pairs"] if "pairs" in book.sheetnames else book["rows"]
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert len(list(sheet.iter_rows())) == len(rows) > 1
    book.close()


@pytest.mark.parametrize("kind", [kind for kind in JUDGED if kind not in ("parting", "agreeing")])
def test_the_json_of_weights_has_the_verdict_and_every_row(reports, kind):
    found, code = reports[kind]
    content = json.loads(found.to_json())
    assert content["code"] == code
    assert content["verdict"] == str(found)
    assert len(content.get("rows", content.get("pairs"))) == len(list(csv.reader(io.StringIO(found.to_csv())))) - 1


def test_numbers_that_are_not_finite_are_json():
    found = tt.compare_weights(weights(), weights(**{"fc.bias": np.full(3, np.nan)}))
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_page_of_weights_has_every_row_and_no_script(reports):
    page = Balanced(reports["no certificate"][0].to_html().split("\n", 1)[1])
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe"})
    assert "fc.bias" in page.texts
    assert sum(tag == "tr" for tag, _ in page.tags) == 3


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_has_the_columns_and_rows_of_the_table(reports, kind, library):
    pytest.importorskip(library)
    found, _ = reports[kind]
    made = found.to_frame(library)
    head, *rows = csv.reader(io.StringIO(found.to_csv()))
    names = made.column_names if library == "pyarrow" else list(made.columns)
    assert names == head
    assert (made.num_rows if library == "pyarrow" else len(made)) == len(rows)
    assert type(made).__module__.startswith(library)


def test_frames_hold_numbers_as_numbers(parting):
    pandas = pytest.importorskip("pandas")
    made = parting.to_frame("pandas")
    assert list(made.columns) == list(tables.MAIN)
    assert made["max_abs"].dtype.kind == "f"
    assert made["max_abs"].max() == max(
        item.measurement.max_abs for result in parting.results for item in result.tensors if item.measurement
    )
    assert set(made["outcome"]) <= {"same", "rounding", "unknown", "different"}
    assert len(parting.to_frame(columns="all").columns) == len(tables.SHEET)
    trace = tt.open(parting.left.path).to_frame()
    assert isinstance(trace, pandas.DataFrame)
    assert trace.loc[(trace["kind"] == "module") & (trace["part"] == "output"), "norm"].notna().all()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_take_columns_of_mixed_and_of_large_numbers(library):
    pytest.importorskip(library)
    table = tables.Table(
        ("a", "b", "c", "d"), [(1, 2**64, None, "x"), (0.5, 1, None, 3), (float("inf"), 0, None, None)]
    )
    made = frame(table, library)
    column = (lambda name: made[name].to_pylist()) if library == "pyarrow" else (lambda name: list(made[name]))
    assert column("a") == [1.0, 0.5, float("inf")]
    assert column("b") == [float(2**64), 1.0, 0.0]
    assert column("d")[:2] == ["x", "3"]
    assert len(column("c")) == 3
    empty = frame(tables.Table(("a", "b"), []), library)
    assert (empty.num_rows if library == "pyarrow" else len(empty)) == 0


def test_a_library_that_is_missing_or_unknown_is_told(parting, monkeypatch):
    with pytest.raises(
        tt.errors.UsageError, match="expected one of 'pandas', 'polars', 'pyarrow' or None, got 'excel'"
    ):
        parting.to_frame("excel")
    for name in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        tt.errors.MissingPackageError, match="pandas or polars or pyarrow, and cannot import any of them"
    ):
        parting.to_frame()


def test_a_result_stays_one_of_its_kind_when_parts_of_it_are_replaced(parting):
    assert type(replace(parting, remarks=("another",))) is tt.Comparison
    assert made_of(tt.Comparison, parting) == parting


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_words_that_verbs_take_are_those_that_they_know():
    assert get_args(words.LevelName) == tuple(Level)
    assert get_args(words.KeepName) == tuple(Keep)
    assert set(get_args(words.PolicyName)) == set(POLICIES)


def test_every_verb_says_which_words_it_takes():
    """Editors complete them, and type checkers know them."""
    named = {"level": words.LevelName, "policy": words.PolicyName}
    verbs = [verb for name in tt.__all__ if inspect.isfunction(verb := getattr(tt, name))]
    told = {
        (verb.__name__, name): hint
        for verb in verbs
        for name, hint in get_type_hints(verb).items()
        if name in named and hint not in (named[name], named[name] | None)
    }
    assert told == {}
    assert get_type_hints(tt.selfcheck)["keep"] == words.KeepName | None
