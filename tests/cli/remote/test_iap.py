"""Tests that commands reach hosts without external addresses through IAP's relay, and who chooses that."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.errors import ConfigError, HostError, UsageError

Tpuctl = Callable[..., CommandResult]
SCRIPT = """
import os, pathlib
print("reads", os.environ["TPUCTL_DATA_DIR"].rsplit("/datasets/")[1].split("/")[0])
print("on worker", os.environ["TPUCTL_WORKER"])
"""


@pytest.fixture
def without_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are made without external addresses."""
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")


@pytest.fixture
def inside(home: Path, tmp_path: Path) -> Iterator[RunningSimulator]:
    """A simulator whose hosts have no external addresses, as `tpuctl sim start --no-external-ips`."""
    running = RunningSimulator(tmp_path / "state" / "sim", external_ips=False)
    yield running
    running.close()


def tunnels(simulator: RunningSimulator) -> int:
    """How many tunnels the relay has opened."""
    return len(list(simulator.events.find(service="iap", what="connect")))


def test_the_whole_job_on_hosts_without_external_addresses(inside: RunningSimulator, tpuctl: Tpuctl) -> None:
    assert tpuctl("up", "v3-32", "--name", "n1", "--framework", "jax", "--yes").code == 0
    assert tunnels(inside) == 4
    Path("words").mkdir()
    Path("words/words.csv").write_text("word,length\nant,3\nbear,4\n" * 20)
    assert tpuctl("data", "upload", "words", "words/words.csv").code == 0
    Path("job.py").write_text(SCRIPT)
    options = ("--tpu", "n1", "--framework", "jax", "--dataset", "words")
    assert tpuctl("submit", "job.py", *options).code == 0
    assert tunnels(inside) > 4
    logs = tpuctl("logs", "-f")
    assert "reads words" in logs.out
    assert tpuctl("pull").code == 0
    assert tpuctl("down", "n1", "--yes").code == 0


def test_a_flag_overrides_what_the_addresses_say(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    assert tunnels(simulator) == 0
    assert tpuctl("wait", "n1", "--iap").code == 0
    assert tunnels(simulator) == 1
    monkeypatch.setenv("TPUCTL_IAP", "true")
    assert tpuctl("wait", "n1", "--no-iap").code == 0
    assert tunnels(simulator) == 1
    assert tpuctl("wait", "n1").code == 0
    assert tunnels(simulator) == 2


def test_the_relay_is_asked_for_an_instance_without_a_second_look_at_the_node(
    simulator: RunningSimulator, cloud: Cloud, without_addresses: None, tpuctl: Tpuctl
) -> None:
    assert tpuctl("up", "v3-32", "--name", "n1", "--framework", "jax", "--yes").code == 0
    node = cloud.provider.get_node(cloud.provider.node_id("europe-west4-a", "n1"))
    assert node.external == (False,) * 4
    keys = cloud.provider.host_keys(node.id)
    before = len(list(simulator.events.find(what="GetGuestAttributes")))
    assert before
    for worker in (0, 3):
        with cloud.ssh.connect(node, worker, keys[worker]) as session:
            assert session.run(["true"]).exit_code == 0
    names = [event.resource for event in simulator.events.find(service="iap", what="connect")]
    assert [name.rpartition("-w-")[2] for name in names[-2:]] == ["0", "3"]
    assert len(list(simulator.events.find(what="GetGuestAttributes"))) == before


def test_connections_that_are_cut_on_the_way_lose_nothing(inside: RunningSimulator, tpuctl: Tpuctl) -> None:
    """In the middle of the handshake, and of 10 MB each way."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    cloud = connect(load({}))
    node = cloud.provider.get_node(cloud.provider.node_id("europe-west4-a", "n1"))
    content = random.Random(1).randbytes(10_000_000)
    keys = cloud.provider.host_keys(node.id)
    # One more of each than is needed: the tunnel of `up` may not have ended yet, and takes one.
    inside.faults.add("iap-cut", bytes=500, count=4)
    inside.faults.add("iap-cut", bytes=3_000_000, count=6)
    with cloud.ssh.connect(node, 0, keys[0]) as session:
        session.put(content, "some bytes")
        copied = session.run(["base64", "-w0", "some bytes"])
    cloud.close()
    assert base64.b64decode(copied.stdout) == content
    assert len(list(inside.events.find(service="iap", what="reconnect"))) > 3


REFUSALS = [
    (4003, 8, "IAP cannot reach its port 22", "35.235.240.0/20"),
    (4033, 3, "you may not use IAP's tunnels to it", "roles/iap.tunnelResourceAccessor"),
    (4047, 8, "IAP finds no instance t1v-n-", "tpuctl ls"),
]


def test_a_refused_tunnel_is_a_sentence_of_submit(inside: RunningSimulator, tpuctl: Tpuctl) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    Path("job.py").write_text("print(1)")
    for code, exit_code, message, hint in REFUSALS:
        inside.faults.add("iap-refused", code=code, count=1)
        result = tpuctl("submit", "job.py", "--tpu", "n1")
        assert result.code == exit_code
        assert f"Error: 'n1': {message}" in result.err
        assert hint in result.err
        inside.faults.clear()


def test_a_host_that_has_not_said_its_name_yet(
    cloud: Cloud, without_addresses: None, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    node = cloud.provider.get_node(cloud.provider.node_id("europe-west4-a", "n1"))
    monkeypatch.setattr(type(cloud.provider), "hostname", lambda *_: None)  # no fault keeps it unpublished
    with pytest.raises(HostError, match=r"^'n1' has not published its hostname") as raised:
        cloud.ssh.open_stream(node, 0)
    assert "--no-iap" in raised.value.hint


def test_a_wrong_value_is_refused_with_its_origin(tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUCTL_IAP", "auto")
    with pytest.raises(ConfigError, match=r"'auto' \(TPUCTL_IAP\) cannot be the iap"):
        load({}).get("iap")
    with pytest.raises(UsageError):
        load({"iap": "auto"}).get("iap")
