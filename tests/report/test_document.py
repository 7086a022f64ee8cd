"""JSON: what is written comes back, and docs/reference/report-json.md describes it."""

import dataclasses
import json
import re
from pathlib import Path

import comparisons
import pytest

from twintrace.model.errors import ReportError
from twintrace.model.records import Config
from twintrace.model.tensors import Spec
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.report import delimited, workbook
from twintrace.report.document import read_json, write_json

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "report-json.md").read_text(encoding="utf-8")


def bare(comparison):
    """Without the arguments of calls, which a report does not keep but for the tensors of those without a partner."""

    def call(item):
        return dataclasses.replace(item, args=(), kwargs={}, output=None)

    def side(calls):
        return tuple(map(call, calls))

    def result(item):
        match = dataclasses.replace(item.match, left=side(item.match.left), right=side(item.match.right))
        return dataclasses.replace(item, match=match)

    def first(item):
        return item and dataclasses.replace(item, result=result(item.result))

    return dataclasses.replace(
        comparison,
        results=tuple(map(result, comparison.results)),
        forward=first(comparison.forward),
        backward=first(comparison.backward),
    )


def in_full(comparison):
    """Every field as text: NaN is not equal to itself."""
    return repr(dataclasses.asdict(comparison))


@pytest.mark.parametrize("make", [lambda: comparisons.comparison(100), comparisons.agreeing, comparisons.nothing])
def test_what_is_written_comes_back(tmp_path, make):
    comparison = make()
    write_json(comparison, tmp_path / "report.json")
    found, wanted = read_json(tmp_path / "report.json"), bare(comparison)
    assert in_full(found) == in_full(wanted)
    assert found.agree == comparison.agree
    if found.forward:
        assert found.forward.result in found.results


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_calls_that_a_mistake_blames_come_back(tmp_path, side):
    """One side alone makes the call: the other blames none. (Mistakes are equal whatever calls they blame.)"""
    comparison = comparisons.comparison(100)
    found = comparison.forward
    call = getattr(comparison, f"only_{side}")[0][2].call
    mistake = dataclasses.replace(found.mistake, **{side: (call,)})
    result = dataclasses.replace(found.result, mistakes=(mistake,))
    results = tuple(result if item is found.result else item for item in comparison.results)
    forward = dataclasses.replace(found, result=result, mistake=mistake)
    comparison = dataclasses.replace(comparison, results=results, forward=forward, backward=None)
    write_json(comparison, tmp_path / "report.json")
    read = read_json(tmp_path / "report.json").forward

    kept = dataclasses.replace(call, args=(), kwargs={}, output=None)
    assert (read.mistake.left, read.mistake.right) == (((kept,), ()) if side == "left" else ((), (kept,)))
    assert read.calls == (read.mistake.left, read.mistake.right)


def test_the_comparison_of_what_comes_back_can_fail(tmp_path):
    comparison = comparisons.comparison(40)
    write_json(comparison, tmp_path / "report.json")
    changed = (tmp_path / "report.json").read_text(encoding="utf-8").replace('"max_abs":0.0021', '"max_abs":0.0022', 1)
    (tmp_path / "report.json").write_text(changed, encoding="utf-8")
    assert in_full(read_json(tmp_path / "report.json")) != in_full(bare(comparison))


def test_values_of_a_configuration_keep_their_types(tmp_path):
    comparison = comparisons.comparison(20)
    values = {
        "none": None, "flag": True, "number": 3, "half": 0.5, "far": float("-inf"), "text": "NaN", "complex": 1 + 2j,
        "list": Nest("list", (("0", 1), ("1", Nest("tuple", (("0", 2),))))),
        "set": Nest("set", (("0", 1),)),
        "dict": Nest("dict", (("$float", 1), ("b", Nest("list", ())))),
        "object": Nest("Options", (("a", Token("dtype", "float32")),)),
        "tensor": TensorRef(4),
    }  # fmt: skip
    call = dataclasses.replace(comparison.results[0].match.left[0], config=Config("a", "A", values))
    match = dataclasses.replace(comparison.results[0].match, left=(call,))
    first = dataclasses.replace(comparison.results[0], match=match)
    write_json(dataclasses.replace(comparison, results=(first,), forward=None, backward=None), tmp_path / "report.json")
    back = read_json(tmp_path / "report.json").results[0].match.left[0].config.values
    assert back == values
    assert type(back["flag"]) is bool


def test_other_formats_can_be_made_from_the_report_alone(tmp_path):
    comparison = comparisons.comparison(60)
    write_json(comparison, tmp_path / "report.json")
    delimited.write_csv(comparison, tmp_path / "one.csv")
    delimited.write_csv(read_json(tmp_path / "report.json"), tmp_path / "two.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    workbook.write_xlsx(read_json(tmp_path / "report.json"), tmp_path / "two.xlsx")


def test_it_is_plain_json_with_a_result_on_each_line(tmp_path):
    write_json(comparisons.comparison(40), tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(text.splitlines()) > len(content["results"])
    assert content["results"][0]["tensors"][0]["left"] == "f32[4, 16]"


# What is no report -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "got no JSON"),
        ("[1, 2", "got no JSON"),
        ("[" * 100_000, "got no JSON"),
        ("[]", 'expected a report with "format"'),
        ('{"format": "twintrace"}', 'expected a report with "format"'),
        ('{"format": "twintrace-comparison", "version": 2}', "report version 2, but this release reads version 1"),
        ('{"format": "twintrace-comparison"}', "report version None"),
        ('{"format": "twintrace-comparison", "version": 1}', "damaged"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path, content, text):
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ReportError, match=re.escape(text)):
        read_json(path)


def test_a_report_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ReportError, match=r"gone.json: cannot be read \(No such file"):
        read_json(tmp_path / "gone.json")


WRONG = {
    "results": {}, "left": None, "forward": {"result": 10**9, "tensors": [], "inherited": False, "because": "", "after": 0},
    "only_left": [3], "left_out": [[1, 2, 3]],
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG)
def test_a_damaged_report_is_refused(tmp_path, field):
    path = tmp_path / "report.json"
    write_json(comparisons.comparison(20), path)
    content = json.loads(path.read_bytes()) | {field: WRONG[field]}
    path.write_text(json.dumps(content), encoding="utf-8")
    if field == "results":
        content["forward"] = content["backward"] = None
        content["results"] = [{"tensors": [{"left": "no spec"}]}]
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ReportError, match="damaged"):
        read_json(path)


def test_a_spec_is_read_as_it_is_written():
    from twintrace.report.document import _spec_of

    for spec in (Spec("f32", ()), Spec("bf16", (4,)), Spec("f8e4m3fn", (2, 0, 3))):
        assert _spec_of(str(spec)) == spec
    with pytest.raises(ValueError, match="no element type"):
        _spec_of("f32")


# The page ----------------------------------------------------------------------------------------------------------


def described(page: str) -> dict[str, set[str]]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    names = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        cells = re.findall(r"^\| (`[^|]+`) \|", text, flags=re.MULTILINE)
        names[title] = {name for cell in cells for name in re.findall(r"\w+", cell)}
    return names


def occurring(content: dict) -> dict[str, set[str]]:
    """Every field of a written report, by what it is a field of."""
    results = content["results"]
    alone = [*content["only_left"], *content["only_right"]]
    calls = [call for item in results for call in (*item["left"], *item["right"])] + [item["call"] for item in alone]
    tensors = [tensor for item in results for tensor in item["tensors"]]
    kinds = {
        "The object": [content],
        "A recording": [content["left"], content["right"]],
        "A divergence": [content["forward"], content["backward"]],
        "A result": results,
        "A mistake": [mistake for item in results for mistake in item["mistakes"]],
        "A call": calls,
        "A call without a partner": alone,
        "A pair of tensors": tensors,
    }
    return {kind: set().union(*items) for kind, items in kinds.items()}


@pytest.fixture
def content(tmp_path) -> dict:
    """A report in which every field occurs."""
    comparison = comparisons.comparison(100)
    [call] = comparison.results[0].match.left
    call = dataclasses.replace(call, parent=3, raised="ValueError: no", missing=("the output",))
    match = dataclasses.replace(comparison.results[0].match, left=(call,))
    first = dataclasses.replace(comparison.results[0], match=match)
    tensor = first.tensors[0]
    first = dataclasses.replace(
        first,
        tensors=(
            dataclasses.replace(tensor, left=dataclasses.replace(tensor.left, missing="no disk")),
            *first.tensors[1:],
        ),
    )
    write_json(dataclasses.replace(comparison, results=(first, *comparison.results[1:])), tmp_path / "report.json")
    return json.loads((tmp_path / "report.json").read_bytes())


def test_the_page_describes_what_is_written(content):
    assert described(PAGE) == occurring(content)


def test_the_check_of_the_page_can_fail(content):
    assert described(PAGE.replace("| `policy` |", "| `policies` |")) != occurring(content)
    content["results"][0]["tensors"][0]["new"] = 1
    assert described(PAGE) != occurring(content)
