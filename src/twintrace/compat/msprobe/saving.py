"""`msprobe.mindspore.save`, `save_grad` and `step`: values out of a network, also one that MindSpore compiles.

    save("./dump", "x", x)              ./dump/step0/rank0/x_float32_0.npy
    z = save_grad("./dump", "z", z)     ./dump/step0/rank0/z_grad_float32_1.npy, when the backward pass has come by
    step()                              what is saved from here on goes to step1

The files are TroubleShooter's, which the tool's own are as well; the folders are filled in when a file is written.
"""

from __future__ import annotations

from typing import Any

from ..troubleshooter import saving


# MindSpore compiles both: they are in words that its compiler knows.
def save(save_dir: str, name: str, data: Any) -> None:
    """Write a tensor, or each tensor of a nested list, tuple or dict, to a file of its own."""
    return saving.save(save_dir + "/{step}/{rank}/" + name, data)


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """The tensor to go on with; when a backward pass comes by, its gradient is written."""
    return saving.save_grad(save_dir + "/{step}/{rank}/" + name, data, "grad")


def step() -> None:
    """The step is over: what is saved from here on goes to the folder of the next."""
    saving.next_step()
