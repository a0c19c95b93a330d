"""Reads the time from a service's answer: a laptop's wrong clock must delete nothing early."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime

from tpuctl.errors import DeadlineError

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
