"""Processes that a script under run-as starts find the tool as well."""

import subprocess
import sys

import pytest

SCRIPTS = {
    "troubleshooter": "import troubleshooter as ts\nfrom troubleshooter.migrator import api_dump_init\nfound = ts",
    "msprobe": "from msprobe.pytorch import PrecisionDebugger\nimport msprobe.pytorch as found",
    "torch_npu": "from torch_npu.hooks import set_dump_path\nimport torch_npu.hooks as found",
}
WAYS = {
    "multiprocessing": """
import multiprocessing

def work():
    print("inside", found.__name__)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
""",
    "subprocess": """
import subprocess, sys

if sys.argv[1:] == ["inner"]:
    print("inside", found.__name__)
else:
    raise SystemExit(subprocess.run([sys.executable, __file__, "inner"]).returncode)
""",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tool", SCRIPTS)
def test_a_process_that_is_started_finds_the_tool(tool, way, tmp_path, checkout_env):
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[tool] + WAYS[way])
    command = [sys.executable, "-m", "twintrace", "run-as", tool, str(script)]
    done = subprocess.run(command, env=checkout_env, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "inside twintrace.compat." in done.stdout


def test_a_real_torch_npu_is_not_hidden(tmp_path, checkout_env):
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("real = True")
    script = tmp_path / "script.py"
    script.write_text("import torch_npu\nfrom torch_npu.hooks import set_dump_path\nprint('real', torch_npu.real)")
    env = {**checkout_env, "PYTHONPATH": f"{tmp_path}:{checkout_env['PYTHONPATH']}"}
    command = [sys.executable, "-m", "twintrace", "run-as", "torch_npu", str(script)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert "real True" in done.stdout, done.stderr
