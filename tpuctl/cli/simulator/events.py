"""The command sim events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import click
import msgspec

from tpuctl.cli import output, printing
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator.event_log import Event, EventLog
from tpuctl.cloud.simulator.log_cursor import follow as following
from tpuctl.cloud.simulator.log_cursor import last as last_of

KINDS = ["request", "transition", "fault", "notice"]


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new events until the simulator stops.")
@click.option(
    "--tail", "--last", "last", type=click.IntRange(0), metavar="N", help="Begin with the last N events."
)
@click.option("--kind", type=click.Choice(KINDS), help="Only events of this kind.")
@click.option("--json", "as_json", is_flag=True, help="Show one JSON object a line.")
def events(follow: bool, last: int | None, kind: str | None, as_json: bool) -> None:
    """Show every request, transition and fault in the simulator in order, also from before a restart.

    \b
    Example:
      tpuctl sim events --follow --kind fault
    """
    folder = simulator_folder()
    log = EventLog(folder)

    def new() -> list[Event]:
        return [event for event in log.new() if kind in (None, event.kind)]

    _show(last_of(new(), last), as_json=as_json)
    if follow:
        _show(following(new, lambda: simulator.running(folder) is not None), as_json=as_json)


def _show(shown: Iterable[Event], *, as_json: bool) -> None:
    for event in shown:
        if as_json:
            output.json_line(msgspec.structs.asdict(event))
        else:
            printing.write(_line(event))


def _line(event: Event) -> str:
    time = datetime.fromtimestamp(event.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    line = f"{time}  {event.service:<8} {event.kind:<10} {event.what:<22} {event.resource}  {event.detail}"
    return line.rstrip()
