"""`twintrace doctor`: what is installed, what can be recorded."""

from __future__ import annotations

import click

from .. import api


@click.command()
def doctor() -> None:
    """Say what is installed, what can be recorded, what is missing and how to get it."""
    for finding in api.doctor():
        mark = click.style("ok ", fg="green") if finding.good else click.style("-- ", fg="yellow")
        remedy = f"   ({finding.remedy})" if finding.remedy and not finding.good else ""
        click.echo(f"{mark} {finding.subject:12} {finding.text}{remedy}")
