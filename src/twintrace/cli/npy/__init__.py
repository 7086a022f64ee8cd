"""`twintrace npy`: folders of .npy files. One file per command.

    compare.py   two folders side by side

In: folders, whoever wrote them. Out: the reports of `twintrace compare`; exit code 0 they agree, 1 they part, 2 an error or
nothing in common, 3 something could not be compared. Not here: any logic.
"""

from __future__ import annotations

import click

from .compare import compare

__all__ = ["npy"]


@click.group()
def npy() -> None:
    """Folders of .npy files: what `save` of this tool or of TroubleShooter, or np.save, wrote."""


npy.add_command(compare)
