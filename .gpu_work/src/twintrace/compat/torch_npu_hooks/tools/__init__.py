"""`compare`, under the name that scripts import it by: `from torch_npu.hooks.tools import compare`.

In: two dumps. Out: a csv of the tensors that were compared, a second one of what was skipped, and a few lines on the terminal.
Not here: pairing and measuring, which are `api.compare`. Surprising: the bench is the left side, because errors are relative to it.
"""

from __future__ import annotations

from .accuracy import compare

__all__ = ["compare"]
