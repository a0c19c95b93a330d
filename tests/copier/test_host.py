"""The end of a copy on a host: its streams."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.copier.streams import LAST, archive, entry, member
from tpuctl.copier import host
from tpuctl.copier.sending import line

Serve = Callable[..., tuple[int, list[Any]]]


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
def serve(tmp_path: Path) -> Serve:
    """Return the exit code for a laptop that sends some bytes and goes, and the lines that it gets."""
    wire = tmp_path / "wire"
    wire.mkdir()

    def served(request: dict[str, Any], sent: bytes) -> tuple[int, list[Any]]:
        (wire / "in").write_bytes(sent)
        with (
            (wire / "in").open("rb") as incoming,
            (wire / "out").open("wb") as outgoing,
            in_place_of(0, incoming.fileno()),
            in_place_of(1, outgoing.fileno()),
        ):
            code = host.main(request)
        texts = (wire / "out").read_bytes().splitlines()
        return code, [json.loads(text.lstrip(b"01")) for text in texts if text.lstrip(b"01")[:1] == b"["]

    return served


class TestSending:
    def test_the_files_of_a_pattern_are_listed_by_name(self, tmp_path: Path, serve: Serve) -> None:
        for name in ("b.txt", "a.txt", "c.png", "d[1]", "d1"):
            (tmp_path / name).touch()
        code, got = serve({"paths": [f"{tmp_path}/*.txt", f"{tmp_path}/d[1]"]}, line("go") + b"000")
        assert (code, [words[:2] for words in got]) == (
            0, [["file", "a.txt"], ["file", "b.txt"], ["file", "d[1]"], ["end"]],
        )  # fmt: skip

    def test_a_pattern_of_nothing_is_named(self, tmp_path: Path, serve: Serve) -> None:
        assert serve({"paths": [f"{tmp_path}/*.gif"]}, b"") == (
            0, [["error", f"{tmp_path}/*.gif: No such file or directory"]],
        )  # fmt: skip

    def test_what_is_left_out_is_named_with_the_reason(self, tmp_path: Path, serve: Serve) -> None:
        os.mkfifo(tmp_path / "pipe")
        _, got = serve({"paths": [f"{tmp_path}/pipe"]}, line("go"))
        assert got == [["left out", f"{tmp_path}/pipe", "is no file and no folder"], ["end"]]

    @pytest.mark.parametrize("path", ["~", "", "~/f"])
    def test_a_path_begins_at_home(
        self, path: str, home: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
    ) -> None:
        monkeypatch.chdir(home)
        (home / "f").touch()
        _, got = serve({"paths": [path]}, b"")
        assert got[-2][1].split("/")[-1] == "f"


class TestReceiving:
    def test_a_file_arrives_in_the_folder(self, tmp_path: Path, serve: Serve) -> None:
        sent = entry("f", 3) + line("end") + archive(member("f", b"123"), LAST)
        assert serve({"path": str(tmp_path), "is_folder": True}, sent) == (0, [["go"], ["done", 1, 3, 0]])
        assert (tmp_path / "f").read_bytes() == b"123"

    def test_a_laptop_that_goes_leaves_nothing_half(self, tmp_path: Path, serve: Serve) -> None:
        sent = entry("f", 3000) + line("end") + archive(member("f", b"1" * 3000))[:2000]
        code, _ = serve({"path": str(tmp_path / "new"), "is_folder": True}, sent)
        assert (code, list((tmp_path / "new").iterdir())) == (1, [])

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path, serve: Serve) -> None:
        (tmp_path / "file").touch()
        path = f"{tmp_path}/file/folder"
        assert serve({"path": path, "is_folder": True}, b"") == (0, [["error", f"{path}: Not a directory"]])


def test_a_silent_laptop_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """sshd notices a laptop that is off after hours only."""
    monkeypatch.setattr(host, "SILENCE", 0.01)
    ends = os.pipe()
    with in_place_of(0, ends[0]):
        os.write(ends[1], b"x")
        assert [host._read(), host._read()] == [b"x", b""]
    for end in ends:
        os.close(end)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of other sizes")
def test_both_streams_of_the_program_hold_more() -> None:
    incoming, outgoing = os.pipe(), os.pipe()
    before = fcntl.fcntl(incoming[0], fcntl.F_GETPIPE_SZ)
    os.write(incoming[1], line("go"))
    os.close(incoming[1])
    with in_place_of(0, incoming[0]), in_place_of(1, outgoing[1]):
        assert host.main({"paths": []}) == 0
    for end in (incoming[0], outgoing[1]):
        assert fcntl.fcntl(end, fcntl.F_GETPIPE_SZ) >= max(before, host.PIPE)
    for end in (incoming[0], *outgoing):
        os.close(end)


def test_what_is_no_pipe_stays_as_it_is() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, in_place_of(0, ours.fileno()), in_place_of(1, ours.fileno()):
        theirs.sendall(line("go"))
        assert host.main({"paths": []}) == 0
