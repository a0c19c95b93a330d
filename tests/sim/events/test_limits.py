"""How much the log of events keeps: in memory, of one body, and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.sim.events import Events, masked

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
