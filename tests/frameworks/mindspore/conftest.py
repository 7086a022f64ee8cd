"""Let the tests of this folder say `from zoo import CASES`, whatever import mode pytest runs in.

There is no `__init__.py` here on purpose: a package named `mindspore` beside a `sys.path` entry would hide the real one.
"""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
