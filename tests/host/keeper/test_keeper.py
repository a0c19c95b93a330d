"""What a keeper asks, writes and deletes, request by request, at the very second."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.keeper.wire import ADDRESS, CREATED, NODE, FullDisk, Services, serving
from tests.isolation.ports import refusing_port
from tpuctl.host.keeper.keeper import (
    GONE_AFTER,
    LONGEST_PAUSE,
    AnotherNodeError,
    Keeper,
    Memory,
    MetadataServer,
)

HOUR = 3600
QUEUED = "projects/p/locations/z/queuedResources/q1"
WORKERS = {"worker-network-endpoints": "a,b"}


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """What a keeper talks to."""
    with serving(monkeypatch) as running:
        yield running


class Host:
    """A host whose keeper looks when the test says so."""

    def __init__(self, services: Services, memory: Memory | None = None) -> None:
        self.services = services
        self.uses: list[str] = []
        self.keeper = Keeper(MetadataServer(), lambda: self.uses, 30.0, memory, lambda: services.time)

    def look(self, after: float = 0.0) -> dict[str, object]:
        """Look after so many seconds more, and return the note."""
        self.services.time += after
        self.keeper._take(self.keeper._server.attributes())
        self.keeper.look()
        if self.keeper._recording.is_alive():
            self.keeper._recording.join()
        return self.services.notes[-1]


@pytest.fixture
def host(services: Services) -> Host:
    """The first worker of the node."""
    return Host(services)


class TestPlace:
    def test_it_is_known_by_the_environment_of_libtpu(self, services: Services) -> None:
        services.attributes["tpu-env"] = "ZONE: 'z2'\nNODE_ID: 'n2'\nCONSUMER_PROJECT_ID: 'p2'\nX: 'y'\n"
        keeper = Host(services).keeper
        assert (keeper.project, keeper.zone, keeper.name) == ("p2", "z2", "n2")

    def test_it_is_asked_of_the_metadata_server_where_that_is_empty(self, host: Host) -> None:
        assert (host.keeper.project, host.keeper.zone, host.keeper.name) == ("p", "z", "n1")
        host.look()
        assert host.services.made("GET") == [NODE]

    @pytest.mark.parametrize(
        ("attributes", "has_work"),
        [
            ({"agent-worker-number": "0"}, True),
            ({}, True),
            ({"agent-worker-number": "1"}, False),
            ({"agent-worker-number": "1", "tpuctl-idle": "600s"}, True),
        ],
    )
    def test_other_workers_have_work_where_idleness_ends_the_tpu(
        self, services: Services, attributes: dict[str, str], has_work: bool
    ) -> None:
        services.attributes = {"instance-id": "n1", **attributes}
        assert Host(services).keeper.has_work is has_work


class TestNote:
    def test_it_says_when_the_host_was_in_use_and_when_the_tpu_ends(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        host.uses = ["run r1, attempt 1", "ada is logged in"]
        expected = {
            "worker": 0, "at": "2026-01-01T12:00:10Z", "expires": "2026-01-01T13:00:00Z",
            "active": "2026-01-01T12:00:10Z", "activity": "run r1, attempt 1; ada is logged in",
            "deleting": "", "error": "", "schema": 1,
        }  # fmt: skip
        assert host.look(10) == expected
        host.uses = []
        assert host.look(20) == {**expected, "at": "2026-01-01T12:00:30Z", "activity": ""}

    def test_before_any_use_it_counts_from_the_keepers_start(self, host: Host) -> None:
        note = host.look(10)
        assert (note["active"], note["expires"]) == ("2026-01-01T12:00:00Z", "")

    def test_a_long_list_of_uses_loses_its_end(self, host: Host) -> None:
        host.uses = ["x" * 499, "yz"]
        assert host.look()["activity"] == "x" * 499 + ";"

    def test_another_worker_only_reports(self, services: Services) -> None:
        services.attributes |= {"agent-worker-number": "2", "tpuctl-ttl": "1s", "tpuctl-idle": "1s"}
        note = Host(services).look(HOUR)
        assert (note["worker"], note["error"]) == (2, "")
        assert services.calls == []

    def test_a_note_that_cannot_be_written_stops_nothing(
        self, host: Host, capsys: pytest.CaptureFixture[str]
    ) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        path = "/computeMetadata/v1/instance/guest-attributes/tpuctl/keeper"
        host.services.errors[f"PUT {path}"] = [(403, "")] * 2
        host.services.notes = [{}]
        host.look(HOUR)
        assert host.services.made("DELETE") == [NODE]
        place = "instance/guest-attributes/tpuctl/keeper"
        said = f"[tpuctl keeper] the metadata server refused {place}: HTTP Error 403"
        assert capsys.readouterr().err.startswith(said)


class TestEnd:
    def test_a_ttl_ends_the_tpu_at_its_second(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        assert host.look(HOUR - 1)["deleting"] == ""
        assert host.services.made("DELETE") == []
        assert host.look(1)["deleting"] == "expired"
        assert host.services.made("DELETE") == [NODE]

    def test_idleness_ends_it_at_its_second(self, host: Host) -> None:
        host.services.attributes["tpuctl-idle"] = "600s"
        host.uses = ["ada is logged in"]
        host.look(300)
        host.uses = []
        host.look(599)
        assert host.services.made("DELETE") == []
        assert host.look(1)["deleting"] == "idle"
        assert host.services.made("DELETE") == [NODE]

    def test_the_bucket_has_a_record_of_it_under_the_uid_of_the_node(self, host: Host) -> None:
        host.services.attributes |= {"tpuctl-ttl": "3600s", "tpuctl-bucket": "b"}
        host.services.node["queuedResource"] = QUEUED
        host.look(HOUR + 5)
        (name, stored) = next(iter(host.services.objects.items()))
        assert name == "b/nodes/p.z.n1.77/keeper/expired-2026-01-01T13:00:00Z.json"
        assert stored["query"]["ifGenerationMatch"] == "0", "an earlier record stays"
        assert stored["content"] == {
            "project": "p", "zone": "z", "node": "n1", "uid": "77", "queued_resource": "q1",
            "reason": "expired", "at": "2026-01-01T13:00:05Z", "expires": "2026-01-01T13:00:00Z",
            "active": "2026-01-01T12:00:00Z", "schema": 1,
        }  # fmt: skip

    def test_a_bucket_that_takes_no_record_stops_nothing(
        self, host: Host, capsys: pytest.CaptureFixture[str]
    ) -> None:
        host.services.attributes |= {"tpuctl-ttl": "3600s", "tpuctl-bucket": "b"}
        host.services.broken = {"bucket": 403}
        host.look(HOUR)
        assert host.services.made("DELETE") == [NODE]
        assert "[tpuctl keeper] RefusedError: " in capsys.readouterr().err

    def test_the_end_of_an_idle_tpu_is_by_the_clock_of_the_api_too(self, host: Host) -> None:
        host.services.attributes["tpuctl-idle"] = "600s"
        host.look()
        host.services.api_time = CREATED + 599
        assert host.look(600)["deleting"] == ""
        host.services.api_time = CREATED + 600
        assert host.look(1)["deleting"] == "idle"

    def test_without_a_bucket_it_is_deleted_all_the_same(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        host.look(HOUR)
        assert host.services.objects == {}
        assert host.services.made("DELETE") == [NODE]

    def test_who_is_stopped_by_its_own_deletion_records_it_first(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.services.attributes |= {"tpuctl-ttl": "3600s", "tpuctl-bucket": "b"}
        delete = host.keeper._api.delete

        def shut_down() -> None:
            delete()
            host.keeper.terminate()

        monkeypatch.setattr(host.keeper._api, "delete", shut_down)
        with pytest.raises(SystemExit):
            host.look(HOUR)
        assert len(host.services.objects) == 1

    def test_who_is_stopped_otherwise_ends_at_once(self, host: Host) -> None:
        with pytest.raises(SystemExit):
            host.keeper.terminate()

    def test_a_tpu_that_is_being_deleted_is_left_alone(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        host.services.node["state"] = "DELETING"
        assert host.look(HOUR)["deleting"] == ""
        assert host.services.made("DELETE") == []

    def test_it_waits_while_the_clock_of_the_api_is_behind(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        host.services.api_time = CREATED + HOUR - 1
        note = host.look(HOUR)
        assert (note["at"], note["error"]) == ("2026-01-01T12:59:59Z", "")
        assert host.services.made("DELETE") == []

    def test_a_node_that_does_not_show_its_hosts_yet_is_asked_for_again(self, host: Host) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        endpoints = host.services.node.pop("networkEndpoints")
        assert host.look(HOUR)["error"] == f"{NODE} does not show the addresses of its hosts yet"
        host.services.node["networkEndpoints"] = endpoints
        assert host.look()["deleting"] == "expired"

    def test_a_node_that_shows_some_of_its_hosts_alone_is_asked_for_again(self, host: Host) -> None:
        """Who ended there would let the TPU bill for ever."""
        host.services.attributes |= {"tpuctl-ttl": "3600s", **WORKERS}
        endpoints = host.services.node["networkEndpoints"]
        for partial in ([{"ipAddress": "10.0.0.3"}], [{}, {"ipAddress": "10.0.0.3"}]):
            host.services.node["networkEndpoints"] = partial
            assert host.look(HOUR)["error"] == f"{NODE} does not show the addresses of its hosts yet"
        host.services.node["networkEndpoints"] = endpoints
        assert host.look()["deleting"] == "expired"

    @pytest.mark.parametrize("change", [{"id": "78"}, {"networkEndpoints": [{"ipAddress": "10.0.0.3"}]}])
    def test_a_node_that_is_anothers_by_now_stays(self, host: Host, change: dict[str, object]) -> None:
        host.services.attributes["tpuctl-ttl"] = "3600s"
        host.look()
        host.services.node |= change
        with pytest.raises(AnotherNodeError, match=f"^{NODE} is another node now$"):
            host.look(HOUR)
        assert host.services.made("DELETE") == []

    def test_any_address_of_the_node_may_be_this_hosts(self, host: Host) -> None:
        host.services.node["networkEndpoints"] = [{}, {"ipAddress": ADDRESS}]
        assert host.look()["error"] == ""


class TestQueue:
    @pytest.fixture(autouse=True)
    def _queued(self, services: Services) -> None:
        services.node["queuedResource"] = QUEUED
        services.attributes["tpuctl-ttl"] = "3600s"

    def test_the_queued_resource_is_deleted_with_its_nodes(self, host: Host) -> None:
        host.look(HOUR)
        assert host.services.made("DELETE") == [f"{QUEUED}?force=true"]

    def test_one_that_is_gone_leaves_the_node(self, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
        host.services.fail("DELETE", f"{QUEUED}?force=true", 404, "gone")
        assert host.look(HOUR)["error"] == ""
        assert host.services.made("DELETE") == [f"{QUEUED}?force=true", NODE]
        assert capsys.readouterr().err == ""

    def test_where_that_is_refused_the_node_is_deleted(
        self, host: Host, capsys: pytest.CaptureFixture[str]
    ) -> None:
        host.services.fail("DELETE", f"{QUEUED}?force=true", 403, "no right to tpu.queuedResources.delete")
        assert host.look(HOUR)["error"] == ""
        assert host.services.made("DELETE") == [f"{QUEUED}?force=true", NODE]
        assert capsys.readouterr().err == (
            f"[tpuctl keeper] DELETE {QUEUED}?force=true: no right to tpu.queuedResources.delete; "
            "only the node is deleted\n"
        )

    def test_any_other_failure_deletes_nothing_else_and_is_tried_again(self, host: Host) -> None:
        host.services.fail("DELETE", f"{QUEUED}?force=true", 500, "")
        assert host.look(HOUR)["error"] == f"DELETE {QUEUED}?force=true: HTTP 500"
        assert host.look()["error"] == ""
        assert host.services.made("DELETE") == [f"{QUEUED}?force=true"] * 2

    def test_a_failure_that_stays_deletes_at_least_the_node(self, host: Host) -> None:
        host.services.fail("DELETE", f"{QUEUED}?force=true", 500, "", times=2)
        host.look(HOUR)
        assert host.look()["error"] == ""
        assert host.services.made("DELETE") == [f"{QUEUED}?force=true"] * 2 + [NODE]

    @pytest.mark.parametrize("name", ["q1", f"{QUEUED}?force=false", f"{QUEUED}/x", f"x/{QUEUED}", ""])
    def test_what_is_no_name_of_one_is_not_asked_for(self, host: Host, name: str) -> None:
        host.services.node["queuedResource"] = name
        host.look(HOUR)
        assert host.services.made("DELETE") == [NODE]

    def test_a_node_that_is_gone_by_then_is_no_error(self, host: Host) -> None:
        host.services.fail("DELETE", f"{QUEUED}?force=true", 404, "gone")
        host.services.fail("DELETE", NODE, 404, "gone")
        assert host.look(HOUR)["error"] == ""


class TestSeveral:
    """Idleness of a slice: every worker has to be idle, by its own note."""

    def guests(self, *notes: str | None) -> list[dict[str, object]]:
        return [
            {} if note is None else {"queryValue": {"items": [{"key": "other", "value": "x"},
                                                              {"key": "keeper", "value": note}]}}
            for note in ("", *notes)
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("notes", "is_deleted"),
        [
            # by now it is 12:20, the keeper started at 12:00 and looks each 30 s, and 10 min are the limit
            (['{"at": "2026-01-01T12:20:00Z", "active": "2026-01-01T12:10:00Z"}'], True),
            (['{"at": "2026-01-01T12:20:00Z", "active": "2026-01-01T12:10:01Z"}'], False),
            (['{"at": "2026-01-01T12:20:00Z", "active": "2026-01-01T12:00:00Z"}',
              '{"at": "2026-01-01T12:20:00Z", "active": "2026-01-01T12:10:01Z"}'], False),
            # silent for three looks, it counts until its last word; for longer, too
            (['{"at": "2026-01-01T12:18:30Z", "active": "2026-01-01T12:00:00Z"}'], True),
            (['{"at": "2026-01-01T12:18:29Z", "active": "2026-01-01T12:00:00Z"}'], False),
            (['{"at": "2026-01-01T12:09:00Z", "active": "2026-01-01T12:00:00Z"}'], True),
            # a clock that is ahead
            (['{"at": "2026-01-01T18:00:00Z", "active": "2026-01-01T18:00:00Z"}'], False),
            # no word at all: as if it was in use when the keeper started
            ([None], True), (["{"], True), (["[]"], True), (['{"at": "2026-01-01T12:20:00Z"}'], True),
            (['{"at": 1, "active": 2}'], True), (["[" * 9000], True), ([], True),
        ],
    )  # fmt: skip
    def test_it_ends_once_the_last_worker_is_idle(
        self, services: Services, notes: list[str | None], is_deleted: bool
    ) -> None:
        services.attributes |= {"tpuctl-idle": "600s", **WORKERS}
        services.guests = self.guests(*notes)
        host = Host(services)
        note = host.look(1200)
        assert (note["deleting"], note["error"]) == ("idle" if is_deleted else "", "")
        assert services.made("DELETE") == ([NODE] if is_deleted else [])
        ((_, _, body, _),) = [call for call in services.calls if call[1].endswith(":getGuestAttributes")]
        assert body == {"queryPath": "tpuctl/"}

    def test_where_other_workers_must_not_be_seen_that_is_said(
        self, services: Services, capsys: pytest.CaptureFixture[str]
    ) -> None:
        services.attributes |= {"tpuctl-idle": "600s", **WORKERS}
        path = f"{NODE}:getGuestAttributes"
        services.fail("POST", path, 403, "no right")
        Host(services).look(600)
        assert services.made("DELETE") == [NODE]
        assert (
            capsys.readouterr().err == f"[tpuctl keeper] other workers are not seen: POST {path}: no right\n"
        )

    def test_a_worker_without_a_note_hides_no_other(self, services: Services) -> None:
        """Compute Engine answers 404 for a namespace that an instance has not written yet."""
        services.attributes |= {"tpuctl-idle": "600s", "worker-network-endpoints": "a,b,c"}
        path = f"{NODE}:getGuestAttributes"
        absent = "The resource 'tpuctl/' of type 'Guest Attribute' was not found."
        services.fail("POST", path, 404, absent, times=2)  # for all workers, and for the first of the others
        used = '{"at": "2026-01-01T12:20:00Z", "active": "2026-01-01T12:15:00Z"}'
        services.guests = self.guests(used)[1:]
        host = Host(services)
        assert host.look(1200)["error"] == ""
        assert services.made("DELETE") == []
        bodies = [body for _, called, body, _ in services.calls if called == path]
        assert bodies == [{"queryPath": "tpuctl/", **chosen} for chosen in
                          ({}, {"workerIds": ["1"]}, {"workerIds": ["2"]})]  # fmt: skip
        services.broken = {"guests": 404}
        assert host.look(300)["deleting"] == "idle"

    def test_a_failure_that_may_end_soon_is_waited_for(self, services: Services) -> None:
        services.attributes |= {"tpuctl-idle": "600s", **WORKERS}
        services.broken = {"guests": 503}
        host = Host(services)
        assert host.look(1200)["error"] == f"POST {NODE}:getGuestAttributes: broken: 503"
        assert services.made("DELETE") == []

    def test_a_ttl_asks_no_other_worker(self, services: Services) -> None:
        services.attributes |= {"tpuctl-ttl": "3600s", "tpuctl-idle": "60s", **WORKERS}
        assert Host(services).look(HOUR)["deleting"] == "expired"
        assert services.made("POST") == []

    def test_a_single_host_asks_none(self, services: Services) -> None:
        services.attributes |= {"tpuctl-idle": "60s", "worker-network-endpoints": "a"}
        assert Host(services).look(60)["deleting"] == "idle"
        assert services.made("POST") == []


class TestTrouble:
    def test_pauses_grow_up_to_half_a_minute_and_it_ends_once_its_node_is_gone_for_long(
        self, host: Host, capsys: pytest.CaptureFixture[str]
    ) -> None:
        host.services.fail("GET", NODE, 500, "try later", times=5)
        host.services.fail("GET", NODE, 200)
        host.services.attributes["tpuctl-expires"] = "2026-01-01T12:01:00Z"
        host.services.fail("DELETE", NODE, 500, "not now", times=2)
        host.services.fail("GET", NODE, 200, times=2)
        host.services.fail("GET", NODE, 404, "it is gone", times=5)
        host.services.fail("GET", NODE, 200)
        host.services.fail("DELETE", NODE, 500, "not now")
        host.services.fail("GET", NODE, 404, "it is gone", times=500)
        host.keeper.run()
        waits = [query for query in host.services.waits if "timeout_sec" in query]
        seconds = [int(query["timeout_sec"]) for query in waits]
        assert seconds[:9] == [5, 10, 20, 30, 30, 30, 30, 30, 30]
        assert waits[0] == {
            "recursive": "true", "alt": "json", "wait_for_change": "true", "last_etag": "etag-1",
            "timeout_sec": "5",
        }  # fmt: skip
        assert host.services.notes[0]["error"] == f"GET {NODE}: try later"
        assert host.services.notes[-1]["error"] == f"GET {NODE}: it is gone"
        gone = [note["error"] for note in host.services.notes].count(f"GET {NODE}: it is gone")
        assert gone >= GONE_AFTER / LONGEST_PAUSE
        assert capsys.readouterr().err.count(f"[tpuctl keeper] GET {NODE}: try later\n") == 1

    def test_while_the_metadata_server_is_away_uses_are_seen(self, host: Host) -> None:
        host.services.attributes["tpuctl-idle"] = "600s"
        host.look()
        uses = iter([["ada is logged in"], []])
        host.keeper._activity = lambda: next(uses)
        host.services.broken = {"metadata": 503}
        host.services.time += 500
        host.services.sleep_ends = lambda: host.services.broken.clear()
        host.keeper._await_next(host.services.time)
        assert host.look()["active"] == "2026-01-01T12:08:25Z"

    def test_a_host_that_cannot_be_looked_at_is_idle_from_its_last_look_on(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A look may hang at a file system whose server is gone."""
        monkeypatch.setattr("tpuctl.host.keeper.keeper.HOST_TIMEOUT", 0.01)
        host.services.attributes["tpuctl-idle"] = "600s"
        host.uses = ["ada is logged in"]
        host.look(300)
        answer = threading.Event()
        host.keeper._activity = lambda: answer.wait() and []
        for after, deleting in ((300, ""), (299, ""), (1, "idle")):
            assert host.look(after)["deleting"] == deleting
        answer.set()
        host.keeper._looking.join()

    def test_a_log_on_a_full_disk_stops_nothing(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stderr", FullDisk())
        host.services.broken = {"api": 500}
        assert host.look()["error"] == f"GET {NODE}: broken: 500"

    def test_a_host_that_can_start_no_thread_ends_at_its_ttl(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        host.services.attributes["tpuctl-ttl"] = "3600s"
        monkeypatch.setattr("tpuctl.host.keeper.keeper._in_thread", refuse)
        host.look(HOUR)
        assert host.services.made("DELETE") == [NODE]

    def test_the_next_keeper_of_a_boot_knows_the_last_use_and_the_first_start(
        self, services: Services, tmp_path: Path
    ) -> None:
        services.attributes |= {"tpuctl-idle": "600s", **WORKERS}
        for uses, after in ((["ada is logged in"], 100), ([], 300), ([], 299)):
            host = Host(services, Memory(str(tmp_path / "memory")))
            host.uses = uses
            assert host.look(after)["active"] == "2026-01-01T12:01:40Z"
        assert services.made("DELETE") == []
        assert Host(services, Memory(str(tmp_path / "memory"))).look(1)["deleting"] == "idle"

    def test_without_a_place_for_its_memory_it_works(self, services: Services, tmp_path: Path) -> None:
        services.attributes["tpuctl-ttl"] = "3600s"
        assert Host(services, Memory(str(tmp_path / "gone/memory"))).look(HOUR)["deleting"] == "expired"

    def test_a_token_that_is_refused_is_asked_for_anew(self, host: Host) -> None:
        host.look()
        host.services.token = "another"
        host.services.fail("GET", NODE, 401, "expired")
        host.services.attributes["tpuctl-ttl"] = "1s"
        host.services.time += 10
        assert host.look()["error"] == f"GET {NODE}: expired"
        assert host.look()["error"] == ""
        assert [authorization for *_, authorization in host.services.calls] == [
            "Bearer token", "Bearer token", "Bearer another", "Bearer another",
        ]  # fmt: skip

    def test_an_api_that_cannot_be_reached_is_named(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with refusing_port() as port:
            monkeypatch.setattr("tpuctl.host.keeper.keeper.URL", f"http://127.0.0.1:{port}/v2/")
            assert re.match("no answer from the Cloud TPU API: .*refused", str(host.look()["error"]))

    @pytest.mark.parametrize(("name", "value"), [("tpuctl-expires", "soon"), ("tpuctl-idle", "0s")])
    def test_metadata_that_is_no_time_is_named(self, host: Host, name: str, value: str) -> None:
        host.services.attributes[name] = value
        assert str(host.look(HOUR)["error"]).startswith(f"'{value}' does not match ")
        assert host.services.made("DELETE") == []

    def test_metadata_that_is_wrong_about_one_end_leaves_the_other(self, host: Host) -> None:
        host.services.attributes |= {"tpuctl-expires": "soon", "tpuctl-idle": "600s"}
        assert str(host.look(599)["error"]).startswith("'soon' does not match ")
        assert host.look(1)["deleting"] == "idle"
