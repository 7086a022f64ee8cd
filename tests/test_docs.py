"""What is written about twintrace is checked like code: commands, links, Python blocks."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]

FENCE = re.compile(r"^( *)(```+|~~~+)(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]: *(\S+)", re.MULTILINE)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands_of(group: click.Group, prefix: str = "twintrace") -> Iterator[tuple[str, click.Command]]:
    """Every ("twintrace verb", command), those of inner groups too."""
    context = click.Context(group, info_name=prefix)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{prefix} lists {name} and cannot give it"
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{prefix} {name}")


def command_faults(group: click.Group, readme: str) -> list[str]:
    faults = []
    for name, command in commands_of(group):
        if not (command.help or "").strip():
            faults.append(f"{name}: no help text")
        if not re.search(rf"{re.escape(name)}(?![\w-])", readme):
            faults.append(f"{name}: not mentioned in README.md")
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        faults += [f"{name} {option.opts[0]}: no help text" for option in options if not (option.help or "").strip()]
    return faults


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of one language, each with its first line's number."""
    found = [block for block in FENCE.finditer(text) if block[3] == language]
    return [(text.count("\n", 0, block.start()) + 2, block[4]) for block in found]


def anchors(text: str) -> set[str]:
    """The names that a page's headings can be linked by."""
    headings = re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", read(page)))
    dead = []
    for link in (found[1] or found[2] for found in LINK.finditer(prose)):
        if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(read(target))):
            dead.append(link)
    return dead


def broken_python(text: str) -> list[str]:
    broken = []
    for line, block in blocks(text, "python"):
        source = doctest.script_from_examples(block) if ">>> " in block else block
        try:
            compile(source, "README.md", "exec")
        except SyntaxError as error:
            broken.append(f"block at line {line}: {error}")
    return broken


def test_every_command_is_documented():
    from twintrace.cli import cli

    assert command_faults(cli, read(README)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    assert dead_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_a_page_compiles(page):
    assert broken_python(read(page)) == []


# --- the checks can fail ----------------------------------------------------------------------------------------------


def test_the_check_of_commands_can_fail():
    @click.group()
    def group():
        """The group."""

    @group.command()
    @click.option("--fast")
    @click.option("--slow", help="Take your time.")
    def open(fast, slow): ...

    @group.command("open-all")
    def open_all():
        """Open all."""

    @group.group("more")
    def more():
        """More."""

    @more.command()
    def deep(): ...

    assert command_faults(group, "Say `twintrace open-all`, or twintrace more.") == [
        "twintrace more deep: no help text",
        "twintrace more deep: not mentioned in README.md",
        "twintrace open: no help text",
        "twintrace open: not mentioned in README.md",
        "twintrace open --fast: no help text",
    ]


def test_the_check_of_links_can_fail(tmp_path):
    (tmp_path / "other.md").write_text("# A Title, here!\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "## Here\n[a](other.md) [b](gone.md) ![c](gone.png 'title') [d](#here) [e](#there) [f](https://example.org/x)\n"
        "[g](other.md#a-title-here) [h](other.md#gone) `[i](code.md)` [j](<gone too.md>)\n"
        "```text\n[k](fenced.md)\n```\n[l]: gone/reference.md\n",
        encoding="utf-8",
    )
    assert dead_links(page) == ["gone.md", "gone.png", "#there", "other.md#gone", "gone", "gone/reference.md"]


def test_the_check_of_python_can_fail():
    good = "```python\nx = 1\n```\n\n```python\n>>> x\n1\n```\n\n```text\nno python\n```\n"
    assert broken_python(good) == []
    [fault] = broken_python(good + "\n```python\nx = = 1\n```\n")
    assert fault.startswith("block at line 15: invalid syntax")
