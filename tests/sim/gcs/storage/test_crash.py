"""Kill -9 during writes, and restarts: every acknowledged write is there, and no object is torn."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import threading
from contextlib import closing
from pathlib import Path

import google_crc32c
import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs, gcs_process
from tests.sim.live_host import wait_until
from tpuctl.errors import StateError
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import GcsServer
from tpuctl.sim.gcs.storage.blobs import NAMING_TABLES
from tpuctl.sim.gcs.storage.store import Store

SECONDS_BEFORE_A_KILL = 0.35
"""At least: in the first round it lasts until every worker has changed its object once."""
SIZES = (0, 100, 70_000, 3_000_000)
PART = 256 << 10


class Worker(threading.Thread):
    """Changes one object until the server dies; remembers what it tried and what was acknowledged."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self.object = f"object-{number}"
        self.attempts: list[str] = []
        self.acknowledged = -1
        self.number = number
        self._url = url
        self._upload = f"{url}/upload/storage/v1/b/{BUCKET}/o"
        self._change = (self._put, self._post, self._resume, self._compose, self._multipart)[number % 5]

    @property
    def changes(self) -> int:
        """How many changes were acknowledged, counted with those before the last one."""
        return self.acknowledged + 1

    def run(self) -> None:
        chance = random.Random(self.number)
        with requests.Session() as http:
            http.trust_env = False
            try:
                while True:
                    data = os.urandom(chance.choice(SIZES))
                    self.attempts.append(digest(data))
                    if self._change(http, data).status_code == 200:
                        self.acknowledged = len(self.attempts) - 1
            except (requests.RequestException, KeyError, IndexError):
                pass  # the server is gone, or went while it answered

    def _put(self, http: requests.Session, data: bytes) -> requests.Response:
        return http.put(f"{self._url}/{BUCKET}/{self.object}", data=data)

    def _post(self, http: requests.Session, data: bytes) -> requests.Response:
        return http.post(self._upload, params={"uploadType": "media", "name": self.object}, data=data)

    def _resume(self, http: requests.Session, data: bytes) -> requests.Response:
        started = http.post(self._upload, params={"uploadType": "resumable", "name": self.object})
        uri = started.headers["Location"]
        at = 0
        while len(data) - at > PART:
            span = {"Content-Range": f"bytes {at}-{at + PART - 1}/*"}
            http.put(uri, data=data[at : at + PART], headers=span, allow_redirects=False)
            at += PART
        last = f"bytes {at}-{len(data) - 1}/{len(data)}" if data else "bytes */0"
        return http.put(uri, data=data[at:], headers={"Content-Range": last})

    def _compose(self, http: requests.Session, data: bytes) -> requests.Response:
        half = len(data) // 2
        for name, part in (("left", data[:half]), ("right", data[half:])):
            http.put(f"{self._url}/{BUCKET}/{name}-{self.number}", data=part)
        sources = [{"name": f"{side}-{self.number}"} for side in ("left", "right")]
        path = f"{self._url}/storage/v1/b/{BUCKET}/o/{self.object}/compose"
        return http.post(path, json={"sourceObjects": sources})

    def _multipart(self, http: requests.Session, data: bytes) -> requests.Response:
        url = f"{self._url}/{BUCKET}/{self.object}"
        identity = http.post(f"{url}?uploads").text.split("UploadId>")[1].rstrip("</")
        query = {"uploadId": identity, "partNumber": "1"}
        tag = http.put(url, params=query, data=data).headers["ETag"]
        part = f"<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"
        return http.post(url, params={"uploadId": identity}, data=body)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_objects_are_old_or_new_and_never_torn_after_a_kill(tmp_path: Path, rounds: int) -> None:
    store = Store(tmp_path)
    store.ensure_bucket(BUCKET, PROJECT)
    store.close()
    previous: dict[str, str] = {}
    acknowledged = dict.fromkeys(range(10), 0)
    for _ in range(rounds):
        with gcs_process(tmp_path) as (process, url):
            workers = [Worker(url, number) for number in acknowledged]
            for worker in workers:
                worker.start()
            threading.Event().wait(SECONDS_BEFORE_A_KILL)
            wait_until(
                lambda workers=workers: all(
                    acknowledged[worker.number] + worker.changes for worker in workers
                )
            )
            process.kill()
            for worker in workers:
                worker.join()
        with closing(RunningGcs(tmp_path)) as again:
            for number, worker in enumerate(workers):
                acknowledged[number] += worker.changes
                previous[worker.object] = check(again.url, worker, previous.get(worker.object, ""))
            check_files(again)
    assert min(acknowledged.values()) > 0


def check(url: str, worker: Worker, previous: str) -> str:
    """Return what a worker's object is now: whole, and no older than what was acknowledged."""
    current = content_of(url, worker.object)
    allowed = set(worker.attempts[max(worker.acknowledged, 0) :])
    if worker.acknowledged < 0:
        allowed.add(previous)
    assert current in allowed
    return current


def check_files(gcs: RunningGcs) -> None:
    """Every file has a name in the database, and every name its file."""
    files = {path.name for path in (gcs.root / "blobs").glob("??/*")}
    named = {
        blob
        for table in NAMING_TABLES
        for blob in gcs.server.store.database.rows(str, f"select blob from {table}")
        if blob
    }
    assert files == named


def content_of(url: str, name: str) -> str:
    """Return the digest of an object, checked against its own size and hash; nothing if there is none."""
    with requests.Session() as http:
        http.trust_env = False
        answer = http.get(f"{url}/{BUCKET}/{name}")
        if answer.status_code == 404:
            return ""
        assert len(answer.content) == int(answer.headers["x-goog-stored-content-length"])
        crc32c = google_crc32c.value(answer.content).to_bytes(4, "big")
        assert answer.headers["x-goog-hash"].startswith(f"crc32c={base64.b64encode(crc32c).decode()}")
        return digest(answer.content)


def test_a_restart_keeps_everything(tmp_path: Path, http: requests.Session) -> None:
    with closing(RunningGcs(tmp_path)) as running:
        http.put(f"{running.url}/{BUCKET}/a", data=b"data", headers={"x-goog-meta-k": "v"})
        before = http.get(f"{running.url}/storage/v1/b/{BUCKET}/o/a").json()
    with closing(RunningGcs(tmp_path)) as running:
        after = http.get(f"{running.url}/storage/v1/b/{BUCKET}/o/a").json()
        links = {"selfLink", "mediaLink"}
        assert {k: v for k, v in after.items() if k not in links} == {
            k: v for k, v in before.items() if k not in links
        }
        assert http.get(f"{running.url}/{BUCKET}/a").content == b"data"


def test_orphans_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    orphan = tmp_path / "blobs" / "ab" / ("ab" + "0" * 30)
    orphan.parent.mkdir()
    orphan.write_bytes(b"half an object")
    Store(tmp_path).close()
    assert not orphan.exists()


def test_a_folder_belongs_to_one_simulator_at_a_time(tmp_path: Path) -> None:
    server = GcsServer(tmp_path, FaultRegistry())
    with pytest.raises(StateError, match="in use by another simulator"):
        GcsServer(tmp_path, FaultRegistry())
    server.close()
    GcsServer(tmp_path, FaultRegistry()).close()
