"""Files fetched over HTTP, from a server that fails as servers do."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.web_server import WebServer, refusing, serving
from tpuctl.cloud.downloads import Downloads
from tpuctl.errors import DeadlineError, NotFoundError, StateError

DATA = bytes(range(256)) * 4000


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serving({"/file": DATA}) as running:
        yield running


class Client:
    """Downloads that never wait, and the progress they reported."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.reports: list[tuple[int, int]] = []
        self.downloads = Downloads(sleep=self.waits.append)

    def fetch(self, url: str, path: Path) -> bytes:
        self.downloads.fetch(url, path, lambda received, total: self.reports.append((received, total)))
        return path.read_bytes()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    client = Client()
    yield client
    client.downloads.close()


def test_a_file_arrives_as_it_is_and_progress_is_reported_up_to_its_end(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert client.reports[-1] == (len(DATA), len(DATA))
    assert client.reports == sorted(client.reports)
    assert server.requests == ["/file"]


def test_what_is_there_is_not_fetched_again(server: WebServer, client: Client, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(DATA[:1000])
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert server.requests == ["/file bytes=1000-", f"/file bytes={len(DATA)}-"]


def test_a_server_that_knows_no_parts_sends_all_anew(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    server.ranges = False
    (tmp_path / "part").write_bytes(b"x" * 1000)
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA


def test_a_server_that_gives_smaller_parts_is_asked_for_the_next(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    server.most = 400_000
    (tmp_path / "part").write_bytes(DATA[:1000])
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert server.requests == [f"/file bytes={start}-" for start in (1000, 401_000, 801_000)]


def test_a_cut_download_resumes_as_long_as_bytes_arrive(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    server.cut_after = [100_000] * 6
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert server.requests[1:3] == ["/file bytes=100000-", "/file bytes=200000-"]
    assert len(client.waits) == 6


def test_a_download_without_progress_fails_and_what_was_received_is_kept(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    server.cut_after = [100_000, 0, 0, 0, 0]
    with pytest.raises(DeadlineError, match="/file cannot be fetched: the connection broke off") as caught:
        client.fetch(f"{server.url}/file", tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA[:100_000]
    assert "the part already downloaded is kept" in caught.value.hint


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(
    server: WebServer, client: Client, tmp_path: Path, status: int
) -> None:
    server.statuses = [status, status]
    assert client.fetch(f"{server.url}/file", tmp_path / "part") == DATA
    assert client.waits == [1.0, 2.0]
    server.statuses = [status] * 3
    with pytest.raises(DeadlineError, match=f"/file cannot be fetched: the server answered {status}"):
        client.fetch(f"{server.url}/file", tmp_path / "other")


@pytest.mark.parametrize("status", [404, 410])
def test_a_missing_file_fails_at_once(server: WebServer, client: Client, tmp_path: Path, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(NotFoundError, match=rf"/file is not there \(the server answered {status}\)"):
        client.fetch(f"{server.url}/file", tmp_path / "part")
    assert client.waits == []
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(("status", "reason"), [(400, "Bad Request"), (403, "Forbidden"), (501, "Not")])
def test_a_refusal_fails_at_once(
    server: WebServer, client: Client, tmp_path: Path, status: int, reason: str
) -> None:
    server.statuses = [status]
    with pytest.raises(StateError, match=rf"The server refused .*/file: {status} {reason}") as refusal:
        client.fetch(f"{server.url}/file", tmp_path / "part")
    assert not isinstance(refusal.value, NotFoundError)
    assert client.waits == []
    assert not (tmp_path / "part").exists()


def test_without_a_connection_it_says_so(client: Client, tmp_path: Path) -> None:
    with refusing() as server, pytest.raises(DeadlineError, match="there is no connection to the server"):
        client.fetch(f"{server.url}/file", tmp_path / "part")
    assert client.waits == [1.0, 2.0]


def test_a_gzipped_file_stays_one_whatever_the_server_calls_it(
    server: WebServer, client: Client, tmp_path: Path
) -> None:
    """Many servers take .gz for an encoding of the answer, which a client would undo."""
    server.files["/file.gz"] = gzip.compress(DATA)
    server.headers["Content-Encoding"] = "gzip"
    assert client.fetch(f"{server.url}/file.gz", tmp_path / "part") == server.files["/file.gz"]
