"""Processes are found by a variable, also at the moment at which they start a program."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.sim.hosts.programs.starting_processes import WITHOUT_ENVIRONMENT
from tpuctl.host.worker.job import processes


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
