"""Stock gcloud against the REST front: a client that shares nothing with the official Python ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tpu_api import Api

pytestmark = pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")

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

    def __call__(self, *words: str, fails: bool = False) -> str:
        command = ["gcloud", "compute", "tpus", *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

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
    (node,) = api.world.nodes()
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
    (node,) = api.world.nodes()
    assert node.spec["labels"] == {"team": "vision", "stage": "two"}

    gcloud("tpu-vm", "delete", "one", "--quiet")
    assert api.world.idle()


def test_gcloud_shows_what_a_zone_offers_and_why_a_create_failed(gcloud: Gcloud) -> None:
    types = gcloud("accelerator-types", "list", "--format=value(type)").split()
    assert {"v3-8", "v3-32"} <= set(types)
    text = gcloud(
        *("tpu-vm", "create", "one", "--accelerator-type=v3-9", "--version=tpu-ubuntu2204-base"), fails=True
    )
    assert "the accelerator v3-9 was not found in zone europe-west4-a" in text
