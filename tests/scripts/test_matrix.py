"""The matrix: the rows reach both ends of what is promised, and the table says what a run gave."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from twintrace.model import versions

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def matrix():
    sys.path.insert(0, str(ROOT / "scripts"))  # where it finds env.py, as when it is run
    try:
        spec = importlib.util.spec_from_file_location("twintrace_scripts_matrix", ROOT / "scripts" / "matrix.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def number(version):
    return tuple(map(int, version.split(".")))


def test_the_rows_reach_the_oldest_that_is_promised(matrix):
    for package, oldest in versions.OLDEST.items():
        tested = [getattr(row, package) for row in matrix.ROWS]
        assert min(number(version) for version in tested if version) == (*oldest, 0), package
    assert {row.python for row in matrix.ROWS} == {"3.10", "3.11", "3.12", "3.13"}
    assert len({row.torch for row in matrix.ROWS} - {None}) >= 3


def test_the_page_has_rows_with_their_versions_and_none_that_failed(matrix):
    """A row that was changed is run again, with `make matrix MATRIX=<its name>`."""
    page = matrix.PAGE.read_text(encoding="utf-8")
    table = re.search(r"\| row \|.*\n\|[-|]+\n((?:\|.*\n)*)", page)[1]
    lines = {cells[0]: cells[1:] for cells in map(matrix.cells, table.splitlines())}
    rows = [row for row in matrix.ROWS if row.name in lines]
    assert list(lines) == [row.name for row in rows]
    for row in rows:
        *found, result = lines[row.name]
        for wanted, version in zip((row.python, row.numpy, row.torch, row.mindspore), found, strict=True):
            assert version == "–" if wanted is None else f"{version}.".startswith(f"{wanted}."), row.name
        assert re.fullmatch(r"\d+ passed(, \d+ skipped)?", result), row.name


def test_every_test_that_is_named_is_there(matrix):
    assert [path for path in matrix.TESTS if not (ROOT / path.removeprefix("--ignore=")).exists()] == []


def report(tmp_path, **counts):
    told = " ".join(f'{name}="{count}"' for name, count in counts.items())
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite {told}></testsuite></testsuites>", encoding="utf-8")
    return path


def test_what_pytest_counted(matrix, tmp_path):
    counts = dict(tests=10, failures=0, errors=0, skipped=3)
    assert matrix.outcome(report(tmp_path, **counts)) == "7 passed, 3 skipped"
    assert matrix.outcome(report(tmp_path, **counts | {"failures": 1, "errors": 1})) == "5 passed, 3 skipped, 2 failed"
    assert "failed" in matrix.outcome(report(tmp_path, tests=0))
    assert "failed" in matrix.outcome(tmp_path / "nothing.xml")


def test_a_line_takes_the_place_of_the_one_of_its_name(matrix, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n| row | numpy |\n|---|---|\n| newest | 1 |\n\nafter\n", encoding="utf-8")
    matrix.write(page, ["oldest", "0"])
    matrix.write(page, ["newest", "2"])
    assert page.read_text(encoding="utf-8") == (
        "# Page\n\n| row | numpy |\n|---|---|\n| oldest | 0 |\n| newest | 2 |\n\nafter\n"
    )


def test_an_unknown_row_is_refused_by_name(matrix, capsys):
    with pytest.raises(SystemExit):
        matrix.main(["eldest"])
    assert "no row eldest: there are oldest, " in capsys.readouterr().err


def test_a_python_that_is_not_there_is_said(matrix, monkeypatch):
    monkeypatch.setattr(matrix, "candidates", lambda version: [sys.executable])
    assert matrix.interpreter(".".join(map(str, sys.version_info[:2]))) == sys.executable
    with pytest.raises(matrix.env.EnvError, match=r"no Python 3\.99 with venv found"):
        matrix.interpreter("3.99")
