"""Every snippet and command of docs/ is executed, page by page, in the order of the page.

    ```python                      run in one namespace for the page, with the names of `names()` (net, data, optimizer …)
    ```python title="train.py"     a file, written before the page begins; so are json, yaml and toml with a title
    ```diff title="train.py"       an edit of that file: the lines with - become those with +
    ```console                     commands, as in the READMEs of the examples: `# exit 1`, and lines that are printed

    <!-- slow -->                  above a block: only `make test-all` runs it; alone in a line below the page's title: the page
    <!-- not run: reason -->       above a block that no test can run

A page runs in a folder of its own, with small traces and checkpoints (`stage`), of which one copy is recorded for all. Where the
page says MindSpore and no slow block records it, `runs/mindspore` is a port within PyTorch: what is tested is that the command
works. Translations have the same blocks (tests/test_site.py), and are not run again.
"""

import contextlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner

import twintrace as tt
from twintrace.cli import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not page.name.endswith(".zh.md")]
RUN = ("python", "console", "sh", "bash", "diff")


def sibling(name: str) -> types.ModuleType:
    """A module of tests, which is no package."""
    spec = importlib.util.spec_from_file_location(f"{name}_beside_snippets", Path(__file__).with_name(f"{name}.py"))
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


_examples, _readme = sibling("test_examples"), sibling("test_readme")

BLOCK = re.compile(
    r"(?:^<!-- (?P<slow>slow)? ?(?:not run: (?P<reason>[^>]+?))? ?-->\n)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAGE_SLOW = re.compile(r"^<!-- slow -->\n\n", re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    title: str = ""
    slow: bool = False
    reason: str = ""
    line: int = 0


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page that run, or become files."""
    whole = bool(PAGE_SLOW.search(page))
    found = [
        Block(
            block["language"],
            block["text"],
            block["title"] or "",
            whole or bool(block["slow"]),
            block["reason"] or "",
            page.count("\n", 0, block.start("language")) + 1,
        )
        for block in BLOCK.finditer(page)
    ]
    return [block for block in found if block.language in RUN or block.title]


# --- the stage --------------------------------------------------------------------------------------------------------


def trained(path: Path, eps: float, steps: int) -> None:
    """Training steps of the net that the snippets have, recorded with every value."""
    space = names(eps)
    with tt.record(path, space["net"], keep="tensor") as rec:
        for batch in space["data"][:steps]:
            space["criterion"](space["net"](batch.x), batch.y).backward()
            space["optimizer"].step()
            rec.step()


@pytest.fixture(scope="session")
def stage(tmp_path_factory) -> Path:
    """A folder with what the pages take for granted: runs that part, one that was repeated, weights, and a bad copy of them."""
    import torch

    folder = tmp_path_factory.mktemp("stage")
    for name, eps, steps in (("a", 1e-5, 2), ("b", 1e-3, 2), ("torch", 1e-5, 1), ("mindspore", 1e-3, 1)):
        trained(folder / "runs" / name, eps, steps)
    shutil.copytree(folder / "runs" / "mindspore", folder / "runs" / "adapter")
    for name in ("a-again", "golden", "new", "before", "after"):
        shutil.copytree(folder / "runs" / "a", folder / "runs" / name)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    torch.save(net.state_dict(), folder / "net.pth")
    torch.nn.init.ones_(net[0].weight)
    torch.save(net.state_dict(), folder / "bad.pth")
    tt.convert_weights(folder / "bad.pth", folder / "bad.ckpt")
    (folder / "bad.pth").unlink()
    return folder


def names(eps: float = 1e-5) -> dict[str, Any]:
    """Names that the snippets take for granted."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16, eps=eps), torch.nn.Linear(16, 1))
    data = [types.SimpleNamespace(x=torch.randn(4, 8), y=torch.randn(4, 1)) for _ in range(2)]

    def image_net() -> Any:
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())

    found = {
        "tt": tt,
        "net": net,
        "model": net,
        "data": data,
        "x": data[0].x,
        "y": data[0].y,
        "z": torch.ones(2),
        "label": data[0].y,
        "h": net(data[0].x),
        "criterion": torch.nn.MSELoss(),
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.1),
        "torch_net": image_net(),
        "mindspore_net": image_net(),
        "images": torch.randn(2, 3, 8, 8).numpy(),
    }
    found["loader"] = torch.utils.data.DataLoader([(batch.x, batch.y) for batch in data], batch_size=None)
    return found


def set_up_troubleshooter() -> None:
    """Dumps and arrays of "the other framework" beside those that the page makes."""
    import numpy as np
    import torch

    import twintrace.compat.troubleshooter as ts

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1))
    ts.migrator.api_dump_init(net, output_path="ms_dump", retain_backward=True)
    ts.migrator.api_dump_start()
    net(torch.randn(4, 8)).sum().backward()
    ts.migrator.api_dump_stop()
    ts.save("grads/ms/g", ts.widget.get_pt_grads(net))
    torch.save(net.state_dict(), "net.pth")
    for folder, value in (("out/torch", 1.0), ("out/ms", 1.5)):
        Path(folder).mkdir(parents=True)
        np.save(f"{folder}/x_float32_0.npy", np.full(3, value, np.float32))
    Path("train.py").write_text("import troubleshooter as ts\n\nassert ts.migrator\n", encoding="utf-8")


def set_up_checkpoints() -> None:
    """The two nets that `weights certify --left-net …` runs: a module in PyTorch and a Cell in MindSpore."""
    tt.convert_weights("net.pth", "net.ckpt")
    left = "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())\n"
    right = (
        "from mindspore import nn\n\n\ndef make():\n    conv = nn.Conv2d(3, 4, 3, pad_mode='valid', has_bias=True)\n"
        "    return nn.SequentialCell(conv, nn.BatchNorm2d(4), nn.ReLU())\n"
    )
    Path("left.py").write_text(left, encoding="utf-8")
    Path("right.py").write_text(right, encoding="utf-8")


def set_up_acceptance() -> None:
    Path("accept.toml").write_text('[[accept]]\nplace = "*.norm"\nreason = "known"\n', encoding="utf-8")


SETUPS = {
    "howto/ci.md": set_up_acceptance,
    "howto/troubleshooter.md": set_up_troubleshooter,
    "reference/weights.md": set_up_checkpoints,
}


# --- running ----------------------------------------------------------------------------------------------------------


def edit(path: Path, diff: str) -> None:
    """Replace each run of - lines, which the file must have once, by the + lines behind it."""
    text = path.read_text(encoding="utf-8")
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", diff, re.MULTILINE):
        before, after = (re.sub(r"^[-+]", "", part, flags=re.MULTILINE) for part in (old, new))
        assert text.count(before) == 1, f"{path.name} has {text.count(before)} of these:\n{before}"
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def command(line: str, env: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, standard output and the rest of one command; those of twintrace run here, which saves an interpreter's start."""
    words = shlex.split(line)
    if words[0] != "twintrace" or words[1] in ("twice", "run-as", "selfcheck"):
        done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr
    done = CliRunner().invoke(cli, words[1:], standalone_mode=False)
    if isinstance(done.exception, (tt.errors.TwintraceError, click.ClickException)):
        return 2, done.stdout, str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    code = done.return_value if done.exception is None else done.exit_code
    return code or 0, done.stdout, done.stderr


def run_page(page: str, name: str, env: dict[str, str], *, slow: bool) -> None:
    found = blocks(page)
    for block in found:
        if block.title and block.language != "diff" and not Path(block.title).exists():
            Path(block.title).write_text(block.text, encoding="utf-8")
    space = names() | {"__name__": "__page__"}
    for block in found:
        if block.reason or (block.slow and not slow) or (block.title and block.language != "diff"):
            continue
        where = f"{name}, line {block.line}"
        if block.language == "diff":
            edit(Path(block.title), block.text)
        elif block.language == "python":
            for path in re.findall(r"\b(?:record|train|run)\(\s*\"(runs/[^\"]+)\"", block.text):
                shutil.rmtree(path, ignore_errors=True)  # a stand-in for what the page records itself
            code = "\n" * (block.line) + block.text
            exec(compile(code, str(DOCS / name), "exec"), space)
        else:
            for text, code, prints in _examples.commands(f"```console\n{block.text}```\n"):
                text = re.split(r"\s{2,}#", text)[0]
                got, out, rest = command(text, env)
                assert got == code, f"{where}\n$ {text}\nexit {got}, the page tells {code}\n{out}{rest}"
                line = _examples.unprinted(prints, out)
                assert line is None, f"{where}\n$ {text}\ndoes not print: {line}\n{out}{rest}"


@contextlib.contextmanager
def seen_as_a_user_does() -> Iterator[None]:
    """Warnings of libraries, and of a recorder that has something to tell, are no errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def pages(*, slow: bool) -> list[Any]:
    """Pages with blocks to run; for slow tests those that have slow blocks, with all their blocks."""
    params = []
    for page in PAGES:
        running = [
            block for block in blocks(page.read_text(encoding="utf-8")) if not block.reason and block.language in RUN
        ]
        running = [block for block in running if not block.title or block.language == "diff"]
        if any(block.slow for block in running) if slow else any(not block.slow for block in running):
            params.append(pytest.param(page, id=page.relative_to(DOCS).as_posix()))
    return params


def play(
    page: Path, stage: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], *, slow: bool
) -> None:
    shutil.copytree(stage, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GLOG_v", "3")
    name = page.relative_to(DOCS).as_posix()
    with seen_as_a_user_does():
        SETUPS.get(name, lambda: None)()
        run_page(page.read_text(encoding="utf-8"), name, env | {"GLOG_v": "3"}, slow=slow)


@pytest.mark.needs_torch
@pytest.mark.parametrize("page", pages(slow=False))
def test_a_page_runs_as_it_stands(page, stage, tmp_path, monkeypatch, checkout_env):
    play(page, stage, tmp_path, monkeypatch, checkout_env, slow=False)


@pytest.mark.slow
@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.parametrize("page", pages(slow=True))
def test_a_page_runs_with_what_takes_long(page, stage, tmp_path, monkeypatch, checkout_env):
    play(page, stage, tmp_path, monkeypatch, checkout_env, slow=True)


ELSEWHERE = (
    "twintrace view",  # serves until it is interrupted
    "twintrace show runs/ddp",  # tests/test_readme.py runs this recipe with torchrun
    "twintrace selfcheck",  # other tests run these two
    "twintrace twice",
)
"""Commands of the README that are not run with the others."""


def set_up_readme() -> None:
    """What the commands of the README are given beside the stage."""
    import numpy as np

    set_up_acceptance()
    for name in ("f32", "bf16"):
        shutil.copytree("runs/a" if name == "f32" else "runs/b", f"runs/{name}")
    for name in ("a", "b"):
        Path("saved", name).mkdir(parents=True)
        np.save(f"saved/{name}/x_0.npy", np.ones(3, np.float32))


@pytest.mark.needs_torch
def test_the_commands_of_the_readme_run(stage, tmp_path, monkeypatch, checkout_env):
    """None ends with 2, "could not be done"; what the verdicts say is the affair of other tests."""
    shutil.copytree(stage, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    set_up_readme()
    lines = [line for line in _readme.commands(_readme.ENGLISH) if line.startswith("twintrace ")]
    failed = {}
    for line in lines:
        if line.startswith(ELSEWHERE):
            continue
        if line.startswith("twintrace weights"):  # converting is told twice: by itself, and in a recipe
            Path("net.ckpt").unlink(missing_ok=True)
            if "convert" not in line:
                tt.convert_weights("net.pth", "net.ckpt")
        with seen_as_a_user_does():
            code, out, rest = command(line, checkout_env)
        if code not in (0, 1, 3):
            failed[line] = out + rest
    assert failed == {}
    assert len(lines) > 25


def told_commands(page: str) -> list[str]:
    """Commands of twintrace in the blocks and in the prose of a page, those that are slow or not run too."""
    shown = [
        line
        for block in blocks(page)
        if block.language in ("console", "sh", "bash")
        for line in block.text.splitlines()
    ]
    lines = [re.split(r"\s{2,}#", line.removeprefix("$ "))[0] for line in shown]
    prose = re.findall(r"`(twintrace [^`]+)`", BLOCK.sub("", page))
    return [line for line in (*lines, *prose) if line.startswith("twintrace ") and "…" not in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_command_that_is_told_can_be_given(page):
    lines = told_commands(page.read_text(encoding="utf-8"))
    assert {line: fault for line in lines if (fault := _readme.command_fault(line))} == {}


def test_no_command_escapes():
    """A block of commands is a `console` block, or says why it is not run."""
    loose = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in ("sh", "bash") and not block.reason
    ]
    assert loose == []


# --- the checks can fail ----------------------------------------------------------------------------------------------


PAGE = """# Page

<!-- slow -->
```console
$ sleep 9
```

<!-- not run: there is no second machine -->
```sh
rsync a b
```

```python title="x.py"
one = 1
```

```yaml
data: 1
```
"""


def test_commands_are_found_in_blocks_and_prose():
    page = (
        PAGE.replace("rsync a b", "twintrace view a  # comment") + "Say `twintrace show b --all`, or `twintrace …`.\n"
    )
    assert told_commands(page) == ["twintrace view a", "twintrace show b --all"]


def test_blocks_are_read():
    slow, loose, file = blocks(PAGE)
    assert (slow.language, slow.text, slow.slow, slow.line) == ("console", "$ sleep 9\n", True, 4)
    assert (loose.language, loose.reason, loose.slow) == ("sh", "there is no second machine", False)
    assert (file.title, file.text) == ("x.py", "one = 1\n")
    assert all(block.slow for block in blocks(PAGE.replace("# Page\n", "# Page\n\n<!-- slow -->\n")))


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```python\nassert False, 'as told'\n```\n", "as told"),
        ("```console\n$ twintrace show nothing\n```\n", "exit 2, the page tells 0"),
        ("```console\n$ twintrace doctor --operations rms_norm\nno such line\n```\n", "does not print: no such line"),
        ("```console\n$ false  # exit 0\n```\n", "exit 1, the page tells 0"),
        ('```python title="x.py"\na = 1\n```\n\n```diff title="x.py"\n-a = 2\n+a = 3\n```\n', "x.py has 0 of these"),
        (
            '```python title="x.py"\na = 1\n```\n\n```diff title="x.py"\n-a = 1\n+assert 0\n```\n'
            "```console\n$ python x.py\n```\n",
            "exit 1",
        ),
    ],
)
def test_a_page_that_does_not_run_is_caught(page, fault, tmp_path, monkeypatch, checkout_env):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=re.escape(fault)):
        run_page(page, "page.md", checkout_env, slow=False)
