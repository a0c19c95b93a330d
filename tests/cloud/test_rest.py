"""A REST API that misbehaves: every failure is an error of tpuctl's, bounded in size, pages and time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest
import requests

from tests.cloud.web_server import WebServer, refusing, serving
from tpuctl.cloud import rest
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.rest import RestApi
from tpuctl.errors import ConfigError, DeadlineError, TpuctlError
from tpuctl.polling import retry

SERVICE = Service("cloudquotas.googleapis.com", "roles/cloudquotas.viewer")


class Page(msgspec.Struct, rename="camel"):
    """A page of numbers."""

    items: tuple[int, ...] = ()
    next_page_token: str = ""


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serving({}) as web:
        yield web


def items(server: WebServer) -> list[int]:
    with requests.Session() as session:
        session.trust_env = False
        pages = RestApi(session, server.url, SERVICE).pages("/list", Page, "the list")
        return [item for page in pages for item in page.items]


def test_all_pages_are_read(server: WebServer) -> None:
    server.files = {
        "/list": json.dumps({"items": [1, 2], "nextPageToken": "a"}).encode(),
        "/list?pageToken=a": json.dumps({"items": [3], "more": True}).encode(),
    }
    assert items(server) == [1, 2, 3]


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[]", b'{"items": ["x"]}', b"\xff", b"[" * 100_000, b'{"items": 1}']
)
def test_an_answer_that_is_no_such_list_is_an_error(server: WebServer, content: bytes) -> None:
    server.files = {"/list": content}
    with pytest.raises(DeadlineError, match="not what this version of tpuctl reads"):
        items(server)


def test_a_list_without_end_is_an_error(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MOST_PAGES", 5)
    page = json.dumps({"nextPageToken": "a"}).encode()
    server.files = {"/list": page, "/list?pageToken=a": page}
    with pytest.raises(DeadlineError):
        items(server)
    assert len(server.requests) == 5


def test_a_page_that_is_too_large_is_an_error(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MOST_BYTES", 1000)
    server.files = {"/list": b" " * 1_000_000 + b"{}"}
    with pytest.raises(DeadlineError):
        items(server)


def test_a_connection_that_is_cut_is_an_error(server: WebServer) -> None:
    server.files = {"/list": b" " * 100_000 + b"{}"}
    server.cut_after = [50_000]
    with pytest.raises(DeadlineError, match="cannot be reached"):
        items(server)


def test_a_redirect_is_not_followed(server: WebServer) -> None:
    """It would carry the credentials elsewhere."""
    server.redirects = {"/list": f"{server.url}/other"}
    server.files = {"/other": b"{}"}
    with pytest.raises(TpuctlError):
        items(server)
    assert server.requests == ["/list"]


def test_nobody_listens() -> None:
    with refusing() as server, pytest.raises(DeadlineError, match="cannot be reached"):
        items(server)


def test_a_service_that_is_unavailable_is_tried_again(server: WebServer) -> None:
    server.files = {"/list": b'{"items": [1]}'}
    server.statuses = [503, 500]
    assert items(server) == [1]


def test_a_missing_permission_names_the_role(server: WebServer) -> None:
    server.statuses = [403]
    with pytest.raises(ConfigError, match=r"^No permission for the list: sorry$") as refused:
        items(server)
    assert "roles/cloudquotas.viewer" in refused.value.hint


def test_a_service_that_stays_down_is_given_up_after_twenty_seconds(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(rest, "retry", partial(retry, sleep=slept.append, clock=lambda: 1000.0 + sum(slept)))
    server.statuses = [503] * 100
    with pytest.raises(TpuctlError):
        items(server)
    assert len(server.requests) == len(slept) + 1 > 3
    assert 10 < sum(slept) <= 20


def test_a_request_waits_at_most_20_seconds_for_its_answer(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"/list": b'{"items": [1]}'}
    timeouts: list[object] = []
    send = requests.Session.send

    def sent(session: requests.Session, request: requests.PreparedRequest, **options: object) -> object:
        timeouts.append(options["timeout"])
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", sent)  # the server cannot see it
    assert items(server) == [1]
    assert timeouts == [20.0]
