"""Let the tests of this folder say `import elements`, which lies with the tests of the store, and `import definitions`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "store"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
