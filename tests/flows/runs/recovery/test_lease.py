"""The lease of an attempt: one holder at a time, by the bucket's clock; one that is late is taken over."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl import runs
from tpuctl.errors import ConflictError, DeadlineError
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.recovery.lease import HeldLease, LeaseLostError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.recovery import Lease


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


def test_one_that_claims_an_hour_is_late_like_any_other(run: StoredRun, memory: MemoryBucket) -> None:
    """Each job may create one: it would keep the run of a colleague from being started again."""
    memory.put(run.paths.lease(2), runs.encode(Lease("r1", 2, "t", "nobody", 3600)))
    assert isinstance(leases.take(run, 2, "ada"), Lease)
    memory.pass_time(leases.SECONDS + 1)
    held(run, "ada")


def test_the_lease_of_another_attempt_is_none(run: StoredRun, memory: MemoryBucket) -> None:
    memory.put(run.paths.lease(2), runs.encode(Lease("r1", 3, "t", "ada", 60)))
    assert leases.read(run, 2) is None


def test_a_lease_that_keeps_changing_is_an_error(run: StoredRun, memory: MemoryBucket) -> None:
    changes = 0

    def change() -> None:
        nonlocal changes
        changes += 1
        memory.put(run.paths.lease(2), b"%d" % changes)

    memory.meanwhile = change
    with pytest.raises(ConflictError) as caught:
        leases.take(run, 2, "ada")
    assert caught.value.message == "The lease of attempt 2 of run 'r1' keeps changing."
    assert caught.value.hint == "Try again."


def test_one_that_was_taken_over_says_where_to_look(run: StoredRun, memory: MemoryBucket) -> None:
    first = held(run, "ada")
    memory.pass_time(leases.SECONDS + 1)
    held(run, "bob")
    with pytest.raises(LeaseLostError) as caught:
        first.check()
    assert caught.value.message == "Another watcher has taken over attempt 2 of run 'r1'."
    assert caught.value.hint == "See what it does: tpuctl describe r1"


@pytest.mark.parametrize("content", [None, b"nothing"])
def test_one_that_somebody_has_deleted_or_spoilt_is_lost(
    run: StoredRun, memory: MemoryBucket, content: bytes | None
) -> None:
    first = held(run, "ada")
    item = memory.stat(run.paths.lease(2))
    assert item
    memory.remove(item)
    if content:
        memory.put(run.paths.lease(2), content)
    with pytest.raises(LeaseLostError):
        first.check()


@pytest.mark.parametrize("is_own", [True, False])
def test_one_that_changes_while_it_is_written_is_lost_if_another_has_it_then(
    run: StoredRun, memory: MemoryBucket, is_own: bool
) -> None:
    first = held(run, "ada")
    own = memory.get(run.paths.lease(2))
    assert own
    theirs = runs.encode(Lease("r1", 2, "theirs", "bob", 60))
    replace = memory.replace

    def replace_late(*arguments: object) -> None:
        memory.put(run.paths.lease(2), own if is_own else theirs)
        replace(*arguments)  # type: ignore[arg-type]

    memory.replace = replace_late  # type: ignore[method-assign]
    if is_own:
        first.check()
    else:
        with pytest.raises(LeaseLostError):
            first.check()


def test_an_attempt_that_waits_is_begun_by_another_watcher_soon(run: StoredRun, memory: MemoryBucket) -> None:
    with held(run, "ada") as first:
        first.keep()
    lease = leases.read(run, 2)
    assert lease
    assert (lease.holder, lease.is_over, lease.seconds) == ("ada", False, 1)


@pytest.mark.parametrize(
    ("error", "seconds"), [(KeyboardInterrupt, 1), (DeadlineError, 1), (SystemExit, leases.SECONDS)]
)
def test_who_is_killed_writes_nothing_more(run: StoredRun, error: type[BaseException], seconds: int) -> None:
    with pytest.raises(error), held(run, "ada"):
        raise error("the end")
    lease = leases.read(run, 2)
    assert lease
    assert (lease.is_over, lease.seconds) == (False, seconds)


def test_one_that_cannot_be_given_back_is_late_by_itself(run: StoredRun, memory: MemoryBucket) -> None:
    def fail() -> None:
        raise DeadlineError("No answer.")

    with held(run, "ada"):
        memory.meanwhile = fail


class TestKeeper:
    """Writes the lease again within its block, in a thread."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leases, "RENEWALS", 6000)  # every 10 ms

    def after(self, memory: MemoryBucket, writes: int) -> Callable[[], None]:
        """Return what waits until the lease was written so often."""
        done = threading.Event()
        put = memory.put

        def count(name: str, data: bytes, content_type: str = "") -> None:
            put(name, data, content_type)
            if len(memory.history) >= writes:
                done.set()

        memory.put = count  # type: ignore[method-assign]
        return lambda: _require(done.wait(60))

    def test_writes_it_again_and_again(self, run: StoredRun, memory: MemoryBucket) -> None:
        wait = self.after(memory, 4)
        with held(run, "ada"):
            wait()
            lease = leases.read(run, 2)
            assert lease
            assert (lease.holder, lease.is_over, lease.seconds) == ("ada", False, leases.SECONDS)

    def test_tries_again_where_the_bucket_does_not_answer(self, run: StoredRun, memory: MemoryBucket) -> None:
        first = held(run, "ada")
        wait, refused = self.after(memory, 3), list[int]()

        def fail() -> None:
            if len(refused) < 2:
                refused.append(1)
                raise DeadlineError("No answer.")

        memory.meanwhile = fail
        with first:
            wait()
        assert len(refused) == 2

    def test_ends_where_another_watcher_has_taken_over(self, run: StoredRun, memory: MemoryBucket) -> None:
        first = held(run, "ada")
        memory.put(run.paths.lease(2), runs.encode(Lease("r1", 2, "theirs", "bob", 60)))
        before = set(threading.enumerate())
        with first:
            others = (thread for thread in threading.enumerate() if thread not in before)
            for keeper in [thread for thread in others if thread.name == "lease"]:
                keeper.join(60)
                assert not keeper.is_alive()
        lease = leases.read(run, 2)
        assert lease
        assert lease.holder == "bob"


def _require(is_done: bool) -> None:
    assert is_done
