"""A member's way from a new base to results, with every permission that the simulated services ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tests.sim.iam.rehearsal import MINIMAL, start
from tpuctl.sim.iam.callers import Caller
from tpuctl.sim.iam.enforcement import Resource

HOST = f"serviceAccount:{MINIMAL.account}"
WHO = {MINIMAL.member: "member", HOST: "host"}
JOB = (
    '# /// script\n# dependencies = []\n# ///\nimport os, pathlib\nprint(os.environ["TPUCTL_DATA_DIR"])\n'
    'print("trained")\n'
)
WALK = (
    "doctor",
    "zones v3-8",
    "price v3-8",
    "data upload words words.csv",
    "data ls",
    "data describe words",
    "up v3-8 --name n1 --ttl 8h --yes",
    "ls",
    "extend n1 1h",
    "exec n1 -- true",
    "submit job.py --tpu n1 --dataset words --name r1",
    "wait r1 --timeout 5m",
    "logs r1",
    "describe r1",
    "runs",
    "pull r1 --to out",
    "why n1",
    "stop n1 --yes",
    "start n1 --yes",
    "drill n1 --yes",
    "down n1 --yes",
    "up v3-8 --name q1 --queued --yes",
    "submit job.py --tpu q1 --dataset words --name r2",
    "cancel r2 --grace 0s --yes",
    "down q1 --yes",
    "data rm words --yes",
)
"""Commands of tpuctl, in the order in which a member types them."""


@contextmanager
def recorded_permissions(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """Yield who was asked for which permission: Google has no list of calls that one could read instead."""
    asked: set[tuple[str, str]] = set()
    may = Caller.may

    def noted(caller: Caller, permission: str, resource: Resource) -> bool:
        asked.add((WHO.get(caller.member, caller.member), permission))
        return may(caller, permission, resource)

    monkeypatch.setattr(Caller, "may", noted)
    yield asked


def walk(
    tpuctl: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> set[tuple[str, str]]:
    """Do all of it on hosts without external addresses; return who needed which permission."""
    for name, value in (("EXTERNAL_IPS", "no"), ("NETWORK", "tpuctl"), ("SUBNETWORK", "tpuctl-europe-west4")):
        monkeypatch.setenv(f"TPUCTL_{name}", value)
    Path("words.csv").write_text("word,length\nant,3\nbear,4\n" * 20)
    Path("job.py").write_text(JOB)
    with recorded_permissions(monkeypatch) as asked:
        simulator = start(monkeypatch, folder, MINIMAL)
        try:
            for line in WALK:
                result = tpuctl(*line.split())
                assert result.code == 0, (line, result.out, result.err)
            assert list(simulator.events.find(service="iap", what="connect")), "hosts are reached through IAP"
        finally:
            simulator.close()
    return asked
