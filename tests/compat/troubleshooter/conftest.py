"""The embassy is global: each test gets it as a new process would. And the real tool, in an environment of its own."""

import subprocess
from pathlib import Path

import pytest

from twintrace.compat.troubleshooter.migrator import api_dump


@pytest.fixture(autouse=True)
def _fresh_embassy():
    api_dump.close()
    yield
    api_dump.close()


@pytest.fixture(scope="session")
def real_tool(checkout_env):
    """`real_tool(script, cwd=…)`: run a script with TroubleShooter 1.0.18; what it said."""
    from benchmarks.peers import environment

    interpreter = environment("troubleshooter")

    def run(*command: str, cwd: Path) -> str:
        env = {name: value for name, value in checkout_env.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(interpreter), *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
