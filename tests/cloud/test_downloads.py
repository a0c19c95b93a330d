"""Files fetched over HTTP, from a server that fails as servers do."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cloud.web_server import WebServer, refusing, serving
from tpuctl.cloud.downloads import Downloads, check_redirect
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
        self.most = len(DATA)
        self.downloads = Downloads(sleep=self.waits.append)

    def fetch(self, url: str, path: Path) -> bytes:
        report = lambda received, total: self.reports.append((received, total))  # noqa: E731
        self.downloads.fetch(url, path, report, self.most)
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


class TestLimits:
    """A server, or a filter before it, that sends something else."""

    def test_a_file_that_says_it_is_too_large_is_not_fetched(
        self, server: WebServer, client: Client, tmp_path: Path
    ) -> None:
        client.most = len(DATA) - 1
        with pytest.raises(StateError, match=f"has {len(DATA)} bytes, and the published one has at most"):
            client.fetch(f"{server.url}/file", tmp_path / "part")
        assert not (tmp_path / "part").exists()

    def test_a_file_that_does_not_end_is_cut_off(
        self, server: WebServer, client: Client, tmp_path: Path
    ) -> None:
        server.headers["Content-Length"] = "endless"
        server.headers["Connection"] = "close"
        client.most = len(DATA) - 1
        with pytest.raises(StateError, match="does not end"):
            client.fetch(f"{server.url}/file", tmp_path / "part")
        assert (tmp_path / "part").stat().st_size <= client.most

    def test_a_redirect_within_a_server_is_followed(
        self, server: WebServer, client: Client, tmp_path: Path
    ) -> None:
        server.redirects = {"/old": "/older", "/older": f"{server.url}/file"}
        assert client.fetch(f"{server.url}/old", tmp_path / "part") == DATA

    @pytest.mark.parametrize(
        "target",
        ["file:///etc/passwd", "ftp://example.com/file", "gopher://127.0.0.1/", "http://169.254.169.254/x",
         "http://localhost:1/", "http://[::1]/", "http://10.0.0.1/", "//192.168.0.1/", "http://0.0.0.0/",
         r"http://10.0.0.1\@example.com/", "http://[::1", f"http://{'a' * 70}.com/", "http://../", "http://a:b/"],
    )  # fmt: skip
    def test_a_redirect_away_from_the_internet_is_refused(
        self, server: WebServer, client: Client, tmp_path: Path, target: str
    ) -> None:
        server.redirects = {"/old": target}
        with pytest.raises(StateError, match="The server redirects"):
            client.fetch(f"{server.url}/old", tmp_path / "part")
        assert list(tmp_path.iterdir()) == []

    def test_what_a_redirect_holds_is_not_read(
        self, server: WebServer, client: Client, tmp_path: Path
    ) -> None:
        server.redirects, server.headers["Content-Length"] = {"/old": "/file"}, "1000000000000"
        with pytest.raises(StateError, match="has 1000000000000 bytes"):
            client.fetch(f"{server.url}/old", tmp_path / "part")
        assert server.requests == ["/old", "/file"]

    def test_redirects_end(self, server: WebServer, client: Client, tmp_path: Path) -> None:
        server.redirects = {"/old": "/old"}
        with pytest.raises(StateError, match="10 times"):
            client.fetch(f"{server.url}/old", tmp_path / "part")
        assert len(server.requests) == 10

    @pytest.mark.parametrize(
        ("origin", "target", "refused"),
        [
            ("https://a.example/x", "http://a.example/x", True),
            ("http://a.example/x", "https://a.example/x", False),
            ("https://a.example/x", "https://a.example/y", False),
            ("https://8.8.8.8/x", "https://1.1.1.1/x", False),
            ("https://8.8.8.8/x", "https://127.0.0.1/x", True),
        ],
    )
    def test_a_redirect_may_not_leave_tls(self, origin: str, target: str, refused: bool) -> None:
        with pytest.raises(StateError) if refused else nullcontext():
            check_redirect(origin, origin, target)
