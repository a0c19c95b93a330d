"""The effects of each kind of fault on a host: in which order they begin and end, and what a kill leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuctl.sim.hosts import faults
from tpuctl.sim.hosts.faults import HostFaults

EFFECTS: dict[str, tuple[list[str], list[str]]] = {
    # kind: what happens at its begin and at its end
    "host-hang": (["silence", "freeze"], ["unsilence", "thaw"]),
    "host-death": (["silence", "kill"], ["unsilence and cut", "boot"]),
    "network-loss": (["silence"], ["unsilence and cut"]),
    "ssh-refused": (["refuse ssh"], ["accept ssh"]),
    "wrong-host-key": (["show another key"], ["show its own key"]),
    "disk-full": (["fill"], ["free"]),
}


class RecordedHost:
    """A host without servers and programs, that records what it is asked for."""

    mark = "77/0"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []

    async def silence(self) -> None:
        self.calls.append("silence")

    async def unsilence(self, *, cut: bool) -> None:
        self.calls.append("unsilence and cut" if cut else "unsilence")

    async def refuse_ssh(self) -> None:
        self.calls.append("refuse ssh")

    async def accept_ssh(self) -> None:
        self.calls.append("accept ssh")

    async def boot(self) -> None:
        self.calls.append("boot")

    def show_key(self, *, own: bool) -> None:
        self.calls.append("show its own key" if own else "show another key")

    def leaders(self) -> set[int]:
        return {7}

    def of_programs(self, call: str) -> Callable[..., object]:
        """Return what records a call about the programs of the host, or about its disk."""

        async def record(first: object, *others: object) -> None:
            assert first in (self.mark, self.folder) or first == self.mark.__eq__
            self.calls.append(call)

        return record


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedHost:
    host = RecordedHost(tmp_path)
    # what they do to programs has tests of its own
    for name in ("freeze", "thaw"):
        monkeypatch.setattr(faults, name, host.of_programs(name))
    monkeypatch.setattr(faults, "end_processes", host.of_programs("kill"))
    for name in ("fill", "free"):
        monkeypatch.setattr(faults.processes, name, host.of_programs(name))
    return host


def after(host: RecordedHost, *steps: frozenset[str]) -> HostFaults:
    """Have these kinds in force, one set after the other."""

    async def run() -> HostFaults:
        host_faults = HostFaults(host)
        for kinds in steps:
            await host_faults.set_kinds(kinds)
        return host_faults

    return asyncio.run(run())


def state(host: RecordedHost) -> list[str] | None:
    path = host.folder / "host_faults.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("kind", EFFECTS)
def test_a_fault_begins_and_ends(host: RecordedHost, kind: str) -> None:
    begin, end = EFFECTS[kind]
    after(host, frozenset({kind}))
    assert sorted(host.calls) == sorted(begin)
    assert host.calls[0] == begin[0]
    host.calls.clear()
    after(host, frozenset({kind}), frozenset())
    assert host.calls[: len(begin)][0] == begin[0]
    assert sorted(host.calls[len(begin) :]) == sorted(end)
    if "boot" in end:
        assert host.calls[-1] == "boot", "a host that boots has its network"


def test_the_same_faults_again_change_nothing(host: RecordedHost) -> None:
    after(host, frozenset({"ssh-refused"}), frozenset({"ssh-refused"}))
    assert host.calls == ["refuse ssh"]
    assert state(host) == ["refusing"]


def test_an_effect_lasts_while_one_of_its_faults_does(host: RecordedHost) -> None:
    after(host, frozenset({"host-hang", "network-loss"}), frozenset({"network-loss"}))
    assert host.calls == ["silence", "freeze", "thaw"]
    assert state(host) == ["cut", "offline", "silent"]


@pytest.mark.parametrize(
    ("kinds", "offline", "full"),
    [
        (set(), False, False),
        ({"network-loss"}, True, False),
        ({"host-death"}, False, False),
        ({"disk-full"}, False, True),
        ({"network-loss", "disk-full"}, True, True),
    ],
)
def test_a_host_knows_its_network_and_its_disk(
    host: RecordedHost, kinds: set[str], offline: bool, full: bool
) -> None:
    host_faults = after(host, frozenset(kinds))
    assert (host_faults.offline, host_faults.full) == (offline, full)


@pytest.mark.parametrize(
    ("left", "calls"),
    [
        (["frozen", "silent"], ["thaw"]),
        (["full"], ["free"]),
        (["refusing", "other key", "killed", "offline"], []),
        (None, []),
    ],
)
def test_what_a_killed_simulator_left_is_undone(
    host: RecordedHost, left: list[str] | None, calls: list[str]
) -> None:
    if left is not None:
        (host.folder / "host_faults.json").write_text(json.dumps(left))
    asyncio.run(HostFaults(host).recover())
    assert host.calls == calls
    assert state(host) is None


@pytest.mark.parametrize(
    ("kind", "calls"), [("disk-full", ["fill", "free"]), ("ssh-refused", ["refuse ssh"])]
)
def test_a_host_that_goes_down_leaves_no_full_disk(host: RecordedHost, kind: str, calls: list[str]) -> None:
    async def run() -> HostFaults:
        host_faults = HostFaults(host)
        await host_faults.set_kinds(frozenset({kind}))
        await host_faults.clean_up()
        return host_faults

    assert not asyncio.run(run()).full
    assert host.calls == calls
    assert state(host) is None


def test_the_state_of_a_host_whose_folder_is_gone_is_not_kept(host: RecordedHost) -> None:
    host.folder /= "gone"
    after(host, frozenset({"ssh-refused"}))
    assert not host.folder.exists()
