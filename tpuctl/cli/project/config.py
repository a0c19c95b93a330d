"""The command config show."""

from __future__ import annotations

import click

from tpuctl.cli import output
from tpuctl.cli.groups import Group
from tpuctl.cli.session import Session, with_session
from tpuctl.config import Config, Value
from tpuctl.config.settings import SETTINGS
from tpuctl.errors import TpuctlError, in_one_line


@click.group(cls=Group)
def config() -> None:
    """Show each setting and where it comes from."""


@config.command()
@with_session
def show(session: Session) -> None:
    """Show each setting's value and where it comes from, and the files that were read.

    The project's file is the nearest tpuctl.toml, here or above, or the file that TPUCTL_CONFIG names.

    \b
    Example:
      tpuctl config show
    """
    values = {name: _checked(session.config, name) for name in SETTINGS}
    if session.as_json:
        settings = {name: {"value": value.value, "origin": value.origin} for name, value in values.items()}
        output.json({"settings": settings, "files": session.config.files})
        return
    rows = [(name, setting.value or "-", setting.origin) for name, setting in values.items()]
    output.table(("SETTING", "VALUE", "ORIGIN"), rows)
    output.note(f"Files that were read: {', '.join(session.config.files) or 'none'}.")


def _checked(config: Config, name: str) -> Value:
    """Return a setting as commands use it; warn if they would refuse it."""
    setting = config.values[name]
    try:
        return Value(config.get(name), setting.origin)
    except TpuctlError as error:
        output.note(f"Warning: {in_one_line(error)}")
        return setting
