"""A copy between this machine and workers that are played here: what each is told, and what arrives."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.copier.wires import decoded, encoded
from tests.flows.nodes.memory_provider import node
from tpuctl.cloud.ssh import Ssh
from tpuctl.errors import HostError, StateError, TpuctlError, UsageError
from tpuctl.flows.remote import copy as flow
from tpuctl.flows.remote.copy import Copied, copy, list_sources, program_source
from tpuctl.flows.remote.copy_paths import parse_copy
from tpuctl.flows.remote.targets import Hosts

TAKEN = ({"had": []}, {"go": True})
"""A host's answer to a list of files of which it has nothing, where it takes none."""
DONE = {"done": True, "files": 2, "bytes": 30, "kept": 1, "failed": [], "fatal": ""}


class PlayedHost:
    """The program on one worker, and the process that runs it."""

    has_output = False

    def __init__(self, *answers: Any, code: int | HostError = 0, errors: Sequence[bytes] = ()) -> None:
        self._answers = [encoded(*answers)] if answers else []
        self._code = code
        self._errors = list(errors)
        self._written = b""
        self._has_ended = threading.Event()
        self.argv: Sequence[str] = ()
        self.is_closed = False

    def start(self, argv: Sequence[str], window: int) -> PlayedHost:
        self.argv = argv
        return self

    def read(self) -> bytes:
        """Return all answers, to what was asked; then the program ends."""
        if self._answers and self.got:
            return self._answers.pop()
        self._has_ended.set()
        return b""

    def read_errors(self) -> bytes:
        """Return the next bytes, once the program has ended."""
        self._has_ended.wait()
        return self._errors.pop(0) if self._errors else b""

    def write(self, data: bytes) -> None:
        self._written += data

    def exit_code(self) -> int:
        if isinstance(self._code, HostError):
            raise self._code
        return self._code

    def close(self) -> None:
        self.is_closed = True
        self._has_ended.set()

    @property
    def got(self) -> list[Any]:
        """What came after the program."""
        size = int(self.argv[-1])
        assert self._written[:size] == program_source()
        return decoded(self._written[size:])


class PlayedSsh:
    """Connections to played hosts, by worker."""

    def __init__(self, hosts: Mapping[int, PlayedHost]) -> None:
        self._hosts = hosts
        self.connections: list[tuple[str, int, str]] = []

    @contextmanager
    def connect(self, to: Any, worker: int, host_key: str) -> Iterator[PlayedHost]:
        self.connections.append((to.name, worker, host_key))
        yield self._hosts[worker]


def copied(
    hosts: Mapping[int, PlayedHost], sources: Sequence[str], destination: str
) -> tuple[list[Any], list[tuple[int, int, int]]]:
    """Copy, and return the result or error of each worker, and what was reported."""
    reports: list[tuple[int, int, int]] = []
    results = copy(
        cast("Ssh", PlayedSsh(hosts)),
        Hosts(node(), tuple(hosts), {worker: f"key {worker}" for worker in hosts}),
        parse_copy(sources, destination),
        lambda worker, now, total: reports.append((worker, now, total)),
    )
    return [result.error or result.value for result in results], reports


def error_of(host: PlayedHost, source: str = "n1:data", destination: str = ".") -> TpuctlError:
    """Return the error of a copy from or to one worker, whose process is closed then."""
    ((error,), _) = copied({0: host}, [source], destination)
    assert isinstance(error, TpuctlError)
    assert host.is_closed
    return error


def entry(*path: str, kind: str = "file", size: int = 1) -> dict[str, object]:
    return {"kind": kind, "path": path, "size": size, "mode": 0o644, "mtime": 0}


def sending(*names: str, data: bytes = b"x") -> list[Any]:
    """Return what a host says that sends files with the same content."""
    files = [
        item
        for index in range(len(names))
        for item in (
            {"begin": index, "offset": 0}, data, {"sum": hashlib.sha256(data).hexdigest(), "file": index},
        )
    ]  # fmt: skip
    return [
        {"missing": [], "skipped": []},
        {"entries": [entry(name, size=len(data)) for name in names]},
        {"listed": True},
        *files,
        {"sent": True},
    ]


class TestUpload:
    def test_every_worker_gets_what_it_lacks(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * 10)
        (tmp_path / "b").write_bytes(b"y" * 20)
        took = {"had": [[0, 0, ""], [1, 0, ""]]}
        hosts = {0: PlayedHost(took, {"go": True}, DONE), 3: PlayedHost(*TAKEN, DONE)}
        results, reports = copied(hosts, [str(tmp_path / "a"), str(tmp_path / "b")], "n1:data")
        assert results == [Copied(2, 30, 1, [])] * 2
        first, listed, end, *files = hosts[0].got
        assert first == {"act": "receive", "path": "data", "is_folder": True}
        assert [(item["path"], item["size"]) for item in listed["entries"]] == [(["a"], 10), (["b"], 20)]
        assert end == {"listed": True}
        assert [item for item in files if isinstance(item, bytes)] == [b"x" * 10, b"y" * 20]
        assert hosts[3].got == [first, listed, end, {"sent": True}]
        assert reports == [(0, 0, 30), (0, 10, 30), (0, 10, 30), (0, 30, 30)]

    @pytest.mark.parametrize(("destination", "is_folder"), [("n1:data", False), ("n1:data/", True)])
    def test_a_host_is_told_whether_the_destination_is_a_folder(
        self, tmp_path: Path, destination: str, is_folder: bool
    ) -> None:
        (tmp_path / "a").write_bytes(b"x")
        host = PlayedHost(*TAKEN, DONE)
        copied({0: host}, [str(tmp_path / "a")], destination)
        assert host.got[0]["is_folder"] is is_folder

    def test_what_either_side_leaves_out_is_named_with_the_reason(self, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/link").symlink_to("nothing")
        host = PlayedHost(*TAKEN, {**DONE, "failed": [["tree/a", "no"]]})
        ((result,), _) = copied({0: host}, [str(tmp_path / "tree")], "n1:")
        assert result.left_out == [
            (str(tmp_path / "tree/link"), "is a link to nothing"), ("tree/a", "no")
        ]  # fmt: skip

    def test_a_full_disk_there_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x")
        error = error_of(PlayedHost(*TAKEN, {**DONE, "fatal": "No space left"}), str(tmp_path / "a"), "n1:")
        assert isinstance(error, StateError)
        assert error.message == "worker 0 of 'n1': No space left; what was complete by then stays."
        assert error.hint == "Make room, then run the same command again."

    def test_a_source_that_is_missing_here_ends_it_before_any_connection(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as caught:
            copied({}, [str(tmp_path / "none")], "n1:")
        assert caught.value.message == f"There is no {tmp_path}/none on this machine."
        assert caught.value.hint == "Files of a TPU: NAME:PATH"

    def test_a_link_to_nothing_is_a_source_that_is_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nothing")
        left_out = (str(tmp_path / "nothing"), "No such file or directory")
        assert list_sources([str(tmp_path / "link")]) == ([], [left_out])


class TestDownload:
    def test_one_worker_s_file_has_the_name_that_is_typed(self, tmp_path: Path) -> None:
        host = PlayedHost(*sending("data", data=b"12345"))
        results, reports = copied({0: host}, ["n1:data"], str(tmp_path / "here"))
        assert results == [Copied(1, 5, 0, [])]
        assert (tmp_path / "here").read_bytes() == b"12345"
        assert host.got[0] == {"act": "send", "paths": ["data"]}
        assert reports[-1] == (0, 5, 0)

    def test_each_of_several_workers_has_a_folder(self, tmp_path: Path) -> None:
        hosts = {worker: PlayedHost(*sending("data", data=b"%d" % worker)) for worker in (1, 2)}
        copied(hosts, ["n1:data"], str(tmp_path / "here"))
        assert (tmp_path / "here/worker-1/data").read_bytes() == b"1"
        assert (tmp_path / "here/worker-2/data").read_bytes() == b"2"

    def test_several_sources_of_one_worker_go_into_a_folder(self, tmp_path: Path) -> None:
        host = PlayedHost(*sending("a", "b"))
        copied({0: host}, ["n1:a", "n1:x/b"], str(tmp_path / "here"))
        assert host.got[0] == {"act": "send", "paths": ["a", "x/b"]}
        assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["a", "b"]

    @pytest.mark.parametrize(
        ("source", "name"),
        [("data", "data"), ("x/d*", "data"), (".*", ".bashrc"), (".", "data"), ("data", "data/x")],
    )
    def test_what_was_requested_may_be_written(self, source: str, name: str) -> None:
        assert flow._refusal(["none", source])(name.split("/")) is None

    @pytest.mark.parametrize(
        ("source", "name"), [("data", "other"), ("data", "dat"), ("*", ".bashrc"), (".", ".bashrc")]
    )
    def test_nothing_else_is_written(self, source: str, name: str) -> None:
        assert flow._refusal(["none", source])(name.split("/")) == "was not requested"

    def test_a_folder_that_programs_obey_is_not_written(self) -> None:
        assert flow._refusal(["data"])(["data", ".git", "config"]) == "is a folder of version control"

    def test_what_the_host_left_out_is_named_with_the_reason(self, tmp_path: Path) -> None:
        head, *rest = sending("data")
        host = PlayedHost({**head, "skipped": [["x", "is no file and no folder"]]}, *rest)
        ((result,), _) = copied({0: host}, ["n1:data"], str(tmp_path / "here"))
        assert result.left_out == [("x", "is no file and no folder")]

    def test_a_path_that_the_host_does_not_have_is_named(self) -> None:
        error = error_of(PlayedHost({"missing": ["data", "more"], "skipped": []}))
        assert isinstance(error, StateError)
        assert error.message == "worker 0 of 'n1' has no data."
        assert error.hint == "Paths are relative to the home folder there; see it: tpuctl exec -- ls"

    def test_what_the_host_cannot_do_is_told(self) -> None:
        error = error_of(PlayedHost({"done": True, "fatal": "data: Stale file handle"}))
        assert isinstance(error, StateError)
        assert error.message == "worker 0 of 'n1': data: Stale file handle."

    def test_a_destination_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        error = error_of(PlayedHost(*sending("data")), destination=str(tmp_path / "file/x/y"))
        assert isinstance(error, StateError)
        assert error.message == f"{tmp_path}/file/x cannot be written: Not a directory."


class TestTheProgram:
    @pytest.mark.parametrize(
        ("code", "errors", "text", "hint"),
        [
            (127, [b"sh: python3: not found\n"], "it has no python3, which a copy needs.",
             "Use scp: tpuctl ssh-config"),
            (1, [b"Traceback\nMemory", b"Error\n"], "the copy ended with exit code 1: MemoryError.", ""),
            (128, [], "the copy ended with exit code 128: without a message.", ""),
            (1, [b"x" * 9000, b"y" * 4095], f"the copy ended with exit code 1: x{'y' * 4095}.", ""),
            (1, [b"\xff\n"], "the copy ended with exit code 1: \ufffd.", ""),
        ],
    )  # fmt: skip
    def test_that_ends_too_soon_is_named_with_its_last_line(
        self, code: int, errors: list[bytes], text: str, hint: str
    ) -> None:
        error = error_of(PlayedHost(code=code, errors=errors))
        assert isinstance(error, HostError)
        assert error.message == f"worker 0 of 'n1': {text}"
        assert (error.hint or "") == hint

    def test_whose_connection_is_lost_is_a_reason_to_repeat_the_command(self) -> None:
        error = error_of(PlayedHost(code=HostError("worker 0 of 'n1' is lost.")))
        assert error.message == "worker 0 of 'n1' is lost."
        assert error.hint == (
            "Run the same command again: it resumes, and what is complete is not sent again."
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (b"x", "the other end sends a file before it is due."),
            ({}, "the other end does not speak our protocol."),
            ({"missing": 1}, "the other end does not speak our protocol."),
        ],
    )
    def test_that_says_something_else_is_named(self, answer: Any, text: str) -> None:
        error = error_of(PlayedHost(answer))
        assert isinstance(error, HostError)
        assert error.message == f"worker 0 of 'n1': {text}"

    def test_runs_from_stdin_alone(self, tmp_path: Path) -> None:
        """As on a host: an interpreter without this package; what its user has on a path is not imported."""
        (tmp_path / "json.py").write_text("raise SystemExit('a module of the user')")
        host = PlayedHost({"done": True, "fatal": "no"})
        error_of(host)
        python, *arguments = host.argv
        assert python == "python3"
        sent = encoded(
            {"act": "receive", "path": str(tmp_path / "here"), "is_folder": False},
            {"entries": [entry("a")]}, {"listed": True}, {"begin": 0, "offset": 0}, b"x",
            {"sum": hashlib.sha256(b"x").hexdigest(), "file": 0}, {"sent": True},
        )  # fmt: skip
        process = subprocess.run(
            [sys.executable, *arguments], env={"PYTHONPATH": str(tmp_path)},
            input=program_source() + sent, capture_output=True, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        assert (process.returncode, process.stderr) == (0, b"")
        assert decoded(process.stdout)[-1]["files"] == 1
        assert (tmp_path / "here").read_bytes() == b"x"
