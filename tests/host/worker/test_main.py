"""What the program answers, as a line of JSON: whether a supervisor lives, and why none was started."""

from __future__ import annotations

import fcntl
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPMessage
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.host.worker.host import SPEC, Host
from tpuctl.host import timing, wire
from tpuctl.host.worker import main
from tpuctl.host.worker.records import encode
from tpuctl.polling import Backoff, poll

Answer = Callable[[], dict[str, object]]
SECRET = "a-value-" + "that-nobody-may-read"
WAITING = "import pathlib, time\nwhile not pathlib.Path('../end').exists():\n  time.sleep(0.05)\n"


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    """The one line on stdout."""

    def read() -> dict[str, object]:
        (line,) = capsys.readouterr().out.splitlines()
        return dict(json.loads(line))

    return read


class TestAsk:
    def test_a_host_without_the_attempt(self, tmp_path: Path, answer: Answer) -> None:
        assert main.ask(str(tmp_path)) == 0
        assert answer() == {"state": "absent"}

    def test_a_supervisor_that_lives(self, tmp_path: Path, answer: Answer) -> None:
        with (tmp_path / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for last in ({}, {"state": "running"}, {"state": "running", "refusal": ""}):
                (tmp_path / "last_status.json").write_text(json.dumps(last))
                assert main.ask(str(tmp_path)) == 0
                assert answer() == {"state": "alive"}
            ended = {"state": "running", "exit_code": 0, "refusal": "No right."}
            (tmp_path / "last_status.json").write_text(json.dumps(ended))
            assert main.ask(str(tmp_path)) == 0
            assert answer() == {"state": "alive", "status": ended}, "its script has ended"

    def test_a_start_that_was_cut_off(self, tmp_path: Path, answer: Answer) -> None:
        (tmp_path / "lock").touch()
        assert main.ask(str(tmp_path)) == 0
        assert answer() == {"state": "absent", "detail": "its start there was cut off"}

    @pytest.mark.parametrize(("since_boot", "detail"), [(1, ""), (0, ""), (-1, "the host was restarted")])
    def test_a_supervisor_that_is_gone(
        self, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch, since_boot: float, detail: str
    ) -> None:
        for name in ("lock", "started"):
            (tmp_path / name).touch()
        started = (tmp_path / "lock").stat().st_mtime
        monkeypatch.setattr(main, "_boot_time", lambda: started - since_boot)
        assert main.ask(str(tmp_path)) == 0
        assert answer() == {"state": "gone", "detail": detail, "status": None}
        (tmp_path / "last_status.json").write_text('{"state": "running"}')
        assert main.ask(str(tmp_path)) == 0
        assert answer()["status"] == {"state": "running"}

    def test_the_kernel_says_when_the_host_was_started(self) -> None:
        lines = Path("/proc/stat").read_text().splitlines()
        assert [int(line.split()[1]) for line in lines if line.startswith("btime")] == [main._boot_time()]


class TestLaunch:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """That of an attempt, as deep as on a host: the runs beside it are looked at too."""
        folder = tmp_path / "r1/1"
        folder.mkdir(parents=True)
        return folder

    def test_without_a_spec_there_is_nothing_to_start(self, folder: Path, answer: Answer) -> None:
        assert main.launch(str(folder / "spec.json")) == 1
        assert "No such file" in str(answer()["error"])

    @pytest.mark.parametrize("has_spec", [True, False])
    def test_what_was_started_before_is_said(self, folder: Path, answer: Answer, has_spec: bool) -> None:
        (folder / "started").write_text("7 ")
        if has_spec:
            (folder / "spec.json").write_bytes(encode(SPEC))
        assert main.launch(str(folder / "spec.json")) == 1
        assert answer() == {"error": "this attempt was started on this host before"}
        assert not (folder / "spec.json").exists()

    def test_a_host_on_which_another_run_works_starts_what_waits_for_it_alone(
        self, folder: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The bucket of the submission may not know it: its records are gone, or elsewhere."""
        other = folder.parent.parent / "r0/2"
        other.mkdir(parents=True)
        monkeypatch.setattr(main, "_start", lambda spec, folder: 0)

        def launch(line: str = "") -> int:
            (folder / "spec.json").write_bytes(encode(replace(SPEC, line=line)))
            return main.launch(str(folder / "spec.json"))

        with (other / "lock").open("wb") as lock:
            assert launch() == 0, "what is there has ended"
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert launch() == 1
            assert answer() == {"error": "run 'r0' works there", "cause": "busy", "run": "r0"}
            assert launch(line="nodes/n1/runs/") == 0
            (other / "last_status.json").write_text(json.dumps({"state": "finished"}))
            assert launch() == 0, "it has said its last word"

    def test_a_run_of_the_same_name_and_another_token_is_named(self, folder: Path, answer: Answer) -> None:
        (folder / "last_status.json").write_text(json.dumps({"state": "running", "token": "another"}))
        (folder / "spec.json").write_bytes(encode(SPEC))
        with (folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert main.launch(str(folder / "spec.json")) == 1
        assert answer() == {"error": "run 'r1' works there", "cause": "busy", "run": "r1"}

    @pytest.mark.parametrize(("state", "code"), [("finished", 0), ("running", 1)])
    def test_the_program_of_a_removed_run_that_is_about_to_end_is_waited_for(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, state: str, code: int
    ) -> None:
        """It has said its last word, and the name of its run may be used again."""
        (folder / "started").write_text("7 another")
        (folder / "last_status.json").write_text(json.dumps({"state": state}))
        (folder / "spec.json").write_bytes(encode(SPEC))
        monkeypatch.setattr(main, "_start", lambda spec, folder: 0)
        with (folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: lock.close())
            monkeypatch.setattr(timing, "time", clock)
            assert main.launch(str(folder / "spec.json")) == code
        assert (folder / "started").exists() is bool(code)


class TestStart:
    @pytest.fixture
    def await_start(self, tmp_path: Path) -> Callable[..., tuple[int, int]]:
        """Wait for a process as for a supervisor's; return the exit codes of `launch` and of the process."""

        def await_start(*command: str) -> tuple[int, int]:
            (tmp_path / "log").touch()
            with subprocess.Popen(command, start_new_session=True) as process:
                code = main._await_start(process.pid, str(tmp_path / "started"), str(tmp_path / "log"))
                return code, process.wait()

        return await_start

    def test_the_supervisors_pid_is_the_answer_once_it_has_started(
        self, tmp_path: Path, answer: Answer, await_start: Callable[..., tuple[int, int]]
    ) -> None:
        (tmp_path / "started").write_text("4711 0123456789abcdef")
        assert await_start("true")[0] == 0
        assert answer() == {"pid": 4711}

    @pytest.mark.parametrize(
        ("log", "error"),
        [("Traceback\nValueError: oh\n\n", "ValueError: oh"), ("", "no answer in 120 s")],
    )
    def test_one_that_ends_before_has_its_last_line(
        self,
        tmp_path: Path,
        answer: Answer,
        await_start: Callable[..., tuple[int, int]],
        log: str,
        error: str,
    ) -> None:
        (tmp_path / "log").write_text(log)
        assert await_start("true")[0] == 1
        assert answer() == {"error": error}

    @pytest.mark.parametrize(("status", "account"), [(200, "tpu@p.x"), (404, ""), (None, "")])
    def test_one_that_may_not_write_says_so_with_the_account_of_the_host(
        self,
        tmp_path: Path,
        answer: Answer,
        await_start: Callable[..., tuple[int, int]],
        monkeypatch: pytest.MonkeyPatch,
        status: int | None,
        account: str,
    ) -> None:
        def ask(path: str, _: float) -> wire.Answer:
            assert path == "instance/service-accounts/default/email"
            if status is None:
                raise OSError
            return wire.Answer(status, HTTPMessage(), b"tpu@p.x")

        monkeypatch.setattr(wire, "ask_metadata", ask)
        (tmp_path / "log").write_text("[tpuctl] Traceback ...\n[tpuctl] You may not.\n")
        assert await_start("sh", "-c", "exit 77")[0] == 1
        assert answer() == {"error": "You may not.", "cause": "forbidden", "account": account}

    def test_one_that_does_not_answer_is_ended(
        self, answer: Answer, await_start: Callable[..., tuple[int, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timing, "START_TIMEOUT", 0.0)
        assert await_start("sleep", "600") == (1, -9)
        assert answer() == {"error": "no answer in 0 s"}


def command_lines() -> Iterator[bytes]:
    """The command lines of all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield path.read_bytes()


def files_with_the_value(host: Host) -> list[str]:
    names = list[str]()
    for path in host.folder.rglob("*"):
        with suppress(IsADirectoryError, FileNotFoundError):  # the program gives files other names
            if SECRET.encode() in path.read_bytes():
                names.append(path.name)
    return names


class TestValuesOfASpec:
    """They are on the host's disk for a moment only, and on no command line."""

    def test_the_value_is_in_no_file_and_on_no_command_line_while_the_script_runs(self, host: Host) -> None:
        host.start(WAITING, environment={"API_KEY": SECRET})
        poll(lambda: host.status().pid or None, awaiting="the script", timeout=60, backoff=Backoff(0.05))
        assert files_with_the_value(host) == []
        assert not [line for line in command_lines() if SECRET.encode() in line]
        (supervisor,) = host.supervisors()
        assert Path(f"/proc/{supervisor}/fd/0").readlink() == Path("/dev/null")
        (host.folder / "end").touch()
        assert host.finished().exit_code == 0

    @pytest.mark.parametrize("damage", [{}, {"schema": 2}, {"environment": 3}])
    def test_a_spec_that_cannot_be_used_is_deleted_and_not_quoted(
        self, host: Host, damage: dict[str, object]
    ) -> None:
        path = host.prepare("print(1)\n", environment={"API_KEY": SECRET})
        content = (
            {**json.loads(path.read_text()), **damage} if damage else {"schema": 1, "environment": SECRET}
        )
        path.write_text(json.dumps(content))
        process = host.launch()
        assert not path.exists()
        assert SECRET not in process.stdout + process.stderr
        assert files_with_the_value(host) == []

    def test_a_second_spec_of_an_attempt_is_deleted_too(self, host: Host) -> None:
        path = host.prepare("print(1)\n", environment={"API_KEY": SECRET})
        content = path.read_bytes()
        assert host.launch().returncode == 0
        path.write_bytes(content)
        assert "started on this host before" in host.launch().stdout
        assert files_with_the_value(host) == []
