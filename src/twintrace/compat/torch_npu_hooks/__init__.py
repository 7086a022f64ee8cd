"""An embassy of `torch_npu.hooks`, the accuracy comparison that came with Ascend's PyTorch adapter.

    from twintrace.compat.torch_npu_hooks import set_dump_path, seed_all, register_acc_cmp_hook
    from twintrace.compat.torch_npu_hooks.tools import compare

What lives here: those four names, and the files behind them. In: a script written for the old tool, or its dumps. Out: dumps that
both tools read, and the csv. SURFACE.md lists every name and every deliberate difference.

    recording.py   set_dump_path, register_acc_cmp_hook     names.py      `Functional_linear_forward_input.0`
    writer.py      a recording, line by line                tools.py      compare
    layout.py      dumps as traces (ptdbg_ascend's too)     stand_in.py   `torch_npu.hooks` for unchanged scripts

Not here: recording, pairing, measuring; they are the project's own. Surprising: the dump is called `.pkl` and is no pickle. A real
pickle under that name is recognised by its opcodes and refused; nothing is ever loaded from one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register_acc_cmp_hook", "seed_all", "set_dump_path"]


def set_dump_path(fpath: Any) -> None:
    """Record into this file from here on; called again, go on in another."""
    from .recording import set_dump_path as begin

    begin(fpath)


def register_acc_cmp_hook(model: Any) -> None:
    """Record the leaf modules of this model, besides all functions."""
    from .recording import register_acc_cmp_hook as register

    register(model)


def seed_all(seed: int = 1234) -> None:
    """Seed python, numpy and torch."""
    from ... import api

    api.seed_all(seed)
