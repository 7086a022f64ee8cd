"""Put together the pages of the site, for mkdocs.

    $ .venv/bin/mkdocs build --strict      # mkdocs.yml names this file as a hook; `make docs` says the same

    docs/**.md                   as they are                        docs/howto/nan.zh.md: the same page in Chinese
    README.md, CHANGELOG.md, …   under the names of PAGES           FORMAT.md stays beside the code that follows it
    examples/*/README.md         under examples/
    reference/command-line.md    made from the commands themselves  (click)
    reference/operations.md      made from the table of operations
    files/…                      every other file of the checkout that a page links to

Links in the pages are those of the checkout, so that they lead somewhere in a code browser as well; here they become links of the
site. A link to something that is not there is left as it is: mkdocs then stops, being strict.
"""

from __future__ import annotations

import inspect
import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "docs"

PAGES = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh.md",
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "SECURITY.md": "about/security.md",
    "benchmarks/README.md": "about/benchmarks.md",
    "benchmarks/RESULTS.md": "about/results.md",
    "src/twintrace/store/FORMAT.md": "reference/format.md",
    "src/twintrace/compat/mindspore_kernels/KERNELS.md": "reference/kernel-dumps.md",
    "src/twintrace/compat/msprobe/SURFACE.md": "reference/msprobe.md",
    "src/twintrace/compat/troubleshooter/SURFACE.md": "reference/troubleshooter.md",
    "src/twintrace/compat/torch_npu_hooks/SURFACE.md": "reference/torch-npu-hooks.md",
}
"""Pages that live elsewhere in the checkout, and their places in the site."""

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?P<before>\]\(\s*<?)(?P<target>[^)\s>#]+)(?P<anchor>#[^)\s>]*)?")
_WRAPPED = re.compile(r"^(?!#)(.*[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])\n *(?=[\u4e00-\u9fff])", re.MULTILINE)
"""A line that ends in a Chinese character or stop, and is no heading, before one that begins with a Chinese character."""
_LANGUAGES = re.compile(r"^(English|\[English\]).*(中文).*\n+", re.MULTILINE)


# --- events of mkdocs -------------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Build from the pages that are put together beside the site, not from docs/ alone."""
    pages_folder = Path(config.site_dir).resolve().parent / "docs"
    assemble(ROOT, pages_folder)
    config.docs_dir = str(pages_folder)
    return config


def on_serve(server: Any, config: Any, builder: Any) -> Any:
    """Watch the sources of the pages; watching what is made of them would never end."""
    server.unwatch(config.docs_dir)
    for name in ("docs", "examples", "README.md", "README.zh-CN.md"):
        server.watch(str(ROOT / name))
    return server


# --- pages ------------------------------------------------------------------------------------------------------------


def assemble(root: Path, target: Path) -> None:
    """Write all pages below `target`, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    places = pages(root)
    linked: set[str] = set()
    for source, place in places.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if not source.endswith(".md"):
            shutil.copyfile(root / source, path)
            continue
        text = (root / source).read_text(encoding="utf-8")
        text = relinked(_LANGUAGES.sub("", text, count=1), source, place, places, root, linked)
        path.write_text(joined(text) if place.endswith(".zh.md") else text, encoding="utf-8")
    for source in linked:
        path = target / "files" / source
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / source, path)
    for place, text in (
        ("reference/command-line.md", command_line()),
        ("reference/operations.md", operations()),
        ("examples/index.md", examples(root)),
    ):
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_text(text, encoding="utf-8")


def pages(root: Path) -> dict[str, str]:
    """Place in the site of each page and picture, by its path in the checkout."""
    found = {
        path.relative_to(root).as_posix(): path.relative_to(root / "docs").as_posix()
        for path in sorted(root.glob("docs/**/*"))
        if path.is_file()
    }
    found |= {source: place for source, place in PAGES.items() if (root / source).exists()}
    for path in sorted(root.glob("examples/*/README.md")):
        found[path.relative_to(root).as_posix()] = f"examples/{path.parent.name}.md"
    return found


def joined(text: str) -> str:
    """A Chinese page, the lines of a paragraph joined: a browser makes a blank of a line's end, and Chinese has none there."""
    return "".join(part if code else _WRAPPED.sub(r"\1", part) for code, part in _blocks(text))


def relinked(text: str, source: str, place: str, places: dict[str, str], root: Path, linked: set[str]) -> str:
    """The text of a page, its links to files of the checkout made links of the site; files that are no pages go into `linked`."""
    here = posixpath.dirname(place)

    def lead(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if re.match(r"[a-z][a-z0-9+.-]*:|//|/", target):
            return found[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if wanted == "examples":
            there = "examples/index.md"
        elif wanted in places:
            there = places[wanted]
        elif (root / wanted).is_file():
            linked.add(wanted)
            there = f"files/{wanted}"
        else:
            return found[0]
        there = re.sub(
            r"\.zh\.md$", ".md", there
        )  # the plug-in of languages finds the page of the language that is built
        return f"{found['before']}{posixpath.relpath(there, here or '.')}{anchor}"

    return "".join(part if code else _LINK.sub(lead, part) for code, part in _parts(text))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces: (it is code, piece)."""
    for fenced, block in _blocks(text):
        last = 0
        for code in () if fenced else _CODE.finditer(block):
            yield False, block[last : code.start()]
            yield True, code[0]
            last = code.end()
        yield fenced, block[last:]


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces: (it is a block of code, piece)."""
    end = 0
    for fence in _FENCE.finditer(text):
        yield False, text[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, text[end:]


def examples(root: Path) -> str:
    """The list of examples, by their titles."""
    lines = [
        "# Examples",
        "",
        "Each is a folder of the repository; every command in them is executed by the tests.",
        "",
    ]
    for path in sorted(root.glob("examples/*/README.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path.parent.name}.md): `examples/{path.parent.name}`")
    return "\n".join(lines) + "\n"


# --- the command line -------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Every command with its arguments and options, as a page."""
    from twintrace.cli import cli

    lines = ["# Command line", "", *_paragraphs(cli.help or ""), ""]
    lines += ["Exit codes of every command: 0 yes, 1 no, 2 could not be done, 3 could not be told.", ""]
    for name, command in commands(cli):
        context = click.Context(command, info_name=name)
        level = "#" * len(name.split())
        lines += [f"{level} {name}", "", "```text", command.get_usage(context).replace("Usage: ", ""), "```", ""]
        lines += [*_paragraphs(command.help or ""), ""]
        options = [row for parameter in command.get_params(context) if (row := _option(parameter, context))]
        if options:
            lines += ["| option | |", "|---|---|", *options, ""]
    return "\n".join(lines)


def commands(group: click.Group, prefix: str = "twintrace") -> Iterator[tuple[str, click.Command]]:
    """Every ("twintrace verb", command), those of inner groups behind their group."""
    context = click.Context(group, info_name=prefix)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")


def _paragraphs(text: str) -> list[str]:
    """A help text as Markdown; a paragraph after \\b, whose lines are kept in a terminal, is a block of text."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            parts.append("```text\n" + paragraph.lstrip("\b\n") + "\n```")
        else:
            parts.append(_escaped(" ".join(paragraph.split())))
    return "\n\n".join(parts).splitlines()


def _option(parameter: click.Parameter, context: click.Context) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or isinstance(parameter, click.Argument):  # the usage line has it
        return None
    names, text = record
    return f"| `{names.replace('|', chr(92) + '|')}` | {_escaped(text).replace('|', chr(92) + '|')} |"


def _escaped(text: str) -> str:
    """Text in which Markdown sees no markup but code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_<\[\]])", r"\\\1", part) for part in parts)


# --- operations -------------------------------------------------------------------------------------------------------


def operations() -> str:
    """The table of operations, as a page."""
    from twintrace.api import known_operations

    known = [item for item in known_operations() if not item.asks]
    asking = [item for item in known_operations() if item.asks]
    lines = [
        "# Operations",
        "",
        f"The {len(known)} operations that are known, by their names in PyTorch and MindSpore (MSAdapter's are PyTorch's).",
        "Results and gradients that are marked are computed again in float64 where two runs differ.",
        "`twintrace doctor --operations NAME` shows the same with the variants that are tried as causes; functions of PyTorch",
        "that are not listed are called in float64 as they stand.",
        "",
        "| operation | PyTorch | MindSpore | results | gradients | |",
        "|---|---|---|---|---|---|",
    ]
    for item in known:
        marks = [
            {"always": "draws random numbers", "": ""}.get(item.draws, "may draw random numbers"),
            "moves values" if item.moves else "",
            "writes to its arguments" if item.writes else "",
        ]
        cells = [f"`{item.name}`", _names(item.torch), _names(item.mindspore), "yes" if item.forward else ""]
        cells += ["yes" if item.backward else "", ", ".join(filter(None, marks))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Questions",
        "",
        "Calls that ask for a number or a shape, and compute nothing: " + _names([item.name for item in asking]) + ".",
    ]
    return "\n".join(lines) + "\n"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names if not name.startswith("aten."))


if __name__ == "__main__":
    os.chdir(ROOT)
    assemble(ROOT, BUILT)
    print(f"pages: {BUILT.relative_to(ROOT)}")
