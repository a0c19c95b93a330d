"""Stock gcloud logs in to simulated hosts, copies files, and changes the metadata of their project.

gcloud connects to port 22, and a configuration in $HOME/.ssh does not help: OpenSSH asks the password file
where the home is. So `--ssh-flag=-FFILE` and `--scp-flag=-FFILE` name the simulator's own ssh_config, which
has the real port of every host.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim.compute.site import Site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH"),
]


class Gcloud:
    """Runs `gcloud compute ...` with a home of its own, against a simulator."""

    def __init__(self, site: Site, home: Path) -> None:
        endpoints = site.endpoints
        self._ssh_config = endpoints["ssh_config"]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")},
            "HOME": str(home),
            "CLOUDSDK_CONFIG": str(home / "gcloud"),
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_CORE_PROJECT": "sim-project",
            "CLOUDSDK_COMPUTE_ZONE": "europe-west4-a",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{endpoints['tpu_rest']}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{endpoints['compute_rest']}/compute/v1/",
        }

    def __call__(self, *words: str, status: int = 0) -> str:
        process = subprocess.run(
            ["gcloud", "compute", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == status, process.stderr
        return process.stdout

    def ssh(self, *words: str, status: int = 0) -> str:
        return self("tpus", "tpu-vm", "ssh", *words, f"--ssh-flag=-F{self._ssh_config}", status=status)

    def scp(self, *words: str) -> str:
        return self("tpus", "tpu-vm", "scp", *words, f"--scp-flag=-F{self._ssh_config}")


@pytest.fixture
def gcloud(site: Site, home: Path) -> Gcloud:
    return Gcloud(site, home)


@pytest.mark.contract("ssh.command", "ssh.scp", client="gcloud")
def test_gcloud_logs_in_to_all_workers_and_to_one_and_copies_files(
    site: Site, gcloud: Gcloud, tmp_path: Path
) -> None:
    node = site.create("one", "v3-32")
    names = [host.hostname for host in site.hosts("one")]
    output = gcloud.ssh("ada@one", "--worker=all", "--command=echo $HOSTNAME")
    assert sorted(line for line in output.splitlines() if line in names) == names
    assert (
        gcloud.ssh("ada@one", "--worker=2", "--command=echo $HOSTNAME; exit 7", status=7).strip() == names[2]
    )

    (tmp_path / "train.py").write_text("print('hi')\n")
    gcloud.scp(str(tmp_path / "train.py"), "ada@one:", "--worker=all")
    for endpoint in node.network_endpoints:
        assert site.run(endpoint.ip_address, "cat train.py") == "print('hi')\n"
    gcloud.scp("ada@one:train.py", str(tmp_path / "back.py"), "--worker=3")
    assert (tmp_path / "back.py").read_text() == "print('hi')\n"


@pytest.mark.contract("ssh.public key", client="gcloud")
def test_keys_that_gcloud_gives_to_the_project_open_its_hosts(site: Site, gcloud: Gcloud) -> None:
    node = site.create("one", metadata={})
    site.refused(node)
    gcloud("project-info", "add-metadata", f"--metadata=colour=blue,ssh-keys={site.user.key_line}")
    described = json.loads(gcloud("project-info", "describe", "--format=json"))
    items = {item["key"]: item["value"] for item in described["commonInstanceMetadata"]["items"]}
    assert items == {"colour": "blue", "ssh-keys": site.user.key_line}
    assert site.run(node.network_endpoints[0].ip_address, "echo in") == "in\n"
    gcloud("project-info", "remove-metadata", "--keys=ssh-keys")
    site.refused(node)
