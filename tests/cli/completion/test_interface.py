"""What each command takes is as it was recorded: names, values, bounds and defaults."""

from __future__ import annotations

from tests.cli.completion.interface import FILE, interface


def test_every_argument_and_option_is_as_recorded() -> None:
    assert interface() == FILE.read_text(), "if it is meant: python -m tests.cli.completion.interface"
