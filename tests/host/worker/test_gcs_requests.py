"""What the worker's Cloud Storage client sends for each act, and what it makes of each answer."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tpuctl.host import gcs, timing
from tpuctl.host.wire import Answer

OBJECT = "/storage/v1/b/b/o/runs%2Fr%201"
"""Of `runs/r 1` in the bucket `b`."""
CONFLICT, MISSING, FORBIDDEN = (Answer(status, HTTPMessage(), b"no") for status in (412, 404, 403))


def answer(body: object, status: int = 200, generation: str = "", date: str = "") -> Answer:
    """An answer of the service; a body that is no bytes is JSON."""
    headers = HTTPMessage()
    headers["Date"] = date
    if generation:
        headers["X-Goog-Generation"] = generation
    return Answer(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode())


class Service:
    """The wire to a service that gives some answers, one a request; tests of the wire itself are others."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Answer | OSError] = []
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes | None] = []
        self.headers: list[dict[str, str]] = []
        self.is_closed = False

    def request(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> Answer:
        self.requests.append((method, target))
        self.bodies.append(data)
        self.headers.append(dict(headers))
        given = self.answers.pop(0)
        if isinstance(given, OSError):
            raise given
        return given

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service of the next bucket, whose metadata server gives the token `t`."""
    service = Service()

    def connect(url: str) -> Service:
        service.url = url
        return service

    monkeypatch.setattr(gcs, "Wire", connect)
    monkeypatch.setattr(gcs, "ask_metadata", _Metadata(3600))
    monkeypatch.setattr(timing, "REQUEST_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    return service


@pytest.fixture
def bucket(service: Service) -> gcs.Bucket:
    """The bucket `b`."""
    return gcs.Bucket("b")


class _Metadata:
    """A metadata server that gives tokens for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.requests: list[tuple[str, float]] = []

    def __call__(self, path: str, timeout: float) -> Answer:
        self.requests.append((path, timeout))
        return answer({"access_token": f"t{len(self.requests)}", "expires_in": self.seconds})


def test_the_service_is_googles_and_is_closed_with_the_bucket(bucket: gcs.Bucket, service: Service) -> None:
    assert (service.url, service.is_closed) == ("https://storage.googleapis.com", False)
    bucket.close()
    assert service.is_closed


@pytest.mark.parametrize(
    ("emulator", "url"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("http://127.0.0.1.example.com", "https://storage.googleapis.com"),
        ("https://127.0.0.1:9000", "https://storage.googleapis.com"),
        ("", "https://storage.googleapis.com"),
    ],
)
def test_an_emulator_is_one_on_this_host(
    service: Service, monkeypatch: pytest.MonkeyPatch, emulator: str, url: str
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    gcs.Bucket("b")
    assert service.url == url


class TestWriting:
    @pytest.mark.parametrize(
        ("arguments", "query", "kind"),
        [
            ((), {}, "application/json"),
            ((0,), {"ifGenerationMatch": "0"}, "application/json"),
            ((7, "text/plain"), {"ifGenerationMatch": "7"}, "text/plain"),
        ],
    )
    def test_an_object_is_sent_with_its_precondition(
        self, bucket: gcs.Bucket, service: Service, arguments: Any, query: dict[str, str], kind: str
    ) -> None:
        service.answers = [answer({"generation": "12"})]
        assert bucket.put("runs/r 1", b"data", *arguments) == 12
        [(method, target)] = service.requests
        path, _, sent = target.partition("?")
        assert (method, path) == ("POST", "/upload/storage/v1/b/b/o")
        assert dict(parse_qsl(sent)) == {"uploadType": "media", "name": "runs/r 1", **query}
        assert service.bodies == [b"data"]
        assert service.headers == [{"Content-Type": kind, "Authorization": "Bearer t1"}]

    @pytest.mark.parametrize(
        ("answers", "is_ours"),
        [
            ([answer({"generation": "12"})], True),
            ([CONFLICT, answer({"generation": "3", "size": "4"}), answer(b"data")], True),
            ([CONFLICT, answer({"generation": "3", "size": "4"}), answer(b"DATA")], False),
            ([CONFLICT, answer({"generation": "3", "size": "5"})], False),
            ([CONFLICT, MISSING], False),
            (
                [FORBIDDEN, *[answer({"generation": "3", "size": "4"})] * 2, answer(b"data")],
                True,
            ),
        ],
        ids=["new", "the same", "as long", "longer", "deleted meanwhile", "the same, not to be overwritten"],
    )
    def test_an_object_is_created_once(
        self, bucket: gcs.Bucket, service: Service, answers: list[Answer], is_ours: bool
    ) -> None:
        service.answers = [*answers]
        assert bucket.create("runs/r 1", b"data", "text/plain") is is_ours
        assert service.answers == []
        assert "ifGenerationMatch=0" in service.requests[0][1]
        assert service.headers[0]["Content-Type"] == "text/plain"
        if answers[-1].body == b"data":
            assert service.requests[-1] == ("GET", f"{OBJECT}?alt=media&generation=3")

    def test_an_empty_object_that_is_not_there_is_not_created(
        self, bucket: gcs.Bucket, service: Service
    ) -> None:
        service.answers = [CONFLICT, MISSING]
        assert not bucket.create("runs/r 1", b"", "text/plain")

    def test_an_object_that_may_not_be_created_is_an_error(
        self, bucket: gcs.Bucket, service: Service
    ) -> None:
        service.answers = [FORBIDDEN, MISSING]
        with pytest.raises(gcs.RefusedError, match="403 no"):
            bucket.create("runs/r 1", b"data", "text/plain")


class TestReading:
    @pytest.mark.parametrize(
        ("read", "result", "query", "range_"),
        [
            (lambda bucket: bucket.get("runs/r 1"), b"1234", "alt=media", None),
            (lambda bucket: bucket.get("runs/r 1", 0), b"1234", "alt=media&generation=0", None),
            (lambda bucket: bucket.get("runs/r 1", 7), b"1234", "alt=media&generation=7", None),
            (lambda bucket: bucket.part("runs/r 1", 7, 2, 6), b"1234", "alt=media&generation=7", "bytes=2-5"),
            (lambda bucket: bucket.read("runs/r 1", 4), (9, b"1234"), "alt=media", "bytes=0-3"),
        ],
        ids=["object", "generation 0", "generation 7", "part", "first bytes"],
    )
    def test_bytes_are_requested_by_range_and_generation(
        self,
        bucket: gcs.Bucket,
        service: Service,
        read: Callable[[gcs.Bucket], object],
        result: object,
        query: str,
        range_: str | None,
    ) -> None:
        service.answers = [answer(b"1234", 206 if range_ else 200, generation="9")]
        assert read(bucket) == result
        assert service.requests == [("GET", f"{OBJECT}?{query}")]
        assert (service.bodies, service.headers[0].get("Range")) == ([None], range_)

    def test_the_first_bytes_of_nothing_are_none(self, bucket: gcs.Bucket, service: Service) -> None:
        service.answers = [MISSING]
        assert bucket.read("runs/r 1", 4) == (0, b"")

    def test_the_first_bytes_of_an_empty_object_have_its_generation(
        self, bucket: gcs.Bucket, service: Service
    ) -> None:
        service.answers = [answer(b"no such range", 416), answer({"generation": "5", "size": "0"})]
        assert bucket.read("runs/r 1", 4) == (5, b"")

    def test_an_answer_without_a_generation_has_none(self, bucket: gcs.Bucket, service: Service) -> None:
        service.answers = [answer(b"1234", 206)]
        assert bucket.read("runs/r 1", 4) == (0, b"1234")

    @pytest.mark.parametrize(
        ("given", "result"), [(answer({"generation": "5", "size": "6"}), (5, 6)), (MISSING, (0, 0))]
    )
    def test_generation_and_size_are_known(
        self, bucket: gcs.Bucket, service: Service, given: Answer, result: tuple[int, int]
    ) -> None:
        service.answers = [given]
        assert bucket.stat("runs/r 1") == result
        assert service.requests == [("GET", f"{OBJECT}?fields=generation,size")]


class TestListing:
    DATE = "Sat, 31 Jan 2026 23:59:59 GMT"

    def item(self, name: str, updated: str = "2026-01-31T21:59:59.999Z") -> dict[str, str]:
        return {"name": name, "generation": "3", "updated": updated, "size": "4"}

    def queries(self, service: Service) -> list[dict[str, str]]:
        assert {target.partition("?")[0] for _, target in service.requests} == {"/storage/v1/b/b/o"}
        return [dict(parse_qsl(target.partition("?")[2])) for _, target in service.requests]

    def test_each_page_is_requested_by_the_token_of_the_one_before(
        self, bucket: gcs.Bucket, service: Service
    ) -> None:
        service.answers = [
            answer({"items": [self.item("p/a")], "nextPageToken": "next"}, date=self.DATE),
            answer({"nextPageToken": "last"}, date=self.DATE),
            answer({"items": [self.item("p/b", "2026-02-02T00:00:00Z")]}, date=self.DATE),
        ]
        items = list(bucket.list("p/"))
        assert [(item.name, item.generation, item.size) for item in items] == [("p/a", 3, 4), ("p/b", 3, 4)]
        assert [item.age for item in items] == [pytest.approx(7200, abs=600), 0], "by the service's clock"
        fields = {"prefix": "p/", "fields": "items(name,generation,updated,size,metadata),nextPageToken"}
        assert self.queries(service) == [
            fields, {**fields, "pageToken": "next"}, {**fields, "pageToken": "last"},
        ]  # fmt: skip

    def test_a_pattern_is_the_services(self, bucket: gcs.Bucket, service: Service) -> None:
        service.answers = [answer({})]
        assert list(bucket.list("p/", "p/*.json")) == []
        assert self.queries(service)[0]["matchGlob"] == "p/*.json"

    @pytest.mark.parametrize(("most", "pages"), [(0, 0), (1, 1), (2, 1), (3, 2)])
    def test_no_page_is_requested_after_so_many_objects(
        self, bucket: gcs.Bucket, service: Service, most: int, pages: int
    ) -> None:
        page = answer({"items": [self.item("a"), self.item("b")], "nextPageToken": "more"}, date=self.DATE)
        service.answers = [page, page]
        assert len(list(bucket.list("", most=most))) == 2 * pages
        assert len(service.requests) == pages


class TestFailures:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_a_failure_that_may_pass_is_tried_to_the_end(
        self, bucket: gcs.Bucket, service: Service, status: int
    ) -> None:
        service.answers = [answer(b"busy", status)] * 3
        with pytest.raises(gcs.UnreachableError) as caught:
            bucket.get("runs/r 1")
        assert str(caught.value) == f"GET https://storage.googleapis.com{OBJECT}: {status} busy"
        service.answers = [answer(b"busy", status), OSError("cut"), answer(b"data", 299)]
        assert bucket.get("runs/r 1") == b"data"

    @pytest.mark.parametrize(("error", "reason"), [(OSError("cut"), "cut"), (TimeoutError(), "TimeoutError")])
    def test_a_service_that_cannot_be_reached_is_named_with_the_reason(
        self, bucket: gcs.Bucket, service: Service, error: OSError, reason: str
    ) -> None:
        service.answers = [error] * 3
        with pytest.raises(gcs.UnreachableError, match=f": {reason}$"):
            bucket.get("runs/r 1")

    @pytest.mark.parametrize("status", [300, 400, 401, 403, 409, 410, 501, 505])
    def test_a_refusal_is_final_and_quotes_its_begin(
        self, bucket: gcs.Bucket, service: Service, status: int
    ) -> None:
        service.answers = [answer(b"x" * 301, status)]
        with pytest.raises(gcs.GcsError) as caught:
            bucket.get("runs/r 1")
        assert str(caught.value) == f"GET https://storage.googleapis.com{OBJECT}: {status} {'x' * 300}"
        assert isinstance(caught.value, gcs.RefusedError) == (status == 403)
        assert not isinstance(caught.value, gcs.UnreachableError)

    @pytest.mark.parametrize(
        ("given", "error"), [(CONFLICT, gcs.PreconditionError), (MISSING, FileNotFoundError)]
    )
    def test_an_object_of_another_state_has_an_error_of_its_own(
        self, bucket: gcs.Bucket, service: Service, given: Answer, error: type[Exception]
    ) -> None:
        service.answers = [given]
        with pytest.raises(error, match=f"^https://storage.googleapis.com{OBJECT}$"):
            bucket.get("runs/r 1")


class TestTime:
    @pytest.mark.parametrize("ahead", [-5000, 5000])
    def test_it_is_that_of_the_services_last_answer(
        self, bucket: gcs.Bucket, service: Service, ahead: int
    ) -> None:
        assert bucket.now() == pytest.approx(time.time(), abs=600)
        for date in (email.utils.formatdate(time.time() + ahead, usegmt=True), "", "soon"):
            service.answers = [answer(b"", date=date)]
            bucket.get("x")
            assert bucket.now() - time.time() == pytest.approx(ahead, abs=600)


class TestToken:
    @pytest.mark.parametrize(("seconds", "tokens"), [(3600, 1), (1000, 1), (110, 3), (0, 3)])
    def test_a_token_is_renewed_two_minutes_before_its_end(
        self, bucket: gcs.Bucket, service: Service, monkeypatch: pytest.MonkeyPatch, seconds: int, tokens: int
    ) -> None:
        metadata = _Metadata(seconds)
        monkeypatch.setattr(gcs, "ask_metadata", metadata)
        service.answers = [answer(b"")] * 3
        for _ in range(3):
            bucket.get("x")
        assert metadata.requests == [("instance/service-accounts/default/token", 20)] * tokens
        assert service.headers[-1]["Authorization"] == f"Bearer t{tokens}"

    @pytest.mark.parametrize(
        ("status", "error"), [(404, gcs.GcsError), (403, gcs.GcsError), (429, OSError), (503, OSError)]
    )
    def test_a_metadata_server_without_a_token_is_named(
        self, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
    ) -> None:
        monkeypatch.setattr(gcs, "ask_metadata", lambda path, timeout: answer(b"", status))
        with pytest.raises(error, match=f"^the metadata server gives no access token: {status}$"):
            gcs.Token().header()

    def test_a_metadata_server_that_cannot_be_reached_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: str, timeout: float) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

        monkeypatch.setattr(gcs, "ask_metadata", refuse)
        with pytest.raises(OSError, match=r"gives no access token: .*Connection refused$"):
            gcs.Token().header()
