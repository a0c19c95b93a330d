"""Commands reach 4 hosts and 64, none where some are missing, and through IAP those without addresses."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cli.main import run
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.errors import ConfigError, HostError, UsageError

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


UP = ("up", "v4-16", "--framework", "jax", "--zone", "us-central2-b", "--name", "pair", "--yes")
JAX_JOB = '# /// script\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nprint(1)\n'


def list_all_but(simulator: RunningSimulator, *workers: int) -> None:
    """Have the service list `pair` without the endpoints of some workers."""
    state = simulator.world.nodes._state

    async def save() -> None:
        (node,) = (node for node in state.nodes.all() if node.name.endswith("/pair"))
        state.save_node(replace(node, unlisted=workers))

    simulator.call(save())


@contextmanager
def without(simulator: RunningSimulator, *workers: int) -> Iterator[None]:
    list_all_but(simulator, *workers)
    try:
        yield
    finally:
        list_all_but(simulator)


def test_no_command_reaches_a_part_of_the_hosts(
    remote: RunningSimulator, command: Call, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JAX_JOB)
    job = str(tmp_path / "job.py")
    commands = (
        ("exec", "pair", "--", "hostname"),
        ("exec", "pair@0", "--", "hostname"),
        ("cp", job, "pair:"),
        ("cp", "pair:", str(tmp_path / "back")),
        ("ssh", "pair", "--", "hostname"),
        ("forward", "pair", ":6006"),
        ("drill", "pair", "--yes"),
        ("submit", job, "--tpu", "pair", "--name", "partial"),
    )
    for workers, number in (((1,), "1"), ((0, 1), "none")):
        with without(remote, *workers):
            for words in commands:
                result = command(*words)
                told = f"Node 'pair' is READY, but the provider lists {number} of its 2 hosts."
                assert (result.code, told in result.err) == (4, True), (words, result)
                assert "tpuctl wait pair" in result.err, words
                assert result.out == "", words
            assert f"the provider lists {number} of its 2 hosts" in command("ls").out
    assert "partial" not in command("runs").out
    assert command("exec", "pair", "--", "true").code == 0


def test_a_node_that_lists_too_few_hosts_can_be_deleted(remote: RunningSimulator, command: Call) -> None:
    with without(remote, 0, 1):
        assert command("down", "pair", "--dry-run").code == 0


def test_up_and_wait_wait_for_the_rest(
    remote: RunningSimulator, starting: Callable[..., subprocess.Popen[str]]
) -> None:
    for words in (UP, ("wait", "pair")):
        with without(remote, 1):
            started = starting(*words)
            assert started.stderr
            for line in started.stderr:
                if "waiting for the hosts of pair: the provider lists 1 of its 2 hosts" in line:
                    break
            list_all_but(remote)
            _, err = started.communicate(timeout=120)
        assert (started.returncode, "waiting for SSH on 2 hosts" in err) == (0, True), err


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


@pytest.mark.daily
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
