"""Hands the terminal over to another program, which replaces this one."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from tpuctl.errors import ConfigError

CHANGED_SIGNALS = ("SIGPIPE", "SIGXFSZ")
"""Python ignores them, and a program that it becomes would inherit that."""


def hand_over(command: list[str]) -> NoReturn:
    """Become another program: it has the terminal, all signals, and this process's exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in CHANGED_SIGNALS:
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}.") from error
