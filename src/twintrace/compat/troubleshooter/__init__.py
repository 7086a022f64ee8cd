"""TroubleShooter's names: `import twintrace.compat.troubleshooter as ts`.

    ts.migrator.get_weight_map, convert_weight, convert_weight_and_load, save_net_and_weight_params,
                compare_ms_ckpt, compare_pth_and_ckpt                             migrator/weights.py

    tables.py    tables as it prints them          SURFACE.md   every keyword, and what differs on purpose

In: its arguments. Out: its files, tables and return values. Not here: any logic. Surprising: none of it needs both frameworks;
the nets that are given say which ones are there.
"""

from __future__ import annotations

from . import migrator, widget
from .saving import save, save_grad
from .seeding import fix_random

__all__ = ["fix_random", "migrator", "save", "save_grad", "widget"]
