"""The end of a copy on a host: its streams."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.copier.wires import encoded
from tpuctl.copier import host
from tpuctl.copier.frames import Frames

SENT = {"sent": True}
DONE = {"done": True, "files": 0}


@contextmanager
def in_place_of(descriptor: int, other: int) -> Iterator[None]:
    """Let a descriptor be another for a while."""
    kept = os.dup(descriptor)
    os.dup2(other, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., tuple[int, list[Any]]]:
    """Return the exit code of the program for a laptop that sends some items and goes, and what that gets."""
    wire = tmp_path / "wire"
    wire.mkdir()

    def served(*items: Any) -> tuple[int, list[Any]]:
        (wire / "in").write_bytes(encoded(*items))
        with (
            (wire / "in").open("rb") as incoming,
            (wire / "out").open("wb") as outgoing,
            in_place_of(0, incoming.fileno()),
            in_place_of(1, outgoing.fileno()),
        ):
            code = host.main()
        pieces = [(wire / "out").read_bytes()]
        frames, got = Frames(lambda: pieces.pop() if pieces else b"", lambda data: None), list[Any]()
        while True:
            try:
                got.append(frames.receive())
            except EOFError:
                return code, got

    return served


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of other sizes")
def test_a_pipe_of_the_ssh_server_holds_more() -> None:
    ends = os.pipe()
    try:
        before = fcntl.fcntl(ends[0], fcntl.F_GETPIPE_SZ)
        host._widen(ends[0])
        assert fcntl.fcntl(ends[1], fcntl.F_GETPIPE_SZ) >= max(before, host.PIPE)
    finally:
        for end in ends:
            os.close(end)


def test_what_is_no_pipe_stays_as_it_is() -> None:
    with socket.socket() as stream:
        host._widen(stream.fileno())


class TestSending:
    def test_the_files_of_a_pattern_are_listed_by_name(
        self, tmp_path: Path, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        for name in ("b.txt", "a.txt", "c.png", "d[1]", "d1"):
            (tmp_path / name).touch()
        paths = [f"{tmp_path}/*.txt", f"{tmp_path}/d[1]", f"{tmp_path}/none", f"{tmp_path}/*.gif"]
        had = {"had": [[1, 0, ""]]}
        code, got = serve({"act": "send", "paths": paths}, had, {"go": True}, DONE)
        assert code == 0
        assert got[0] == {"missing": paths[2:], "skipped": []}
        assert [entry["path"] for entry in got[1]["entries"]] == [["a.txt"], ["b.txt"], ["d[1]"]]
        nothing = hashlib.sha256().hexdigest()
        assert got[2:] == [
            {"listed": True}, {"begin": 1, "offset": 0}, {"sum": nothing, "file": 1}, SENT,
        ]  # fmt: skip

    def test_what_is_left_out_is_named_with_the_reason(
        self, tmp_path: Path, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        _, got = serve({"act": "send", "paths": [f"{tmp_path}/pipe"]}, {"go": True}, DONE)
        skipped = [[f"{tmp_path}/pipe", "is no file and no folder"]]
        assert got == [{"missing": [], "skipped": skipped}, {"listed": True}, SENT]

    @pytest.mark.parametrize("path", ["~", "", "~/f"])
    def test_a_path_begins_at_home(
        self,
        path: str,
        home: Path,
        monkeypatch: pytest.MonkeyPatch,
        serve: Callable[..., tuple[int, list[Any]]],
    ) -> None:
        monkeypatch.chdir(home)
        (home / "f").touch()
        _, got = serve({"act": "send", "paths": [path]}, {"go": True}, DONE)
        assert got[0] == {"missing": [], "skipped": []}
        assert got[1]["entries"][-1]["path"][-1] == "f"

    def test_an_answer_is_seen_when_it_is_there(self) -> None:
        ends = os.pipe()
        with in_place_of(0, ends[0]):
            os.close(ends[0])
            assert not host._has_answer()
            os.write(ends[1], b"x")
            assert host._has_answer()
        os.close(ends[1])


class TestReceiving:
    def request(self, path: Path, size: int) -> list[Any]:
        entry = {"kind": "file", "path": ["f"], "size": size, "mode": 0o644, "mtime": 0}
        act = {"act": "receive", "path": str(path), "is_folder": True}
        return [act, {"entries": [entry]}, {"listed": True}]

    def test_a_file_arrives_in_the_folder(
        self, tmp_path: Path, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        content = [{"begin": 0, "offset": 0}, b"123", {"sum": hashlib.sha256(b"123").hexdigest(), "file": 0}]
        code, got = serve(*self.request(tmp_path, 3), *content, SENT)
        assert code == 0
        assert (tmp_path / "f").read_bytes() == b"123"
        assert got[-1] == {"done": True, "files": 1, "bytes": 3, "kept": 0, "failed": [], "fatal": ""}

    def test_a_laptop_that_goes_leaves_a_part(
        self, tmp_path: Path, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        code, _ = serve(*self.request(tmp_path, 3), {"begin": 0, "offset": 0}, b"12")
        assert code == 1
        assert not (tmp_path / "f").exists()
        assert [path.read_bytes() for path in tmp_path.glob(".f*")] == [b"12"]

    def test_a_folder_that_cannot_be_made_is_named(
        self, tmp_path: Path, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        (tmp_path / "file").touch()
        code, got = serve(*self.request(tmp_path / "file/folder", 3))
        assert (code, got) == (0, [{"done": True, "fatal": f"{tmp_path}/file/folder: Not a directory"}])

    def test_only_a_laptop_that_sends_may_not_be_silent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., tuple[int, list[Any]]]
    ) -> None:
        limits: list[float | None] = []

        class Noting(host.Input):
            def read(self) -> bytes:
                limits.append(self.limit)
                return super().read()

        monkeypatch.setattr(host, "Input", Noting)
        monkeypatch.setattr(host, "READ", 64)
        serve(*self.request(tmp_path, 3))
        assert (limits[0], limits[-1]) == (None, host.SILENCE)
        limits.clear()
        serve({"act": "send", "paths": [str(tmp_path / ("none" * 20))]}, {"go": True})
        assert len(limits) > 2
        assert set(limits) == {None}


def test_silence_is_the_end_after_the_limit_alone() -> None:
    ends = os.pipe()
    source = host.Input(ends[0])
    source.limit = 0.0
    assert source.read() == b""
    os.write(ends[1], b"12345")
    assert source.read() == b"12345"
    source.limit = None
    os.close(ends[1])
    assert source.read() == b""
    os.close(ends[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of other sizes")
def test_both_streams_of_the_program_hold_more() -> None:
    incoming, outgoing = os.pipe(), os.pipe()
    before = fcntl.fcntl(incoming[0], fcntl.F_GETPIPE_SZ)
    os.write(incoming[1], encoded({"act": "send", "paths": []}, {"go": True}, DONE))
    os.close(incoming[1])
    with in_place_of(0, incoming[0]), in_place_of(1, outgoing[1]):
        assert host.main() == 0
    for end in (incoming[0], outgoing[1]):
        assert fcntl.fcntl(end, fcntl.F_GETPIPE_SZ) >= max(before, host.PIPE)
    for end in (incoming[0], *outgoing):
        os.close(end)
