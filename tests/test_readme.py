"""The README runs as it stands, its figures are those of the benchmarks, and its translation is in step with it."""

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from twintrace.cli import cli

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "images" / "report.png"
LARGEST = 200_000
QUICKSTART_LINES = 20

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """A section up to the next heading of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", BLOCK.sub(lambda block: "x" * len(block[0]), rest), re.MULTILINE)
    return rest[: end.start()] if end else rest


def python_of(title: str) -> str:
    return next(code for language, code in BLOCK.findall(section(ENGLISH, title)) if language == "python")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(code)`: the globals of a script with this text, run here."""
    monkeypatch.chdir(tmp_path)

    def script(code: str) -> dict:
        Path("script.py").write_text(code, encoding="utf-8")
        return runpy.run_path("script.py")

    return script


@pytest.mark.needs_torch
def test_the_quickstart_and_the_notebook_run_as_they_stand(run, capsys):
    code = python_of("Quickstart")
    assert len(code.splitlines()) <= QUICKSTART_LINES
    found = run(code)["found"]
    printed = capsys.readouterr().out
    assert found.code == 1
    assert "part at torch.nn.functional.layer_norm" in printed
    assert "eps: 1e-05 | 0.001" in printed
    assert Path("report.html").stat().st_size > 100_000
    pytest.importorskip("pandas")
    cell = run(python_of("Jupyter"))
    assert len(cell["table"]) > 10
    [(_, code)] = BLOCK.findall((ROOT / "docs" / "reference" / "public.md").read_text(encoding="utf-8"))
    Path("report.html").unlink()
    run(code)
    assert "forward/api:torch.nn.functional.layer_norm#0\n" in capsys.readouterr().out
    assert Path("report.html").exists()


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_the_verdict_at_the_top_is_what_the_demo_prints(tmp_path, checkout_env):
    """Up to the digits, which are the machine's."""
    example = ROOT / "examples" / "01_find_the_difference"
    for command in (
        ["python", example / "in_torch.py", "runs"],
        ["python", example / "in_mindspore.py", "runs"],
        ["twintrace", "compare", "runs/torch", "runs/mindspore"],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=checkout_env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    [told, *_] = (code for language, code in BLOCK.findall(ENGLISH) if language == "text")
    assert without_digits(told) == without_digits(done.stdout)


def without_digits(text: str) -> list[str]:
    """The lines of a verdict; `#` for each measured number, which counts of pairs and numbers of lines are not."""
    return [re.sub(r"\d+(?= times)|\d\.\d+(e[-+]\d+)?", "#", line).rstrip() for line in text.strip().splitlines()]


def test_digits_alone_are_left_out_of_a_verdict():
    assert without_digits("2.3e-05 apart, 380 times; a.py:39") == without_digits("2.4e-05 apart, 379 times; a.py:39")
    assert without_digits("80 pairs of calls") != without_digits("79 pairs of calls")


@pytest.mark.needs_torch
def test_another_dtype_agrees_as_told(run, capsys):
    run(python_of("Another device, version or dtype"))
    assert re.search(r"^f32 and bf16 agree: .* within what rounding explains", capsys.readouterr().out)


@pytest.mark.needs_torch
@pytest.mark.slow
def test_torchrun_records_every_rank(tmp_path, checkout_env):
    (tmp_path / "train.py").write_text(python_of("torchrun"), encoding="utf-8")
    for command in commands(section(ENGLISH, "torchrun")):
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=checkout_env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "step 0, rank 1" in done.stdout
    assert "rank 0" not in done.stdout


def commands(text: str) -> list[str]:
    blocks = "\n".join(code for language, code in BLOCK.findall(text) if language in ("console", "sh"))
    return [re.split(r"\s{2,}#", line)[0] for line in re.findall(r"^(?:\$ )?(.+)$", blocks, re.MULTILINE)]


def command_fault(line: str) -> str | None:
    """Why a line that begins with `twintrace` cannot be given; None if it can."""
    words = shlex.split(line)[1:]
    command, context = cli, click.Context(cli)
    try:
        while isinstance(command, click.Group):
            before = command.make_parser(
                click.Context(command)
            )  # options of the group itself: msprobe -f mindspore compare
            before.allow_interspersed_args = False
            _, words, _ = before.parse_args(words)
            if not words:
                return None
            name = words.pop(0)
            command = command.get_command(context, name)
            if command is None:
                return f"no command {name}"
        parser = command.make_parser(click.Context(command))
        _, rest, _ = parser.parse_args([*words])
        return f"left over: {rest}" if rest else None
    except click.UsageError as error:
        return error.message


def test_every_command_in_a_block_can_be_given():
    lines = [line for line in commands(ENGLISH) if line.startswith("twintrace ")]
    assert len(lines) > 20
    assert {line: fault for line in lines if (fault := command_fault(line))} == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("twintrace compare a b", None),
        ("twintrace weights map a b", None),
        ("twintrace weights mop a b", "no command mop"),
        ("twintrace compare a b c", "left over"),
        ("twintrace compare a b --htm", "No such option"),
        ("twintrace msprobe -f mindspore compare -i c.json -o out", None),
        ("twintrace msprobe -x mindspore compare -i c.json -o out", "No such option"),
    ],
)
def test_the_check_of_commands_can_fail(line, fault):
    found = command_fault(line)
    assert found is None if fault is None else fault in found


# --- figures ----------------------------------------------------------------------------------------------------------


def rows(text: str, after: str) -> dict[str, list[str]]:
    """The rows of the first table after a text, by their first cell."""
    table = re.search(r"(?:^\|.*\n)+", text[text.index(after) :], re.MULTILINE)[0]
    lines = [[cell.strip(" `") for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]]
    return {line[0]: line[1:] for line in lines}


KEEPS = ("statistics", "fingerprint", "tensor")


def ratios(text: str) -> dict[tuple[str, str], float]:
    """Third column of tables whose first two are level and keep."""
    found = re.findall(r"^\| (\w+) \| (\w+) \| ([\d.]+) ", text, re.MULTILINE)
    return {(level, keep): float(ratio) for level, keep, ratio in found}


def test_costs_and_sizes_are_those_of_the_benchmarks():
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    on_cpu = ratios(section(results, "Recording on a CPU"))
    on_gpu = ratios(section(results, "Recording on a GPU").partition("A ResNet-50")[0])
    kept = re.search(r'`keep="tensor"`, level module, .*?: (\d+) times a bare step', results)
    on_gpu["module", "tensor"] = float(kept[1])
    assert (len(on_cpu), len(on_gpu)) == (12, 7)
    expected = {}
    for level, (_, *sizes) in rows(results, "## Size of a trace").items():
        for keep, size in zip(KEEPS, map(float, sizes), strict=True):
            ratio = on_gpu.get((level, keep))
            bracket = "" if ratio is None else f" (GPU {ratio:.{0 if ratio > 10 else 1}f})"
            expected[level, keep] = f"{on_cpu[level, keep]:.1f} ×{bracket}, {size:.{0 if size > 10 else 1}f} MB"
    told = rows(ENGLISH, "`level` says what is recorded")
    cells = {(level, keep): cell for level, row in told.items() for keep, cell in zip(KEEPS, row[1:], strict=True)}
    assert cells == expected
    alone = ", ".join(f"{on_gpu[level, 'statistics']:.1f}" for level in ("module", "api", "mix"))
    assert f"{alone} ×" in ENGLISH
    assert "9.7 (module), 10.2 (api) and 16.3 (mix)" in results
    assert "9.7, 10.2, 16.3 ×" in ENGLISH


def described(picture: bytes) -> str:
    """The text that a PNG has under "Description", in a chunk of its own (iTXt)."""
    at = 8
    while at < len(picture):
        length = int.from_bytes(picture[at : at + 4], "big")
        keyword, _, rest = picture[at + 8 : at + 8 + length].partition(b"\0")
        if picture[at + 4 : at + 8] == b"iTXt" and keyword == b"Description":
            return rest[2:].split(b"\0", 2)[2].decode()  # two bytes of compression, language, keyword in it
        at += 12 + length
    return ""


def test_the_picture_shows_the_verdict_at_the_top():
    """`make picture` writes the verdict of the page that it photographs into the file."""
    [told, *_] = (code for language, code in BLOCK.findall(ENGLISH) if language == "text")
    assert without_digits(described(PICTURE.read_bytes())) == without_digits(told), "make picture"
    assert described(b"\x89PNG\r\n\x1a\n" + bytes(4) + b"IEND" + bytes(4)) == ""
    assert PICTURE.stat().st_size < LARGEST
    assert "docs/images/report.png" in ENGLISH


# --- the translation --------------------------------------------------------------------------------------------------


def skeleton(text: str) -> dict[str, list[str]]:
    """Parts of a page that a translation keeps."""
    prose = BLOCK.sub("", text)
    lines = [line for _, code in BLOCK.findall(text) for line in code.splitlines()]
    links = re.findall(r"\]\(([^)]+)\)", prose)
    return {
        "headings": [len(level) for level in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "languages": [language for language, _ in BLOCK.findall(text)],
        "code": [re.split(r"\s+#(?: |$)", line)[0].rstrip() for line in lines],
        "links": [link.replace(".zh.md", ".md") for link in links if not link.startswith(("README", "#"))],
        "tables": [str(len(line.split("|"))) for line in prose.splitlines() if line.startswith("|")],
        "commands": sorted(set(re.findall(r"`((?:twintrace|tt\.|make|with tt)[^`]*)`", prose))),
        "figures": re.findall(r"\(GPU [\d.]+\)|\d[\d.]* (?:×|MB)", prose),
    }


@pytest.mark.parametrize("part", skeleton(""))
def test_the_translation_is_in_step(part):
    assert skeleton(CHINESE)[part] == skeleton(ENGLISH)[part]


def test_the_translation_is_one():
    """Most of the prose is Chinese, and both pages lead to each other."""
    prose = re.sub(r"`[^`]*`|\([^)]*\)", "", BLOCK.sub("", CHINESE))
    assert len(re.findall(r"[\u4e00-\u9fff]", prose)) > len(re.findall(r"[A-Za-z]", prose))
    assert "(README.zh-CN.md)" in ENGLISH
    assert "(README.md)" in CHINESE


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("## Install\n", "### Install\n"), "headings"),
        (("eps=1e-3", "eps=1e-4"), "code"),
        (("$ twintrace doctor ", "$ twintrace nurse "), "code"),
        (("(docs/explanation/pairing.md)", "(docs/explanation/paring.md)"), "links"),
        (("`twintrace selfcheck train.py`", "`twintrace check train.py`"), "commands"),
        (("```sh\npip", "```console\npip"), "languages"),
        (("| `op` | the kernels below,", "| `op` the kernels below,"), "tables"),
        (("218 MB", "219 MB"), "figures"),
    ],
)
def test_the_check_of_the_translation_can_fail(change, part):
    assert change[0] in ENGLISH
    changed = skeleton(ENGLISH.replace(*change, 1))
    assert [name for name in changed if changed[name] != skeleton(ENGLISH)[name]] == [part]


def test_comments_may_be_translated():
    comment = re.search(r"# where they first part, and why[^\n]*", ENGLISH)[0]
    assert skeleton(ENGLISH.replace(comment, "# 首个分歧点")) == skeleton(ENGLISH)
