"""Runs every minute: deletes expired sessions and soft-deleted objects, applies lifecycle rules."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from tpuctl.sim.gcs.lifecycle.apply_rules import apply_lifecycle
from tpuctl.sim.gcs.storage.store import Store

INTERVAL = 60.0
"""Seconds between two runs; Cloud Storage takes up to a day for a lifecycle rule."""

_log = logging.getLogger(__name__)


async def run_once(store: Store, now: datetime) -> None:
    """Run the task as of `now`; between its steps other tasks run."""
    store.delete_expired()
    for _ in apply_lifecycle(store, now):
        await asyncio.sleep(0)


async def run_forever(store: Store) -> None:
    """Run the task every minute until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL)
        try:
            await run_once(store, datetime.now(UTC))
        except Exception:
            _log.exception("a background task failed; it is retried in a minute")
