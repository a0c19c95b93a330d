"""What has to happen without being asked: lifecycle rules, and the end of soft deletes and sessions."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from tpuctl.sim.gcs.lifecycle.rules import apply_lifecycle
from tpuctl.sim.gcs.storage.store import Store

INTERVAL = 60.0
"""Seconds between two rounds; Cloud Storage takes up to a day for a lifecycle rule."""

_log = logging.getLogger(__name__)


async def tidy(store: Store, now: datetime) -> None:
    """Do one round as of `now`, in steps that let others have their turn."""
    store.forget_expired()
    for _ in apply_lifecycle(store, now):
        await asyncio.sleep(0)


async def keep_tidy(store: Store) -> None:
    """Do a round every minute, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL)
        try:
            await tidy(store, datetime.now(UTC))
        except Exception:
            _log.exception("a round of the janitor failed; the next one tries again")
