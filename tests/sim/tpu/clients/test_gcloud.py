"""Stock gcloud against the REST API: a client that shares nothing with the official Python ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sim.tpu.api import Api

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH"),
]

ZONE = "europe-west4-a"


class Gcloud:
    """Runs `gcloud compute tpus ...` against one address, away from the user's configuration."""

    def __init__(self, address: str, config: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")},
            "CLOUDSDK_CONFIG": str(config),
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_CORE_PROJECT": "rehearsal",
            "CLOUDSDK_COMPUTE_ZONE": ZONE,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{address}/",
        }

    def __call__(self, *words: str, fails: bool = False, release: str = "") -> str:
        command = ["gcloud", *([release] if release else []), "compute", "tpus", *words]
        process = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        assert (process.returncode != 0) == fails, process.stderr
        return process.stderr if fails else process.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--format=json"))


@pytest.fixture
def gcloud(api: Api, tmp_path: Path) -> Gcloud:
    return Gcloud(api.rest_address, tmp_path / "gcloud")


def test_gcloud_creates_lists_describes_updates_and_deletes_a_node(gcloud: Gcloud, api: Api) -> None:
    gcloud(
        *("tpu-vm", "create", "one", "--accelerator-type=v3-32", "--version=tpu-vm-tf-2.17.0-pod-pjrt"),
        *("--spot", "--metadata=a=1", "--labels=team=vision"),
    )
    (node,) = api.world.nodes.all()
    assert (node.state, node.preemptible, node.external_ips) == ("READY", True, True)

    (listed,) = gcloud.json("tpu-vm", "list", "--zone=-")
    described = gcloud.json("tpu-vm", "describe", "one")
    assert described == listed
    assert described["name"] == f"projects/rehearsal/locations/{ZONE}/nodes/one"
    assert described["state"] == "READY"
    assert described["metadata"]["a"] == "1"
    assert len(described["networkEndpoints"]) == 4
    assert "v3-32" in gcloud("tpu-vm", "list")

    gcloud("tpu-vm", "update", "one", "--add-tags=x", "--update-labels=stage=two")
    (node,) = api.world.nodes.all()
    assert node.spec["labels"] == {"team": "vision", "stage": "two"}

    gcloud("tpu-vm", "delete", "one", "--quiet")
    assert api.world.idle()


def test_gcloud_lists_the_types_of_a_zone_and_shows_why_a_create_failed(gcloud: Gcloud) -> None:
    types = gcloud("accelerator-types", "list", "--format=value(type)").split()
    assert {"v3-8", "v3-32"} <= set(types)
    text = gcloud(
        *("tpu-vm", "create", "one", "--accelerator-type=v3-9", "--version=tpu-ubuntu2204-base"), fails=True
    )
    assert "the accelerator v3-9 was not found in zone europe-west4-a" in text


QUEUED = ("--accelerator-type=v3-8", "--runtime-version=tpu-ubuntu2204-base")


def wait_for(api: Api, identifier: str, state: str) -> None:
    name = f"projects/rehearsal/locations/{ZONE}/queuedResources/{identifier}"
    api.until(lambda: api.world.queued_resources.get(name).state == state)


def test_gcloud_queues_lists_describes_and_deletes_with_force(gcloud: Gcloud, api: Api) -> None:
    gcloud("queued-resources", "create", "q", "--node-count=2", "--spot", *QUEUED)
    wait_for(api, "q", "ACTIVE")
    (listed,) = gcloud.json("queued-resources", "list")
    described = gcloud.json("queued-resources", "describe", "q")
    assert described == listed
    assert described["state"] == {"state": "ACTIVE", "activeData": {}}
    assert described["tpu"]["nodeSpec"][0]["multisliceParams"] == {"nodeCount": 2}
    gcloud("queued-resources", "delete", "q", "--force", "--quiet")
    assert api.world.idle()


def test_gcloud_lists_tensorflow_and_runtime_versions(gcloud: Gcloud) -> None:
    assert "2.17.0" in gcloud("versions", "list").split()
    described = gcloud.json("versions", "describe", "2.17.0")
    assert described == {
        "name": f"projects/rehearsal/locations/{ZONE}/tensorflowVersions/2.17.0",
        "version": "2.17.0",
    }
    assert "tpu-ubuntu2204-base" in gcloud("tpu-vm", "versions", "list").split()


def test_gcloud_stops_starts_and_attaches_a_disk(gcloud: Gcloud, api: Api) -> None:
    gcloud("tpu-vm", "create", "one", "--accelerator-type=v3-8", "--version=tpu-ubuntu2204-base")
    gcloud("tpu-vm", "stop", "one")
    assert api.world.nodes.all()[0].state == "STOPPED"
    gcloud("tpu-vm", "start", "one")
    disk = f"--disk=projects/rehearsal/zones/{ZONE}/disks/d"
    gcloud("tpu-vm", "attach-disk", "one", disk, "--mode=read-only", release="alpha")
    assert api.world.nodes.all()[0].spec["dataDisks"][0]["mode"] == "READ_ONLY"
    gcloud("tpu-vm", "detach-disk", "one", disk, release="alpha")
    assert not api.world.nodes.all()[0].spec["dataDisks"]
    assert "cloud-tpu.iam" in gcloud("tpu-vm", "service-identity", "create")


def test_gcloud_alpha_uses_what_only_v2alpha1_has(gcloud: Gcloud, api: Api) -> None:
    words = ("queued-resources", "create", "q", "--node-id=one", "--best-effort", *QUEUED)
    gcloud(*words, release="alpha")
    wait_for(api, "q", "ACTIVE")
    assert api.world.nodes.all()[0].preemptible
    gcloud("tpu-vm", "simulate-maintenance-event", "one", "--workers=0", release="alpha")
    gcloud("tpu-vm", "perform-maintenance", "one", release="alpha")
    assert api.hosts.calls == [("start", "one"), ("stop", "one"), ("start", "one")]
    gcloud("reservations", "list", release="alpha")
    gcloud("queued-resources", "reset", "q", "--quiet")
    wait_for(api, "q", "ACTIVE")
    text = gcloud("queued-resources", "delete", "q", "--quiet", fails=True)
    assert "FAILED_PRECONDITION" in text


def test_gcloud_is_refused_as_by_google(gcloud: Gcloud, api: Api) -> None:
    """Labels that no resource can have; a stop of several hosts and of a node of a queued resource."""
    create = ("tpu-vm", "create", "one", "--accelerator-type=v3-32", "--version=tpu-ubuntu2204-base")
    refused = gcloud(*create, "--labels=team=1.9-x", fails=True)
    assert """value "1.9-x" contains invalid character '.' at index 1 for key "team\"""" in refused
    assert api.world.idle()
    gcloud(*create, "--labels=team=vision")
    assert "only available with single TPU nodes" in gcloud("tpu-vm", "stop", "one", fails=True)
    queue = ("queued-resources", "create", "q", "--node-id=two", "--accelerator-type=v3-8")
    gcloud(*queue, "--runtime-version=tpu-ubuntu2204-base")
    api.until(lambda: [queued.state for queued in api.world.queued_resources.all()] == ["ACTIVE"])
    for verb in ("stop", "start"):
        assert "a node of a queued resource" in gcloud("tpu-vm", verb, "two", fails=True)
