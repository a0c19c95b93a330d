"""What works of runs whose records are gone, as their statuses say."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import CREATED, STATUS, TPU, write_run
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.runs import whole
from tpuctl.flows.runs.evidence.decision import LOST_AFTER
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses, sign_of
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RECORD_MISSING
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import take_page
from tpuctl.flows.runs.upkeep.removal import ended_state
from tpuctl.host.worker.records import FINISHED, encode
from tpuctl.runs import BY_MACHINE, Verdict

RECORD, ATTEMPT_RECORD = "run.json", "attempts/1/attempt.json"
NOBODY = Witnesses(MemoryProvider())


class Site:
    """A run r1 with a worker at work, of which something is deleted."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        write_run(self.bucket)
        self.write(1)

    def write(self, attempt: int, **changes: object) -> None:
        status = replace(STATUS, attempt=attempt, **changes)  # type: ignore[arg-type]
        self.memory.put(f"runs/r1/attempts/{attempt}/workers/0/status.json", encode(status))

    def forget(self, *names: str) -> StoredRun:
        """Delete objects of the run, and return it as another command finds it."""
        for name in names:
            item = self.bucket.stat(f"runs/r1/{name}")
            assert item
            self.bucket.remove(item)
        return StoredRun(self.bucket, "r1")


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_worker_that_wrote_lately_and_not_its_last_word_is_a_sign(site: Site) -> None:
    sign = sign_of(site.bucket, "r1")
    assert sign
    assert (sign.run, sign.attempt, sign.tpu_uids) == ("r1", 1, {TPU.uid})
    assert sign.reason == "worker 0 of attempt 1 was running 0 s ago"
    site.memory.pass_time(LOST_AFTER + 1)
    assert sign_of(site.bucket, "r1") is None, "nothing was heard for long"
    site.write(1, state=FINISHED)
    assert sign_of(site.bucket, "r1") is None, "it has ended"
    site.memory.put("runs/r1/attempts/1/workers/0/status.json", b"{")
    assert sign_of(site.bucket, "r1") is None, "a worker at work would replace it"


@pytest.mark.parametrize("gone", [(RECORD,), (ATTEMPT_RECORD,), (RECORD, ATTEMPT_RECORD)])
def test_a_name_of_which_something_works_is_nobodys(site: Site, gone: tuple[str, ...]) -> None:
    record = StoredRun(site.bucket, "r1").record
    run = site.forget(*gone)
    with pytest.raises(StateError, match="r1"):
        run.create(msgspec.structs.replace(record, token="another"))
    assert run.node_uids() == {TPU.uid}
    for writes in (True, False):
        with pytest.raises(StateError, match="r1"):
            ended_state(StoredRun(site.bucket, "r1"), NOBODY, writes=writes)
    if ATTEMPT_RECORD in gone:
        state = settle(run, NOBODY)
        assert (state.label, state.verdict) == (RECORD_MISSING, None)
        with pytest.raises(RecordMissingError):
            whole.look(run, NOBODY)
    if RECORD in gone:
        page = take_page(site.bucket, NOBODY)
        assert [(line.info.name, line.info.state) for line in page.runs] == [("r1", RECORD_MISSING)]
        with pytest.raises(RecordMissingError):
            run.record  # noqa: B018  read for its error


def test_the_rest_of_a_run_that_has_ended_keeps_its_name(site: Site) -> None:
    site.write(1, state=FINISHED)
    record = StoredRun(site.bucket, "r1").record
    run = site.forget(RECORD, ATTEMPT_RECORD)
    with pytest.raises(StateError, match="Files of an earlier run 'r1' are in gs://b"):
        run.create(record)
    with pytest.raises(NotFoundError):
        settle(run, NOBODY)


def test_an_attempt_without_a_record_follows_a_verdict_all_the_same(site: Site) -> None:
    """A watcher would start it a second time, and delete its machine."""
    verdict = Verdict("r1", runs.PREEMPTED, 1, CREATED, "so", basis=BY_MACHINE, restarts=True)
    run = StoredRun(site.bucket, "r1")
    run.end(verdict)
    assert run.verdict() == verdict
    site.write(2)
    assert settle(StoredRun(site.bucket, "r1"), NOBODY).label == RECORD_MISSING
