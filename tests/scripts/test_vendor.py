"""The libraries on the page are what scripts/vendor.py makes of the packages that it names."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "vendor.py"


@pytest.mark.slow
def test_the_bundles_are_reproducible():
    found = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, timeout=900)
    if found.returncode == 3:
        pytest.skip(found.stderr)
    assert (found.returncode, found.stdout) == (0, "vendor: 2 libraries made, other than here: none\n")
