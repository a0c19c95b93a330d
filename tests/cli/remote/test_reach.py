"""`exec` and `cp` on four hosts and on 64, beside a run, on a node of somebody else, and through IAP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.main import run

Call = Callable[..., CommandResult]
ZONE = "europe-west4-a"
HOSTS = {"quad": ("v3-32", 4), "large": ("v3-512", 64), "inner": ("v3-32", 4)}
"""Name -> type and number of hosts."""
JOB = """# /// script
# dependencies = []
# [tool.tpuctl]
# framework = "jax"
# ///
import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
print("the end of the script")
"""


@pytest.fixture(scope="module")
def site(remote: RunningSimulator) -> RunningSimulator:
    """A simulator with a node of four hosts, and one of four without external addresses."""
    create("quad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPUCTL_EXTERNAL_IPS", "no")
        create("inner")
    return remote


def create(name: str) -> None:
    """Create a node of `HOSTS`."""
    assert run(["up", HOSTS[name][0], "--zone", ZONE, "--name", name, "--framework", "jax", "--yes"]) == 0


def homes(command: Call, node: str) -> list[Path]:
    """Return the home folder of each worker, in their order, as `exec` tells them."""
    result = command("exec", node, "--json", "--", "pwd")
    assert result.code == 0, result.err
    workers = result.json["workers"]
    assert [worker["worker"] for worker in workers] == list(range(len(workers)))
    return [Path(worker["stdout"].strip()) for worker in workers]


def copy_both_ways(command: Call, node: str, count: int, top: Path) -> None:
    """Copy a folder to each of `count` hosts, change it on each, and copy it from each into a folder."""
    (top / "data/deep").mkdir(parents=True)
    (top / "data/deep/bytes").write_bytes(bytes(range(256)) * 40)
    folders = homes(command, node)
    assert len(set(folders)) == count
    up = command("cp", "--json", str(top / "data"), f"{node}:")
    assert up.code == 0, up.err
    assert [worker["files"] for worker in up.json["workers"]] == [1] * count
    assert {(folder / "data/deep/bytes").read_bytes() for folder in folders} == {bytes(range(256)) * 40}
    assert command("exec", node, "--", "pwd > data/home").code == 0
    down = command("cp", f"{node}:data", str(top / "back"))
    assert down.code == 0, down.err
    for worker, folder in enumerate(folders):
        assert (top / f"back/worker-{worker}/data/home").read_text() == f"{folder}\n"
        assert (top / f"back/worker-{worker}/data/deep/bytes").read_bytes() == bytes(range(256)) * 40


def tunnels(simulator: RunningSimulator) -> int:
    """How many tunnels the relay has opened."""
    return len(list(simulator.events.find(service="iap", what="connect")))


def test_every_one_of_four_hosts_is_reached_without_the_relay(
    site: RunningSimulator, command: Call, tmp_path: Path
) -> None:
    before = tunnels(site)
    copy_both_ways(command, "quad", 4, tmp_path)
    assert tunnels(site) == before


@pytest.mark.slow
def test_every_one_of_64_hosts_is_reached(site: RunningSimulator, command: Call, tmp_path: Path) -> None:
    create("large")
    copy_both_ways(command, "large", 64, tmp_path)


def test_the_worst_exit_code_of_four_hosts_names_its_worker(site: RunningSimulator, command: Call) -> None:
    third = homes(command, "quad")[2]
    result = command("exec", "quad", "--json", "--", f'test "$PWD" != {third} || exit 7')
    assert result.code == 7
    assert [worker["exit_code"] for worker in result.json["workers"]] == [0, 0, 7, 0]
    assert result.json["worst_worker"] == 2


def test_hosts_without_external_addresses_are_reached_through_iap(
    site: RunningSimulator, command: Call, tmp_path: Path
) -> None:
    before = tunnels(site)
    copy_both_ways(command, "inner", 4, tmp_path)
    connections = list(site.events.find(service="iap", what="connect"))[before:]
    names = [event.resource.rpartition("-w-")[2] for event in connections]
    assert {name: names.count(name) for name in names} == dict.fromkeys("0123", 4)
    assert command("exec", "inner", "--no-iap", "--", "true").code == 8


def test_a_run_goes_on_beside_exec_and_cp(site: RunningSimulator, command: Call, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    began, end = tmp_path / "began", tmp_path / "end"
    words = ("submit", str(tmp_path / "job.py"), "--name", "busy", "--tpu", "quad")
    submitted = command(*words, "--", str(began), str(end))
    assert submitted.code == 0, submitted.err
    try:
        wait = f"until [ -e {began} ]; do sleep 0.05; done"
        assert command("exec", "quad", "--timeout", "1m", "--", wait).code == 0
        copy_both_ways(command, "quad", 4, tmp_path)
        assert "the end of the script" not in command("logs", "busy").out
    finally:
        end.touch()
    followed = command("logs", "-f", "busy")
    assert (followed.code, "the end of the script" in followed.out) == (0, True), followed.err


def test_a_node_that_somebody_else_made_is_reached_with_the_own_key(
    site: RunningSimulator, command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPUCTL_OWNER", "colleague@example.com")
        patch.setenv("TPUCTL_SSH_KEY", str(tmp_path / "their key"))
        patch.setenv("TPUCTL_SSH_USER", "colleague")
        assert command("up", "v3-8", "--zone", ZONE, "--name", "theirs", "--yes").code == 0
        assert command("exec", "theirs", "--", "echo $USER").out == "colleague\n"
    own = command("down", "--all", "--dry-run", "--json").out
    assert ("quad" in own, "theirs" in own) == (True, False)
    monkeypatch.setenv("TPUCTL_SSH_USER", "grace")
    plan = command("cp", "--dry-run", "--json", __file__, "theirs:")
    assert [request["method"] for request in plan.json["requests"]] == ["PATCH"]
    (tmp_path / "mine").write_text("mine\n")
    up = command("cp", str(tmp_path / "mine"), "theirs:kept")
    assert up.code == 0, up.err
    assert "adding your SSH key to theirs" in up.err
    again = command("exec", "theirs", "--", "echo $USER; cat kept")
    assert (again.out, "adding your SSH key" in again.err) == ("grace\nmine\n", False)
    assert command("cp", "theirs:kept", str(tmp_path / "back")).code == 0
    assert (tmp_path / "back").read_text() == "mine\n"
