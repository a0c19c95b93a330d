"""The lease of an attempt: one holder at a time, by the bucket's clock; one that is late is taken over."""

from __future__ import annotations

import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl import runs
from tpuctl.errors import ConflictError
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.lease import HeldLease, LeaseLostError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.recovery.records import Lease


@pytest.fixture
def memory() -> MemoryBucket:
    """A bucket with a clock of its own."""
    return MemoryBucket()


@pytest.fixture
def run(memory: MemoryBucket) -> StoredRun:
    """A run of which nothing is written."""
    return StoredRun(memory, "r1")  # type: ignore[arg-type]


def held(run: StoredRun, holder: str) -> HeldLease:
    taken = leases.take(run, 2, holder)
    assert isinstance(taken, HeldLease)
    return taken


def test_one_of_two_holds_it_until_it_lets_go(run: StoredRun) -> None:
    with held(run, "ada"):
        other = leases.take(run, 2, "bob")
        assert isinstance(other, Lease)
        assert other.holder == "ada"
    with held(run, "bob"):
        assert isinstance(leases.take(run, 2, "ada"), Lease)


def test_one_that_is_late_is_taken_over_and_its_holder_changes_nothing_more(
    run: StoredRun, memory: MemoryBucket
) -> None:
    first = held(run, "ada")
    memory.pass_time(leases.SECONDS)
    assert isinstance(leases.take(run, 2, "bob"), Lease)
    memory.pass_time(1)
    with held(run, "bob"):
        with pytest.raises(LeaseLostError):
            first.check()
        assert memory.find(run.paths.lease(2)) is not None
        lease = leases.read(run, 2)
        assert lease
        assert lease.holder == "bob"


def test_one_that_is_written_again_is_not_late(run: StoredRun, memory: MemoryBucket) -> None:
    first = held(run, "ada")
    memory.pass_time(leases.SECONDS - 1)
    first.check()
    memory.pass_time(leases.SECONDS - 1)
    assert isinstance(leases.take(run, 2, "bob"), Lease)


def test_after_an_error_another_watcher_need_not_wait(run: StoredRun, memory: MemoryBucket) -> None:
    with pytest.raises(ConflictError), held(run, "ada"):
        raise ConflictError("an error")
    lease = leases.read(run, 2)
    assert lease
    assert not lease.is_over
    memory.pass_time(2)
    held(run, "bob")


def test_of_two_who_take_it_at_once_one_gets_it(run: StoredRun, memory: MemoryBucket) -> None:
    taken: list[HeldLease | Lease] = []

    def take_first() -> None:
        memory.meanwhile = lambda: None
        taken.append(leases.take(run, 2, "bob"))

    requests = 0

    def act_before_the_second() -> None:
        nonlocal requests
        requests += 1
        if requests == 2:
            take_first()

    memory.meanwhile = act_before_the_second
    taken.append(leases.take(run, 2, "ada"))
    assert [type(lease) for lease in taken] == [HeldLease, Lease]


@pytest.mark.parametrize("data", [b"nothing", b"{}"])
def test_an_object_that_is_no_lease_keeps_nobody_from_it(
    run: StoredRun, memory: MemoryBucket, data: bytes
) -> None:
    memory.put(run.paths.lease(2), data)
    with held(run, "ada"):
        pass
    lease = leases.read(run, 2)
    assert lease
    assert lease.is_over


def test_the_lease_of_another_attempt_is_none(run: StoredRun, memory: MemoryBucket) -> None:
    memory.put(run.paths.lease(2), runs.encode(Lease("r1", 3, "t", "ada", 60)))
    assert leases.read(run, 2) is None
