"""`tpuctl cp` that ends in the middle: nothing half is there, and the same command again completes it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.remote.held_copy import hold, holding_program
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.ssh import dialing, process
from tpuctl.copier.receiving import PART

Call = Callable[..., CommandResult]
Start = Callable[..., "subprocess.Popen[str]"]
SIZE = 24_000_000


@pytest.fixture
def homes(remote: RunningSimulator, command: Call) -> list[Path]:
    """The home folders of the workers of `pair`, without a copy of `big`."""
    out = command("exec", "pair", "--", f"rm -rf big {PART}*; pwd").out
    return [Path(line.split(" ", 1)[1]) for line in sorted(out.splitlines())]


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file that is larger than what is on its way at any time."""
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1_000_000) * (SIZE // 1_000_000))
    return path


class Copying:
    """A copy of `big` in one direction, and the places where it arrives.

    One that is interrupted is held in the middle until `release`.
    """

    def __init__(self, direction: str, big: Path, homes: list[Path], target: Path) -> None:
        self.content = big.read_bytes()
        self._released = big.parent / "released"
        self.program = holding_program(self._released)
        if direction == "up":
            self.words, self.folders = ["cp", str(big), "pair:"], homes
        else:
            for home in homes:
                (home / "big").write_bytes(self.content)
            self.words = ["cp", "pair:big", str(target)]
            self.folders = [target / f"worker-{worker}" for worker in (0, 1)]

    def hold(self, patch: pytest.MonkeyPatch) -> None:
        """Hold the copies of this process."""
        hold(self._released, patch)

    def release(self) -> None:
        """Let it go on."""
        self._released.touch()

    def await_middle(self) -> None:
        """Wait until a part of the file is at each place."""
        deadline = time.monotonic() + 120
        while not all(map(part_size, self.folders)):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def is_nowhere(self) -> bool:
        """Whether no place has a file that could be taken for the whole one."""
        return not any((folder / "big").exists() for folder in self.folders)

    def is_complete(self) -> bool:
        """Whether every place has the whole file."""
        return all((folder / "big").read_bytes() == self.content for folder in self.folders)


def part_size(folder: Path) -> int:
    """Return the bytes of what is not complete in a folder."""
    return sum(path.stat().st_size for path in folder.glob(f"{PART}*"))


@pytest.fixture(params=["up", "down"])
def copying(request: pytest.FixtureRequest, big: Path, homes: list[Path], tmp_path: Path) -> Copying:
    """A copy to both workers, or from both."""
    return Copying(request.param, big, homes, tmp_path / "got")


@pytest.fixture
def hang(remote: RunningSimulator) -> Iterator[Callable[[], object]]:
    """Lets both hosts hang, which holds a copy in the middle, until `awake` or the test's end."""
    yield lambda: remote.break_hosts("host-hang", node="pair")
    remote.heal_hosts()


@pytest.fixture
def awake(remote: RunningSimulator, command: Call) -> Callable[[], None]:
    """Ends the faults, and waits until both hosts answer."""

    def wake() -> None:
        remote.heal_hosts()
        with pytest.MonkeyPatch.context() as patch:
            for patience in (0.5, 1, 2, 4, 8, 16, 32):  # a connection from before is never answered
                patch.setattr(dialing, "CONNECT_TIMEOUT", patience)
                if command("exec", "pair", "--", "true").code == 0:
                    return
        pytest.fail("the hosts do not answer")

    return wake


def test_ctrl_c_in_the_middle_leaves_nothing_half_and_the_next_copy_is_whole(
    copying: Copying, starting: Start, command: Call, hang: Callable[[], object], awake: Callable[[], None]
) -> None:
    started = starting(*copying.words, program=copying.program)
    copying.await_middle()
    hang()
    copying.release()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "Interrupted: what is complete stays." in err
    assert "Run the same command again" in err
    assert copying.is_nowhere()
    awake()
    result = command(*copying.words)
    assert result.code == 0, result.err
    assert copying.is_complete()


def test_kill_in_the_middle_leaves_nothing_half_and_the_next_copy_is_whole(
    copying: Copying, starting: Start, command: Call
) -> None:
    started = starting(*copying.words, program=copying.program)
    copying.await_middle()
    started.kill()
    started.wait()
    result = command(*copying.words)  # at once: the program of the earlier copy may still be there
    assert result.code == 0, result.err
    assert copying.is_complete()


def test_a_host_that_hangs_in_the_middle_is_named_and_the_next_copy_is_whole(
    copying: Copying, command: Call, awake: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch, hang: Callable[[], object],
) -> None:  # fmt: skip
    copying.hold(monkeypatch)
    monkeypatch.setattr(process, "PULSE", 0.2)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(command, *copying.words)
        copying.await_middle()
        hang()
        monkeypatch.setattr(process, "SILENCE", 1.0)  # not earlier: a busy machine is not a silent host
        copying.release()
        result = ended.result()
    assert result.code == 8
    assert "it has stopped answering" in result.err
    assert "2 of 2 workers failed: 0, 1." in result.err
    assert "Run the same command again" in result.err
    assert copying.is_nowhere()
    monkeypatch.undo()
    awake()
    result = command(*copying.words)
    assert result.code == 0, result.err
    assert copying.is_complete()


def test_a_connection_that_is_cut_in_the_middle_is_a_lost_host(
    command: Call, remote: RunningSimulator, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("up", "v2-8", "--zone", "us-central1-b", "--name", "gone", "--yes").code == 0
    home = Path(command("exec", "gone", "--", "pwd").out.strip())
    copying = Copying("up", big, [home], big.parent)
    copying.hold(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(command, "cp", str(big), "gone:")
        copying.await_middle()
        remote.call(remote.world.preempt("projects/sim-project/locations/us-central1-b/nodes/gone"))
        copying.release()
        result = ended.result()
    assert result.code == 8
    assert "worker 0 of 'gone': it closed the connection" in result.err
    assert copying.is_nowhere()


@pytest.mark.parametrize("copying", ["down"], indirect=True)
def test_a_full_disk_of_this_machine_leaves_nothing_half(
    copying: Copying, starting: Start, command: Call, tmp_path: Path
) -> None:
    """A limit of the size of files stands for the disk: the kernel refuses to write in the same place."""
    program = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10**7, 10**7));"
        "sys.argv = ['tpuctl', *sys.argv[1:]]; runpy.run_module('tpuctl', run_name='__main__')"
    )
    started = starting(*copying.words, program=program)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 4, err
    assert "this machine: File too large; what was complete by then stays." in err
    assert not [path for path in (tmp_path / "got").rglob("*") if path.is_file()]
    assert command(*copying.words).code == 0
    assert copying.is_complete()
