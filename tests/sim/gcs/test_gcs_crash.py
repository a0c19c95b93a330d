"""Kill -9 in the midst of writes, and restarts: what was acknowledged is there, and nothing is torn."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from contextlib import closing
from pathlib import Path

import pytest
import requests
from running_gcs import BUCKET, PROJECT, RunningGcs, gcs_process

from tpuctl.errors import StateError
from tpuctl.sim.faults import Faults
from tpuctl.sim.gcs.server import GcsServer
from tpuctl.sim.gcs.store import Store

ROUNDS = 5
SECONDS_BEFORE_A_KILL = 0.35
SIZES = (0, 100, 70_000, 3_000_000)


class Writer(threading.Thread):
    """Overwrites one object until the server dies; remembers what it tried and what was acknowledged."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self.name_written = f"object-{number}"
        self.attempts: list[str] = []
        self.acknowledged = -1
        self._url = url
        self._number = number

    def run(self) -> None:
        with requests.Session() as http:
            http.trust_env = False
            chance = random.Random(self._number)
            try:
                while True:
                    self._write(http, os.urandom(chance.choice(SIZES)))
            except requests.RequestException:
                pass

    def _write(self, http: requests.Session, data: bytes) -> None:
        self.attempts.append(digest(data))
        upload = f"{self._url}/upload/storage/v1/b/{BUCKET}/o"
        ways = (
            lambda: http.put(f"{self._url}/{BUCKET}/{self.name_written}", data=data),
            lambda: http.post(upload, params={"uploadType": "media", "name": self.name_written}, data=data),
            lambda: http.put(
                http.post(upload, params={"uploadType": "resumable", "name": self.name_written}).headers.get(
                    "Location", ""
                ),
                data=data,
            ),
        )
        answer = ways[self._number % len(ways)]()
        if answer.status_code == 200:
            self.acknowledged = len(self.attempts) - 1


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_objects_are_old_or_new_and_never_torn_after_a_kill(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.ensure_bucket(BUCKET, PROJECT)
    store.close()
    previous: dict[str, str] = {}
    for _ in range(ROUNDS):
        with gcs_process(tmp_path) as (process, url):
            writers = [Writer(url, number) for number in range(6)]
            for writer in writers:
                writer.start()
            threading.Event().wait(SECONDS_BEFORE_A_KILL)
            process.kill()
            for writer in writers:
                writer.join()
        with closing(RunningGcs(tmp_path)) as again:
            for writer in writers:
                found = content_of(again.url, writer.name_written)
                allowed = set(writer.attempts[max(writer.acknowledged, 0) :])
                if writer.acknowledged < 0:
                    allowed.add(previous.get(writer.name_written, ""))
                assert found in allowed
                previous[writer.name_written] = found
            assert len(list((tmp_path / "blobs").glob("??/*"))) == sum(
                1 for one in previous.values() if one
            ) + len(list(again.server.store.database.rows("select 1 from sessions where result is null")))
    assert all(writer.acknowledged > 0 for writer in writers)


def content_of(url: str, name: str) -> str:
    """Return the digest of an object, checked against its own size and hash; nothing if there is none."""
    with requests.Session() as http:
        http.trust_env = False
        answer = http.get(f"{url}/{BUCKET}/{name}")
        if answer.status_code == 404:
            return ""
        assert len(answer.content) == int(answer.headers["x-goog-stored-content-length"])
        md5 = hashlib.md5(answer.content, usedforsecurity=False).hexdigest()
        assert answer.headers["ETag"] == f'"{md5}"'
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


def test_what_a_killed_process_left_behind_is_cleared(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    orphan = tmp_path / "blobs" / "ab" / ("ab" + "0" * 30)
    orphan.parent.mkdir()
    orphan.write_bytes(b"half an object")
    Store(tmp_path).close()
    assert not orphan.exists()


def test_a_folder_belongs_to_one_simulator_at_a_time(tmp_path: Path) -> None:
    server = GcsServer(tmp_path, Faults())
    with pytest.raises(StateError, match="in use by another simulator"):
        GcsServer(tmp_path, Faults())
    server.close()
    GcsServer(tmp_path, Faults()).close()
