"""A run that spans the slices of one request: one start, one end, one record."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING
from tpuctl.polling import Backoff, poll

pytestmark = pytest.mark.slow
Command = Callable[..., CommandResult]
ZONE = "us-central2-b"
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
TELL = HEADER + (
    "import json, os\n"
    "told = ('MEGASCALE', 'TPUCTL_SLICE', 'TPUCTL_WORKER')\n"
    "print(json.dumps({name: value for name, value in os.environ.items() if name.startswith(told)}))\n"
)
JAX = (
    HEADER.replace("[]", '["jax[tpu]"]')
    + """
import json
import jax
jax.distributed.initialize()
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
slices = [device.slice_index for device in jax.devices()]
devices = mesh_utils.create_hybrid_device_mesh((8,), (len({*slices}),))
mesh, spec = Mesh(devices.reshape(-1, 8), ("slices", "chips")), PartitionSpec(("slices", "chips"))
add = jax.shard_map(
    lambda x: jax.lax.psum(x, mesh.axis_names), mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
)
numbers = jax.make_array_from_callback(
    (len(slices),), NamedSharding(mesh, spec), lambda index: jax.numpy.arange(len(slices))[index]
)
own = sorted({device.slice_index for device in jax.local_devices()})
seen = {"sum": int(jax.jit(add)(numbers)[0]), "slices": slices, "own": own}
print(json.dumps({"TPUCTL_WORKER": jax.process_index(), **seen}))
"""
)
STAY = HEADER + "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def slices(simulator: RunningSimulator, tpuctl: Command) -> str:
    """The name of two READY slices of two hosts each."""
    created = tpuctl(
        "up", "v4-16", "--slices", "2", "--name", "ms", "--framework", "jax", "--zone", ZONE, "--yes"
    )
    assert created.code == 0, created.err
    return "ms"


def submit(tpuctl: Command, script: str, *options: str, name: str = "r1") -> CommandResult:
    Path("job.py").write_text(script)
    submitted = tpuctl("submit", "job.py", "--name", name, *options)
    assert submitted.code == 0, submitted.err
    return submitted


def await_running(cloud: Cloud, name: str = "r1") -> StoredRun:
    run = StoredRun(cloud.bucket, name)

    def all_run() -> bool | None:
        return all(status and status.state == RUNNING for status in run.last_attempt().statuses()) or None

    poll(all_run, awaiting="every script", timeout=120, backoff=Backoff(0.1))
    return run


def told(tpuctl: Command, name: str = "r1") -> list[dict[str, str]]:
    """Return what the script printed on each worker."""
    assert tpuctl("wait", name).code == 0
    lines = tpuctl("logs", name).out.splitlines()
    found = [json.loads(line[line.index("{") :]) for line in lines if "TPUCTL_WORKER" in line]
    return sorted(found, key=lambda variables: int(variables["TPUCTL_WORKER"]))


def test_a_run_on_all_slices_has_their_hosts_one_after_the_other(
    slices: str, tpuctl: Command, cloud: Cloud
) -> None:
    submit(tpuctl, TELL, "--tpu", slices)
    first = cloud.provider.get_node(cloud.provider.node_id(ZONE, "ms-0"))
    common = {
        "MEGASCALE_COORDINATOR_ADDRESS": first.internal[0], "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_PORT": "8081", "TPUCTL_SLICES": "2", "TPUCTL_WORKERS": "4",
    }  # fmt: skip
    assert told(tpuctl) == [
        {**common, "MEGASCALE_SLICE_ID": part, "TPUCTL_SLICE": part, "TPUCTL_WORKER": str(worker)}
        for worker, part in enumerate("0011")
    ]
    tpu = StoredRun(cloud.bucket, "r1").last_attempt().record.tpu
    assert (tpu.name, tpu.hosts, tpu.size, [part.name for part in tpu.slices]) == (
        "ms", 4, "2 x v4-16", ["ms-0", "ms-1"],
    )  # fmt: skip
    assert tpu.id == cloud.provider.get_node(tpu.id).id


def test_one_slice_alone_is_no_multislice(slices: str, tpuctl: Command, cloud: Cloud) -> None:
    """Its metadata names the other slice: JAX would wait for it."""
    submit(tpuctl, TELL, "--tpu", "ms-1")
    own = cloud.provider.get_node(cloud.provider.node_id(ZONE, "ms-1"))
    assert [
        (variables["MEGASCALE_COORDINATOR_ADDRESS"], variables["MEGASCALE_NUM_SLICES"],
         variables["MEGASCALE_SLICE_ID"], variables["TPUCTL_WORKERS"])
        for variables in told(tpuctl)
    ] == [(own.internal[0], "1", "0", "2")] * 2  # fmt: skip


def test_a_run_on_all_slices_is_on_each_of_them(slices: str, tpuctl: Command, cloud: Cloud) -> None:
    submit(tpuctl, STAY)  # without --tpu: all slices are one TPU
    await_running(cloud)
    for place in ("ms", "ms-0", "ms-1"):
        refused = tpuctl("submit", "job.py", "--name", "r2", "--tpu", place)
        assert (refused.code, f"{place} is busy with run 'r1'" in refused.err) == (4, True), refused.err
    queued = tpuctl("submit", "job.py", "--name", "r2", "--tpu", "ms", "--queue")
    assert (queued.code, "no run waits in several" in queued.err) == (2, True), queued.err
    listed = json.loads(tpuctl("ls", "--json").out)
    assert [(row["name"], row["run"]["run"]) for row in listed["nodes"]] == [("ms-0", "r1"), ("ms-1", "r1")]
    assert "2 x v4-16" in tpuctl("describe", "r1").out
    assert "r1" in tpuctl("why", "ms").out
    cancelled = tpuctl("cancel", "r1", "--grace", "0s", "--yes")
    assert cancelled.code == 0, cancelled.err
    statuses = StoredRun(cloud.bucket, "r1").last_attempt().statuses()
    assert [bool(status and status.is_finished) for status in statuses] == [True] * 4
    listed = json.loads(tpuctl("runs", "--json").out)["runs"]
    assert [(row["node"], row["slices"]) for row in listed] == [("ms", 2)]
    costs = json.loads(tpuctl("cost", "--by", "node", "--json").out)
    parts = [entry for entry in costs["entries"] if entry["run"]]
    assert sorted(entry["node"] for entry in parts) == ["ms-0", "ms-1"]
    assert all(entry["uid"] for entry in costs["entries"]), "no second of a slice is counted twice"
    one, both = (
        parts[0]["price_per_hour"]["amount"],
        StoredRun(cloud.bucket, "r1").last_attempt().record.price,
    )
    assert both
    assert Decimal(both.amount) == 2 * Decimal(one)


def test_the_loss_of_one_slice_ends_the_attempt_and_all_are_made_again(
    simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
) -> None:
    machine = ("v4-16", "--slices", "2", "--spot", "--framework", "jax")
    up = tpuctl("up", *machine, "--name", "ms", "--zone", ZONE, "--yes")
    assert up.code == 0, up.err
    submit(tpuctl, STAY, "--tpu", "ms")
    run = await_running(cloud)
    simulator.faults.add("preemption", node="ms-1", grace=0.0)

    def restarted() -> bool | None:
        watched = tpuctl("watch", "r1", "--once")
        assert watched.code == 0, watched.err
        return len(run.attempt_numbers()) == 2 or None

    poll(restarted, awaiting="the next attempt", timeout=120, backoff=Backoff(0.1))
    (verdict,) = run.earlier_verdicts(2)
    assert (verdict.outcome, verdict.attempt) == (runs.PREEMPTED, 1)
    statuses = await_running(cloud).last_attempt().statuses()
    tpu = run.last_attempt().record.tpu
    assert ([part.name for part in tpu.slices], len(statuses)) == (["r1-2-0", "r1-2-1"], 4)
    assert {node.name for node in cloud.provider.list_nodes().nodes} == {"r1-2-0", "r1-2-1"}
    assert tpuctl("cancel", "r1", "--grace", "0s", "--yes").code == 0
    assert cloud.provider.list_nodes().nodes == (), "what was made for the restart is deleted"


def test_the_maintenance_of_one_slice_is_resumed_by_the_hosts_of_all(
    slices: str, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
) -> None:
    submit(tpuctl, STAY, "--tpu", slices, "--restarts", "3")
    run = await_running(cloud)
    simulator.faults.add("maintenance", node="ms-1", notice=0.5)
    poll(lambda: len(run.attempt_numbers()) == 2 or None, awaiting="the next attempt", timeout=120)
    again = await_running(cloud)
    assert again.last_attempt().record.tpu == run.attempt(1).record.tpu
    for part in again.last_attempt().record.tpu.id.parts:
        assert cloud.bucket.stat(NodePaths.of(part).run("r1", 2))
    assert tpuctl("cancel", "r1", "--grace", "0s", "--yes").code == 0


def test_a_key_that_no_slice_knows_is_added_to_all(
    slices: str, tpuctl: Command, cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SSH_KEY", str(tmp_path / "other"))
    submit(tpuctl, TELL, "--tpu", slices)
    assert len(told(tpuctl)) == 4
    lines = [node.metadata["ssh-keys"].splitlines() for node in cloud.provider.list_nodes().nodes]
    assert [len(keys) for keys in lines] == [2, 2]
    hosts = tpuctl("exec", slices, "--worker", "all", "--", "sh", "-c", "echo $TPUCTL_SIM_NODE")
    assert hosts.code == 0, hosts.err
    assert [line.split()[-1] for line in sorted(hosts.out.splitlines())] == ["ms-0"] * 2 + ["ms-1"] * 2


def test_all_hosts_of_all_slices_start_or_none(
    slices: str, simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
) -> None:
    simulator.faults.add("host-death", node="ms-1", worker="1")
    Path("job.py").write_text(TELL)
    failed = tpuctl("submit", "job.py", "--name", "r1", "--tpu", slices)
    assert failed.code == 8, failed.err
    assert "worker 3" in failed.err
    assert "TPUCTL_WORKER" not in tpuctl("logs", "r1").out


def test_up_says_before_it_bills_that_nothing_spans_the_slices(
    simulator: RunningSimulator, tpuctl: Command
) -> None:
    for kind, framework, reason in (
        ("v3-8", "jax", "on v4 and later, and they are v3-8"),
        ("v5litepod-4", "tensorflow", "for JAX and PyTorch only"),
    ):
        declined = tpuctl("up", kind, "--slices", "2", "--framework", framework, "--name", "ms")
        assert declined.code != 0
        assert f"no program of {framework} can span these slices: Google" in declined.err
        assert reason in declined.err


def test_what_no_slices_can_run_together_is_refused(slices: str, tpuctl: Command, cloud: Cloud) -> None:
    Path("job.py").write_text(TELL.replace('"jax"', '"tensorflow"'))
    refused = tpuctl("submit", "job.py", "--tpu", slices)
    assert refused.code == 2
    assert "of tensorflow, cannot span the 2 slices of 'ms': Google supports Multislice" in refused.err
    assert "--tpu ms-0" in refused.err
    assert cloud.bucket.objects("runs/") == []


@pytest.mark.parametrize(("place", "slices_of_worker"), [("ms", [0, 0, 1, 1]), ("ms-1", [0, 0])])
def test_jax_joins_the_slices_of_its_run(
    slices: str, tpuctl: Command, place: str, slices_of_worker: list[int]
) -> None:
    """`jax.distributed.initialize()` without arguments, and one sum over the chips of all hosts."""
    submit(tpuctl, JAX, "--tpu", place)
    of_device = [part for part in slices_of_worker for _ in range(4)]
    assert told(tpuctl) == [
        {"TPUCTL_WORKER": worker, "sum": sum(range(len(of_device))), "slices": of_device, "own": [part]}
        for worker, part in enumerate(slices_of_worker)
    ]


def test_a_whole_run_makes_its_slices_and_deletes_them(
    simulator: RunningSimulator, tpuctl: Command, cloud: Cloud
) -> None:
    Path("job.py").write_text(TELL)
    words = (
        "run",
        "job.py",
        "--name",
        "r1",
        "--up",
        "v4-16",
        "--slices",
        "2",
        "--zone",
        ZONE,
        "--down",
        "--yes",
    )
    rehearsed = tpuctl(*words, "--dry-run")
    assert (rehearsed.code, '"nodeCount": 2' in rehearsed.out) == (0, True), rehearsed.out
    whole = tpuctl(*words)
    assert whole.code == 0, whole.err
    assert [variables["TPUCTL_SLICE"] for variables in told(tpuctl)] == ["0", "0", "1", "1"]
    assert cloud.provider.list_nodes().nodes == ()
    again = tpuctl(*words)
    assert (again.code, cloud.provider.list_nodes().nodes) == (0, ()), again.err
