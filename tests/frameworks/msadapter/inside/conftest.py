"""Here `torch` is MSAdapter. Where it needs another import first, the environment says which."""

import importlib
import os

if "TWINTRACE_IMPORT_FIRST" in os.environ:
    importlib.import_module(os.environ["TWINTRACE_IMPORT_FIRST"])
