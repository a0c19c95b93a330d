"""The log of events: every service in order, bounded in memory and on disk, whole after a cut.

How much the log of events keeps: in memory, of one body, and in a file.
"""

from __future__ import annotations

import hashlib
import json
import stat
import urllib.request
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage, tpu_v2

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User, tpu_client
from tpuctl.cloud.simulator.event_log import EventLog
from tpuctl.sim import events as log
from tpuctl.sim.events import Events, masked


def test_every_service_notes_its_requests_in_order(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    user, endpoints = User(tmp_path), simulator.simulator.endpoints
    node = user.create(endpoints["tpu_grpc"])
    asking = "curl -sH Metadata-Flavor:Google http://$GCE_METADATA_HOST/computeMetadata/v1/instance/id"
    user.run(Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address, asking)
    client = storage.Client(
        "sim-project", AnonymousCredentials(), client_options={"api_endpoint": endpoints["storage"]}
    )
    client.bucket("sim-project-tpuctl").blob("a").upload_from_string("1")
    client.close()
    urllib.request.urlopen(f"{endpoints['compute_rest']}/compute/v1/projects/sim-project").close()
    urllib.request.urlopen(f"{endpoints['tpu_rest']}/v2/{PARENT}/nodes").close()
    host = f"{PARENT}/nodes/one/workers/0"
    entries = [(event.service, event.kind, event.what, event.resource) for event in simulator.events]
    assert [event for event in entries if event[2] != "GetOperation"] == [
        ("tpu", "request", "CreateNode", f"{PARENT}/nodes/one"),
        ("tpu", "transition", "CREATING", f"{PARENT}/nodes/one"),
        ("tpu", "transition", "READY", f"{PARENT}/nodes/one"),
        ("ssh", "request", "login", host),
        ("ssh", "request", "exec", host),
        ("metadata", "request", "GET", host),
        ("storage", "request", "objects.create", "sim-project-tpuctl/a"),
        ("compute", "request", "GET", "/compute/v1/projects/sim-project"),
        ("tpu", "request", "ListNodes", PARENT),
    ]
    assert [event.number for event in simulator.events] == list(range(1, len(simulator.events) + 1))
    details = {event.what: event.detail for event in simulator.events}
    assert (details["login"], details["GET"]) == ("ada", "")
    assert details["exec"] == asking
    path = simulator.folder / "events.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [event.number for event in EventLog(simulator.folder).new()] == [
        event.number for event in simulator.events
    ]


def test_events_are_found_by_patterns() -> None:
    events = Events(lambda: 5.0)
    events.note("request", "GetNode", "a/b")
    events.note("fault", "stockout", "a/c", "f1 tpu.CreateNode")
    assert [event.what for event in events.find(resource="a/*")] == ["GetNode", "stockout"]
    assert [event.what for event in events.find(resource="a/*", kind="fault")] == ["stockout"]
    assert events.find(what="stock?") == []


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST", 10)
    events = Events()
    for number in range(25):
        events.note("request", str(number), "")
    assert len(events) == log.MOST
    assert events[0].number == 16


def test_the_bodies_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_BYTES", 500)
    events = Events()
    for number in range(25):
        events.note("request", str(number), "", body={"text": "x" * 89})
    assert [event.number for event in events] == [21, 22, 23, 24, 25], "100 bytes each"
    events.note("request", "26", "")
    assert len(events) == 6, "an event without a body takes none of them"


def test_a_body_too_large_is_a_size_and_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LARGEST_BODY", 50)
    events = Events()
    for text in ("x", "x" * 100, "y" * 100):
        events.note("request", "CreateNode", "", body={"text": text})
    small, large, other = (event.body for event in events)
    assert small == {"text": "x"}
    assert large == {"bytes": 111, "sha256": hashlib.sha256(b'{"text":"' + b"x" * 100 + b'"}').hexdigest()}
    assert large != other


def test_a_body_of_exactly_the_most_bytes_is_kept_whole() -> None:
    events = Events()
    for size in (256 * 1024, 256 * 1024 + 1):
        events.note("request", "CreateNode", "", body={"text": "x" * (size - len('{"text":""}'))})
    largest, too_large = (event.body for event in events)
    assert largest
    assert list(largest) == ["text"]
    assert too_large
    assert too_large["bytes"] == 262145


def test_requests_that_change_something_have_bodies_by_grpc_as_by_rest(simulator: RunningSimulator) -> None:
    endpoints, sent = (
        simulator.simulator.endpoints,
        {"acceleratorType": "v2-8", "runtimeVersion": "tpu-ubuntu2204-base"},
    )
    snake_case = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}
    node = tpu_v2.Node(**snake_case, labels={"team": "vision"})
    with tpu_client(endpoints["tpu_grpc"]) as client:
        client.create_node(parent=PARENT, node_id="one", node=node)
    request = urllib.request.Request(
        f"{endpoints['tpu_rest']}/v2/{PARENT}/nodes?nodeId=two",
        json.dumps({**sent, "labels": {"team": "vision"}}).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()
    urllib.request.urlopen(f"{endpoints['tpu_rest']}/v2/{PARENT}/nodes").close()
    bodies = [event.body for event in simulator.events.find(kind="request")]
    assert bodies == [
        {"parent": PARENT, "nodeId": "one", "node": {**sent, "labels": {"team": "vision"}}},
        {"parent": PARENT, "nodeId": "two", "node": {**sent, "labels": {"team": "vision"}}},
        None,
    ]
    assert [event.body for event in EventLog(simulator.folder).new() if event.kind == "request"] == bodies


def test_requests_to_storage_and_compute_have_bodies_without_content(simulator: RunningSimulator) -> None:
    endpoints = simulator.simulator.endpoints
    options = {"api_endpoint": endpoints["storage"]}
    with storage.Client("sim-project", AnonymousCredentials(), client_options=options) as client:
        bucket = client.create_bucket("made-here", location="us-central1")
        blob = bucket.blob("a")
        blob.metadata = {"team": "vision", "api_key": "abc"}
        blob.upload_from_string(b"all of it", content_type="text/plain")
        blob.metadata = {"team": None}
        blob.patch()
        bucket.blob("b").rewrite(blob)
    headers = {"Content-Type": "application/json"}
    url = f"{endpoints['compute_rest']}/compute/v1/projects/sim-project"
    with urllib.request.urlopen(url) as answer:
        fingerprint = json.load(answer)["commonInstanceMetadata"]["fingerprint"]
    items = [{"key": "enable-oslogin", "value": "TRUE"}, {"key": "wandb-token", "value": "abc"}]
    sent = json.dumps({"fingerprint": fingerprint, "items": items}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{url}/setCommonInstanceMetadata", sent, headers)).close()
    events = {
        event.what: event.body for event in simulator.events.find(kind="request", resource="made-here*")
    }
    assert events["buckets.create"] == {"name": "made-here", "location": "us-central1"}
    assert events["objects.update"] == {"metadata": {"team": None}}
    created, copied = simulator.events.find(what="objects.create")
    assert created.body == {
        "name": "a", "contentType": "text/plain", "crc32c": "ib/n8Q==",
        "metadata": {"team": "vision", "api_key": "***"},
    }  # fmt: skip
    assert copied.resource == "made-here/b"
    read, changed = simulator.events.find(service="compute")
    assert read.body is None
    assert changed.body == {
        "fingerprint": fingerprint,
        "items": [items[0], {"key": "wandb-token", "value": "***"}],
    }
    assert b"all of it" not in (simulator.folder / "events.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"startupScript": "curl -H 'Authorization: Bearer ya29.abc'"}, {"startupScript": "***"}),
        ({"pageToken": "abc", "rewriteToken": "abc"}, {"pageToken": "abc", "rewriteToken": "abc"}),
        ({"list": [{"clientSecret": "x", "n": 1}]}, {"list": [{"clientSecret": "***", "n": 1}]}),
        ({"key": "-----BEGIN RSA PRIVATE KEY-----\nabc"}, {"key": "***"}),
        (
            {"metadata": {"ssh-keys": "ada:ssh-ed25519 AAAA"}},
            {"metadata": {"ssh-keys": "ada:ssh-ed25519 AAAA"}},
        ),
    ],
)
def test_secrets_are_masked(body: dict[str, object], kept: dict[str, object]) -> None:
    events = Events()
    events.note("request", "CreateNode", "x", body=body)
    assert events[0].body == kept


def test_the_disk_is_bounded_and_a_reader_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LARGEST", 2000)
    events, reader = Events(path=tmp_path / "events.jsonl"), EventLog(tmp_path)
    read = []
    for number in range(100):
        events.note("request", "GetNode", str(number))
        if number % 7 == 0:
            read += reader.new()
    events.close()
    assert [event.resource for event in [*read, *reader.new()]] == [str(number) for number in range(100)]
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 2200


def test_numbers_go_on_after_a_restart_and_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = Events(path=path)
    for _ in range(3):
        first.note("request", "GetNode", "x")
    first.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"requ')
    second = Events(path=path)
    second.note("transition", "READY", "x")
    second.close()
    numbers = []
    for line in path.read_text().splitlines():
        try:
            numbers.append(json.loads(line)["number"])
        except ValueError:
            numbers.append(None)
    assert numbers == [1, 2, 3, None, 4]
    assert [event.number for event in EventLog(tmp_path).new()] == [1, 2, 3, 4]


def test_a_full_disk_loses_events_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events(path=tmp_path / "events.jsonl")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(log.os, "write", full)
        events.note("request", "GetNode", "lost")
    events.note("request", "GetNode", "kept")
    events.close()
    assert [event.resource for event in events] == ["lost", "kept"]
    assert [event.resource for event in EventLog(tmp_path).new()] == ["kept"]


KIB, MIB = 1 << 10, 1 << 20


def body(size: int) -> dict[str, object]:
    """Return a body of as many bytes of JSON; it is long by a name, which nobody searches for secrets."""
    return {"x" * (size - len('{"":1}')): 1}


def test_ten_thousand_events_are_in_memory() -> None:
    events = Events()
    for _ in range(10_001):
        events.note("request", "GetNode", "x")
    assert (len(events), events[0].number) == (10_000, 2)


def test_a_body_of_256_kib_is_kept_and_one_that_is_larger_is_not() -> None:
    events = Events()
    for size in (256 * KIB, 256 * KIB + 1):
        events.note("request", "CreateNode", "x", body=body(size))
    kept, large = events
    assert kept.body == body(256 * KIB)
    assert sorted(large.body or {}) == ["bytes", "sha256"]


def test_bodies_of_16_mib_are_in_memory() -> None:
    events = Events()
    for _ in range(65):
        events.note("request", "CreateNode", "x", body=body(256 * KIB))
    assert (len(events), events[0].number) == (64, 2)


def test_a_file_has_8_mib_and_then_becomes_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = Events(path=path)
    while not (tmp_path / "events.jsonl.1").exists():
        assert path.stat().st_size <= 8 * MIB
        events.note("request", "CreateNode", "x", body=body(256 * KIB))
    events.close()
    assert 8 * MIB < (tmp_path / "events.jsonl.1").stat().st_size < 8 * MIB + 257 * KIB


@pytest.mark.parametrize("name", ["pageToken", "rewriteToken", "nextPageToken"])
def test_a_place_in_a_list_is_no_secret(name: str) -> None:
    assert masked({name: "abc"}) == {name: "abc"}


@pytest.mark.parametrize(
    "name",
    ["secret", "clientSecret", "PASSWORD", "passwd", "accessToken", "credentials", "private_key",
     "private-key", "privateKey", "api_key", "API-KEY", "apikey", "accessKeyId"],
)  # fmt: skip
def test_a_value_is_masked_by_its_name(name: str) -> None:
    assert masked({name: "abc", "items": [{"key": name, "value": "abc"}], "other": {name: ["abc"]}}) == {
        name: "***",
        "items": [{"key": name, "value": "***"}],
        "other": {name: ["***"]},
    }


@pytest.mark.parametrize(
    "text",
    ["-----BEGIN PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----", "ya29.a0Af", f"hf_{'a1' * 10}",
     f"AIza{'a-' * 15}", f"ghp_{'a' * 30}", f"gho_{'a' * 30}", f"ghs_{'a' * 30}"],
)  # fmt: skip
def test_a_value_is_masked_by_its_look(text: str) -> None:
    assert masked({"startup-script": f"export KEY={text}"}) == {"startup-script": "***"}


@pytest.mark.parametrize(
    "value", ["-----BEGIN PUBLIC KEY-----", "x29.a0Af", "hf_short", "AIza", "ghx_", "", 5, None, True]
)
def test_a_plain_value_stays(value: object) -> None:
    assert masked({"description": value, "numbers": [1, value]}) == {
        "description": value,
        "numbers": [1, value],
    }


@pytest.mark.parametrize("value", [5, None, True, {"n": 1}])
def test_only_texts_are_secret(value: object) -> None:
    assert masked({"token": value}) == {"token": value}
