"""The commands, as a shell sees them: text, exit codes, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.test_api import run
from twintrace.cli import cli

SCRIPT = """
import sys, torch
from torch import nn
{record_import}
torch.manual_seed(0)
net = nn.Linear(3, 1)
x = torch.ones(2, 3)
{start}
loss = net(x).sum()
loss.backward()
{stop}
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("traces")
    return run(root / "left"), run(root / "right", eps=1e-2), run(root / "again")


@pytest.fixture
def twintrace(checkout_env):
    def call(*arguments, expect=0):
        code = "from twintrace.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=checkout_env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return call


def test_compare_says_yes_with_0_and_no_with_1(traces, twintrace):
    left, right, again = traces
    assert "agree: all" in twintrace("compare", left, again)
    assert "part at" in twintrace("compare", left, right, expect=1)


def test_what_cannot_be_compared_is_2_and_one_sentence(traces, twintrace, tmp_path):
    (tmp_path / "x").mkdir()
    text = twintrace("compare", traces[0], tmp_path / "x", expect=2)
    assert text.startswith("twintrace: ")
    assert "is not a trace" in text
    assert "does not exist" in twintrace("show", tmp_path / "none", expect=2)


def test_show_prints_a_tree_a_table_and_json(traces, twintrace):
    assert "first" in twintrace("show", traces[0])
    assert "where" in twintrace("show", traces[0], "--table")
    assert json.loads(twintrace("show", traces[0], "--json"))["framework"] == "reference"
    assert "more calls" in twintrace("show", traces[0], "--limit", 2)


def test_doctor_names_what_is_installed(twintrace):
    text = twintrace("doctor")
    assert "numpy" in text
    assert "torch" in text


def test_doctor_lists_operations(twintrace):
    text = twintrace("doctor", "--operations")
    assert "layer_norm" in text
    assert "recomputed forward" in text
    chosen = twintrace("doctor", "--operations", "Dense")
    assert "torch.nn.Linear" in chosen
    assert "without bias" in chosen
    assert "layer_norm" not in chosen
    data = json.loads(twintrace("doctor", "--operations", "rms_norm", "--json"))["operations"]
    assert [item["name"] for item in data] == ["rms_norm"]
    assert data[0]["forward"]
    assert data[0]["backward"]
    assert "No operation" in twintrace("doctor", "--operations", "nothing of this name", expect=2)
    assert "add --operations" in twintrace("doctor", "Dense", expect=2)


def test_doctor_as_json(twintrace):
    findings = json.loads(twintrace("doctor", "--json"))["findings"]
    assert {"python", "numpy"} <= {finding["subject"] for finding in findings}


def test_unknown_options_are_refused_with_2(twintrace):
    assert "No such option" in twintrace("show", "--wrong", expect=2)


@pytest.mark.needs_torch
@pytest.mark.parametrize("uses_twintrace", [True, False])
def test_selfcheck_of_a_script(tmp_path, twintrace, uses_twintrace):
    parts = {"record_import": "", "start": "", "stop": ""}
    if uses_twintrace:
        path = tmp_path / "trace"
        parts = {
            "record_import": "import twintrace as tt",
            "start": f"rec = tt.record({str(path)!r}, net); rec.start()",
            "stop": "rec.close()",
        }
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**parts))
    assert "same bits" in twintrace("selfcheck", script)
    assert not (tmp_path / "trace").exists(), "a self-check records elsewhere"


@pytest.mark.needs_torch
@pytest.mark.needs_torch
def test_selfcheck_of_a_script_that_imports_twintrace_and_records_nothing(tmp_path, twintrace):
    script = tmp_path / "train.py"
    script.write_text("import torch\nimport twintrace as tt\ntt.seed_all(0)\nloss = torch.ones(3).exp().sum()\n")
    assert "same bits" in twintrace("selfcheck", script)


def test_selfcheck_of_a_script_without_a_framework(tmp_path, twintrace):
    script = tmp_path / "train.py"
    script.write_text("print('nothing to record')\n")
    assert "imports no framework that can be recorded" in twintrace("selfcheck", script, expect=2)


def test_selfcheck_says_when_it_cannot_tell(tmp_path, twintrace):
    script = tmp_path / "train.py"
    script.write_text("import time, torch\nx = torch.ones(2) * (time.perf_counter_ns() % 99991)\n")
    assert "cannot tell" in twintrace("selfcheck", script, expect=2)


def test_without_arguments_it_shows_five_things_that_work():
    """Each line is an example that parses: the commands and options exist, the Python compiles."""
    done = CliRunner().invoke(cli, [])
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if line.startswith("  ")]
    assert len(lines) == 5
    examples = [re.split(r" {2,}", line.strip())[1] for line in lines]
    compile(examples[0], "example", "exec")
    for example in examples[1:]:
        program, *words = example.split()
        assert program == "twintrace"
        command, context = cli, click.Context(cli)
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
        command.make_context("example", words)


@pytest.mark.parametrize(
    ("typed", "offered"), [(["twintrace", "comp"], "compare"), (["twintrace", "compare", "--ht"], "--html")]
)
def test_a_shell_can_complete_commands_and_options(checkout_env, typed, offered):
    """As docs say: `eval "$(_TWINTRACE_COMPLETE=bash_source twintrace)"`."""
    program = Path(sys.executable).with_name("twintrace")
    asked = {"_TWINTRACE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    done = subprocess.run([program], env={**checkout_env, **asked}, capture_output=True, text=True, timeout=60)
    assert f"plain,{offered}" in done.stdout.split()


def test_the_script_for_completion_is_given(checkout_env):
    program = Path(sys.executable).with_name("twintrace")
    asked = {"_TWINTRACE_COMPLETE": "zsh_source"}
    done = subprocess.run([program], env={**checkout_env, **asked}, capture_output=True, text=True, timeout=60)
    assert "#compdef twintrace" in done.stdout
