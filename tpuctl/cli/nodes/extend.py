"""The command extend."""

from __future__ import annotations

import click

from tpuctl import clock, durations
from tpuctl.catalogue.totals import Total
from tpuctl.cli import output
from tpuctl.cli.progress import show_steps
from tpuctl.cli.session import Session, dry_run_option, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.nodes import changes


@click.command()
@click.argument("name")
@click.argument("duration", type=DURATION)
@dry_run_option
@with_session
def extend(session: Session, name: str, duration: int, dry_run: bool) -> None:
    """Move the end of a TPU's --ttl by a DURATION, such as 2h: after its present end, or after now.

    \b
    Example:
      tpuctl extend ada-v3-8 2h
    """
    context = session.context
    extension = changes.plan_extension(context, name, duration, session.from_flag("zone"))
    if dry_run:
        output.requests(changes.extension_requests(context, extension), as_json=session.as_json)
        return
    with show_steps() as report:
        changes.extend(context, extension, report)
    expires = clock.iso(extension.expires)
    if session.as_json:
        output.json({"name": name, "zone": extension.allocation.zone, "expires": expires})
    else:
        more = Total.of(session.prices.of(node).for_seconds(duration) for node in extension.allocation.nodes)
        output.note(f"{name} deletes itself {expires}; {durations.text(duration)} more cost {more.short}.")
