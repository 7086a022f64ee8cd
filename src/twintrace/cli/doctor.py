"""`twintrace doctor`: what is installed, what can be recorded, which operations are known."""

from __future__ import annotations

import click

from .. import api


@click.command()
@click.option("--operations", is_flag=True, help="List the operations that are known instead: names, traits, variants.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("names", nargs=-1)
def doctor(operations: bool, as_json: bool, names: tuple[str, ...]) -> None:
    """Say what is installed, what can be recorded, what is missing and how to get it.

    With --operations, list what is known of operations: their names in PyTorch, MindSpore and MSAdapter, whether results and
    gradients are recomputed, whether they draw random numbers, only move values, only ask for one, or write in place. NAMES
    (`softmax`, `Dense`, `conv*`) choose some of them and show all their names and variants.
    """
    if names and not operations:
        raise click.UsageError(f"{names[0]}: names choose operations; add --operations.")
    if operations:
        known = api.known_operations(*names)
        click.echo(api.operations_json(known) if as_json else api.operations_text(known, details=bool(names)))
        if not known:
            raise SystemExit(2)
        return
    findings = api.doctor()
    if as_json:
        click.echo(api.findings_json(findings))
        return
    for finding in findings:
        mark = click.style("ok ", fg="green") if finding.good else click.style("-- ", fg="yellow")
        remedy = f"   ({finding.remedy})" if finding.remedy and not finding.good else ""
        click.echo(f"{mark} {finding.subject:12} {finding.text}{remedy}")
