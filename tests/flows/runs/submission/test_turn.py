"""Two submissions in one moment for one TPU: the one that the bucket took first has it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.errors import StateError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.submit import take_turn
from tpuctl.host.worker.records import FINISHED, encode
from tpuctl.runs import BY_MACHINE, Run, Slice, Verdict

NODE = node(TPU.name, id=TPU.id)
PAIR = msgspec.structs.replace(ATTEMPT, workers=(0, 1))


class Site:
    """A bucket in which `mine` is submitted while `other` may be."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.mine = self.submit("mine")

    def submit(self, name: str) -> StoredRun:
        run = StoredRun(cast("Any", self.memory), name)
        run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        return run

    def announce_other(self) -> StoredRun:
        other = self.submit("other")
        other.announce(PAIR)
        return other

    def take(self, number: int = 1) -> None:
        attempt = msgspec.structs.replace(PAIR, attempt=number)
        take_turn(self.mine, cast("Any", SimpleNamespace(node=NODE, attempt=attempt)))

    def is_refused(self, number: int = 1) -> bool:
        """Return whether the other one has the TPU; no announcement of `mine` is left then."""
        try:
            self.take(number)
        except StateError:
            pass
        else:
            assert self.announced(number) is not None
            return False
        assert self.announced(number) is None
        return True

    def announced(self, number: int = 1) -> bytes | None:
        return self.memory.get(NodePaths.of(NODE.id).run("mine", number))


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_only_one_has_it(site: Site) -> None:
    assert not site.is_refused()
    assert not site.is_refused(2), "its own earlier attempt is no rival"


def test_who_has_it_is_named_to_the_other(site: Site) -> None:
    site.announce_other()
    with pytest.raises(StateError) as caught:
        site.take()
    assert caught.value.message == (
        f"{NODE.name} is busy with run 'other', which was submitted at the same moment."
    )
    assert caught.value.hint == "Wait in line with --queue, or wait first: tpuctl wait other"
    assert caught.value.facts == {"busy": ["other"]}


@pytest.mark.parametrize(("seconds", "is_refused"), [(0, True), (60, True), (61, False)])
def test_one_that_was_announced_before_has_it_for_a_minute_until_it_has_an_attempt(
    site: Site, seconds: float, is_refused: bool
) -> None:
    site.announce_other()
    site.memory.pass_time(seconds)
    assert site.is_refused() is is_refused
    assert (site.memory.get(site.mine.paths.record) is None) is is_refused


@pytest.mark.parametrize(("seconds", "is_refused"), [(61, True), (600, True), (601, False)])
def test_one_that_has_an_attempt_was_seen_by_who_looked_ten_minutes_later(
    site: Site, seconds: float, is_refused: bool
) -> None:
    site.announce_other().create_attempt(PAIR)
    site.memory.pass_time(seconds)
    assert site.is_refused() is is_refused


@pytest.mark.parametrize(("ended", "is_refused"), [((), True), ((0,), True), ((0, 1), False)])
def test_one_whose_workers_have_all_ended_has_it_no_more(
    site: Site, ended: tuple[int, ...], is_refused: bool
) -> None:
    other = site.announce_other()
    other.create_attempt(PAIR)
    for worker in ended:
        status = replace(STATUS, worker=worker, state=FINISHED)
        site.memory.put(other.paths.status(1, worker), encode(status))
    assert site.is_refused() is is_refused


def test_one_that_has_a_verdict_has_it_no_more(site: Site) -> None:
    site.announce_other().end(Verdict("other", runs.STOPPED, 1, CREATED, "so", basis=BY_MACHINE))
    assert not site.is_refused()


def test_one_that_is_announced_later_waits(site: Site) -> None:
    site.take()
    site.announce_other()
    assert not site.is_refused()


def test_what_is_no_announcement_does_not_count(site: Site) -> None:
    site.memory.put(f"{NodePaths.of(NODE.id).runs}strange", b"{}")
    assert not site.is_refused()


def test_the_record_of_a_run_that_has_attempts_stays(site: Site) -> None:
    site.announce_other()
    assert site.is_refused(2)
    assert site.memory.get(site.mine.paths.record) is not None


def test_a_run_on_slices_has_all_of_them_or_none(site: Site) -> None:
    """Each slice is taken in its order: who has lost one leaves nothing on those before."""
    slices = tuple(replace(TPU.id, name=f"ms-{number}", uid=str(number)) for number in range(2))
    whole = replace(TPU.id, name="ms", uid="0", slices=slices, slice_hosts=1)
    tpu = msgspec.structs.replace(
        TPU, name="ms", uid="0", hosts=2, slices=tuple(Slice(part.name, part.uid) for part in slices)
    )
    assert tpu.id == whole
    attempt = msgspec.structs.replace(PAIR, tpu=tpu)
    plan = cast("Any", SimpleNamespace(node=replace(NODE, id=whole, slices=(NODE, NODE)), attempt=attempt))

    def announced() -> list[bool]:
        return [site.memory.get(NodePaths.of(part).run("mine", 1)) is not None for part in slices]

    other = site.submit("other")
    other.announce(attempt, slices[1])
    with pytest.raises(StateError):
        take_turn(site.mine, plan)
    assert announced() == [False, False]
    other.withdraw(attempt)
    take_turn(site.mine, plan)
    assert announced() == [True, True]
