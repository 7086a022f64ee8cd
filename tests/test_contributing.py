"""Documents for contributors name what is there: files, names in them, forms that parse, a layout that works."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import twintrace as tt
from twintrace.store import registry

ROOT = Path(__file__).resolve().parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = ["CONTRIBUTING.md", "SECURITY.md", "docs/reference/glossary.md"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TOP = {path.name for path in ROOT.iterdir()}


def untrue(text: str) -> list[str]:
    """Files that are named and not there, and names that are not in their files."""
    found = []
    for path, name in re.findall(r"`([\w.\-]+(?:/[\w.\-]*)+)(?:: (\w+))?`", text):
        if path.split("/")[0] not in TOP:
            continue
        target = ROOT / path
        if not target.exists():
            found.append(path)
        elif name and not re.search(rf"\b{name}\b", target.read_text(encoding="utf-8")):
            found.append(f"{path}: {name}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_files_and_names_are_there(page):
    assert untrue((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_check_of_names_can_fail():
    text = "`src/twintrace/gone.py` `src/twintrace/errors.py: Gone` `src/twintrace/errors.py: UsageError` `a/b` `tests/attacks/`"
    assert untrue(text) == ["src/twintrace/gone.py", "src/twintrace/errors.py: Gone"]


def test_every_target_that_is_named_is_one():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    pages = [CONTRIBUTING, *(path.read_text(encoding="utf-8") for path in ROOT.glob("README*.md"))]
    named = {name for page in pages for name in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", page, re.MULTILINE)}
    named = {one or two for one, two in named}
    assert len(named) > 3
    assert named <= targets


def test_the_layout_of_the_page_is_read_and_compared(tmp_path, monkeypatch):
    section = CONTRIBUTING[CONTRIBUTING.index("## Add a dump format") :]
    code = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "mylayout.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in (("a", 1.0), ("b", 1.5)):
        (tmp_path / name).mkdir()
        content = {"layer1": [1.0, 2.0], "layer2": [value, 3.0]}
        (tmp_path / name / "values.json").write_text(json.dumps(content), encoding="utf-8")
    registry.register("mylayout", "mylayout")
    try:
        assert tt.open(tmp_path / "a").layout == "mylayout"
        assert tt.compare(tmp_path / "a", tmp_path / "a")
        found = tt.compare(tmp_path / "a", tmp_path / "b", recompute=False)
        assert found.first.result.match.left[0].site.name == "layer2"
    finally:
        registry.unregister("mylayout")
        sys.modules.pop("mylayout", None)
        importlib.invalidate_caches()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_is_one(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        assert set(form) == {"blank_issues_enabled", "contact_links"}
        [link] = form["contact_links"]
        assert link["name"]
        assert "Report a vulnerability" in link["about"]
        assert link["url"] in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
        return
    assert form["name"]
    assert form["description"]
    note, *fields = form["body"]
    assert note["type"] == "markdown"
    assert "Report a vulnerability" in note["attributes"]["value"]
    assert {field["type"] for field in fields} <= {"textarea", "dropdown", "checkboxes", "input"}
    assert all(field["attributes"]["label"] for field in fields)
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 1
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_hooks_are_the_checks_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    entries = [hook["entry"] for hook in hooks]
    for tool in ("ruff check", "ruff format", "mypy"):
        assert any(f".venv/bin/python -m {tool}" in entry for entry in entries), tool


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (tt.__version__, "Apache-2.0")
    assert cited["authors"]


def release(version: str) -> tuple[int, ...]:
    """The numbers of a release, or of the one that a development version leads to."""
    return tuple(map(int, version.partition(".dev")[0].split(".")))


def version_faults(version: str, changelog: str) -> list[str]:
    """What is wrong with the version of a checkout, given its changelog: only what is released has the number of a release."""
    last = re.search(r"^## ([\d.]+) - ", changelog, re.MULTILINE)[1]
    pending = re.search(r"^## Unreleased\n(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)[1].strip()
    if ".dev" in version:
        return [] if release(version) > release(last) else [f"{version} does not lead on from {last}"]
    found = [] if version == last else [f"{version} is no release: the last is {last}"]
    return found + ([f"{version} is released, and something is unreleased"] if pending else [])


def test_the_version_is_that_of_the_changelog_and_the_docs():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert version_faults(tt.__version__, changelog) == []
    last = re.search(r"^## ([\d.]+) - ", changelog, re.MULTILINE)[1]
    assert f"The last release is {last}." in (ROOT / "docs" / "reference" / "public.md").read_text(encoding="utf-8")
    run = subprocess.run([sys.executable, "-m", "twintrace", "--version"], capture_output=True, text=True, timeout=60)
    assert run.stdout.split()[-1] == tt.__version__


@pytest.mark.parametrize(
    ("version", "unreleased", "faults"),
    [
        ("0.2.0.dev0", "- something\n", []),
        ("0.2.0.dev0", "", []),
        ("0.1.0", "", []),
        ("0.1.0", "- something\n", ["0.1.0 is released, and something is unreleased"]),
        ("0.1.0.dev0", "- something\n", ["0.1.0.dev0 does not lead on from 0.1.0"]),
        ("0.2.0", "", ["0.2.0 is no release: the last is 0.1.0"]),
    ],
)
def test_the_check_of_the_version_can_fail(version, unreleased, faults):
    changelog = f"## Unreleased\n\n{unreleased}\n## 0.1.0 - 2026-11-16\n## 0.0.9 - 2026-01-01\n"
    assert version_faults(version, changelog) == faults


KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def changelog_faults(text: str) -> list[str]:
    """Sections that are out of order, and names of the package that are not there."""
    releases = re.findall(r"^## (.+)$", text, re.MULTILINE)
    numbers = [
        tuple(map(int, version.split(".")))
        for version in re.findall(r"^## ([\d.]+) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    ]
    found = []
    if releases[0] != "Unreleased" or len(numbers) != len(releases) - 1 or numbers != sorted(numbers, reverse=True):
        found.append(f"releases: {releases}")
    for release, part in zip(releases, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True):
        kinds = re.findall(r"^### (.+)$", part, re.MULTILINE)
        if kinds != [kind for kind in KINDS if kind in kinds]:
            found.append(f"{release}: {kinds}")
    named = set(re.findall(r"`tt\.(\w+)", text))
    return found + [f"tt.{name}" for name in sorted(named) if not hasattr(tt, name)]


def test_the_changelog_is_in_order():
    assert changelog_faults((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


def test_the_check_of_the_changelog_can_fail():
    text = "## Unreleased\n### Fixed\n- `tt.record`, `tt.gone`\n### Added\n## 0.1.0 - 2026-11-16\n## 0.2.0 - 2026-12-01\n### News\n"
    assert changelog_faults(text) == [
        "releases: ['Unreleased', '0.1.0 - 2026-11-16', '0.2.0 - 2026-12-01']",
        "Unreleased: ['Fixed', 'Added']",
        "0.2.0 - 2026-12-01: ['News']",
        "tt.gone",
    ]
