"""Let the tests of this folder say `from corpus import …`, whatever import mode pytest runs in."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.append(TESTS)
