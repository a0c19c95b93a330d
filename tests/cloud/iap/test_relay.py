"""Tests how the relay is asked for a tunnel: what a request says, and which token it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tpuctl.cloud.iap import relay
from tpuctl.cloud.iap.frames import Refusal
from tpuctl.cloud.iap.relay import Instance, Patience, Relay

INSTANCE = Instance("p", "z", "host-1", interface="nic1", port=2222)


class Asked:
    """The requests, and the answers to the next ones: HTTP statuses of refusals."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.timeouts: list[float] = []
        self.local: list[bool] = []
        self.refusals: list[int] = []
        self.tokens: list[bool] = []

    def open(self, url: str, headers: Mapping[str, str], timeout: float, *, is_local: bool) -> str:
        self.urls.append(url)
        self.headers.append(dict(headers))
        self.timeouts.append(timeout)
        self.local.append(is_local)
        if self.refusals:
            raise Refusal(self.refusals.pop(0), "no")
        return f"connection {len(self.urls)}"

    def token(self, renew: bool) -> str:
        self.tokens.append(renew)
        return "new" if renew else "old"

    @property
    def authorizations(self) -> list[str]:
        return [headers["Authorization"] for headers in self.headers]

    def relay(self, **options: Any) -> Relay:
        return Relay(self.token, "wss://relay/v4/", patience=Patience(connect=7.0), **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(relay, "WebSocket", asked.open)
    return asked


def query(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query, encoding="latin-1")


@pytest.mark.parametrize("is_local", [False, True])
def test_a_tunnel_is_asked_for_by_its_instance(asked: Asked, is_local: bool) -> None:
    connection: Any = asked.relay(is_local=is_local).begin(INSTANCE)
    assert connection == "connection 1"
    (url,) = asked.urls
    assert url.startswith("wss://relay/v4/connect?")
    assert query(url) == {
        "project": ["p"],
        "port": ["2222"],
        "newWebsocket": ["True"],
        "zone": ["z"],
        "instance": ["host-1"],
        "interface": ["nic1"],
    }
    assert (asked.authorizations, asked.timeouts, asked.local) == (["Bearer old"], [7.0], [is_local])
    assert asked.headers[0]["User-Agent"].startswith("tpuctl/")


def test_a_tunnel_is_resumed_by_its_session_and_what_was_received(asked: Asked) -> None:
    asked.relay().resume(INSTANCE, b"\xffs&", 12, renew=False)
    (url,) = asked.urls
    assert url.startswith("wss://relay/v4/reconnect?")
    assert query(url) == {"sid": ["\xffs&"], "ack": ["12"], "newWebsocket": ["True"], "zone": ["z"]}
    assert asked.tokens == [False]


def test_a_tunnel_is_resumed_with_a_new_token_where_that_is_needed(asked: Asked) -> None:
    asked.relay().resume(INSTANCE, b"s", 12, renew=True)
    assert (asked.tokens, asked.authorizations) == ([True], ["Bearer new"])


def test_without_a_token_a_request_names_nobody(asked: Asked) -> None:
    Relay(lambda renew: "", "ws://relay").begin(INSTANCE)
    assert list(asked.headers[0]) == ["User-Agent"]


def test_a_token_that_is_refused_is_renewed_once(asked: Asked) -> None:
    asked.refusals = [401]
    connection: Any = asked.relay(is_local=True).begin(INSTANCE)
    assert connection == "connection 2"
    assert asked.authorizations == ["Bearer old", "Bearer new"]
    assert (asked.urls[0], asked.timeouts, asked.local) == (asked.urls[1], [7.0, 7.0], [True, True])
    asked.refusals = [401, 401]
    with pytest.raises(Refusal):
        asked.relay().begin(INSTANCE)
    assert len(asked.urls) == 4


def test_a_new_token_that_is_refused_is_not_renewed(asked: Asked) -> None:
    asked.refusals = [401]
    with pytest.raises(Refusal):
        asked.relay().resume(INSTANCE, b"s", 0, renew=True)
    assert asked.tokens == [True]


def test_another_refusal_renews_nothing(asked: Asked) -> None:
    asked.refusals = [403]
    with pytest.raises(Refusal):
        asked.relay().begin(INSTANCE)
    assert asked.tokens == [False]
