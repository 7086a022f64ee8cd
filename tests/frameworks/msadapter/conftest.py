"""What is in `inside` runs in an environment of its own, where `torch` is MSAdapter: `test_inside.py` sees to it."""

import os

collect_ignore = [] if os.environ.get("TWINTRACE_INSIDE") else ["inside"]
