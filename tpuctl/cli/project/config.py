"""config show."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.session import Session, with_session
from tpuctl.config.settings import SETTINGS


@click.group()
def config() -> None:
    """Settings and where they come from."""


@config.command()
@with_session
def show(session: Session) -> None:
    """Show each setting's value and where it comes from.

    \b
    Example:
      tpuctl config show
    """
    values = session.config.values
    if session.as_json:
        output.json({"settings": values})
        return
    rows = [(name, values[name].value or "-", values[name].origin) for name in SETTINGS]
    output.table(("SETTING", "VALUE", "ORIGIN"), rows)
