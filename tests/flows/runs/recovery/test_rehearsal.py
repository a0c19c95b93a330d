"""What the next step of a watcher would send, for a look before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.crashes.world import CrashWorld
from tests.flows.runs.recovery.site import Site
from tpuctl import clock, runs
from tpuctl.cloud.storage import DryRunBucket
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.recovery.drill import requests
from tpuctl.runs import BY_SILENCE, Verdict


@pytest.fixture
def site(home: Path, tmp_path: Path) -> Iterator[Site]:
    """A run on a spot node."""
    with CrashWorld(tmp_path) as world:
        site = Site(world)
        client = storage.Client("p", AnonymousCredentials())  # type: ignore[no-untyped-call]
        site.bucket.dry_run = lambda: DryRunBucket(client, "b")  # type: ignore[attr-defined]
        yield site
        client.close()


def shown(site: Site) -> list[tuple[str, str]]:
    """Return each request's method and the end of its address; checks that nothing was changed."""
    written, billing = len(site.bucket.history), list(site.world.billing)
    result = [(request.method, request.url) for request in requests(site.run, site.tools())]
    assert (len(site.bucket.history), site.world.billing) == (written, billing)
    return result


def end(site: Site, **changes: object) -> None:
    now = clock.iso(site.world.time)
    tpu = site.run.last_attempt().record.tpu
    fields = {"tpu": tpu, "restarts": True, "started": now, "ended": now, **changes}
    site.run.end(Verdict("r1", runs.LOST, 1, now, "because", **fields))  # type: ignore[arg-type]


def test_a_run_that_goes_on_needs_nothing(site: Site) -> None:
    assert shown(site) == []


def test_a_run_that_was_preempted_gets_another_machine(site: Site) -> None:
    site.preempt()
    settle(site.run, site.tools().witnesses)
    sent = shown(site)
    assert [method for method, _ in sent] == ["POST", "POST", "DELETE", "POST", "SSH"]
    assert sent[2][1].endswith("/nodes/n1")
    assert "nodeId=r1-2" in sent[3][1]
    assert sent[4][1] == "r1-2"


def test_a_machine_that_is_ready_is_used_again(site: Site) -> None:
    end(site)
    assert shown(site)[2:] == [("SSH", "n1")]
    (*_, last) = requests(site.run, site.tools())
    assert last.body == "start job.py as attempt 2"


def test_a_machine_that_is_ready_and_silent_is_replaced(site: Site) -> None:
    site.label_for_run()
    end(site, basis=BY_SILENCE)
    assert [method for method, _ in shown(site)[2:]] == ["DELETE", "POST", "SSH"]


@pytest.mark.parametrize("why", ["ended", "asked to stop"])
def test_a_run_that_is_not_started_again_needs_nothing(site: Site, why: str) -> None:
    end(site, restarts=why != "ended")
    if why == "asked to stop":
        site.ask_to_stop()
    assert shown(site) == []
