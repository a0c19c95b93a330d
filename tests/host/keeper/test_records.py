"""When a TPU ends by its metadata, and what is no time.

A keeper never deletes another's node: the name may have been used again.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.keeper.site import Command, Keepers
from tests.host.worker.host import ssh_environment
from tpuctl import clock
from tpuctl.cloud.endpoints import Cloud
from tpuctl.host import gcs, wire
from tpuctl.host.keeper import records
from tpuctl.host.keeper.keeper import AnotherNodeError, Keeper, MetadataServer, TpuApi
from tpuctl.host.keeper.records import moment


def test_a_ttl_counts_from_the_creation_and_an_expiry_replaces_it() -> None:
    ttl = {"tpuctl-ttl": "3600s"}
    assert records.expiry({}, 1000.0) is None
    assert records.expiry(ttl, 1000.0) == 4600.0
    assert records.expiry(ttl, None) is None
    assert records.expiry({**ttl, "tpuctl-expires": "2026-11-22T20:00:00Z"}, None) == 1795377600.0
    assert records.idle_limit({"tpuctl-idle": "1800s"}) == 1800
    assert records.idle_limit({}) is None


@pytest.mark.parametrize(
    "text", ["", "0s", "8h", "-1s", "1.5s", "3600", "99999999999s", "31622401s", "٣s", "1s\n"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        records.seconds(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-11-22",
        "2026-11-22T20:00:00+01:00",
        "1026-11-22T20:00:00Z",
        "2026-13-40T20:00:00Z",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="match"):
        records.moment(text)


@given(st.integers(946684800, 4102444800))
def test_laptop_and_keeper_write_and_read_the_same_times(seconds: int) -> None:
    text = records.iso(float(seconds))
    assert clock.parse(text).timestamp() == seconds == records.moment(text)
    assert records.moment(text.replace("Z", ".123456789Z")) == seconds


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    for read in (records.moment, records.seconds):
        try:
            read(text)
        except ValueError:
            pass


def test_a_long_error_loses_its_end() -> None:
    note = json.loads(records.encode(records.Note(0, "2026-11-22T20:00:00Z", error="x" * 10_000)))
    assert len(note["error"]) == 1000


@pytest.fixture
def keeper(keepers: Keepers, tpuctl: Command, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """The keeper of a v3-8 that has expired, in this process, before its first look."""
    from tpuctl.flows.nodes import lifetime

    monkeypatch.setattr(lifetime, "SCRIPT", "#!/bin/sh\n")
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "1h", "--yes").code == 0
    environment = ssh_environment()
    for name in ("GCE_METADATA_HOST", "https_proxy", "HTTPS_PROXY", "SSL_CERT_FILE", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setattr(wire, "_certificates", ssl.create_default_context)  # not those of an earlier test
    monkeypatch.setattr(gcs, "HOST", keepers.simulator.simulator.endpoints["storage"])
    keepers.advance(7200)
    return Keeper(MetadataServer(), list, 1.0)


@pytest.mark.daily
def test_its_own_is_deleted(keeper: Keeper, keepers: Keepers) -> None:
    keeper.look()
    keepers.wait_for_end()
    keeper._recording.join()  # it may find the metadata server of a host that has ended


def test_a_node_with_another_uid_stays(keeper: Keeper, keepers: Keepers) -> None:
    own = keeper._own_node()
    keeper._node = replace(own, uid="4711")
    with pytest.raises(AnotherNodeError):
        keeper.look()
    assert keepers.names() == ["n1"]
    assert keepers.records() == []


def test_a_node_without_this_host_stays(keeper: Keeper, keepers: Keepers, tpuctl: Command) -> None:
    assert tpuctl("up", "v2-8", "--name", "n2", "--ttl", "1h", "--yes").code == 0
    keepers.advance(7200)
    keeper._api = TpuApi(keeper.project, keeper.zone, "n2")
    with pytest.raises(AnotherNodeError):
        keeper.look()
    assert sorted(keepers.names()) == ["n1", "n2"]


def test_a_node_that_is_gone_ends_the_keeper(
    keeper: Keeper, keepers: Keepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.host.keeper.keeper.GONE_AFTER", 0)
    keeper._api = TpuApi(keeper.project, keeper.zone, "gone")
    keeper.run()
    assert keepers.names() == ["n1"]


def test_a_metadata_server_that_is_ahead_deletes_nothing(
    keeper: Keeper, keepers: Keepers, tpuctl: Command
) -> None:
    extended = tpuctl("extend", "n1", "1h")
    assert extended.code == 0, extended.err
    keeper._take(keeper._server.attributes())
    keeper.look()
    keeper._take(replace(keeper._server.attributes(), at=keeper._metadata.at + 50_000))
    keeper.look()
    assert keepers.note()["error"] == ""
    assert moment(keepers.note()["at"]) < keeper._metadata.at - 40_000
    assert keepers.names() == ["n1"]


def test_workers_that_must_not_be_seen_count_as_used_until_the_keeper_started(
    keeper: Keeper, simulator, cloud: Cloud
) -> None:
    simulator.faults.add("permission", method="GetGuestAttributes")
    assert keeper._last_uses() == [keeper._started]


@pytest.mark.daily
def test_a_token_that_is_refused_is_renewed(keeper: Keeper, simulator) -> None:
    token = keeper._api._token
    fault = simulator.faults.add("error", method="GetNode", code="UNAUTHENTICATED", count=1)
    keeper.look()
    assert fault
    assert keeper._api._token is not token
