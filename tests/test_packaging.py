"""The wheel carries what the code needs at run time, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"


def test_the_wheel_is_the_package(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(
            archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        )
    files = {path for path in (SRC / "twintrace").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert packed == {path.relative_to(SRC).as_posix() for path in files if not path.parts[-2].startswith(".")}
    assert {"twintrace/store/FORMAT.md", "twintrace/py.typed"} <= packed
    assert "License-Expression: Apache-2.0" in metadata
