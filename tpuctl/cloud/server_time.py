"""Reads the time from a service's answer: a laptop's wrong clock must delete nothing early."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tpuctl.errors import DeadlineError

if TYPE_CHECKING:
    import requests

CLOUD_TPU = "https://tpu.googleapis.com/"
TIMEOUT = 20.0


def server_time(url: str = "") -> datetime:
    """Return the time by the server of a URL, by default the Cloud TPU API's; raises DeadlineError."""
    import requests  # noqa: PLC0415  few commands need the time

    try:
        answer = requests.head(url or CLOUD_TPU, timeout=TIMEOUT)
        return parsedate_to_datetime(answer.headers["Date"])
    except (requests.RequestException, KeyError, ValueError) as error:
        raise DeadlineError(
            f"No server tells the time: {error}.", hint="Expiries are not compared with this machine's clock."
        ) from error


class AnswerClock:
    """The time of a service: what its answers have shown, and what has passed since then.

    An answer tells its second and not which part of it: the time is the latest that all answers allow, and
    does not go back with the next answer, unless the service's own clock has.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None

    def note(self, response: requests.Response, **_: object) -> None:
        """Take the time of an answer: a hook of `requests`."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, ValueError):
            return
        ahead = date.timestamp() - time.monotonic()
        margin = 1 + response.elapsed.total_seconds()  # of the second, and of the answer's way
        if self._ahead is None or not ahead <= self._ahead <= ahead + margin:
            self._ahead = ahead

    def now(self) -> datetime | None:
        """Return the service's time; None before its first answer."""
        return None if self._ahead is None else datetime.fromtimestamp(self._ahead + time.monotonic(), UTC)
