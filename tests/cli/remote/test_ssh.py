"""`tpuctl ssh` becomes the system's OpenSSH, with our key and the published host key."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Call = Callable[..., CommandResult]
needs_ssh = pytest.mark.skipif(not shutil.which("ssh"), reason="there is no ssh on PATH")
pytestmark = needs_ssh


@pytest.fixture(autouse=True)
def plain_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh sends the user's locale, and the host's bash warns of one that the host does not have."""
    for name in list(os.environ):
        if name == "LANG" or name.startswith("LC_"):
            monkeypatch.delenv(name)


def ssh(command: Call, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What OpenSSH does with the command line that `tpuctl ssh` would become."""
    plan = command("ssh", "--dry-run", "--json", *arguments)
    assert plan.code == 0, plan.err
    return subprocess.run(plan.json["command"], capture_output=True, text=True, timeout=60)


def test_the_command_has_the_exit_code_and_the_streams_of_ssh(process: Call) -> None:
    result = process("ssh", "n1", "--", "cat; echo oops >&2; exit 7", typed="hello")
    assert (result.code, result.out) == (7, "hello")
    assert result.err.endswith("nothing bills\noops\n")


def test_python_ignores_no_signal_for_ssh(process: Call, tmp_path: Path) -> None:
    """Python ignores SIGPIPE, which a program that replaces it would inherit."""
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    fake.chmod(0o755)
    result = process("ssh", "n1", PATH=f"{tmp_path}:{os.environ['PATH']}")
    name, ignored = result.out.split()
    pythons = (signal.SIGPIPE, signal.SIGXFSZ)  # others may be the user's choice, as SIGHUP under nohup
    assert (name, [number for number in pythons if int(ignored, 16) >> (number - 1) & 1]) == ("SigIgn:", [])


def test_a_worker_is_chosen_by_number(command: Call) -> None:
    names = {ssh(command, *words, "--", "echo $HOSTNAME").stdout.rpartition("-w-")[2].strip()
             for words in (["pair@1"], ["pair", "--worker", "1"])}  # fmt: skip
    assert names == {"1"}
    assert ssh(command, "pair", "--", "echo $HOSTNAME").stdout.endswith("-w-0\n")


def test_options_of_ssh_come_before_its_command(command: Call) -> None:
    result = ssh(command, "n1", "--", "-tt", "-oSetEnv=LC_TIME=C", "tty && echo $LC_TIME")
    assert result.stdout.startswith("/dev/")
    assert result.stdout.endswith("C\n")


def test_a_keep_alive_of_the_user_counts(command: Call) -> None:
    plan = command("ssh", "n1", "--dry-run", "--json", "--", "-o", "ServerAliveInterval=5")
    assert [word for word in plan.json["command"] if "serveralive" in word.lower()] == [
        "-oServerAliveCountMax=4", "ServerAliveInterval=5",
    ]  # fmt: skip
    plan = command("ssh", "n1", "--dry-run", "--json", "--", "-oconnecttimeout=5")
    assert [word for word in plan.json["command"] if "timeout" in word.lower()] == ["-oconnecttimeout=5"]


def test_a_host_that_says_nothing_is_given_up(command: Call, faults: Callable[..., object]) -> None:
    """After two minutes, which are shortened here; ssh itself would wait for ever."""
    faults("host-hang", node="n1")
    plan = command("ssh", "n1", "--dry-run", "--json", "--", "true").json["command"]
    assert "-oConnectTimeout=120" in plan
    short = [word.replace("=120", "=1") for word in plan]
    ended = subprocess.run(short, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "timed out" in ended.stderr) == (255, True), ended.stderr


def test_the_dry_run_prints_a_line_for_the_shell(command: Call) -> None:
    line = command("ssh", "n1", "--dry-run", "--", "echo", "it's").out
    ended = subprocess.run(["sh", "-c", line.replace("it'\"'\"'s", "fine")], capture_output=True, text=True)
    assert ended.stdout == "fine\n", (line, ended.stderr)


def test_a_node_of_somebody_else_gets_our_key_and_is_entered_at_once(
    command: Call, process: Call, tmp_path: Path
) -> None:
    key = {"TPUCTL_SSH_KEY": str(tmp_path / "my key"), "TPUCTL_SSH_USER": "grace"}
    plan = process("ssh", "n1", "--dry-run", "--json", **key)
    assert [request["method"] for request in plan.json["requests"]] == ["PATCH"]
    result = process("ssh", "n1", "--", "whoami; echo $USER", **key)
    assert (result.code, result.out.split()[-1]) == (0, "grace"), result.err
    assert "adding your SSH key to n1" in result.err
    assert command("ssh", "n1", "--dry-run", "--json").json["requests"] == []


def test_another_host_key_than_the_published_one_is_refused(
    command: Call, faults: Callable[..., object]
) -> None:
    faults("wrong-host-key", node="pair", worker="1")
    result = ssh(command, "pair@1", "--", "-oStrictHostKeyChecking=no", "true")
    assert result.returncode == 255
    assert "Host key verification failed" in result.stderr
    assert not (Path(os.environ["HOME"]) / ".ssh").exists()


def test_a_host_that_refuses_connections_is_ssh_s_own_error(
    command: Call, faults: Callable[..., object]
) -> None:
    faults("ssh-refused", node="n1")
    result = ssh(command, "n1", "--", "true")
    assert (result.returncode, "Connection refused" in result.stderr) == (255, True)


def test_without_openssh_the_error_says_how_to_get_it(command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = command("ssh", "n1")
    assert (result.code, "There is no 'ssh' on this machine's PATH." in result.err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 4, "You have 2 TPUs: n1, pair."),
        (("@1",), 4, "You have 2 TPUs: n1, pair."),
        (("n9",), 4, "There is no node 'n9'."),
        (("pair@2",), 4, "'pair' has no worker 2: its workers are 0 to 1."),
        (("pair@all",), 2, "2 workers are named, and this command reaches one."),
        (("n1", "--worker", "x"), 2, "'x' names no workers."),
        (("n1@0", "--worker", "0"), 2, "Workers are named twice."),
        (("n1", "-L", "1:localhost:1"), 2, "Options of ssh, and a command, go after --"),
        (("n1", "ls"), 2, "Usage: tpuctl ssh [OPTIONS] [NAME] [-- [OPTION OF SSH]... [COMMAND]...]"),
        (("n1", "ls"), 2, "Options of ssh, and a command, go after --"),
        (("n1", "--json"), 2, "Add --dry-run"),
    ],
)
def test_what_cannot_be_reached_is_a_sentence(
    command: Call, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    result = command("ssh", *arguments)
    assert (result.code, sentence in result.err) == (code, True), result.err


def test_a_node_that_is_still_created_is_to_be_waited_for(
    command: Call, remote: RunningSimulator, faults: Callable[..., object]
) -> None:
    faults("stockout", zone="europe-west4-a")
    assert command("up", "v3-8", "--name", "late", "--queued", "--detach", "--yes").code == 0
    try:
        result = command("ssh", "late")
        assert result.code == 4, result.err
        assert "tpuctl wait late" in result.err
    finally:
        assert command("down", "late", "--yes").code == 0
