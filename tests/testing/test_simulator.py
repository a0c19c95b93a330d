"""The simulator as a context manager: what it offers, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl import simulator_folder
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

NODE = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
PARENT = "projects/sim-project/locations/europe-west4-a"
SCENARIO = '[[fault]]\nkind = "stockout"\nzone = "europe-west4-a"\n'

LEFT = """
import gc, os, tempfile, threading
from urllib.request import urlopen
from tpuctl.sim import simulator
from tpuctl.testing import Simulator
from tpuctl.polling import Backoff, poll
def alone():
    gc.collect()  # a server that is collected ends gRPC's thread, which nobody can join
    return threading.active_count() == 1 or None
def left():
    poll(alone, awaiting="the threads to end", timeout=60, backoff=Backoff(0.01))
    clouds = [it for it in gc.get_objects() if isinstance(it, simulator.Simulator)]
    return len(os.listdir("/proc/self/fd")), sorted(os.listdir(tempfile.gettempdir())), clouds
def use():
    with Simulator() as sim:
        sim.faults.add("stockout")
        urlopen(f"{sim.endpoints.storage}/storage/v1/b?project=sim-project").read()
        urlopen(f"{sim.endpoints.tpu_rest}/v2/projects/sim-project/locations/europe-west4-a/nodes").read()
use()  # the first one imports, and opens what stays open
before = left()
for _ in range(3):
    use()
assert left() == before, (before, left())
assert before[2] == [], before
"""


def create(sim: Simulator, name: str, zone: str = "europe-west4-a") -> None:
    """Create a node by REST."""
    import requests

    url = f"{sim.endpoints.tpu_rest}/v2/projects/sim-project/locations/{zone}/nodes"
    requests.post(url, params={"nodeId": name}, json=NODE, timeout=60).raise_for_status()


def test_a_node_is_seen_from_creation_to_its_end(tpu_simulator: Simulator) -> None:
    create(tpu_simulator, "one")
    ready = tpu_simulator.world.wait_for("one", "READY")
    assert tpu_simulator.world.node(ready.name) == ready
    tpu_simulator.world.preempt("one")
    assert tpu_simulator.world.node("one").state == "PREEMPTED"
    with pytest.raises(StateError, match="PREEMPTED"):
        tpu_simulator.world.preempt("one")
    with pytest.raises(DeadlineError, match="the node 'one' to be READY") as late:
        tpu_simulator.world.wait_for("one", "READY", timeout=0.05)
    assert late.value.hint == "It is PREEMPTED."
    with pytest.raises(NotFoundError, match="no node 'on'") as unknown:
        tpu_simulator.world.node("on")
    assert unknown.value.hint == "Did you mean one?"
    with pytest.raises(NotFoundError, match="no queued resource 'q'"):
        tpu_simulator.world.queued_resource("q")
    assert tpu_simulator.world.queued_resources() == []


def test_the_end_of_a_node_can_be_waited_for(tpu_simulator: Simulator) -> None:
    tpu_simulator.faults.add("stockout", count=1)
    create(tpu_simulator, "one")
    tpu_simulator.world.wait_until_gone("one")
    hit = tpu_simulator.wait_for_event(kind="fault", what="stockout")
    assert hit.resource == f"{PARENT}/nodes/one"
    with pytest.raises(DeadlineError, match="an event with kind=fault what=quota"):
        tpu_simulator.wait_for_event(kind="fault", what="quota", timeout=0.05)


@pytest.mark.parametrize("as_file", [False, True])
def test_a_scenario_is_in_force_from_the_start(tmp_path: Path, as_file: bool) -> None:
    (tmp_path / "bad-day.toml").write_text(SCENARIO)
    with Simulator(scenario=tmp_path / "bad-day.toml" if as_file else SCENARIO) as sim:
        assert [fault.kind for fault in sim.faults.all()] == ["stockout"]


def test_a_wrong_scenario_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = set(threading.enumerate())
    with pytest.raises(UsageError), Simulator(scenario="[[fault]]\nkind = 'stokout'\n"):
        pass
    assert list(tmp_path.iterdir()) == []
    poll(
        lambda: set(threading.enumerate()) <= threads or None,
        awaiting="threads to end",
        timeout=60,
        backoff=Backoff(0.01),
    )


def test_a_folder_keeps_what_there_was(tmp_path: Path) -> None:
    with Simulator(tmp_path / "kept") as first:
        create(first, "one")
        first.world.wait_for("one", "READY")
        with pytest.raises(StateError, match="already serves"), Simulator(tmp_path / "kept"):
            pass
    with Simulator(tmp_path / "kept") as second:
        assert second.world.node("one").state == "READY"


def test_two_run_side_by_side(tpu_simulator: Simulator, shared_tpu_simulator: Simulator) -> None:
    create(tpu_simulator, "only-here")
    assert tpu_simulator.world.node("only-here").name == f"{PARENT}/nodes/only-here"
    assert shared_tpu_simulator.world.nodes() == []


def test_a_clock_that_stands_still_moves_by_hand() -> None:
    with Simulator(speed="real", still=True) as sim:
        sim.faults.add("stockout", zone="europe-west4-b", after=3600, duration=60)
        create(sim, "slow")
        before = sim.clock.now()
        assert sim.clock.now() == before
        sim.clock.advance(64)
        assert sim.world.node("slow").state == "CREATING"
        sim.clock.advance(1)
        sim.world.wait_for("slow", "READY")
        assert sim.events.find(what="READY")[0].time == before + 65
        (fault,) = sim.faults.all()
        assert not fault.in_force(sim.clock.now())
        sim.clock.advance(3550)
        assert fault.in_force(sim.clock.now())
        with pytest.raises(UsageError, match="cannot go back"):
            sim.clock.advance(-1)


def test_outside_of_its_block_it_says_so(tpu_simulator: Simulator) -> None:
    with pytest.raises(StateError, match="not running"):
        print(Simulator().endpoints)
    with pytest.raises(StateError, match="runs already"), tpu_simulator:
        pass


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_folder, "PACKAGES", ("aiohttp", "no_such_server"))
    with pytest.raises(ConfigError, match=r"not installed: no_such_server\."), Simulator():
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "error", "-c", LEFT], env=environment, check=True, timeout=120)


@pytest.mark.slow  # mypy starts with an empty cache
def test_its_types_are_there_for_others(tmp_path: Path) -> None:
    import tpuctl

    assert (Path(tpuctl.__file__).parent / "py.typed").exists()
    (tmp_path / "used.py").write_text(
        "from tpuctl.testing import Simulator\n"
        "with Simulator() as sim:\n"
        "    reveal_type(sim.endpoints.storage)\n"
        "    reveal_type(sim.world.node('a').state)\n"
        "    sim.faults.add(5)\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "used.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert len(re.findall(r'Revealed type is "(?:builtins\.)?str"', result.stdout)) == 2, result.stdout
    assert "incompatible type" in result.stdout


def test_its_environment_points_tpuctl_to_it(
    tpuctl: Callable[..., CommandResult], tpu_simulator_environment: Simulator
) -> None:
    listed = tpuctl("up", "v3-8", "--name", "n1", "--yes", "--json")
    assert listed.code == 0, listed.err
    assert tpu_simulator_environment.world.node("n1").state == "READY"


def test_in_a_folder_of_another_name_tpuctl_does_not_look_for_it(tmp_path: Path) -> None:
    with Simulator(tmp_path / "cloud") as sim:
        assert "TPUCTL_STATE" not in sim.environment
    with Simulator(tmp_path / "state" / "sim") as sim:
        assert sim.environment["TPUCTL_STATE"] == str(tmp_path / "state")
