"""Sets the time of tpuctl and of the simulator in this process; programs on hosts keep the machine's.

Apart from this file, the golden bucket knows no module below the command line and the public API.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, tzinfo

import pytest

from tpuctl import clock
from tpuctl.cloud import server_time
from tpuctl.sim.gcs import errors

SHOWN_TO = ("tpuctl", "aiohttp")
"""Packages that read it by time.time(); aiohttp dates the simulator's answers. gRPC reads deadlines by it."""


class ShownTime:
    """A clock that runs ahead of the machine's by some seconds, or stands still."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._machine = time.time
        self._ahead = 0.0
        self._still: float | None = None
        patch.setattr(time, "time", self._by_caller)
        patch.setattr(clock, "now", self.now)
        patch.setattr(errors, "datetime", self._of_objects())
        # An answer tells its second only, and time goes on between two answers: not while it stands still.
        patch.setattr(server_time.AnswerClock, "now", lambda _: self.now())

    def seconds(self) -> float:
        """Return the seconds since 1970."""
        return self._machine() + self._ahead if self._still is None else self._still

    def _by_caller(self) -> float:
        package = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return self.seconds() if package in SHOWN_TO else self._machine()

    def now(self) -> datetime:
        """Return the time, with its zone."""
        return datetime.fromtimestamp(self.seconds(), UTC)

    def run_from(self, moment: datetime) -> None:
        """Let the time run, from a moment on."""
        self._ahead, self._still = moment.timestamp() - self._machine(), None

    def stand_at(self, moment: datetime) -> None:
        """Let the time stand still."""
        self._still = moment.timestamp()

    def pass_by(self, seconds: float) -> None:
        """Let the time be later, at once."""
        self._ahead += seconds

    def _of_objects(self) -> type[datetime]:
        shown = self

        class Shown(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Shown:
                return cls.fromtimestamp(shown.seconds(), tz)

        return Shown
