"""The environments' two layers: what is wanted, which cached one serves, and whose .venv it is."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "env.py"


@pytest.fixture(scope="module")
def env():
    spec = importlib.util.spec_from_file_location("twintrace_scripts_env", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PYPROJECT = {
    "build-system": {"requires": ["backend"]},
    "project": {
        "name": "twintrace",
        "dependencies": ["numpy>=1"],
        "optional-dependencies": {
            "a": ["alpha==1"],
            "b": ["twintrace[a]", "beta"],
            "c": ["twintrace[a, b]", "numpy<2"],
        },
    },
}


@pytest.mark.parametrize(
    ("extras", "wanted"),
    [
        ([], ["backend", "numpy>=1"]),
        (["a"], ["alpha==1", "backend", "numpy>=1"]),
        (["b"], ["alpha==1", "backend", "beta", "numpy>=1"]),
        (["c", "a"], ["alpha==1", "backend", "beta", "numpy<2", "numpy>=1"]),
    ],
)
def test_extras_that_name_extras_are_unfolded(env, extras, wanted):
    assert env.requirements(PYPROJECT, extras) == wanted


def test_an_unknown_extra_is_refused_by_name(env):
    with pytest.raises(env.EnvError, match=r"unknown extra 'd': pyproject.toml offers a, b, c"):
        env.requirements(PYPROJECT, ["d"])


def cached(env, envs, wanted, **stamp):
    path = envs / env.env_name(wanted)
    path.mkdir()
    env.write_stamp(path, {"interpreter": env.interpreter(), "requirements": wanted, **stamp})
    return path


def test_the_environment_of_that_name_serves_and_else_a_larger_one(env, tmp_path):
    larger = cached(env, tmp_path, ["a", "b", "c"])
    assert env.find(tmp_path, ["a", "b"]) == larger
    exact = cached(env, tmp_path, ["a", "b"])
    assert env.find(tmp_path, ["a", "b"]) == exact
    assert env.find(tmp_path, ["a", "d"]) is None


def test_an_unfinished_environment_or_one_of_another_interpreter_does_not_serve(env, tmp_path):
    (cached(env, tmp_path, ["a"]) / env.STAMP).unlink()
    cached(env, tmp_path, ["a", "b"], interpreter=["another"])
    assert env.find(tmp_path, ["a"]) is None


def test_a_foreign_venv_is_left_alone(env, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    mine = tmp_path / ".venv" / "precious"
    mine.mkdir(parents=True)
    with pytest.raises(env.EnvError, match=r"not made by scripts/env\.py"):
        env.lay_over(tmp_path, tmp_path / ".venv", tmp_path / "cached", [])
    assert mine.exists()


def test_a_lent_command_runs_with_the_checkouts_interpreter(env, tmp_path):
    there, here = tmp_path / "cached", tmp_path / "a tree" / ".venv"
    for folder in (there / "bin", here / "bin"):
        folder.mkdir(parents=True)
    (here / "bin" / "python").symlink_to(sys.executable)
    command = there / "bin" / "tell"
    command.write_text(f"#!{there}/bin/python\nimport sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    command.chmod(0o755)
    env.lend(command, here / "bin" / "tell", there, here)
    told = subprocess.run([here / "bin" / "tell", "one", "two three"], capture_output=True, text=True)
    assert told.stdout == "['one', 'two three']\n", told.stderr


def test_a_folder_among_the_commands_is_left_alone(env, tmp_path):
    """Of a command that is a .py file pip leaves a __pycache__ beside it."""
    (tmp_path / "there" / "bin" / "__pycache__").mkdir(parents=True)
    (tmp_path / "here" / "bin").mkdir(parents=True)
    place = tmp_path / "here" / "bin" / "__pycache__"
    env.lend(tmp_path / "there" / "bin" / "__pycache__", place, tmp_path / "there", tmp_path / "here")
    assert not place.exists()
