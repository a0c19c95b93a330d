"""Holds the lease of an attempt: of many who would start it one does; if it is killed, another goes on.

Times are the bucket's: when the lease was written, and when the bucket is asked.

- Defines what a step of a watcher tells about a run.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.display import Record
from tpuctl.errors import ConflictError, StateError, TpuctlError
from tpuctl.flows.runs.stored_attempt import age_of, find_record
from tpuctl.flows.runs.stored_run import REPLACEMENTS, StoredRun
from tpuctl.recovery import Lease

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Operation, Provider
    from tpuctl.cloud.storage import Object
    from tpuctl.nodes import Change


GOES_ON = "goes on"
RESTARTED = "restarted"
WAITS = "waits"
"""For capacity, or for hosts that do not answer: the next step looks again."""
BUSY = "busy"
"""Another watcher starts it."""
ENDED_FOR_GOOD = "ended"


@dataclass(frozen=True)
class WatchEvent(Record):
    """What a step of `watch` found or changed."""

    run: str
    attempt: int
    """Its number; 0 where the step has ended before it was known."""
    action: str
    """`goes on`, `restarted`, `waits`, `busy` or `ended`."""
    detail: str
    """The state of a run that goes on, the outcome of one that has ended, or why it waits."""

    @property
    def line(self) -> str:
        """The event, for people to read."""
        attempt = f"attempt {self.attempt} " if self.attempt else ""
        return f"{self.run}: {attempt}{self.action}: {self.detail}"


SECONDS = 60
"""After which a lease that nobody has written again is late, whatever it claims: any job may have made it."""
RENEWALS = 4
"""Times that it is written within them."""


class LeaseLostError(TpuctlError):
    """Another watcher has taken over; this one changes nothing any more.

    No StateError: one of the provider's is waited out by who deletes something.
    """

    kind = StateError.kind

    def __init__(self, run: StoredRun, lease: Lease) -> None:
        self.attempt = lease.attempt
        super().__init__(
            f"Another watcher has taken over attempt {lease.attempt} of run '{run.name}'.",
            hint=f"See what it does: tpuctl describe {run.name}",
        )


def read(run: StoredRun, attempt: int) -> Lease | None:
    """Return the lease of an attempt; None without one, and for an object that is none."""

    def check(lease: Lease) -> None:
        if (lease.run, lease.attempt) != (run.name, attempt):
            raise ValueError("it is of another attempt")

    try:
        return find_record(run.bucket, run.paths.lease(attempt), Lease, check)
    except BadObjectError as error:
        run.warn(error.message)
        return None


def current(run: StoredRun, attempt: int) -> Lease | None:
    """Return the lease of who starts an attempt now; None where nobody does, or is late."""
    item = run.bucket.stat(run.paths.lease(attempt))
    return _current(run, attempt, item) if item else None


def take(run: StoredRun, attempt: int, holder: str) -> HeldLease | Lease:
    """Return the lease of an attempt as one's own, or that of who holds it."""
    own = Lease(run.name, attempt, secrets.token_hex(16), holder, SECONDS)
    name = run.paths.lease(attempt)
    for _ in range(REPLACEMENTS):
        item = run.bucket.stat(name)
        try:
            if item is None:
                run.bucket.create(name, runs.encode(own))
                return HeldLease(run, own)
            other = _current(run, attempt, item)
            if other:
                return other
            run.bucket.replace(item, runs.encode(own))
            return HeldLease(run, own)
        except ConflictError:
            continue  # another watcher was first
    raise ConflictError(
        f"The lease of attempt {attempt} of run '{run.name}' keeps changing.", hint="Try again."
    )


def _current(run: StoredRun, attempt: int, item: Object) -> Lease | None:
    lease = read(run, attempt)
    if lease is None or lease.is_over or age_of(item, run.bucket.now()) > min(lease.seconds, SECONDS):
        return None
    return lease


class HeldLease:
    """One's own lease; within its block it is written again before it is late."""

    def __init__(self, run: StoredRun, lease: Lease) -> None:
        self._run = run
        self._lease = lease
        self._ended = threading.Event()
        self._stays = False
        self._keeper = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> HeldLease:
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let it go; after an error it is late at once, so that another watcher goes on."""
        self._ended.set()
        self._keeper.join()
        if kind is not None and not issubclass(kind, (Exception, KeyboardInterrupt)):
            return  # killed
        is_over = kind is None and not self._stays
        try:
            self._write(is_over=is_over, seconds=self._lease.seconds if is_over else 1)
        except TpuctlError:
            pass  # it will be late

    def keep(self) -> None:
        """Let another watcher go on after the end of the block: the attempt is not started yet."""
        self._stays = True

    def check(self) -> None:
        """Write it again; raises LeaseLostError where another watcher has taken over meanwhile."""
        self._write(is_over=False, seconds=self._lease.seconds)

    def guard(self, provider: Provider) -> Provider:
        """Return the provider; every change of it raises LeaseLostError where another watcher has taken over.

        A watcher that was suspended for a while knows of it only by the lease.
        """
        return cast("Provider", _Guarded(provider, self))

    def _write(self, *, is_over: bool, seconds: int) -> None:
        run, lease = self._run, self._lease
        name = run.paths.lease(lease.attempt)
        item, stored = run.bucket.stat(name), read(run, lease.attempt)
        if item is None or stored is None or stored.token != lease.token:
            raise LeaseLostError(run, lease)
        changed = Lease(lease.run, lease.attempt, lease.token, lease.holder, seconds, is_over)
        try:
            run.bucket.replace(item, runs.encode(changed))
        except ConflictError as error:
            after = read(run, lease.attempt)
            if after is None or after.token != lease.token:
                raise LeaseLostError(run, lease) from error

    def _keep(self) -> None:
        while not self._ended.wait(self._lease.seconds / RENEWALS):
            try:
                self.check()
            except LeaseLostError:
                return  # `check` says so before anything is changed
            except TpuctlError:
                continue  # the bucket does not answer; it may still do so in time


class _Guarded:
    """A provider that makes changes only for who holds the lease."""

    def __init__(self, provider: Provider, held: HeldLease) -> None:
        self._provider = provider
        self._held = held

    def begin(self, change: Change) -> Operation:
        self._held.check()
        return self._provider.begin(change)

    def __getattr__(self, name: str) -> object:
        return getattr(self._provider, name)
