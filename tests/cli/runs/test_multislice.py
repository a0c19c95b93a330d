"""A run that spans the slices of one request: one start, one end, one record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING
from tpuctl.polling import Backoff, poll

Command = Callable[..., CommandResult]
ZONE = "us-central2-b"
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
TELL = HEADER + (
    "import json, os\n"
    "names = [name for name in os.environ if name.startswith(('MEGASCALE', 'TPUCTL_SLICE', 'TPUCTL_WORKER'))]\n"
    "print(json.dumps({name: os.environ[name] for name in names}))\n"
)
STAY = HEADER + "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def slices(simulator: RunningSimulator, tpuctl: Command) -> str:
    """The name of two READY slices of two hosts each."""
    created = tpuctl("up", "v4-16", "--slices", "2", "--name", "ms", "--zone", ZONE, "--yes")
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
