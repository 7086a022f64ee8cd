"""Mutation runs: which changes are made, which tests are run for each, and that a rule without a test is found."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scripts():
    """The two modules, which find each other as when they are run."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("mutations"), importlib.import_module("mutants")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def changes(scripts, source):
    """Each line after a change, in the order of the text."""
    return [item.diff(source)[1] for item in scripts[0].mutations("a.py", source)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = 4", {"x = 5"}),
        ("x = 16", {"x = 32"}),
        ("x = 0.5", {"x = 1.0"}),
        ("x = 'a text'", set()),
        ("x = y == 'add'", {"x = y != 'add'", "x = y == 'add~'"}),
        ("x = a < b", {"x = a >= b"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a and b", {"x = a or b", "x = True and b", "x = a and True"}),
        ("x = not a", {"x = (a)"}),
        ("x = a * b", {"x = a / b"}),
        ("x = max(a)", {"x = min(a)"}),
        ("x = a[0]", {"x = a[1]"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if not (c)]", "x = [a for a in b if True]"}),
        ("if a: b = c", {"if not (a): b = c", "if False: b = c"}),
        ("a.b = c", {"pass"}),
        ("f(a)", {"pass"}),
        ("x: int | None = a", set()),
        ("assert a == 1", set()),
        ("raise ValueError(f'{a + 1}')", set()),
        ("x = zip(a, b, strict=True)", set()),
    ],
)
def test_changes(scripts, line, expected):
    assert set(changes(scripts, f'"""Text, 1 < 2."""\n{line}\n')) == expected


def test_positions_are_those_of_characters(scripts):
    assert changes(scripts, "x = '–×–', 1\n") == ["x = '–×–', 2"]


def test_a_sample_is_drawn_by_its_seed_one_of_each_line(scripts):
    drawn = [scripts[1].sample(ROOT, "src/twintrace/judge/tolerances.py", 10, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({item.line for item in drawn[0]}) == 10


def test_a_sample_may_be_of_one_kind(scripts):
    drawn = scripts[1].sample(ROOT, "src/twintrace/judge/bounds.py", 3, 0, ["named"])
    assert [item.kind for item in drawn] == ["named"] * 3
    assert {item.function for item in drawn} == {""}


def test_tests_of_the_room_come_first_and_one_of_each_function_before_the_second(scripts):
    executed = scripts[1].Executed()
    names = ["tests/judge/a.py::x[1]", "tests/judge/a.py::x[2]", "tests/judge/a.py::y", "tests/align/b.py::z"]
    executed.add(dict(zip(names, (1.0, 2.0, 3.0, 0.1), strict=True)), {})
    assert scripts[1].in_order(executed, names, "a.py|f", "judge", 60.0) == [names[0], names[2], names[1], names[3]]
    assert scripts[1].in_order(executed, names, "a.py|f", "judge", 4.5) == [names[0], names[2], names[3]]
    assert scripts[1].in_order(executed, names, "a.py|f", "judge", 0.5) == [names[0]]


def test_tests_that_go_farther_into_a_function_come_first(scripts):
    executed = scripts[1].Executed()
    names = ["tests/judge/a.py::early", "tests/judge/a.py::late"]
    executed.add(dict.fromkeys(names, 1.0), {"a.py|f|if x:": [0, 1], "a.py|f|return 1 | 2": [1], "a.py|g|return": [0]})
    assert scripts[1].in_order(executed, names, "a.py|f", "judge", 60.0) == [names[1], names[0]]
    assert executed.by_function("a.py|f") == {*names}
    assert executed.by_function("a.py|g") == {names[0]}


def test_tests_of_a_constant_are_those_of_the_statements_with_its_name(scripts, tmp_path):
    """Whichever test imports the file first executes the line of the constant; that of a default is executed then, too."""
    (tmp_path / "src").mkdir()
    text = "A, B = 4, 5\nTABLE = {1: B}\n\n\ndef f(x, y=6):\n    return x > A\n\n\ndef g(x):\n    return TABLE[x]\n"
    (tmp_path / "src" / "a.py").write_text(text)
    executed = scripts[1].Executed()
    names = ["imports", "calls f", "calls g"]
    lines = {
        "|A, B = 4, 5": [0],
        "|TABLE = {1: B}": [0],
        "f|def f(x, y=6):": [0],
        "f|return x > A": [1],
        "g|return TABLE[x]": [2],
    }
    executed.add(dict.fromkeys(names, 1.0), {f"src/a.py|{line}": places for line, places in lines.items()})
    found = {
        item.line: scripts[1].tests_of(executed, tmp_path, item) for item in scripts[0].mutations("src/a.py", text)
    }
    assert found == {
        1: {"calls f", "calls g"},
        2: {"calls g"},
        5: {"imports", "calls f"},
        6: {"calls f"},
        10: {"calls g"},
    }


def test_every_explanation_is_about_a_line_that_is_there(scripts):
    entries = scripts[1].explained_in(ROOT / "scripts" / "mutants.toml", ROOT)
    assert all(len(entry["why"]) > 20 for entry in entries)


def test_an_explanation_is_about_its_function_and_its_change(scripts):
    entry = {"path": "a.py", "function": "f", "before": "continue", "after": "pass", "why": "a shortcut"}
    assert scripts[1].is_explained([entry], "a.py", "f", "continue", "pass")
    assert not scripts[1].is_explained([entry], "a.py", "g", "continue", "pass")
    assert not scripts[1].is_explained([entry], "b.py", "f", "continue", "pass")
    assert not scripts[1].is_explained([entry], "a.py", "f", "continue", "break")
    assert scripts[1].is_explained([{"path": "a.py", "before": "continue"}], "a.py", "g", "continue", "break")


def test_an_explanation_of_a_line_that_is_gone_is_an_error(scripts, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "mutants.toml").write_text('[[equivalent]]\npath = "a.py"\nbefore = "x = 3"\nwhy = "it is gone"\n')
    with pytest.raises(SystemExit, match=r"a\.py has no line 'x = 3' any more"):
        scripts[1].explained_in(tmp_path / "mutants.toml", tmp_path)


@pytest.mark.slow
def test_rules_that_no_test_notices_are_found(tmp_path):
    """One constant is tested, one is not, one is explained. Nothing is asserted of the last return, and one is never executed."""
    room, tests = tmp_path / "src" / "twintrace" / "judge", tmp_path / "tests" / "judge"
    room.mkdir(parents=True)
    tests.mkdir(parents=True)
    source = (
        "TESTED = 4\nUNTESTED = 5\nEXPLAINED = 6\n\n\n"
        'def f(x):\n    if x > TESTED:\n        return "large"\n    return x - UNTESTED\n'
    )
    (room / "rules.py").write_text(f"{source}\n\ndef unused():\n    return EXPLAINED\n")
    (tests / "test_rules.py").write_text(
        'from twintrace.judge.rules import f\n\n\ndef test_f():\n    assert f(5) == "large"\n    assert f(4) != "large"\n'
    )
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = ["--import-mode=importlib"]\nmarkers = ["slow: slow"]\n'
    )
    (tmp_path / "mutants.toml").write_text(
        '[[equivalent]]\npath = "src/twintrace/judge/rules.py"\nbefore = "EXPLAINED = 6"\nwhy = "nobody calls it"\n'
    )
    command = [sys.executable, str(ROOT / "scripts" / "mutants.py"), "--root", str(tmp_path), "--count", "99"]
    done = subprocess.run([*command, "--paths", "src/twintrace/judge"], capture_output=True, text=True)

    assert done.returncode == 1, done.stderr
    assert re.search(r"judge +7 mutants +3 killed +1 explained +3 survive", done.stdout), done.stdout
    results = json.loads((tmp_path / "build" / "mutants" / "report.json").read_text())
    outcomes = {result["before"]: result["outcome"] for result in results}
    assert outcomes["TESTED = 4"] == outcomes["if x > TESTED:"] == "killed"
    assert outcomes["UNTESTED = 5"] == "survived"
    assert outcomes["EXPLAINED = 6"] == "explained"
    assert (room / "rules.py").read_text().startswith(source)
    report = (tmp_path / "build" / "mutants" / "report.md").read_text()
    assert "- UNTESTED = 5\n+ UNTESTED = 6" in report
