"""`tpuctl exec`: a command on every host, its output, its worst exit code, and its end.

What is shown of the output of workers and of bytes on their way, without hosts.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.test_progress import Clock
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.remote import cp
from tpuctl.cli.remote.cp import show_bytes
from tpuctl.cli.remote.exec import LinePrinter, write_raw
from tpuctl.cloud.ssh import process
from tpuctl.flows.remote.execution import Output

Call = Callable[..., CommandResult]
SLEEP = "echo $$; while :; do sleep 1; done"
"""Says the number of its process group, and does not end."""


def is_alive(pid: str) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_end(pids: list[str]) -> None:
    deadline = time.monotonic() + 120
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def await_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_text() != text:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class TestOutput:
    def test_each_line_has_its_worker_and_its_stream(self, command: Call) -> None:
        result = command("exec", "pair", "--", "echo a; echo b >&2; printf 'no end'")
        assert result.code == 0
        assert sorted(result.out.splitlines()) == ["[0] a", "[0] no end", "[1] a", "[1] no end"]
        assert {"[0] b", "[1] b"} < set(result.err.splitlines())

    def test_one_worker_has_no_label(self, command: Call) -> None:
        assert command("exec", "pair@1", "--", "echo a").out == "a\n"
        assert command("exec", "pair", "--worker", "1", "--", "echo a").out == "a\n"

    def test_lines_of_two_hosts_are_not_mixed(self, command: Call) -> None:
        line = "x" * 5000
        result = command("exec", "pair", "--", f"for i in $(seq 300); do printf '%s' {line}; echo; done")
        assert sorted(set(result.out.splitlines())) == [f"[0] {line}", f"[1] {line}"]
        assert len(result.out.splitlines()) == 600

    def test_a_progress_bar_shows_its_last_state_and_control_characters_are_visible(
        self, command: Call
    ) -> None:
        result = command("exec", "n1", "--", r"printf '10%%\r100%%\n\033]0;x\007\377\n'")
        assert result.out == "100%\n\\x1b]0;x\\x07\\xff\n"

    def test_raw_bytes_are_those_of_the_command(self, command: Call) -> None:
        result = command("exec", "n1", "--raw", "--", r"printf '10%%\r\0\033[2J'; printf '\t\0' >&2")
        assert (result.out, result.err[-2:]) == ("10%\r\0\x1b[2J", "\t\0")
        assert command("exec", "pair", "--raw", "--", "true").code == 2

    def test_there_is_no_input(self, command: Call) -> None:
        """A program that asks for something, such as a password, is at its end at once."""
        result = command("exec", "n1", "--", "cat; read answer || echo none")
        assert (result.code, result.out) == (0, "none\n")

    def test_json_has_a_result_of_each_worker_and_the_end_of_long_output(self, command: Call) -> None:
        script = 'test "$HOSTNAME" || :; echo last-line; echo oops >&2'
        result = command("exec", "pair", "--json", "--", f"head -c 700000 /dev/zero | tr '\\0' x; {script}")
        end = {
            "exit_code": 0, "stdout": "x" * ((1 << 18) - 10) + "last-line\n", "stderr": "oops\n",
            "dropped_bytes": 700_010 - (1 << 18),
        }  # fmt: skip
        assert result.json == {
            "schema": 1, "node": "pair",
            "command": [f"head -c 700000 /dev/zero | tr '\\0' x; {script}"],
            "workers": [{"worker": 0, **end}, {"worker": 1, **end}], "worst_worker": None,
        }  # fmt: skip

    def test_files_hold_the_bytes_and_are_private(self, command: Call, tmp_path: Path) -> None:
        folder = tmp_path / "out"
        folder.mkdir()
        (folder / "worker-0.out").symlink_to(tmp_path / "elsewhere")
        earlier = os.umask(0)
        try:
            result = command(
                "exec", "pair", "--output-dir", str(folder), "--", r"printf '\377\r'; echo e >&2"
            )
        finally:
            os.umask(earlier)
        assert (result.code, result.out) == (0, "")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            "worker-0.out": b"\xff\r", "worker-0.err": b"e\n",
            "worker-1.out": b"\xff\r", "worker-1.err": b"e\n",
        }  # fmt: skip
        assert {stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()} == {0o600}
        assert not (tmp_path / "elsewhere").exists()
        result = command("exec", "n1", "--json", "--output-dir", str(folder), "--", "true")
        files = {f"{name}_file": str(folder / f"worker-0.{name[3:]}") for name in ("stdout", "stderr")}
        assert result.json["workers"] == [{"worker": 0, "exit_code": 0, **files}]

    def test_a_folder_that_cannot_be_written_is_named(self, command: Call, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        result = command("exec", "n1", "--output-dir", str(tmp_path / "file/x"), "--", "true")
        assert result.code == 4
        assert f"cannot be written to {tmp_path}/file" in result.err


class TestWords:
    @pytest.mark.parametrize("word", ["a b", "", 'it\'s "x"', "$HOME", "*", "a;b", "ü☃", "--", "line\nline"])
    def test_several_words_are_exact(self, command: Call, word: str) -> None:
        program = "import sys; print(ascii(sys.argv[1:]))"
        result = command("exec", "n1", "--", "python3", "-c", program, word, "last")
        assert result.out == f"{[word, 'last']!a}\n"

    def test_one_word_is_a_line_for_the_shell(self, command: Call) -> None:
        assert command("exec", "n1", "--", "cd /; pwd | tr / x; echo \"$USER\" '$USER'").out.split()[0] == "x"

    def test_without_a_command_the_usage_is_shown(self, command: Call) -> None:
        for arguments in (["exec", "n1"], ["exec", "n1", "--"]):
            result = command(*arguments)
            assert result.code == 2
            assert "tpuctl exec -- uptime" in result.err
        assert command("exec", "n1", "uptime").code == 2


class TestExitCode:
    def test_the_worst_one_is_that_of_the_command(self, command: Call) -> None:
        script = 'case "$(hostname -f 2>/dev/null)$TPU_WORKER_ID$(pwd)" in */w1/home) exit 7;; esac; exit 3'
        result = command("exec", "pair", "--", script)
        assert result.code == 7
        assert "Worker 1 of 'pair' ended with exit code 7. 2 of 2 workers failed: 0-1." in result.err

    def test_of_a_signal_it_is_128_and_the_number(self, command: Call) -> None:
        assert command("exec", "n1", "--", "kill -9 $$").code == 137
        assert command("exec", "n1", "--", "no-such-program").code == 127

    def test_a_lost_host_is_worse_and_the_others_results_are_there(
        self, command: Call, faults: Callable[..., object]
    ) -> None:
        faults("ssh-refused", node="pair", worker="1")
        result = command("exec", "pair", "--json", "--", "exit 9")
        assert result.code == 8
        refused = "worker 1 of 'pair': it refused the connection."
        output = {"stdout": "", "stderr": "", "dropped_bytes": 0}
        error = result.json["error"]
        assert result.json == {
            "schema": 1, "node": "pair", "command": ["exit 9"],
            "workers": [
                {"worker": 0, "exit_code": 9, **output},
                {"worker": 1, "exit_code": None, "error": refused, **output},
            ],
            "worst_worker": 1, "error": {**error, "kind": "host", "exit_code": 8, "workers": [1]},
        }  # fmt: skip
        assert refused in error["message"]
        assert f"Error: {error['message']}\nHint: {error['hint']}\n" in result.err

    def test_a_host_that_gives_no_sign_of_life_is_lost(
        self, command: Call, faults: Callable[..., object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "PULSE", 0.2)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(
                command, "exec", "n1", "--output-dir", "out", "--", "echo begun; exec sleep 60"
            )
            await_text(Path("out/worker-0.out"), "begun\n")
            faults("host-hang", node="n1")
            monkeypatch.setattr(process, "SILENCE", 1.0)  # not earlier: a busy machine is not a silent host
            result = ended.result()
        assert result.code == 8
        assert "worker 0 of 'n1': it has stopped answering" in result.err

    def test_a_connection_that_is_cut_is_a_lost_host(self, command: Call, remote: RunningSimulator) -> None:
        assert command("up", "v2-8", "--zone", "us-central1-b", "--name", "gone", "--yes").code == 0
        node = "projects/sim-project/locations/us-central1-b/nodes/gone"
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(command, "exec", "gone", "--output-dir", "cut", "--", "echo begun; sleep 60")
            await_text(Path("cut/worker-0.out"), "begun\n")
            remote.call(remote.world.preempt(node))
            result = ended.result()
        assert result.code == 8
        assert "worker 0 of 'gone': it closed the connection" in result.err

    def test_a_worker_that_is_not_there_is_named(self, command: Call) -> None:
        result = command("exec", "pair", "--worker", "0-2", "--", "true")
        assert result.code == 4
        assert "'pair' has no worker 2" in result.err


class TestEnd:
    def test_a_timeout_ends_the_command_on_the_hosts(self, command: Call) -> None:
        result = command("exec", "pair", "--timeout", "2s", "--", SLEEP)
        assert result.code == 9
        assert "did not end in time on workers 0-1 of 'pair': it was ended on the hosts" in result.err
        await_end([line.split()[1] for line in result.out.splitlines()])

    @pytest.mark.parametrize("trap", ["", "trap '' INT; "], ids=["", "a command that ignores it"])
    def test_ctrl_c_ends_the_command_on_the_hosts(
        self, starting: Callable[..., subprocess.Popen[str]], trap: str
    ) -> None:
        started = starting("exec", "pair", "--", trap + SLEEP)
        assert started.stdout
        pids = [started.stdout.readline().split()[1] for _ in range(2)]
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=60)
        assert started.returncode == 130
        assert "Interrupted: it was ended on the hosts." in err
        await_end(pids)

    def test_the_end_of_the_laptops_process_is_that_of_the_command(
        self, starting: Callable[..., subprocess.Popen[str]]
    ) -> None:
        started = starting("exec", "pair", "--", SLEEP)
        assert started.stdout
        pids = [started.stdout.readline().split()[1] for _ in range(2)]
        assert all(map(is_alive, pids))
        started.kill()
        await_end(pids)

    def test_what_a_command_leaves_in_the_background_stays(self, command: Call) -> None:
        pid = command("exec", "n1", "--", "sleep 300 >/dev/null 2>&1 & echo $!").out.strip()
        assert is_alive(pid)
        os.kill(int(pid), signal.SIGKILL)


def test_the_dry_run_shows_the_request_that_adds_the_key(command: Call) -> None:
    assert command("exec", "n1", "--dry-run", "--json", "--", "true").json["requests"] == []


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a copy: nothing waits."""
    clock = Clock()
    monkeypatch.setattr(cp, "time", clock)
    return clock


def test_lines_of_several_workers_have_their_numbers_below_each_other(capsys: Capture) -> None:
    printer = LinePrinter([3, 11])
    printer.take(Output(3, "stdout", b"one\ntw"))
    printer.take(Output(11, "stdout", b"eleven\n"))
    printer.take(Output(3, "stderr", b"bad\n"))
    assert capsys.readouterr() == ("[ 3] one\n[11] eleven\n", "[ 3] bad\n")
    printer.take(Output(3, "stdout", b"o\nthree"))
    assert capsys.readouterr() == ("[ 3] two\n", "")
    printer.close()
    assert capsys.readouterr() == ("[ 3] three\n", "")


def test_lines_of_one_worker_have_no_number(capsys: Capture) -> None:
    printer = LinePrinter([7])
    printer.take(Output(7, "stdout", b"one\n"))
    printer.close()
    assert capsys.readouterr() == ("one\n", "")


def test_raw_output_is_written_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_raw(Output(0, "stdout", b"\x1b[31m\xff"))
    write_raw(Output(0, "stderr", b"x\r"))
    assert tuple(capfdbinary.readouterr()) == (b"\x1b[31m\xff", b"x\r")


def test_a_copy_says_every_ten_seconds_how_far_and_how_fast_it_is(clock: Clock, capsys: Capture) -> None:
    with show_bytes([0, 1, 2]) as report:
        clock.now += 9.5
        report(0, 1, 2)
        clock.now += 0.5
        report(0, 5_000_000, 5_000_000)
        report(1, 6_000_000, 20_000_000)
        clock.now += 10
        report(1, 15_000_000, 20_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "5.0 MB of 5.0 MB at 500.0 kB/s, 1 of 3 workers complete",
        "20.0 MB of 25.0 MB at 1.0 MB/s, 1 of 3 workers complete",
    ]


def test_a_copy_to_one_worker_or_of_an_unknown_size_says_less(clock: Clock, capsys: Capture) -> None:
    with show_bytes([0]) as report:
        clock.now += 10
        report(0, 100, 0)
        clock.now += 10
        report(0, 100, 100)
    assert capsys.readouterr().err.splitlines() == ["100 B at 10 B/s", "100 B of 100 B at 5 B/s"]
