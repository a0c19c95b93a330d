"""When a keeper deletes its TPU, what it says before, and what it does where something fails.

The metadata server and the API are scripts: the real clients, and a whole keeper, have tests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tpuctl.keeper import keeper as module
from tpuctl.keeper.api import AbsentError, ApiError, OwnNode, RefusedError
from tpuctl.keeper.keeper import AnotherNodeError, Keeper
from tpuctl.keeper.metadata import Metadata, MetadataError
from tpuctl.worker import gcs

START = 1_800_000_000.0
"""When keeper and node begin: 2027-01-15T08:00:00Z."""
QUEUED = "projects/p/locations/z/queuedResources/q1"
TEXTS = {
    "project/project-id": "p",
    "instance/zone": "projects/7/zones/z",
    "instance/network-interfaces/0/ip": "10.0.0.2",
}


class Site:
    """The metadata server, the Cloud TPU API and the bucket of one host."""

    def __init__(self, **attributes: str) -> None:
        self.at = START
        self.metadata = {"instance-id": "n1", **attributes}
        self.addresses: tuple[str, ...] = ("10.0.0.1", "10.0.0.2")
        self.own = OwnNode("uid-1", "READY", START, self.addresses, "", START)
        self.api_ahead = 0.0
        self.activity: list[str] = []
        self.others: list[dict[str, str]] | Exception = []
        self.waits: list[float] = []
        self.notes: list[dict[str, Any]] = []
        self.acts: list[str] = []
        """What was done, in order."""
        self.errors: dict[str, Exception] = {}
        """Of the API's methods."""

    def keeper(self, interval: float = 30.0) -> Keeper:
        return Keeper(self, lambda: self.activity, interval)  # type: ignore[arg-type]

    # the metadata server
    def attributes(self, last: Metadata | None = None, wait: float = 0.0) -> Metadata:
        if last is not None:
            self.waits.append(wait)
            self._fail("attributes")
        return Metadata(self.metadata, self.at, "e")

    def text(self, path: str) -> str:
        return TEXTS[path]

    def publish(self, namespace: str, key: str, value: bytes) -> None:
        assert (namespace, key) == ("tpuctl", "keeper")
        self.notes.append(json.loads(value))
        self._fail("publish")

    # the API
    def node(self) -> OwnNode:
        self._fail("node")
        return replace(self.own, at=self.at + self.api_ahead)

    def guest_attributes(self, namespace: str) -> list[dict[str, str]]:
        assert namespace == "tpuctl"
        if isinstance(self.others, Exception):
            raise self.others
        return [{}, *self.others]

    def delete(self) -> None:
        self._fail("delete")
        self.acts.append("delete the node")

    def delete_queued_resource(self, name: str) -> None:
        self._fail("delete_queued_resource")
        self.acts.append(f"delete {name}")

    # the bucket
    def create(self, name: str, data: bytes, content_type: str) -> bool:
        assert content_type == "application/json"
        self._fail("create")
        self.acts.append(f"record {name}")
        self.record = json.loads(data)
        return True

    def close(self) -> None:
        self.acts.append("close")

    def _fail(self, method: str) -> None:
        if method in self.errors:
            raise self.errors[method]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A host that belongs to the node `n1` of the project `p` in `z`."""
    site = Site()

    def api(project: str, zone: str, name: str) -> Site:
        site.name = f"{project}/{zone}/{name}"  # type: ignore[attr-defined]
        return site

    monkeypatch.setattr(module, "TpuApi", api)
    monkeypatch.setattr(gcs, "Bucket", lambda name: site.acts.append(f"open {name}") or site)
    return site


def note_of(site: Site, worker: int, active: float, at: float) -> dict[str, str]:
    """The guest attributes of another worker that reported at some time."""
    note = {"worker": worker, "at": module.records.iso(at), "active": module.records.iso(active)}
    return {"keeper": json.dumps(note)}


class TestPlace:
    def test_the_metadata_server_tells_project_zone_and_name(self, site: Site) -> None:
        keeper = site.keeper()
        assert (keeper.project, keeper.zone, keeper.name) == ("p", "z", "n1")
        assert site.name == "p/z/n1"  # type: ignore[attr-defined]

    def test_the_environment_of_the_tpu_comes_first(self, site: Site) -> None:
        site.metadata["tpu-env"] = "CONSUMER_PROJECT_ID: 'p2'\nZONE: 'z2'\nNODE_ID: 'n2'\n"
        keeper = site.keeper()
        assert (keeper.project, keeper.zone, keeper.name) == ("p2", "z2", "n2")

    @pytest.mark.parametrize(
        ("attributes", "has_work"),
        [
            ({}, True),
            ({"agent-worker-number": "1"}, False),
            ({"agent-worker-number": "1", "tpuctl-idle": "600s"}, True),
        ],
    )
    def test_other_workers_only_report_whether_they_are_idle(
        self, site: Site, attributes: dict[str, str], has_work: bool
    ) -> None:
        site.metadata |= attributes
        assert site.keeper().has_work is has_work


class TestNote:
    def test_it_says_until_when_and_what_uses_the_host(self, site: Site) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        keeper = site.keeper()
        site.activity = ["run r1, attempt 1", "ada is logged in"]
        keeper.look()
        assert site.notes == [
            {
                "worker": 0, "at": "2027-01-15T08:00:00Z", "expires": "2027-01-15T09:00:00Z",
                "active": "2027-01-15T08:00:00Z", "activity": "run r1, attempt 1; ada is logged in",
                "deleting": "", "error": "", "schema": 1,
            }
        ]  # fmt: skip

    def test_many_activities_are_cut(self, site: Site) -> None:
        keeper = site.keeper()
        site.activity = ["x" * 499, "y"]
        keeper.look()
        assert site.notes[0]["activity"] == "x" * 499 + ";"

    def test_the_last_use_is_remembered(self, site: Site) -> None:
        keeper = site.keeper()
        site.activity = ["run r1, attempt 1"]
        keeper._metadata = replace(keeper._metadata, at=START + 60)
        keeper.look()
        site.activity = []
        keeper._metadata = replace(keeper._metadata, at=START + 120)
        keeper.look()
        assert [(note["at"][-9:], note["active"][-9:]) for note in site.notes] == [
            ("08:01:00Z", "08:01:00Z"), ("08:02:00Z", "08:01:00Z"),
        ]  # fmt: skip

    def test_another_worker_never_asks_the_api(self, site: Site) -> None:
        site.metadata |= {"agent-worker-number": "3", "tpuctl-idle": "600s"}
        site.errors["node"] = ApiError("asked")
        site.keeper().look()
        assert [(note["worker"], note["error"]) for note in site.notes] == [(3, "")]

    def test_one_that_cannot_be_published_stops_nothing(
        self, site: Site, capsys: pytest.CaptureFixture[str]
    ) -> None:
        site.errors["publish"] = MetadataError("not now")
        site.keeper().look()
        assert capsys.readouterr().err == "[tpuctl keeper] not now\n"


def looked(site: Site, after: float) -> list[str]:
    """What a keeper does that looks after some seconds."""
    keeper = site.keeper()
    site.at = START + after
    keeper._metadata = site.attributes()
    keeper.look()
    return site.acts


class TestEnd:
    @pytest.mark.parametrize(("after", "acts"), [(3599, []), (3600, ["delete the node"])])
    def test_an_expired_tpu_is_deleted(self, site: Site, after: float, acts: list[str]) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.activity = ["run r1, attempt 1"]
        assert looked(site, after) == acts
        assert site.notes[-1]["deleting"] == ("expired" if acts else "")

    @pytest.mark.parametrize(("after", "acts"), [(599, []), (600, ["delete the node"])])
    def test_an_idle_tpu_is_deleted(self, site: Site, after: float, acts: list[str]) -> None:
        site.metadata["tpuctl-idle"] = "600s"
        assert looked(site, after) == acts
        assert site.notes[-1]["deleting"] == ("idle" if acts else "")

    def test_one_in_use_is_not_idle(self, site: Site) -> None:
        site.metadata["tpuctl-idle"] = "600s"
        site.activity = ["ada is logged in"]
        assert looked(site, 10_000) == []

    def test_it_is_recorded_before_it_is_done(self, site: Site) -> None:
        site.metadata |= {"tpuctl-ttl": "3600s", "tpuctl-bucket": "b"}
        site.own = replace(site.own, queued_resource=QUEUED)
        assert looked(site, 3700) == [
            "open b", "record nodes/p.z.n1.uid-1/keeper/expired-2027-01-15T09:00:00Z.json", "close",
            f"delete {QUEUED}",
        ]  # fmt: skip
        assert site.record == {
            "project": "p", "zone": "z", "node": "n1", "uid": "uid-1", "queued_resource": "q1",
            "reason": "expired", "at": "2027-01-15T09:01:40Z", "expires": "2027-01-15T09:00:00Z",
            "active": "2027-01-15T08:00:00Z", "schema": 1,
        }  # fmt: skip

    @pytest.mark.parametrize("error", [gcs.GcsError("no"), OSError("no")])
    def test_a_bucket_that_fails_stops_nothing(
        self, site: Site, error: Exception, capsys: pytest.CaptureFixture[str]
    ) -> None:
        site.metadata |= {"tpuctl-ttl": "3600s", "tpuctl-bucket": "b"}
        site.errors["create"] = error
        assert looked(site, 3600) == ["open b", "close", "delete the node"]
        assert "gs://b/nodes/p.z.n1.uid-1/keeper/expired-" in capsys.readouterr().err

    def test_one_that_is_being_deleted_is_left_alone(self, site: Site) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.own = replace(site.own, state="DELETING")
        assert looked(site, 4000) == []
        assert site.notes[-1]["deleting"] == ""

    @pytest.mark.parametrize(("ahead", "acts"), [(-101, []), (-100, ["delete the node"])])
    def test_the_clock_of_the_api_must_agree(self, site: Site, ahead: float, acts: list[str]) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.api_ahead = ahead
        assert looked(site, 3700) == acts
        assert site.notes[-1]["error"] == (
            "" if acts else "the clocks differ: 2027-01-15T09:01:40Z by the metadata server, "
            "2027-01-15T08:59:59Z by the API"
        )  # fmt: skip

    def test_a_queued_resource_that_must_not_be_deleted_loses_its_node(
        self, site: Site, capsys: pytest.CaptureFixture[str]
    ) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.own = replace(site.own, queued_resource=QUEUED)
        site.errors["delete_queued_resource"] = RefusedError("no permission")
        assert looked(site, 3600) == ["delete the node"]
        assert capsys.readouterr().err == "[tpuctl keeper] no permission; only the node is deleted\n"

    @pytest.mark.parametrize(
        ("gone", "acts"),
        [(["delete_queued_resource"], ["delete the node"]), (["delete_queued_resource", "delete"], [])],
    )
    def test_what_is_gone_already_is_no_error(self, site: Site, gone: list[str], acts: list[str]) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.own = replace(site.own, queued_resource=QUEUED)
        site.errors = {method: AbsentError("gone") for method in gone}
        assert looked(site, 3600) == acts
        assert site.notes[-1]["error"] == ""


class TestOtherWorkers:
    @pytest.fixture(autouse=True)
    def slice_of_two(self, site: Site) -> None:
        site.metadata |= {"tpuctl-idle": "600s", "worker-network-endpoints": "a,b"}

    @pytest.mark.parametrize(
        ("active", "reported", "is_idle"),
        [
            (0, 700, True),  # idle as long as this one
            (101, 700, False),
            (100, 700, True),
            (100, 611, True),  # 89 seconds of silence: less than three looks
            (0, 610, True),
            (0, 609, False),  # 91: counts as used until its report
            (0, 100, True),
            (5000, 700, False),  # its clock is ahead
        ],
    )
    def test_their_last_use_counts(self, site: Site, active: float, reported: float, is_idle: bool) -> None:
        site.others = [note_of(site, 1, START + active, START + reported)]
        assert bool(looked(site, 700)) is is_idle

    @pytest.mark.parametrize(
        "value", ["", "[]", "no json", '{"at": "2027-01-15T08:00:00Z"}', '{"at": "x", "active": "y"}']
    )
    def test_one_without_a_note_counts_as_used_until_the_keeper_started(self, site: Site, value: str) -> None:
        site.others = [{"keeper": value} if value else {}]
        assert looked(site, 600) == ["delete the node"]
        assert site.notes[-1]["active"] == "2027-01-15T08:00:00Z"

    @pytest.mark.parametrize("others", [[], RefusedError("no")])
    def test_where_none_is_seen_they_count_as_used_until_then_too(self, site: Site, others: Any) -> None:
        site.others = others
        assert looked(site, 600) == ["delete the node"]

    def test_of_several_the_last_counts(self, site: Site) -> None:
        times = [START + 50, START + 300, START + 80]
        site.others = [note_of(site, index, time, START + 700) for index, time in enumerate(times, 1)]
        assert looked(site, 700) == []

    def test_an_expired_tpu_does_not_ask_them(self, site: Site) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        site.others = [note_of(site, 1, START + 4000, START + 4000)]
        assert looked(site, 4000) == ["delete the node"]

    def test_a_single_host_does_not_ask(self, site: Site) -> None:
        site.metadata["worker-network-endpoints"] = "a"
        site.others = ApiError("asked")
        assert looked(site, 600) == ["delete the node"]


class TestTrouble:
    def test_pauses_double_up_to_five_minutes_and_end_with_the_trouble(self, site: Site) -> None:
        keeper = site.keeper()
        site.errors["node"] = ApiError("no answer")
        pauses = []
        for _ in range(8):
            keeper.look()
            pauses.append(keeper._pause)
        assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
        assert site.notes[-1]["error"] == "no answer"
        del site.errors["node"]
        keeper.look()
        assert (keeper._pause, site.notes[-1]["error"]) == (0, "")

    def test_it_looks_each_interval_and_sooner_after_a_failure(self, site: Site) -> None:
        keeper = site.keeper(interval=45)
        site.errors = {"attributes": MetadataError("gone")}
        for error, wait in ((None, 45), (ApiError("no answer"), 5)):
            site.errors |= {"node": error} if error else {}
            with pytest.raises(MetadataError):
                keeper.run()
            assert site.waits[-1] == wait
            keeper._node = None

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"addresses": ("10.0.0.1", "10.0.0.3")}, "n1 is another node now"),
            ({}, "gone"),
        ],
    )
    def test_it_ends_with_its_node(self, site: Site, change: dict[str, Any], error: str) -> None:
        site.name = "n1"  # type: ignore[attr-defined]
        keeper = site.keeper()
        keeper._api.name = "n1"
        site.own = replace(site.own, **change)
        if not change:
            site.errors["node"] = AbsentError("gone")
        keeper.run()
        assert site.notes[-1]["error"] == error
        assert site.waits == []

    def test_a_node_of_the_same_name_and_address_is_another_one(self, site: Site) -> None:
        site.metadata["tpuctl-ttl"] = "3600s"
        keeper = site.keeper()
        keeper.look()
        site.own = replace(site.own, uid="uid-2")
        site.at = START + 4000
        keeper._metadata = site.attributes()
        with pytest.raises(AnotherNodeError):
            keeper.look()
        assert site.acts == []

    def test_one_without_work_does_not_look(self, site: Site) -> None:
        site.metadata["agent-worker-number"] = "1"
        site.keeper().run()
        assert site.notes == []
