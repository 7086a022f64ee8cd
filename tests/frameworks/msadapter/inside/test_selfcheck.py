"""The command that proves that recording changes nothing, on a script of MSAdapter's users."""

import subprocess
import sys
from pathlib import Path


def test_the_command_checks_the_users_script(tmp_path):
    """`twintrace selfcheck script.py`; no seed reaches mindtorch's randn, so the script's numbers come from elsewhere."""
    text = Path(__file__).with_name("script.py").read_text(encoding="utf-8")
    for old, new in (("sys.argv[1]", "'t'"), ("sys.argv[2]", "'mix'"), ("torch.randn", "torch.ones")):
        text = text.replace(old, new)
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "from twintrace.cli import main; main()", "selfcheck", "script.py"],
        capture_output=True, text=True, cwd=tmp_path, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same bits" in done.stdout
