"""What runs on a host ends with it, however far it has gone from its session."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import asyncssh
import pytest

from tests.sim.hosts.programs.starting_processes import STARTED, WITHOUT_ENVIRONMENT
from tests.sim.hosts.site import USER, Site, hosts_of, wait_until
from tpuctl.sim.hosts.programs import processes, programs
from tpuctl.sim.hosts.programs.processes import ProcessEntry, belonging, parse_ps
from tpuctl.sim.records import Host

DAEMON = textwrap.dedent(
    """
    import os, pathlib, signal, sys, time
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    for descriptor in (0, 1, 2): os.close(descriptor)
    if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else: signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("told").touch(), os._exit(0)))
    pathlib.Path("pid.new").write_text(str(os.getpid()))
    os.rename("pid.new", "pid")
    time.sleep(600)
    """
)


def start_daemon(site: Site, host: Host, *arguments: str) -> int:
    """Start a process that has left its session and its parent; returns its id."""
    home = home_of(site, host)
    (home / "daemon.py").write_text(DAEMON)
    with site.fabric(host) as connection:
        connection.run(f"python3 daemon.py {' '.join(arguments)}")
    wait_until((home / "pid").exists)
    return int((home / "pid").read_text())


def test_a_daemon_is_told_and_ends_with_its_host(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0])
    site.stop(hosts, keep_disk=True)
    assert not runs(pid)
    assert (home_of(site, hosts[0]) / "told").exists(), "SIGTERM came first"


def test_no_program_hears_of_a_crash(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0])
    site.loop.run(site.pool.crash(hosts))
    assert not runs(pid)
    assert not (home_of(site, hosts[0]) / "told").exists()
    site.up(hosts)
    assert (home_of(site, hosts[0]) / "daemon.py").exists()


def test_a_daemon_that_does_not_listen_is_killed_after_the_grace(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0], "deaf")
    site.stop(hosts, grace=0.05)
    assert not runs(pid)


def test_the_grace_is_that_of_the_clock_which_can_be_advanced(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0], "deaf")
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    mark = processes.host_mark(site.folder, hosts[0])
    site.loop.run(processes.end_processes(mark.__eq__, set, 30, sleep))
    assert slept == [30]
    assert not runs(pid)


def test_each_process_is_told_before_it_is_killed_however_slow_the_look_parents_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = site.up(hosts_of())
    home = home_of(site, hosts[0])
    with site.fabric(hosts[0]) as connection:
        script = "sleep 600 & echo $$ $! > new; mv new pids; wait"
        connection.run(f"trap '' TERM; sh -c '{script}' >/dev/null 2>&1 &")
    wait_until((home / "pids").exists)
    pids = sorted(map(int, (home / "pids").read_text().split()))
    sent: list[tuple[int, int]] = []
    look, kill = processes.snapshot, os.kill

    def look_slowly() -> list[ProcessEntry]:
        time.sleep(0.1)
        return look()

    def note_and_kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        kill(pid, number)

    monkeypatch.setattr(processes, "snapshot", look_slowly)
    monkeypatch.setattr(processes.os, "kill", note_and_kill)
    site.stop(hosts, grace=0.01)
    assert [pid for pid, number in sent if number == signal.SIGTERM and pid in pids] == pids
    for process in pids:
        assert [number for pid, number in sent if pid == process][:2] == [signal.SIGTERM, signal.SIGKILL]


def test_the_programs_of_another_host_go_on(site: Site) -> None:
    first, second = site.up(hosts_of()), site.up(hosts_of())
    pid = start_daemon(site, second[0])
    site.stop(first)
    assert runs(pid)
    site.stop(second)
    assert not runs(pid)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_in_the_foreground_ends_with_its_host(site: Site, terminal: bool) -> None:
    hosts = site.up(hosts_of())
    home = home_of(site, hosts[0])
    with site.fabric(hosts[0]) as connection:
        running = connection.run(
            "trap '' HUP; echo $$ > pid; sleep 600; true", asynchronous=True, pty=terminal
        )
        wait_until(lambda: (home / "pid").exists() and (home / "pid").read_text().strip())
        pid = int((home / "pid").read_text())
        site.stop(hosts, keep_disk=True, grace=0.2)
        assert not runs(pid)
        wait_until(lambda: not connection.is_connected)
        running.runner.stop()


def test_a_child_that_shed_its_environment_ends_too(site: Site) -> None:
    hosts = site.up(hosts_of())
    home = home_of(site, hosts[0])
    with site.fabric(hosts[0]) as connection:
        connection.run("(env -i sh -c 'echo $$ > pid; exec sleep 600'; true) >/dev/null 2>&1 &")
    wait_until(lambda: (home / "pid").exists() and (home / "pid").read_text().strip())
    pid = int((home / "pid").read_text())
    site.stop(hosts)
    assert not runs(pid)


def test_closing_the_pool_ends_everything_and_keeps_the_files(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0])
    site.loop.run(site.pool.close())
    assert not runs(pid)
    assert (home_of(site, hosts[0]) / "daemon.py").exists()
    assert site.pool.hosts_file.read_text() == "{}"


def test_what_a_killed_simulator_left_on_deleted_hosts_is_swept(site: Site) -> None:
    deleted, live = site.up(hosts_of()), site.up(hosts_of())
    lost, survivor = start_daemon(site, deleted[0]), start_daemon(site, live[0])
    after_the_crash = site.new_pool()
    site.loop.run(after_the_crash.end_orphans(live))
    assert not runs(lost)
    assert runs(survivor)


def test_what_a_killed_simulator_left_on_a_live_host_ends_with_it(site: Site) -> None:
    hosts = site.up(hosts_of())
    pid = start_daemon(site, hosts[0])
    after_the_crash = site.another()
    after_the_crash.up(hosts)
    assert runs(pid)
    after_the_crash.stop(hosts)
    assert not runs(pid)


def test_what_a_killed_simulator_left_ends_with_the_next_one(site: Site) -> None:
    hosts, down = site.up(hosts_of()), site.up(hosts_of())
    pids = [start_daemon(site, host) for host in (*hosts, *down)]
    after_the_crash = site.another()
    after_the_crash.up(hosts)
    site.loop.run(after_the_crash.pool.close())
    assert not any(map(runs, pids)), "also on hosts that did not come up again"


def test_a_sweep_leaves_the_hosts_of_another_simulator_alone(
    site: Site, tmp_path: Path, loop: object
) -> None:
    pid = start_daemon(site, site.up(hosts_of())[0])
    elsewhere = Site(site.loop, tmp_path / "elsewhere", site.key, None)
    site.loop.run(elsewhere.pool.end_orphans([]))
    assert runs(pid)


def test_exits_are_seen_where_the_system_has_no_pidfd(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(programs.os, "pidfd_open")
    with site.fabric(site.up(hosts_of())[0]) as connection:
        assert connection.run("exit 9", warn=True).exited == 9


def test_the_process_table_of_macos_is_read() -> None:
    table = parse_ps(
        "    1     0     1 /sbin/launchd\n"
        "  501   500   501 python3 run.py A=b TPUCTL_SIM_HOST=ab12-77-0 HOME=/Users/ada/my folder/w0\n"
        "  502   501   501 sleep 600\n"
        "  503   501   501 (python3)\n"
    )
    assert table == [
        ProcessEntry(1, 0, 1, 1, ""),
        ProcessEntry(501, 500, 501, 501, "ab12-77-0"),
        ProcessEntry(502, 501, 501, 501, ""),
    ]
    assert belonging(table, {"ab12-77-0"}.__contains__, set()) == {501, 502}


def test_signals_reach_the_whole_group(site: Site) -> None:
    """paramiko cannot send signals; asyncssh can."""
    (host,) = site.up(hosts_of())
    address, port = site.dial(host)

    async def stopped() -> tuple[str, int | None]:
        login = asyncssh.connect(
            address, port, username=USER, client_keys=[str(site.key.private)], known_hosts=None, config=None
        )
        command = "trap 'echo stopped; exit 3' TERM; echo begun; sleep 600 & wait"
        async with login as connection, connection.create_process(command) as process:
            await process.stdout.readline()
            process.send_signal("TERM")
            rest = await process.stdout.read()  # ends once sleep, too, has let go of it
            await process.wait()
            return str(rest), process.exit_status

    assert site.loop.run(stopped()) == ("stopped\n", 3)


@pytest.mark.parametrize(
    ("number", "name"), [(9, "KILL"), (15, "TERM"), (11, "SEGV"), (31, "SYS@openssh.com")]
)
def test_the_signal_that_ended_a_program_is_told_by_name(site: Site, number: int, name: str) -> None:
    (host,) = site.up(hosts_of())
    address, port = site.dial(host)

    async def end() -> object:
        login = asyncssh.connect(
            address, port, username=USER, client_keys=[str(site.key.private)], known_hosts=None, config=None
        )
        async with login as connection:
            completed = await connection.run(f"ulimit -c 0; kill -{number} $$")
            return completed.exit_signal

    signal = site.loop.run(end())
    assert isinstance(signal, tuple)
    assert signal[0] == name


def test_a_terminal_has_the_modes_of_the_clients_own(site: Site) -> None:
    """paramiko sends none; OpenSSH sends those of the terminal it runs on."""
    (host,) = site.up(hosts_of())
    address, port = site.dial(host)
    modes = {
        asyncssh.PTY_ECHO: 0,
        asyncssh.PTY_ONLCR: 0,
        asyncssh.PTY_IUTF8: 1,
        asyncssh.PTY_VINTR: ord("X") & 0x1F,
        asyncssh.PTY_VQUIT: 255,
        asyncssh.PTY_OP_OSPEED: 19200,
        asyncssh.PTY_VSTATUS: 20,
    }

    async def settings() -> str:
        login = asyncssh.connect(
            address, port, username=USER, client_keys=[str(site.key.private)], known_hosts=None, config=None
        )
        async with login as connection:
            completed = await connection.run("stty -a", term_type="xterm", term_modes=modes)
            return str(completed.stdout)

    printed = site.loop.run(settings())
    assert "\r" not in printed
    assert {"-echo", "-onlcr", "iutf8", "icanon", "echoe"} <= set(printed.replace(";", " ").split())
    assert "intr = ^X; quit = <undef>;" in printed
    assert "speed 19200 baud" in printed


def home_of(site: Site, host: Host) -> Path:
    return site.folder / host.node_uid / f"w{host.worker}" / "home"


def runs(pid: int) -> bool:
    """Return whether the process exists and has not ended (in a container nobody may wait for orphans)."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.parametrize(("starting", "looks"), WITHOUT_ENVIRONMENT)
def test_a_process_that_starts_a_program_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: bytes, looks: int
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"")
    (tmp_path / "7" / "stat").write_bytes(starting)
    pauses = list[float]()

    def started(seconds: float) -> None:
        pauses.append(seconds)
        (tmp_path / "7" / "environ").write_bytes(f"A=b\0{processes.MARK}=w-n-0\0".encode())
        (tmp_path / "7" / "stat").write_bytes(STARTED)

    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "time", SimpleNamespace(sleep=started))
    entry = processes._proc_entry(7)
    assert entry
    assert (entry.mark, len(pauses)) == ("w-n-0" if looks else "", looks)
