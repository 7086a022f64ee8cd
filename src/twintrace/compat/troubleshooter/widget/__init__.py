"""`ts.widget`: small things that go with carrying a network over.

In: nets, objects, files. Out: gradients, files. Not here: any logic (`api`). Surprising: none of it pickles.
"""

from __future__ import annotations

from typing import NoReturn

from ..seeding import fix_random
from ..stand_in import refuse
from .losses import loss_compare
from .pocket import get_pt_grads, load_ms_weight2net, object_dump, object_load

__all__ = ["fix_random", "get_pt_grads", "load_ms_weight2net", "loss_compare", "object_dump", "object_load"]


def __getattr__(name: str) -> NoReturn:
    refuse("widget", name)
