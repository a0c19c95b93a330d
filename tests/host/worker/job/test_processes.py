"""Processes are found by a variable, also at the moment at which they start a program.

What a script leaves behind ends with it, however it has hidden; what is not of the run stays.
"""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.host.worker.host import Host, kill_with_guard
from tests.sim.hosts.programs.starting_processes import WITHOUT_ENVIRONMENT
from tpuctl.host.worker.control import hold, is_held_in
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.records import LOCK_FILE, SCRIPT_LOCK_FILE
from tpuctl.host.worker.reporting import LAST_FILE
from tpuctl.polling import Backoff, poll


@pytest.mark.parametrize(
    ("starting", "looks"), [*WITHOUT_ENVIRONMENT, pytest.param(b"", 0, id="it has ended")]
)
def test_a_process_that_starts_a_program_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: bytes, looks: int
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"")
    (tmp_path / "7" / "stat").write_bytes(starting)
    pauses = list[float]()

    def started(seconds: float) -> None:
        pauses.append(seconds)
        (tmp_path / "7" / "environ").write_bytes(b"A=b\0C=d\0")

    monkeypatch.setattr(processes, "PROC", str(tmp_path))
    monkeypatch.setattr(processes, "time", SimpleNamespace(sleep=started))
    assert processes.with_variable([7], ["C=d"]) == ({7} if looks else set())
    assert len(pauses) == looks


class ProcessTable:
    """A /proc that the test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self, pid: int, parent: int = 1, group: int = 0, session: int = 0, *, state: str = "S",
        name: str = "sh", command: bytes = b"", files: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        place = self.folder / str(pid)
        (place / "fd").mkdir(parents=True)
        stat = f"{pid} ({name}) {state} {parent} {group or pid} {session or pid} 0 -1 0"
        (place / "stat").write_text(stat)
        (place / "cmdline").write_bytes(command)
        for number, path in enumerate(files):
            (place / "fd" / str(number)).symlink_to(path)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessTable:
    """Nothing runs."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(processes, "PROC", str(tmp_path / "proc"))
    return ProcessTable(tmp_path / "proc")


class TestTable:
    def test_processes_of_this_user_are_listed_whatever_they_are_called(self, table: ProcessTable) -> None:
        table.add(7, 3, 5, 4, name="a) R (b")
        table.add(8, state="Z")
        table.add(9, state="X")
        table.add(10, state="R")
        (table.folder / "self").mkdir()
        (table.folder / "11").mkdir()  # it ends at this moment
        assert processes.running() == {
            7: processes.Process(7, 3, 5, 4), 10: processes.Process(10, 1, 10, 10),
        }  # fmt: skip

    def test_those_of_others_are_not(self, table: ProcessTable, monkeypatch: pytest.MonkeyPatch) -> None:
        table.add(7)
        own = os.geteuid()
        monkeypatch.setattr(processes.os, "geteuid", lambda: own + 1)
        assert processes.running() == {}

    def test_where_there_is_no_proc_nothing_is_known(
        self, table: ProcessTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(processes, "PROC", str(table.folder / "nothing"))
        assert (processes.running(), processes.name(7)) == ({}, "7 ()")

    def test_descendants_are_children_and_their_children(self, table: ProcessTable) -> None:
        for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1), (6, 5)):
            table.add(pid, parent)
        listed = processes.running()
        assert processes.descendants(listed, [2]) == {3, 4}
        assert processes.descendants(listed, [2, 3]) == {4}
        assert processes.descendants(listed, [4]) == set()
        assert processes.descendants(listed, [5, 2]) == {3, 4, 6}

    def test_what_stems_from_a_leader_is_in_its_group_or_its_session_or_descends_from_those(
        self, table: ProcessTable
    ) -> None:
        table.add(10, 1, 10, 10)
        table.add(11, 1, 10, 99)
        table.add(12, 1, 98, 10)
        table.add(13, 12, 97, 97)
        table.add(14, 1, 96, 96)
        listed = processes.running()
        assert processes.stemming_from(listed, 10) == {10, 11, 12, 13}
        del listed[10]
        assert processes.stemming_from(listed, 10) == {11, 12, 13}, "it has ended itself"

    def test_a_process_is_named_by_the_beginning_of_its_command(self, table: ProcessTable) -> None:
        table.add(7, command=b"python3\0train.py\0--rate\0")
        table.add(8, command=b"x" * 61 + b"\0")
        table.add(9, command=b"\xff")
        assert processes.name(7) == "7 (python3 train.py --rate)"
        assert processes.name(8) == f"8 ({'x' * 60})"
        assert processes.name(9) == "9 (\ufffd)"

    def test_who_has_a_file_open_is_found(self, table: ProcessTable) -> None:
        table.add(7, files=("/a", "/b"))
        table.add(8, files=("/c",))
        assert processes.with_open_file([7, 8, 9], {"/b", "/d"}) == {7}
        assert processes.with_open_file([7, 8, 9], {"/b", "/c"}) == {7, 8}

    def test_who_holds_a_chip_is_found_with_the_device(
        self, table: ProcessTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("accel0", "accel1", "null"):
            (tmp_path / name).touch()
        monkeypatch.setattr(processes, "CHIPS", (str(tmp_path / "accel*"), str(tmp_path / "vfio/*")))
        table.add(7, files=(str(tmp_path / "null"), str(tmp_path / "accel1")))
        table.add(8, files=(str(tmp_path / "null"),))
        assert processes.holders([7, 8]) == {7: str(tmp_path / "accel1")}
        monkeypatch.setattr(processes, "CHIPS", (str(tmp_path / "vfio/*"),))
        assert processes.holders([7, 8]) == {}

    @pytest.mark.parametrize("device", ["/dev/accel0", "/dev/accel3", "/dev/vfio/0", "/dev/vfio/12"])
    def test_the_chips_of_every_version_are_known(
        self, table: ProcessTable, monkeypatch: pytest.MonkeyPatch, device: str
    ) -> None:
        """Up to v4 each chip is an accel, later ones are groups of VFIO."""
        present = [device, "/dev/null", "/dev/vfio/vfio", "/dev/vfio-pci", "/devices/accel0"]
        there = SimpleNamespace(glob=lambda pattern: fnmatch.filter(present, pattern))
        monkeypatch.setattr(processes, "glob", there)
        table.add(7, files=("/dev/null", device))
        table.add(8, files=tuple(present[1:]))
        assert processes.holders([7, 8]) == {7: device}


CHILD = "import os,sys,time; open(sys.argv[1],'w').write(str(os.getpid())); time.sleep(600)"
DEAF = f"import signal; signal.signal(15, signal.SIG_IGN); {CHILD}"
START = f"""
import os, pathlib, subprocess, sys, time
CHILD, DEAF, PATH = {CHILD!r}, {DEAF!r}, '../child'
def started():
    while not (os.path.exists(PATH) and open(PATH).read()):
        time.sleep(0.01)
"""
WAYS = {
    "a child": "subprocess.Popen([sys.executable, '-c', CHILD, PATH])",
    "a deaf child": "subprocess.Popen([sys.executable, '-c', DEAF, PATH])",
    "nohup": "subprocess.Popen(['nohup', sys.executable, '-c', CHILD, PATH])",
    "setsid": "subprocess.Popen(['setsid', sys.executable, '-c', CHILD, PATH])",
    "a double fork": """
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            os.execv(sys.executable, [sys.executable, '-c', CHILD, PATH])
    """,
    "a double fork without its variables": """
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            os.execve(sys.executable, [sys.executable, '-c', CHILD, PATH], {})
    """,
    "a worker of multiprocessing": """
        import multiprocessing
        multiprocessing.get_context('fork').Process(target=exec, args=(
            "import os, time; open('../child', 'w').write(str(os.getpid())); time.sleep(600)", {})).start()
        started()
        os._exit(0)
    """,
}


def ended(pid: int) -> bool:
    return pid not in processes.running()


@pytest.mark.parametrize("way", WAYS)
def test_it_ends_with_the_script(host: Host, way: str) -> None:
    """The last word comes after it, so that the chips are free for who waits for that."""
    host.start(f"{START}\n{textwrap.dedent(WAYS[way])}\nstarted()\nprint('bye')\n")
    assert host.finished().exit_code == 0
    child = int((host.folder / "child").read_text())
    assert ended(child)
    assert f"[tpuctl] ending what the script left behind: {child} (" in host.supervisor_log()


def test_a_script_without_children_pays_for_one_look(host: Host) -> None:
    host.start("print('bye')")
    assert host.finished().exit_code == 0
    assert "left behind" not in host.supervisor_log()


def test_a_process_of_somebody_else_stays(host: Host) -> None:
    """The same user's: another run's, a shell's."""
    with subprocess.Popen(
        ["sleep", "600"], env={**os.environ, "TPUCTL_REPORT_DIR": "/elsewhere/reports"}
    ) as other:
        host.start(f"{START}\n{WAYS['setsid']}\nstarted()")
        assert host.finished().exit_code == 0
        assert other.poll() is None
        other.kill()


def test_the_script_of_a_run_whose_guard_and_supervisor_were_killed_is_ended_by_the_next(
    host: Host, wait_for_end
) -> None:
    supervisor = host.start(
        f"{START}\n{WAYS['setsid']}\nstarted()\nprint('step 1', flush=True)\ntime.sleep(600)"
    )
    host.wait_for_output(b"step 1")
    script = running_pid(host)
    kill_with_guard(supervisor)
    wait_for_end(supervisor)
    child = int((host.folder / "child").read_text())
    assert not ended(script)
    assert not ended(child)
    assert is_held_in(str(host.folder), SCRIPT_LOCK_FILE), "nobody may delete the code that it runs"
    assert not is_held_in(str(host.folder), LOCK_FILE)
    later = Host(host.environment, host.folder.parent.parent / "r2" / "1", host.bucket)
    later.start(
        f"import os\nfor pid in ({script}, {child}):\n  assert not os.path.exists(f'/proc/{{pid}}/cwd')",
        run="r2", folder="runs/r2/attempts/1/workers/0/",
    )  # fmt: skip
    poll(
        lambda: True if "left behind" in later.supervisor_log() else None,
        awaiting="the end of the earlier script", timeout=60, backoff=Backoff(0.05, 0.1),
    )  # fmt: skip
    wait_for_end(script)
    wait_for_end(child)
    assert "ending what an earlier run left behind: " in later.supervisor_log()
    assert not is_held_in(str(host.folder), SCRIPT_LOCK_FILE)


def test_what_outlived_a_run_that_has_finished_is_ended_by_the_next(host: Host) -> None:
    """It may hold the chips; it has left the script's session, and cleared its variables."""
    host.folder.mkdir(parents=True)
    (host.folder / LOCK_FILE).touch()
    (host.folder / LAST_FILE).write_text('{"state": "finished"}')
    lock = hold(str(host.folder / SCRIPT_LOCK_FILE))
    with subprocess.Popen(["/bin/sleep", "600"], env={}, pass_fds=[lock], start_new_session=True) as left:
        os.close(lock)
        later = Host(host.environment, host.folder.parent.parent / "r2" / "1", host.bucket)
        later.start("print('ran')", run="r2", folder="runs/r2/attempts/1/workers/0/")
        assert left.wait(120) == -signal.SIGTERM
    later.wait_for_output(b"ran")
    assert f"ending what an earlier run left behind: {left.pid} (" in later.supervisor_log()


def test_a_run_that_goes_on_is_left_alone_by_the_next(host: Host) -> None:
    host.start("import time\nprint('step 1', flush=True)\ntime.sleep(600)")
    host.wait_for_output(b"step 1")
    script = running_pid(host)
    later = Host(host.environment, host.folder.parent.parent / "r2" / "1", host.bucket)
    later.prepare("print('ran')", run="r2", folder="runs/r2/attempts/1/workers/0/")
    assert '"cause": "busy"' in later.launch().stdout
    assert not ended(script)
    os.kill(script, signal.SIGTERM)
    assert host.finished().exit_code == 143


def running_pid(host: Host) -> int:
    return poll(
        lambda: host.status().pid or None, awaiting="the script's pid", timeout=60, backoff=Backoff(0.02, 0.1)
    )


def test_who_holds_a_chip_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = tmp_path / "accel0"
    chip.touch()
    monkeypatch.setattr(processes, "CHIPS", (str(tmp_path / "accel*"),))
    with chip.open() as _:
        assert processes.holders(processes.running()) == {os.getpid(): str(chip)}
    assert processes.holders(processes.running()) == {}


def test_processes_are_found_by_parents_sessions_and_variables() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "TPUCTL_OF_A_TEST": str(os.getpid())}, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        variable = f"TPUCTL_OF_A_TEST={os.getpid()}"
        poll(  # a process that just becomes another program has no variables for a moment
            lambda: len(processes.with_variable(processes.running(), [variable])) == 2 or None,
            awaiting="both", timeout=60, backoff=Backoff(0.02, 0.1),
        )  # fmt: skip
        table = processes.running()
        marked = processes.with_variable(table, [variable])
        assert marked == processes.stemming_from(table, process.pid)
        assert marked <= processes.descendants(table, [os.getpid()])
        assert marked - {process.pid} == processes.descendants(table, [process.pid])
        for pid in marked:
            os.kill(pid, signal.SIGKILL)
    assert processes.name(1 << 30) == f"{1 << 30} ()"


class Table:
    """Stands in for /proc: processes that end by a signal, each after so many, or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: dict[int, int] = {}
        """Process -> signals that it still survives."""
        self.signals: list[tuple[int, int]] = []
        self.held: dict[int, str] = {}
        self.roots: set[int] = set()
        self.leaders: set[int] = set()

        def descendants(table: object, roots: set[int]) -> set[int]:
            self.roots |= roots
            return {*self.left} - roots

        def stemming_from(table: object, leader: int) -> set[int]:
            self.leaders.add(leader)
            return {leader} & self.left.keys()

        found = SimpleNamespace(
            running=dict, descendants=descendants, with_variable=lambda table, marks: set(),
            stemming_from=stemming_from,
            with_open_file=lambda table, paths: {*self.left}, holders=lambda table: self.held,
            name=lambda pid: f"{pid} (sh)",
        )  # fmt: skip
        for name, function in vars(found).items():
            monkeypatch.setattr(processes, name, function)
        known = {name: getattr(os, name) for name in ("getpid", "path")}
        monkeypatch.setattr(processes, "os", SimpleNamespace(**known, kill=self.kill))
        looks = SimpleNamespace(wait_until=self.wait, KILL_TIMEOUT=10.0, LEFTOVER_GRACE=5.0)
        monkeypatch.setattr(processes, "timing", looks)
        self.waits: list[float] = []

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))
        if pid not in self.left:
            raise ProcessLookupError
        self.left[pid] -= 1
        if not self.left[pid]:
            del self.left[pid]

    def wait(self, is_over: Callable[[], bool], seconds: float, interval: float) -> bool:
        self.waits.append(seconds)
        return any(is_over() for _ in range(3))


class TestEnd:
    """Each process gets SIGTERM once, and SIGKILL after the grace."""

    @pytest.fixture
    def table(self, monkeypatch: pytest.MonkeyPatch) -> Table:
        return Table(monkeypatch)

    def test_where_nothing_is_left_nothing_is_said_or_waited_for(
        self, table: Table, capsys: pytest.CaptureFixture[str]
    ) -> None:
        processes.end("/run/1", 0, [], 15.0)
        assert (table.waits, capsys.readouterr()) == ([], ("", ""))

    def test_what_ends_by_its_first_signal_gets_no_other(
        self, table: Table, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table.left = {7: 1, 8: 1}
        processes.end("/run/1", 0, [], 15.0)
        assert sorted(table.signals) == [(7, signal.SIGTERM), (8, signal.SIGTERM)]
        assert table.waits == [15.0]
        said = "".join(capsys.readouterr())
        assert said == "[tpuctl] ending what the script left behind: 7 (sh), 8 (sh)\n"

    def test_what_stays_is_killed(self, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
        table.left = {7: 2}
        processes.end_earlier(["/run/1"])
        assert table.signals == [(7, signal.SIGTERM), (7, signal.SIGKILL)]
        assert table.waits == [5.0, 10.0]
        assert "ending what an earlier run left behind: 7 (sh)\n" in "".join(capsys.readouterr())

    @pytest.mark.parametrize(("count", "more"), [(10, ""), (11, " and 1 more"), (13, " and 3 more")])
    def test_ten_are_named_and_others_counted(
        self, table: Table, capsys: pytest.CaptureFixture[str], count: int, more: str
    ) -> None:
        table.left = dict.fromkeys(range(100, 100 + count), 99)
        processes.end("/run/1", 0, [], 15.0)
        names = ", ".join(f"{pid} (sh)" for pid in range(100, 110))
        assert "".join(capsys.readouterr()).splitlines() == [
            f"[tpuctl] ending what the script left behind: {names}{more}",
            f"[tpuctl] these do not end: {names}",
        ]

    def test_this_process_and_the_spared_stay(self, table: Table) -> None:
        table.left = {os.getpid(): 1, 7: 1, 8: 1}
        processes.end("/run/1", 0, [7, 0], 15.0)
        assert table.signals == [(8, signal.SIGTERM)]
        assert table.roots == {os.getpid(), 7}, "there is no process 0"
        assert table.leaders == set()
        processes.end("/run/1", 5, [], 15.0)
        assert table.leaders == {5}

    def test_who_else_holds_a_chip_is_told(self, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
        table.held = {9: "/dev/accel0"}
        processes.end("/run/1", 0, [], 15.0)
        said = "".join(capsys.readouterr())
        assert said == "[tpuctl] process 9 (sh) holds /dev/accel0, and is not of this run\n"
