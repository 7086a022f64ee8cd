"""Let the tests of this folder say `from operation_cases import …`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
