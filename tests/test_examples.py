"""Every example's README is executed.

    ```console
    $ twintrace compare left right     # exit 1
    whatever it prints
    ```

The commands of all its `console` blocks run in turn, in a copy of the example's folder, by `sh`, with this interpreter's commands
first on PATH. Each must end with the code that the README tells, 0 unless it says `# exit N`. A line that ends in `\\` goes on in
the next one. Lines below a command are lines of what it prints, in this order: `…` stands for any text, blanks count once. What is
not to be executed (installing, say) stands in a `sh` block. A README with `<!-- slow -->` is run by `make test-all` alone.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir()) if EXAMPLES.exists() else []
SECONDS = 600
SLOW = "<!-- slow -->"


def frameworks(folder: Path) -> list[pytest.MarkDecorator]:
    """Marks for the frameworks that an example's programs import, and for one that takes long."""
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    needed = [
        getattr(pytest.mark, f"needs_{name}")
        for name in ("torch", "mindspore")
        if any(re.search(rf"^(import|from) {name}\b", source, re.MULTILINE) for source in sources)
    ]
    return [*needed, pytest.mark.slow] if SLOW in (folder / "README.md").read_text(encoding="utf-8") else needed


class Command(NamedTuple):
    text: str
    code: int
    prints: tuple[str, ...] = ()


def commands(readme: str) -> list[Command]:
    found = []
    for block in re.findall(r"^```console *\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        for text, below in re.findall(r"^\$ ((?:.*\\\n)*.*)$\n?((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            told = re.search(r"\s+# exit (\d+)\s*$", text)
            prints = tuple(line for line in below.splitlines() if line.strip())
            found.append(Command(text[: told.start()] if told else text, int(told[1]) if told else 0, prints))
    return found


def unprinted(lines: tuple[str, ...], output: str) -> str | None:
    """The first of the lines that is not printed after those before it; None if all are."""
    printed = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in lines:
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        if not any(re.fullmatch(pattern, candidate) for candidate in printed):
            return line
    return None


def run_readme(folder: Path, env: dict[str, str]) -> list[str]:
    """Run a README's commands in its folder; what went otherwise than told. Stops at the first: the rest builds on it."""
    for text, code, prints in commands((folder / "README.md").read_text(encoding="utf-8")):
        run = subprocess.run(["sh", "-c", text], cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS)
        if run.returncode != code:
            return [f"$ {text}\nexit {run.returncode}, the README tells {code}\n{run.stdout}{run.stderr}"]
        line = unprinted(prints, run.stdout)
        if line is not None:
            return [f"$ {text}\ndoes not print what the README shows: {line}\n{run.stdout}{run.stderr}"]
    return []


def test_there_are_examples():
    assert FOLDERS


@pytest.mark.parametrize(
    "folder", [pytest.param(folder, id=folder.name, marks=frameworks(folder)) for folder in FOLDERS]
)
def test_an_example_does_what_it_tells(folder, tmp_path, checkout_env):
    assert re.fullmatch(r"\d\d_[a-z0-9]+(_[a-z0-9]+)+", folder.name), "examples are called <nn>_<verb>_<thing>"
    assert commands((folder / "README.md").read_text(encoding="utf-8")), (
        "its README has no `$ ` command in a console block"
    )
    copy = shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    faults = run_readme(copy, checkout_env)
    assert not faults, faults[0]


def test_commands_are_read():
    readme = (
        "$ not in a block\n\n```console\n$ one --flag\nits output\n$ two \\\n    goes on  # exit 3\n```\n"
        "```sh\n$ pip install it\n```\n```console\n$ three # exit of the shop\n```\n"
    )
    assert commands(readme) == [
        ("one --flag", 0, ("its output",)),
        ("two \\\n    goes on", 3, ()),
        ("three # exit of the shop", 0, ()),
    ]


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (("first", "  third  line"), None),
        (("f…t", "…line"), None),
        (("third line", "first"), "first"),
        (("fir",), "fir"),
        (("third … here",), "third … here"),
        ((), None),
    ],
)
def test_lines_that_a_readme_shows_are_looked_for_in_their_order(lines, missing):
    assert unprinted(lines, "first\nsecond\n third line \n") == missing


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["$ true", "$ exit 3  # exit 3", "$ test -f README.md", "$ python -c 'import twintrace'"], None),
        (["$ echo first", "$ false", "$ exit 9"], "$ false\nexit 1, the README tells 0"),
        (["$ true  # exit 1"], "$ true\nexit 0, the README tells 1"),
        (["$ no-such-command-anywhere"], "exit 127"),
        (["$ touch made", "$ test -f made && exit 4"], "exit 4"),
        (["$ echo one; echo two", "one", "t…o"], None),
        (["$ echo one; echo two", "three"], "does not print what the README shows: three"),
    ],
)
def test_a_readme_that_tells_otherwise_is_caught(tmp_path, checkout_env, lines, fault):
    (tmp_path / "README.md").write_text("\n".join(["```console", *lines, "```"]), encoding="utf-8")
    faults = run_readme(tmp_path, checkout_env)
    assert fault in faults[0] if fault else faults == []
