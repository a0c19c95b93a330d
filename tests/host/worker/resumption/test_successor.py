"""What hosts read of the bucket before they resume a run: anybody may have written it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.bucket_objects.test_fuzz import HOSTILE
from tests.host.worker.host import SPEC
from tpuctl.host import gcs
from tpuctl.host.worker.records import Resumption
from tpuctl.host.worker.resumption import LEASE_SECONDS, Successor, record_in


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_is_no_record_counts_as_none(number: int) -> None:
    assert record_in(HOSTILE[number]) in ({}, record_in(b'{"schema": 1}'), {"schema": 1})


def successor(restarts: int) -> Successor:
    spec = replace(SPEC, resumption=Resumption(restarts, "nodes/n/runs/"), line_timeout=60.0)
    return Successor(gcs.Bucket("b"), spec)


def test_each_attempt_has_a_secret_of_its_own_that_all_its_hosts_know() -> None:
    specs = [successor(2).spec(lost_at_once=0), successor(2).spec(lost_at_once=0)]
    assert specs[0] == specs[1]
    assert specs[0].key not in (SPEC.key, "")
    assert (specs[0].attempt, specs[0].folder) == (2, "runs/r1/attempts/2/workers/0/")
    assert (specs[0].line, specs[0].line_timeout) == ("nodes/n/runs/", 0.0)


@pytest.mark.parametrize(
    ("record", "leased"),
    [
        (None, False),
        ({"seconds": 3600}, True),
        ({"seconds": -1}, False),  # nothing is as young as that
        ({"seconds": "a while"}, True),  # then it is as usual
        ({}, True),
        ({"seconds": 3600, "is_over": True}, False),
    ],
)
def test_a_lease_counts_until_it_is_old_or_over(
    worker_bucket: gcs.Bucket, record: dict[str, object] | None, leased: bool
) -> None:
    spec = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/"))
    name = "runs/r1/attempts/2/lease.json"
    worker_bucket.put(name + ".bak", b"{}")
    if record is not None:
        worker_bucket.put(name, msgspec.json.encode(record))
    assert Successor(worker_bucket, spec).is_leased() is leased


def test_a_lease_that_claims_an_hour_is_late_like_any_other(
    worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job may create one: it would keep the hosts of another run from resuming it."""
    spec = replace(SPEC, resumption=Resumption(2, "nodes/n/runs/"))
    worker_bucket.put("runs/r1/attempts/2/lease.json", b'{"seconds": 3600}')
    listed = worker_bucket.list
    for age, leased in ((LEASE_SECONDS, True), (LEASE_SECONDS + 1, False)):
        aged = [item._replace(age=age) for item in listed("runs/r1/")]
        monkeypatch.setattr(worker_bucket, "list", lambda _, aged=aged: aged)
        assert Successor(worker_bucket, spec).is_leased() is leased


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, None), (-1, -1)])
def test_restarts_are_counted_to_their_end(before: int, after: int | None) -> None:
    following = successor(before).spec(lost_at_once=1).resumption
    assert (following.restarts if following else None) == after
    if following:
        assert following.lost_at_once == 1
