"""The variables of a simulated shell, whole: what Google's clients on this machine read."""

from __future__ import annotations

import configparser
import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from tests.event_loops.thread import LoopThread
from tests.running_simulator import RunningSimulator
from tests.sim.guards import guard_of
from tpuctl.sim.client_environment import ClientEnvironment
from tpuctl.sim.token_server import service_account

PROXY, STORAGE = "http://127.0.0.1:1234", "http://127.0.0.1:5678"
INSIDE = "127.0.0.0/8,127.0.0.1,localhost,metadata.google.internal,169.254.169.254"


class Shell:
    """The environment with its servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sockets: dict[str, socket.socket] = {}
        self._thread = LoopThread()
        self._environment = ClientEnvironment(folder, "acme", guard_of(folder.parent))
        self.metadata = self._thread.start(self._environment.open(self._listen))
        authority: Any = SimpleNamespace(ca_file=Path("/ca/all.pem"), own_file=Path("/ca/own.pem"))
        self.variables = self._environment.environment(PROXY, STORAGE, authority, folder / "hosts")
        self.public_key = self._environment.public_key

    def close(self) -> None:
        self._thread.finish(self._environment.close())

    def _listen(self, name: str) -> socket.socket:
        self.sockets[name] = socket.create_server(("127.0.0.1", 0))
        return self.sockets[name]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path / "clients")
    yield opened
    opened.close()


def test_the_variables_of_a_shell(shell: Shell) -> None:
    token = (shell.folder / "access_token").read_text()
    assert shell.variables == {
        "https_proxy": PROXY,
        "HTTPS_PROXY": PROXY,
        "no_proxy": INSIDE,
        "NO_PROXY": INSIDE,
        "SSL_CERT_FILE": "/ca/all.pem",
        "REQUESTS_CA_BUNDLE": "/ca/all.pem",
        "CURL_CA_BUNDLE": "/ca/all.pem",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "/ca/all.pem",
        "TENSORSTORE_CA_BUNDLE": "/ca/all.pem",
        "HTTPLIB2_CA_CERTS": "/ca/own.pem",
        "GCE_METADATA_HOST": shell.metadata,
        "GCE_METADATA_IP": shell.metadata,
        "GOOGLE_CLOUD_PROJECT": "acme",
        "GOOGLE_APPLICATION_CREDENTIALS": str(shell.folder / "credentials.json"),
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": token,
        "STORAGE_EMULATOR_HOST": STORAGE,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": STORAGE,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "CLOUDSDK_CONFIG": str(shell.folder / "gcloud"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(shell.folder / "access_token"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "false",
        "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": "/ca/all.pem",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_PROJECT": "acme",
        "CLOUDSDK_COMPUTE_ZONE": "europe-west4-a",
        "BOTO_CONFIG": str(shell.folder / "boto"),
        "TENSORSTORE_GCS_HTTP_URL": STORAGE,
        "TPUCTL_SIM_PROGRAMS": str(shell.folder / "bin"),
    }


def test_gsutil_has_a_configuration_of_its_own(shell: Shell) -> None:
    boto = configparser.ConfigParser()
    boto.read(shell.variables["BOTO_CONFIG"])
    host, port = shell.sockets["tokens"].getsockname()
    assert {section: dict(boto[section]) for section in boto.sections()} == {
        "Boto": {"proxy": "127.0.0.1", "proxy_port": "1234", "ca_certificates_file": "/ca/all.pem"},
        "Credentials": {"gs_service_key_file": str(shell.folder / "credentials.json")},
        "OAuth2": {"provider_token_uri": f"http://{host}:{port}/token"},
        "GSUtil": {
            "state_dir": f"{shell.folder}/gsutil",
            "default_project_id": "acme",
            "software_update_check_period": "0",
        },
    }


def test_its_metadata_server_is_that_of_a_machine_outside_the_slices(shell: Shell) -> None:
    assert shell.metadata == ":".join(map(str, shell.sockets["metadata"].getsockname()))
    with requests.Session() as http:
        http.trust_env = False
        address = f"http://{shell.metadata}/computeMetadata/v1"
        answer = http.get(f"{address}/project/project-id", headers={"Metadata-Flavor": "Google"}, timeout=60)
    assert answer.text == "acme"


def test_it_knows_the_key_of_its_own_account_alone(shell: Shell) -> None:
    assert shell.public_key(service_account("acme")) is not None
    assert shell.public_key(service_account("other")) is None


URL = r"http://127\.0\.0\.1:(\d+)"
ADDRESS = r"127\.0\.0\.1:(\d+)"
SERVERS = {
    "storage": URL, "compute_rest": URL, "billing_rest": URL, "quota_rest": URL, "iap_relay": URL,
    "proxy": URL, "tpu_rest": URL, "tpu_grpc": ADDRESS, "metadata": ADDRESS,
}  # fmt: skip


def test_a_file_says_where_every_service_of_a_simulator_is(simulator: RunningSimulator) -> None:
    path = simulator.folder / "endpoints.json"
    endpoints = json.loads(path.read_text())
    assert (endpoints, stat.S_IMODE(path.stat().st_mode)) == (simulator.simulator.endpoints, 0o600)
    ports = [re.fullmatch(pattern, endpoints.pop(name)) for name, pattern in SERVERS.items()]
    assert len({match and match[1] for match in ports} - {None}) == len(SERVERS)
    assert re.fullmatch(r"[0-9a-f]{16}", endpoints.pop("instance"))
    for name in ("ca_file", "hosts_file", "ssh_config"):
        assert Path(endpoints.pop(name)).is_relative_to(simulator.folder)
    assert endpoints.pop("environment")["GOOGLE_CLOUD_PROJECT"] == "sim-project"
    assert endpoints == {
        "schema": 1,
        "pid": os.getpid(),
        "project": "sim-project",
        "bucket": "sim-project-tpuctl",
        "egress": "pass",
        "external_ips": True,
        "default_account": "editor",
        "firewall": "open",
        "iam": "",
        "python": "machine",
    }
    bucket = simulator.gcs.store.buckets.get("sim-project-tpuctl")
    assert (bucket.project, bucket.location) == ("sim-project", "EUROPE-WEST4")
