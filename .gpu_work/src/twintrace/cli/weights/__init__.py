"""`twintrace weights`: weights from one framework to the other. One file per command.

    map.py       which weight is which            compare.py   shapes and values side by side
    convert.py   carry them over                  certify.py   proof that they arrived

In: files. Out: a summary, then what needs attention; exit code 0 yes, 1 no, 2 could not be done. Not here: any logic.
"""

from __future__ import annotations

import click

from .certify import certify
from .compare import compare
from .convert import convert
from .map import map_

__all__ = ["weights"]


@click.group()
def weights() -> None:
    """Carry weights between PyTorch and MindSpore, and prove that they arrived."""


for _command in (map_, convert, compare, certify):
    weights.add_command(_command)
