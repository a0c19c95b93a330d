"""`ssh NAME` by an entry of ours: with OpenSSH itself, also after the node was made anew."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.polling import poll

Call = Callable[..., CommandResult]
pytestmark = pytest.mark.skipif(not shutil.which("ssh"), reason="there is no ssh on PATH")


@pytest.fixture
def config(remote: RunningSimulator, command: Call) -> Iterator[Path]:
    """The user's configuration, without our entries after the test."""
    yield Path(os.environ["HOME"]) / ".ssh" / "config"
    assert command("ssh-config", "--remove", "--all").code == 0


def ssh(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run OpenSSH with only this configuration, from another folder."""
    command = ["ssh", "-F", str(config), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")


def test_the_entries_of_all_own_nodes_are_printed(command: Call) -> None:
    several = command("ssh-config")
    assert (several.code, "You have 2 TPUs: n1, pair." in several.err) == (4, True)
    shown = command("ssh-config", "--all")
    assert "Host n1.sim n1.w0.sim\n" in shown.out
    assert "Host pair.sim pair.w0.sim pair.w1.sim\n" in shown.out
    assert shown.out.count("    ConnectTimeout 120\n") == 2  # a silent host; ssh itself would wait for ever
    one, pair = (f"# tpuctl: {text}" for text in shown.out.split("# tpuctl: ")[1:])
    assert command("ssh-config", "--all", "--json").json == {
        "schema": 1,
        "installed": False,
        "entries": [
            {"node": "n1", "hosts": ["n1.sim", "n1.w0.sim"], "text": one},
            {"node": "pair", "hosts": ["pair.sim", "pair.w0.sim", "pair.w1.sim"], "text": pair},
        ],
    }


def test_ssh_reads_a_path_with_any_characters_as_it_is(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot read ends it for every host of the user."""
    key = f'{tmp_path}/HOST\'s %h \\"key" # 1'
    monkeypatch.setenv("TPUCTL_SSH_KEY", key)
    entry = tmp_path / "entry"
    entry.write_text(command("ssh-config", "n1").out)
    ended = ssh(entry, "-G", "n1.sim")
    assert ended.returncode == 0, ended.stderr
    lines = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert lines["identityfile"].replace("%%", "%") == key
    words = shlex.split(lines["proxycommand"].replace("%%", "%"))
    assert f"TPUCTL_SSH_KEY={key}" in words
    assert words[-3:] == ["ssh-proxy", "n1", "%h"]


def test_ssh_reaches_every_worker_by_its_name(command: Call, config: Path) -> None:
    assert command("ssh-config", "--install", "pair").code == 0
    for host, number in (("pair.sim", 0), ("pair.w1.sim", 1)):
        ended = ssh(config, host, "echo $HOSTNAME; exit 3")
        assert (ended.returncode, ended.stdout.strip()[-4:]) == (3, f"-w-{number}"), ended.stderr
        assert ended.stderr == ""


def test_ssh_ends_its_proxy_by_a_hangup_of_which_nothing_is_said(command: Call, config: Path) -> None:
    assert command("ssh-config", "--install", "n1").code == 0
    lines = dict(line.split(" ", 1) for line in ssh(config, "-G", "n1.sim").stdout.splitlines())
    words = shlex.split(lines["proxycommand"].replace("%%", "%").replace("%h", "n1.sim"))
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as proxy:
        assert proxy.stdout
        assert proxy.stdout.readline().startswith(b"SSH-2.0")
        proxy.send_signal(signal.SIGHUP)
        _, err = proxy.communicate(timeout=60)
    assert (proxy.returncode, err) == (-signal.SIGHUP, b"")


@pytest.mark.parametrize("variable", ["TPUCTL_STATE", "XDG_STATE_HOME"])
def test_an_entry_finds_the_state_of_the_shell_that_wrote_it(
    command: Call, config: Path, tmp_path: Path, variable: str
) -> None:
    """Also from another folder, and in a program that has not the shell's variables, such as VS Code."""
    (tmp_path / "tpuctl").symlink_to(os.environ["TPUCTL_STATE"])
    with pytest.MonkeyPatch.context() as shell:
        shell.chdir(tmp_path)
        shell.delenv("TPUCTL_STATE")
        shell.setenv(variable, "tpuctl" if variable == "TPUCTL_STATE" else str(tmp_path))
        assert command("ssh-config", "--install", "n1").code == 0
        with pytest.MonkeyPatch.context() as program:
            program.delenv(variable)
            program.setenv("HOME", str(tmp_path))
            ended = ssh(config, "n1.sim", "echo hello")
        assert command("ssh-config", "--remove").code == 0
    assert (ended.returncode, ended.stdout) == (0, "hello\n"), ended.stderr
    assert not (tmp_path / ".local").exists()


def test_an_entry_holds_for_the_node_that_is_made_anew(command: Call, config: Path) -> None:
    up = ("up", "v3-8", "--zone", "europe-west4-a", "--name", "again", "--yes")
    assert command(*up).code == 0
    assert command("ssh-config", "--install", "again").code == 0
    assert ssh(config, "again.sim", "touch first").returncode == 0
    assert command("down", "again", "--yes").code == 0
    ended = ssh(config, "again.sim", "true")
    assert (ended.returncode, "There is no node 'again'" in ended.stderr) == (255, True), ended.stderr
    assert command(*up).code == 0
    ended = ssh(config, "again.sim", "ls")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert command("down", "again", "--yes").code == 0


def test_two_nodes_of_one_name_have_an_entry_each_with_its_zone(command: Call, config: Path) -> None:
    types = {"europe-west4-a": "v3-8", "us-central1-b": "v2-8"}
    for zone, accelerator in types.items():
        assert command("up", accelerator, "--zone", zone, "--name", "twin", "--yes").code == 0
    assert command("ssh-config", "--install", "--all").code == 0
    several = command("ssh-config", "--remove")
    assert several.code == 4
    assert "tpuctl ssh-config --remove --all" in several.err
    for zone, accelerator in types.items():
        ended = ssh(config, f"twin.{zone}.sim", "echo $TPUCTL_SIM_TPU")
        assert (ended.returncode, ended.stdout) == (0, f"{accelerator}\n"), ended.stderr
        assert command("down", "twin", "--zone", zone, "--yes").code == 0


def test_another_host_key_is_refused(command: Call, config: Path, faults: Callable[..., object]) -> None:
    assert command("ssh-config", "--install", "n1").code == 0
    faults("wrong-host-key", node="n1")
    ended = ssh(config, "n1.sim", "true")
    assert (ended.returncode, "Host key verification failed" in ended.stderr) == (255, True)


def test_a_host_that_is_down_is_named_with_the_next_command(
    command: Call, config: Path, faults: Callable[..., object]
) -> None:
    assert command("ssh-config", "--install", "n1").code == 0
    faults("ssh-refused", node="n1")
    ended = ssh(config, "n1.sim", "true")
    assert "worker 0 of 'n1': it refused the connection" in ended.stderr
    assert "tpuctl ls" in ended.stderr


def test_a_node_that_was_preempted_says_so(command: Call, config: Path, remote: RunningSimulator) -> None:
    up = ("up", "v3-8", "--spot", "--zone", "europe-west4-a", "--name", "lost", "--yes")
    assert command(*up).code == 0
    assert command("ssh-config", "--install", "lost").code == 0
    remote.faults.add("preemption", node="lost")
    lost = "projects/sim-project/locations/europe-west4-a/nodes/lost"
    poll(
        lambda: remote.world.nodes.get(lost).state == "PREEMPTED" or None,
        awaiting="the end of the node", timeout=60,
    )  # fmt: skip
    ended = ssh(config, "lost.sim", "true")
    assert (ended.returncode, "Node 'lost' is PREEMPTED" in ended.stderr) == (255, True), ended.stderr
    assert command("down", "lost", "--yes").code == 0


def test_install_and_remove_are_reported(command: Call, config: Path) -> None:
    installed = command("ssh-config", "--install", "n1")
    assert "ssh knows n1.sim, n1.w0.sim." in installed.err
    assert "ssh n1.sim" in installed.err
    assert command("ssh-config", "--install", "n1", "--json").json["installed"] is True
    assert command("ssh-config", "--remove", "n1", "--json").json == {"schema": 1, "removed": ["n1"]}
    assert "There is no entry to remove." in command("ssh-config", "--remove").err
    assert command("ssh-config", "--install", "--remove").code == 2
    assert command("ssh-config", "--all", "n1").code == 2
    assert command("ssh-config", "n9").code == 4
