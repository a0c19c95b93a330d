"""Reads the time from the services' answers: no answer of tpuctl depends on a laptop's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tpuctl import clock, durations
from tpuctl.cloud.request_log import log_session
from tpuctl.errors import DeadlineError

if TYPE_CHECKING:
    import requests

CLOUD_TPU = "https://tpu.googleapis.com/"
TIMEOUT = 20.0
MOST_OFF = 60.0
"""Seconds by which this machine's clock may be off before that is said."""
Warn = Callable[[str], None]
"""Takes the sentence that this machine's clock is off."""


def server_time(url: str = "", warn: Warn | None = None) -> datetime:
    """Return the time by the server of a URL, by default the Cloud TPU API's; raises DeadlineError."""
    import requests  # noqa: PLC0415  few commands need the time

    try:
        with requests.Session() as session:
            log_session(session)
            answer = session.head(url or CLOUD_TPU, timeout=TIMEOUT)
        date = parsedate_to_datetime(answer.headers["Date"])
    except (requests.RequestException, KeyError, ValueError) as error:
        raise DeadlineError(
            f"No server tells the time: {error}.", hint="Nothing is compared with this machine's clock."
        ) from error
    _compare(date, _margin(answer), warn)
    return date


def _margin(response: requests.Response) -> float:
    """The seconds that may have passed since the time of an answer: of its second, and of its way."""
    return 1 + response.elapsed.total_seconds()


def _compare(date: datetime, margin: float, warn: Warn | None) -> None:
    if warn is None:
        return
    fast = (clock.now() - date).total_seconds()
    off = max(fast - margin, -fast)
    if off >= MOST_OFF:
        minutes, side = durations.text(round(off / 60) * 60), "ahead of" if fast > 0 else "behind"
        warn(f"This machine's clock is {minutes} {side} the service's, which tpuctl goes by.")


class AnswerClock:
    """The time of a service: what its answers have shown, and what has passed since then.

    An answer tells its second and not which part of it: the time is the latest that all answers allow, and
    does not go back with the next answer, unless the service's own clock has.
    """

    def __init__(self, warn: Warn | None = None) -> None:
        """Take what is told with each answer that this machine's clock is off."""
        self._ahead: float | None = None
        self._warn = warn

    def note(self, response: requests.Response, **_: object) -> None:
        """Take the time of an answer: a hook of `requests`."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, ValueError):
            return
        ahead = date.timestamp() - time.monotonic()
        margin = _margin(response)
        if self._ahead is None or not ahead <= self._ahead <= ahead + margin:
            self._ahead = ahead
        _compare(date, margin, self._warn)

    def now(self) -> datetime | None:
        """Return the service's time; None before its first answer."""
        return None if self._ahead is None else datetime.fromtimestamp(self._ahead + time.monotonic(), UTC)
