"""The embassy is global: each test gets it as a new process would."""

import json

import pytest

from twintrace.compat.msprobe import debugger


@pytest.fixture(autouse=True)
def _fresh_embassy():
    debugger.close()
    yield
    debugger.close()
    debugger.unseed()


@pytest.fixture
def config(tmp_path):
    """`config(level, task, section, …)`: the path of a config.json with these fields; the dump goes to `tmp_path / "dump"`."""

    def write(level="mix", task="statistics", section=None, **fields):
        content = {"task": task, "level": level, "dump_path": str(tmp_path / "dump"), task: section or {}, **fields}
        (tmp_path / "config.json").write_text(json.dumps(content))
        return str(tmp_path / "config.json")

    return write
