"""The site is built without a warning, its reference is complete, and its translations are in step."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import twintrace as tt
from twintrace.cli import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TRANSLATED = [
    DOCS / "tutorial.md",
    DOCS / "faq.md",
    *sorted(set(DOCS.glob("howto/*.md")) - set(DOCS.glob("howto/*.zh.md"))),
]
VERBS = [name for name in tt.__all__ if inspect.isfunction(getattr(tt, name))]

BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem + "_of_the_site", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


site = module(ROOT / "scripts" / "site.py")


def test_the_site_builds_without_a_warning(tmp_path, checkout_env):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env=checkout_env | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (
        "index",
        "tutorial",
        "howto/nan",
        "reference/python",
        "reference/command-line",
        "zh/index",
        "zh/howto/nan",
    ):
        assert (tmp_path / "site" / f"{page}.html").stat().st_size > 10_000, page
    reference = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    assert [name for name in promised() if f'id="{name}"' not in reference] == []


def promised() -> list[str]:
    """Names that docs/reference/python.md asks for, members of classes too: `twintrace.Recorder.step`."""
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    found = []
    for block in page.split("::: ")[1:]:
        name = block.split()[0]
        members = re.search(r"^ +members: \[(.*)\]$", block, re.MULTILINE)
        found += [name, *(f"{name}.{member}" for member in (members[1].split(", ") if members else ()))]
    assert {*VERBS} < {name.removeprefix("twintrace.") for name in found}
    assert {"twintrace.Recorder.step", "twintrace.Comparison.to_html"} < {*found}
    return found


# --- pages that are put together --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你就能\n把错误\n\n找出来", "你就能把错误\n\n找出来"),
        ("数据，\n然后\n再记录。\n1. 一\n2. 二", "数据，然后再记录。\n1. 一\n2. 二"),
        ("## 标题\n正文", "## 标题\n正文"),
        ("- 先记录\n  再比较\n- 完", "- 先记录再比较\n- 完"),
        ("| 列 |\n| 值 |", "| 列 |\n| 值 |"),
        ("用 loss\n来看", "用 loss\n来看"),
        ("```\n# 一\n二\n```\n", "```\n# 一\n二\n```\n"),
        ("```sh\n一\n二\n```\n", "```sh\n一\n二\n```\n"),
    ],
)
def test_lines_of_a_chinese_paragraph_are_joined(text, expected):
    assert site.joined(text) == expected


def relinked(text: str, source: str, place: str, linked: set[str]) -> str:
    return site.relinked(text, source, place, site.pages(ROOT), ROOT, linked)


@pytest.mark.parametrize(
    ("text", "source", "place", "expected"),
    [
        ("[a](nan.md#while-it-runs)", "docs/howto/port.md", "howto/port.md", "[a](nan.md#while-it-runs)"),
        ("[a](docs/howto/nan.md)", "README.md", "index.md", "[a](howto/nan.md)"),
        ("[a](../../CHANGELOG.md)", "docs/howto/nan.md", "howto/nan.md", "[a](../about/changelog.md)"),
        ("[a](README.zh-CN.md)", "README.md", "index.md", "[a](index.md)"),
        ("[a](examples)", "README.md", "index.md", "[a](examples/index.md)"),
        ("![a](docs/images/report.png)", "README.md", "index.md", "![a](images/report.png)"),
        ("[a](LICENSE)", "README.md", "index.md", "[a](files/LICENSE)"),
        ("`[a](LICENSE)` [b](https://example.org)", "README.md", "index.md", "`[a](LICENSE)` [b](https://example.org)"),
        ("```text\n[a](LICENSE)\n```\n", "README.md", "index.md", "```text\n[a](LICENSE)\n```\n"),
        ("[a](gone.md)", "README.md", "index.md", "[a](gone.md)"),
    ],
)
def test_links_of_the_checkout_become_links_of_the_site(text, source, place, expected):
    linked = set()
    assert relinked(text, source, place, linked) == expected
    assert linked == ({"LICENSE"} if "files/LICENSE" in expected else set())


def test_every_page_of_the_checkout_is_in_the_navigation():
    """What mkdocs.yml names is there; what is there and not named is an example."""
    named = set(re.findall(r"[:-] ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    made = {"reference/command-line.md", "reference/operations.md", "examples/index.md"}
    there = {place for place in site.pages(ROOT).values() if place.endswith(".md") and not place.endswith(".zh.md")}
    assert named - there == made
    assert {place for place in there - named if not place.startswith("examples/")} == set()


def test_the_command_line_is_told_whole():
    page = site.command_line()
    for name, command in site.commands(cli):
        part = page.split(f"# {name}\n", 1)[1].split("\n##", 1)[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in part, f"{name} {parameter.opts[0]}"


def test_the_operations_are_told_whole():
    page = site.operations()
    assert [item.name for item in tt.api.known_operations() if f"`{item.name}`" not in page] == []


def test_help_texts_are_escaped():
    assert site._escaped("a_b <c> `d_e` [f]*") == r"a\_b \<c> `d_e` \[f\]\*"


# --- the reference ----------------------------------------------------------------------------------------------------


def sections(text: str) -> dict[str, list[str]]:
    """The names that a docstring has under Args, Returns and Raises."""
    found = {}
    for title, body in re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE):
        found[title] = re.findall(r"^    \*{0,2}(\w+):", body, re.MULTILINE)
    return found


def faults(function) -> list[str]:
    """Arguments without a word, words without an argument, a result that is not told, errors that do not exist."""
    told = sections(inspect.getdoc(function))
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    found = [] if told.get("Args", []) == parameters else [f"Args: {told.get('Args')}, the signature has {parameters}"]
    if inspect.signature(function).return_annotation not in ("None", None) and "Returns" not in told:
        found.append("no Returns")
    known = {*tt.errors.__all__, "AssertionError"}
    return found + [f"Raises: {name} is no error of ours" for name in told.get("Raises", []) if name not in known]


@pytest.mark.parametrize("name", VERBS)
def test_a_public_function_tells_its_arguments_and_result(name):
    assert faults(getattr(tt, name)) == []


@pytest.mark.parametrize("name", ["start", "step", "stop", "save", "rename", "close"])
def test_a_recorder_tells_its_arguments(name):
    assert faults(getattr(tt.Recorder, name)) == []


def test_the_check_of_docstrings_can_fail():
    def wrong(one, two) -> int:
        """Something.

        Args:
            one: the first.

        Raises:
            GoneError: never.
        """

    assert faults(wrong) == [
        "Args: ['one'], the signature has ['one', 'two']",
        "no Returns",
        "Raises: GoneError is no error of ours",
    ]


def test_the_reference_has_every_public_name():
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^::: twintrace\.(\w+)$", page, re.MULTILINE))
    assert told == set(tt.__all__) - {"__version__", "errors"}


# --- the questions ----------------------------------------------------------------------------------------------------


def unsourced(text: str) -> list[str]:
    """Questions whose first paragraph leads to no public page where they were asked."""
    questions = re.findall(r"^### (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    assert len(questions) == len(re.findall(r"^### ", text, re.MULTILINE))
    return [title for title, first in questions if not re.fullmatch(r"\*.*\]\(https://.*\*\n", first, re.DOTALL)]


def test_every_question_says_where_it_was_asked():
    assert unsourced((DOCS / "faq.md").read_text(encoding="utf-8")) == []


def test_the_check_of_questions_can_fail():
    asked = "### Is it?\n\n*Asked in [a thread](https://example.org/1).*\n\nYes.\n"
    assert unsourced(f"{asked}\n### What is exit code 3?\n\nNo [agreement](https://example.org).\n") == [
        "What is exit code 3?"
    ]


# --- translations -----------------------------------------------------------------------------------------------------


def skeleton(text: str) -> dict[str, list[str]]:
    """Parts of a page that a translation keeps: all but its words, and the comments in its code."""
    prose = BLOCK.sub("", text)
    lines = [line for language, _, code in BLOCK.findall(text) for line in code.splitlines()]
    links = [re.sub(r"\.zh\.md|\.zh-CN\.md", ".md", link) for link in re.findall(r"\]\(([^)#]*)[^)]*\)", prose)]
    return {
        "headings": [level for level in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "marks": re.findall(r"<!-- slow -->|<!-- not run", text),
        "languages": [language + title for language, title, _ in BLOCK.findall(text)],
        "code": [
            line if line.startswith("#") else re.split(r"\s+#(?: (?!exit)|$)", line)[0].rstrip() for line in lines
        ],
        "links": links,
        "tables": [str(len(line.split("|"))) for line in prose.splitlines() if line.startswith("|")],
        "commands": sorted(set(re.findall(r"`((?:twintrace|tt\.|make|with tt|--)[^`]*)`", prose))),
    }


def translation(page: Path) -> Path:
    return page.with_suffix(".zh.md")


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_translation_is_in_step(page):
    there = translation(page)
    assert there.exists(), f"{there.relative_to(ROOT)} is missing"
    english, chinese = (path.read_text(encoding="utf-8") for path in (page, there))
    assert skeleton(chinese) == skeleton(english)
    prose = re.sub(r"`[^`]*`|\([^)]*\)|<!--.*?-->", "", BLOCK.sub("", chinese))
    assert len(re.findall(r"[\u4e00-\u9fff]", prose)) > len(re.findall(r"[A-Za-z]", prose))


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_stay_in_the_language(page):
    """A translated page leads to translated pages, where there are such."""
    text = BLOCK.sub("", translation(page).read_text(encoding="utf-8"))
    leaving = [
        link
        for link in re.findall(r"\]\(([^)#]+\.md)", text)
        if not link.endswith(".zh.md") and (page.parent / link).with_suffix(".zh.md").exists()
    ]
    assert leaving == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("## Before it happens\n", "### Before it happens\n"), "headings"),
        (("torch.randn(8, 4), ", "torch.randn(8, 5), "), "code"),
        (("    # exit 1\n", "    # exit 0\n"), "code"),
        (("(steps.md#zoom)", "(twice.md#zoom)"), "links"),
        (("`twintrace view`", "`twintrace look`"), "commands"),
        (('title="train.py"', 'title="run.py"'), "languages"),
        (("<!-- slow -->\n", ""), "marks"),
    ],
)
def test_the_check_of_translations_can_fail(change, part):
    page = (DOCS / "howto" / "nan.md").read_text(encoding="utf-8")
    assert change[0] in page
    changed = skeleton(page.replace(*change, 1))
    assert [name for name in changed if changed[name] != skeleton(page)[name]] == [part]


def test_comments_may_be_translated():
    page = (DOCS / "howto" / "nan.md").read_text(encoding="utf-8")
    assert skeleton(page.replace("# a pair of equal items", "# 一对相同的样本")) == skeleton(page)
