"""A copy between this machine and workers that are played here: what each is told, and what arrives.

What a path of `tpuctl cp` means: on hosts, or on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.copier.streams import LAST, archive, entry, member
from tests.flows.nodes.memory_provider import node
from tpuctl.cloud.ssh import Ssh
from tpuctl.copier.sending import line
from tpuctl.errors import HostError, StateError, TpuctlError, UsageError
from tpuctl.flows.remote import copy as flow
from tpuctl.flows.remote.copy import (
    CopyRequest,
    CopyResult,
    RemotePath,
    copy,
    parse_copy,
    parse_path,
    program_sources,
)
from tpuctl.flows.remote.targets import HostName, Hosts, parse_workers
from tpuctl.parallel import WIDTH


class PlayedHost:
    """The program on one worker, and the process that runs it."""

    def __init__(self, *answers: bytes, code: int | HostError = 0, errors: Sequence[bytes] = ()) -> None:
        self._answers = list(answers)
        self._code = code
        self._errors = list(errors)
        self._written = b""
        self.argv: Sequence[str] = ()
        self.is_closed = False
        self.has_input_ended = False

    def start(self, argv: Sequence[str], window: int) -> PlayedHost:
        self.argv = argv
        return self

    def read(self, patience: float = 0) -> bytes:
        """Return the next answer; then the program ends."""
        return self._answers.pop(0) if self._answers else b""

    def read_errors(self) -> bytes:
        """Return the next bytes."""
        return self._errors.pop(0) if self._errors else b""

    def write(self, data: bytes) -> None:
        self._written += data

    def end_input(self) -> None:
        self.has_input_ended = True

    def exit_code(self) -> int:
        if isinstance(self._code, HostError):
            raise self._code
        return self._code

    def close(self) -> None:
        self.is_closed = True

    @property
    def asked(self) -> Any:
        """What the program was asked for."""
        sources, asked = json.loads(self._written[: int(self.argv[-1])])
        assert list(map(tuple, sources)) == program_sources()
        return asked

    @property
    def got(self) -> bytes:
        """What came after that."""
        return self._written[int(self.argv[-1]) :]


class PlayedSsh:
    """Connections to played hosts, by worker."""

    def __init__(self, hosts: Mapping[int, PlayedHost]) -> None:
        self._hosts = hosts
        self._lock = threading.Lock()
        self.open = self.most = 0

    @contextmanager
    def connect(self, to: Any, worker: int, host_key: str) -> Iterator[PlayedHost]:
        assert host_key == f"key {worker}"
        with self._lock:
            self.open += 1
            self.most = max(self.most, self.open)
        yield self._hosts[worker]
        with self._lock:
            self.open -= 1


def copied(
    hosts: Mapping[int, PlayedHost], sources: Sequence[str], destination: str, ssh: PlayedSsh | None = None
) -> tuple[list[Any], list[tuple[int, int, int]]]:
    """Copy, and return the result or error of each worker, and what was reported."""
    reports: list[tuple[int, int, int]] = []
    results = copy(
        cast("Ssh", ssh or PlayedSsh(hosts)),
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


def sending(*names: str, data: bytes = b"x", left_out: bytes = b"") -> list[bytes]:
    """Return what a host says that sends files with the same content."""
    said = b"".join(entry(name, len(data)) for name in names) + left_out + line("end")
    return [said, archive(*(member(name, data) for name in names), LAST)]


DONE = line("done", 2, 30, 1)


class TestUpload:
    def test_every_worker_gets_what_it_lacks(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * 10)
        (tmp_path / "b").write_bytes(b"y" * 20)
        hosts = {0: PlayedHost(line("go") + b"11", DONE), 3: PlayedHost(line("go") + b"00", DONE)}
        results, reports = copied(hosts, [str(tmp_path / "a"), str(tmp_path / "b")], "n1:data")
        assert results == [CopyResult(worker, 2, 30, 1, ()) for worker in (0, 3)]
        assert hosts[0].asked == {"path": "data", "is_folder": True}
        said, _, sent = hosts[0].got.partition(line("end"))
        assert [json.loads(text)[:3] for text in said.splitlines()] == [["file", "a", 10], ["file", "b", 20]]
        assert (b"x" * 10 in sent, b"y" * 20 in sent) == (True, True)
        assert b"x" * 10 not in hosts[3].got
        assert reports.count((0, 30, 30)) == reports.count((3, 30, 30)) == 1
        assert all(host.has_input_ended for host in hosts.values())

    @pytest.mark.parametrize(("destination", "is_folder"), [("n1:data", False), ("n1:data/", True)])
    def test_a_host_is_told_whether_the_destination_is_a_folder(
        self, tmp_path: Path, destination: str, is_folder: bool
    ) -> None:
        (tmp_path / "a").write_bytes(b"x")
        host = PlayedHost(line("go") + b"0", DONE)
        copied({0: host}, [str(tmp_path / "a")], destination)
        assert host.asked["is_folder"] is is_folder

    def test_what_either_side_leaves_out_is_named_with_the_reason(self, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/link").symlink_to("nothing")
        host = PlayedHost(line("go") + b"1", line("left out", "tree/a", "no") + DONE)
        ((result,), _) = copied({0: host}, [str(tmp_path / "tree")], "n1:")
        assert result.left_out == (
            (str(tmp_path / "tree/link"), "No such file or directory"), ("tree/a", "no")
        )  # fmt: skip
        assert b"link" not in host.got, "what is not copied is no business of the host"

    @pytest.mark.parametrize("answers", [[], [line("go") + b"1"]], ids=["at the start", "in the middle"])
    def test_a_full_disk_there_is_an_error(self, tmp_path: Path, answers: list[bytes]) -> None:
        (tmp_path / "a").write_bytes(b"x")
        error = error_of(PlayedHost(*answers, line("error", "No space left")), str(tmp_path / "a"), "n1:")
        assert isinstance(error, StateError)
        assert error.message == "worker 0 of 'n1': No space left; what was complete by then stays."
        assert "Run the same command again" in (error.hint or "")

    def test_a_source_that_is_missing_here_ends_it_before_any_connection(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as caught:
            copied({}, [str(tmp_path / "none")], "n1:")
        assert caught.value.message == f"There is no {tmp_path}/none on this machine."
        assert caught.value.hint == "Files of a TPU: NAME:PATH"

    def test_many_hosts_are_copied_to_by_as_many_connections_as_of_exec(self, tmp_path: Path) -> None:
        """A shell of macOS allows 256 open files."""
        (tmp_path / "a").write_bytes(b"x")
        hosts = {worker: PlayedHost(line("go") + b"1", DONE) for worker in range(2 * WIDTH)}
        ssh = PlayedSsh(hosts)
        results, _ = copied(hosts, [str(tmp_path / "a")], "n1:", ssh)
        assert results == [CopyResult(worker, 2, 30, 1, ()) for worker in range(len(hosts))]
        assert ssh.most <= WIDTH


class TestDownload:
    def test_one_worker_s_file_has_the_name_that_is_typed(self, tmp_path: Path) -> None:
        host = PlayedHost(*sending("data", data=b"12345"))
        results, reports = copied({0: host}, ["n1:data"], str(tmp_path / "here"))
        assert results == [CopyResult(0, 1, 5, 0, ())]
        assert (tmp_path / "here").read_bytes() == b"12345"
        assert (host.asked, host.got) == ({"paths": ["data"]}, line("go") + b"1")
        assert reports[-1] == (0, 5, 5)

    def test_each_of_several_workers_has_a_folder(self, tmp_path: Path) -> None:
        hosts = {worker: PlayedHost(*sending("data", data=b"%d" % worker)) for worker in (1, 2)}
        copied(hosts, ["n1:data"], str(tmp_path / "here"))
        assert (tmp_path / "here/worker-1/data").read_bytes() == b"1"
        assert (tmp_path / "here/worker-2/data").read_bytes() == b"2"

    def test_several_sources_of_one_worker_go_into_a_folder(self, tmp_path: Path) -> None:
        host = PlayedHost(*sending("a", "b"))
        copied({0: host}, ["n1:a", "n1:x/b"], str(tmp_path / "here"))
        assert host.asked == {"paths": ["a", "x/b"]}
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
        host = PlayedHost(*sending("data", left_out=line("left out", "x", "is no file and no folder")))
        ((result,), _) = copied({0: host}, ["n1:data"], str(tmp_path / "here"))
        assert result.left_out == (("x", "is no file and no folder"),)

    def test_what_the_host_cannot_do_is_told(self) -> None:
        error = error_of(PlayedHost(line("error", "data: Stale file handle")))
        assert isinstance(error, StateError)
        assert error.message == (
            "worker 0 of 'n1': data: Stale file handle; what was complete by then stays."
        )  # fmt: skip

    def test_a_destination_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        error = error_of(PlayedHost(*sending("data")), destination=str(tmp_path / "file/x/y"))
        assert isinstance(error, StateError)
        assert error.message == (
            f"this machine: {tmp_path}/file/x: Not a directory; what was complete by then stays."
        )  # fmt: skip

    def test_a_stream_that_was_cut_is_an_error(self, tmp_path: Path) -> None:
        said, _ = sending("data")
        cut = PlayedHost(said, archive(member("data")))
        assert isinstance(error_of(cut, destination=str(tmp_path / "here")), HostError)
        assert not (tmp_path / "here").exists()


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
            "Run the same command again: what is complete is not sent again."
        )  # fmt: skip

    @pytest.mark.parametrize(
        "answer", [b"Last login: Thursday\n", b"{}\n", line("file"), b"[" * 9000 + b"\n"]
    )
    def test_that_says_something_else_is_named(self, answer: bytes) -> None:
        error = error_of(PlayedHost(answer))
        assert isinstance(error, HostError)
        assert error.message.startswith("worker 0 of 'n1': it does not speak our protocol: ")

    def test_that_closes_its_output_and_does_not_end_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow, "GRACE", 0.01)
        closed = threading.Event()

        class Lasting(PlayedHost):
            def close(self) -> None:
                super().close()
                closed.set()

            def exit_code(self) -> int:
                assert closed.wait(60)
                raise HostError("worker 0 of 'n1': a signal ended the command's shell.")

        assert isinstance(error_of(Lasting()), HostError)

    def test_runs_from_stdin_alone(self, tmp_path: Path) -> None:
        """As on a host: an interpreter without this package; what its user has on a path is not imported."""
        (tmp_path / "json.py").write_text("raise SystemExit('a module of the user')")
        host = PlayedHost(line("error", "no"))
        (tmp_path / "a").write_text("x")
        error_of(host, str(tmp_path / "a"), f"n1:{tmp_path}/here")
        python, *arguments = host.argv
        assert python == "python3"
        program = host._written[: int(arguments[-1])]
        process = subprocess.run(
            [sys.executable, *arguments], env={"PYTHONPATH": str(tmp_path)},
            input=program + entry("a") + line("end") + archive(member("a"), LAST),
            capture_output=True, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        assert (process.returncode, process.stderr) == (0, b"")
        assert process.stdout == line("go") + b"1" + line("done", 1, 1, 0)
        assert (tmp_path / "here").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("text", "name", "workers", "path"),
    [
        ("n1:a", "n1", None, "a"),
        ("n1@3:a:b", "n1", "3", "a:b"),
        (":a", "", None, "a"),
        ("@1:a", "", "1", "a"),
        ("n1:", "n1", None, ""),
    ],
)
def test_a_path_on_hosts(text: str, name: str, workers: str | None, path: str) -> None:
    assert parse_path(text) == RemotePath(HostName(name, parse_workers(workers) if workers else None), path)


@pytest.mark.parametrize("text", ["a", "./n1:a", "/n1:a", "a/b:c"])
def test_a_path_on_this_machine(text: str) -> None:
    assert parse_path(text) == text


@pytest.mark.parametrize("text", ["gs://bucket/a", "n1@:a", "@:a"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_path(text)


def copy_of(sources: tuple[str, ...], destination: str, *, is_upload: bool) -> CopyRequest:
    """Return a copy to or from n1 and this machine."""
    if is_upload:
        return parse_copy(sources, f"n1:{destination}")
    return parse_copy([f"n1:{source}" for source in sources], destination)


@pytest.mark.parametrize("is_upload", [True, False])
@pytest.mark.parametrize(
    ("sources", "destination", "is_folder"),
    [
        (("a",), "x", False), (("a",), "x/y", False), (("a",), "~x", False), (("a",), ".x", False),
        (("a",), "", True), (("a",), "x/", True), (("a",), ".", True), (("a",), "x/.", True),
        (("a",), "..", True), (("a",), "x/..", True), (("a",), "~", True),
        (("a/.",), "x", True), (("a/",), "x", False), (("a", "b"), "x", True),
    ],
)  # fmt: skip
def test_what_is_typed_says_whether_the_destination_is_a_folder(
    sources: tuple[str, ...], destination: str, is_folder: bool, is_upload: bool
) -> None:
    assert copy_of(sources, destination, is_upload=is_upload).is_folder is is_folder


@pytest.mark.parametrize("pattern", ["a*", "a?", "[ab]"])
def test_a_wildcard_stands_for_several_on_hosts_alone(pattern: str) -> None:
    assert copy_of((pattern,), "x", is_upload=False).is_folder
    assert not copy_of((pattern,), "x", is_upload=True).is_folder


def test_a_copy_has_a_direction() -> None:
    assert parse_copy(["a", "b"], "n1:x") == CopyRequest(HostName("n1"), True, ("a", "b"), "x")
    assert parse_copy(["n1:a", "n1:b"], "x") == CopyRequest(HostName("n1"), False, ("a", "b"), "x")


@pytest.mark.parametrize(
    ("sources", "destination", "message", "hint"),
    [
        (["n1:a"], "n1:b", "Both sides are on hosts.",
         "Copy to this machine first, then from here to the hosts."),
        (["a"], "b", "No path is on a TPU.",
         "Write NAME:PATH for one on its hosts, or :PATH for your only TPU."),
        (["n1:a", "b"], "c", "The sources are on several machines.", "Copy from one at a time."),
        (["n1:a", "n2:b"], "c", "The sources are on several machines.", "Copy from one at a time."),
    ],
)  # fmt: skip
def test_a_copy_between_other_places_is_refused(
    sources: list[str], destination: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_copy(sources, destination)
    assert (caught.value.message, caught.value.hint) == (message, hint)
