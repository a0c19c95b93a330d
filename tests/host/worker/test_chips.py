"""Chips that another process holds: it is named in the run's log, before the script fails for them."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.host.worker.host import Host
from tpuctl.host.worker import control
from tpuctl.host.worker.job import processes


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A file that stands for the device of a chip."""
    path = tmp_path / "accel0"
    path.touch()
    return path


def test_pid_command_and_user_of_who_holds_a_chip_are_named(
    chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "DEVICES", (str(chip),))
    monkeypatch.setattr(processes, "CHIPS", (str(chip.parent / "accel*"),))
    log = tmp_path / "log"
    control.write_holders(str(log))
    assert not log.exists()
    with chip.open():
        control.write_holders(str(log))
    line = log.read_text()
    assert line.startswith(f"[tpuctl] {chip} is held by process {os.getpid()} (")
    assert line.endswith(f") of {getpass.getuser()}\n")


def test_ten_of_many_that_hold_a_chip_are_named(
    chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    monkeypatch.setattr(control, "DEVICES", (str(tmp_path / "none"), str(chip)))
    holders = dict.fromkeys(range(own, own + 11), str(chip))
    monkeypatch.setattr(processes, "holders", lambda pids: holders)
    monkeypatch.setattr(processes, "name", lambda pid: f"{pid} (caf\udce9)")
    log = tmp_path / "log"
    log.write_text("before\n")
    control.write_holders(str(log))
    first, *lines = log.read_text().splitlines()
    assert first == "before"
    assert [line.split()[6] for line in lines] == [str(pid) for pid in range(own, own + 10)]
    assert lines[0] == f"[tpuctl] {chip} is held by process {own} (caf?) of {getpass.getuser()}"


@pytest.mark.parametrize("device", ["/dev/accel0", "/dev/vfio"])
def test_a_host_without_chips_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    present, searches = set[str](), list[str]()
    path = SimpleNamespace(**vars(os.path) | {"exists": present.__contains__})
    monkeypatch.setattr(control, "os", SimpleNamespace(**vars(os) | {"path": path}))
    monkeypatch.setattr(processes, "holders", lambda pids: searches.append(device) or {})
    control.write_holders(str(tmp_path / "log"))
    assert not searches
    present.add(device)
    control.write_holders(str(tmp_path / "log"))
    assert searches == [device]


def test_the_user_of_a_process_that_has_ended_is_somebody(tmp_path: Path) -> None:
    assert control._user(str(tmp_path / "none")) == "somebody"


def test_a_user_without_a_name_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert control._user(str(tmp_path)) == f"user {os.getuid()}"


def test_a_script_starts_after_its_log_has_named_them(host: Host, chip: Path) -> None:
    imports = "from tpuctl.host.worker import control\nfrom tpuctl.host.worker.job import processes"
    constants = f"{imports}\ncontrol.DEVICES = processes.CHIPS = ({str(chip)!r},)"
    with chip.open(), host.supervise("print('started')", constants) as process:
        assert process.wait(60) == 0
    first, *more = host.log().decode().splitlines()
    assert f"{chip} is held by process {os.getpid()} (" in first
    assert more == ["started"]
