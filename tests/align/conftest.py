"""The tests of this folder share `sides.py`, whatever import mode pytest runs in."""

import sys
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.append(HERE)
