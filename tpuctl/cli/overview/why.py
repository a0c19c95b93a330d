"""The command why."""

from __future__ import annotations

import click

from tpuctl.cli import output, printing
from tpuctl.cli.session import Session, with_session
from tpuctl.flows.overview.story import tell


@click.command()
@click.argument("name")
@with_session
def why(session: Session, name: str) -> None:
    """Tell the story of a TPU: what was asked, what Google answered, what ran there, and what to do now.

    Also of one that is gone: Google keeps its operations for some days, the bucket keeps its runs.

    \b
    Example:
      tpuctl why ada-v3-8
    """
    zone = session.from_flag("zone")
    provider = session.cloud.provider
    story = tell(provider, lambda: session.cloud.bucket, name, zone, session.time, session.warn)
    if session.as_json:
        events = [{"at": event.at, "from": event.source, "text": event.text} for event in story.events]
        shown = {"name": name, "events": events, "now": story.now, "unknown": story.gaps}
        output.json({**shown, "hint": story.hint, "next": story.command})
        return
    rows = [(event.at, event.source, event.text) for event in story.events]
    output.table(("TIME", "FROM", "WHAT"), rows + [("now", "provider", sentence) for sentence in story.now])
    for gap in story.gaps:
        output.note(f"Warning: {gap}.".replace("..", "."))
    if story.hint:
        printing.show_command(story.hint, label="To do:", colour="")
    output.hint(story.command)
