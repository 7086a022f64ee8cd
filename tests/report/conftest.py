"""Let the tests of this folder say `import comparisons`, whatever import mode pytest runs in."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
