"""Tests where commands connect, what they import for it, and the error without credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl.cloud.endpoints import Cloud, Endpoints, connect, simulator_folder
from tpuctl.config import load
from tpuctl.errors import ConfigError

SLOW = (
    "grpc",
    "google.cloud.storage",
    "google.cloud.tpu_v2",
    "fabric",
    "paramiko",
    "requests",
    "asyncssh",
    "aiohttp",
)
PROGRAM = """
import json, sys
from tpuctl.cli.main import run
code = run(sys.argv[1:])
print(json.dumps([code, [name for name in {slow!r} if sys.modules.get(name)]]), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Return the slow packages that a command imports, in a process of its own."""
    code = PROGRAM.format(slow=SLOW)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    status, names = json.loads(result.stderr.splitlines()[-1])
    assert status == 0, result.stderr
    return set(names)


@pytest.mark.parametrize(
    "command", [("--help",), ("config", "show"), ("up", "--help"), ("sim", "status")], ids=" ".join
)
def test_a_command_that_connects_to_nothing_imports_no_client(home: Path, command: tuple[str, ...]) -> None:
    assert imported(*command) == set()


def test_a_list_of_nodes_needs_no_storage_and_no_ssh(simulator) -> None:
    assert imported("ls") & {"google.cloud.storage", "fabric", "paramiko", "asyncssh"} == set()


def test_a_list_of_datasets_needs_no_api_and_no_ssh(simulator) -> None:
    assert imported("data", "ls") & {"google.cloud.tpu_v2", "fabric", "paramiko", "asyncssh"} == set()


def test_clients_are_built_once_and_closed(simulator) -> None:
    cloud = connect(load({}))
    assert cloud.provider is cloud.provider
    assert cloud.bucket is cloud.bucket
    assert cloud.ssh is cloud.ssh
    cloud.close()
    with pytest.raises(ValueError, match="closed channel"):
        cloud.provider.list_nodes()


def test_the_simulator_that_runs_is_the_one_that_is_used(simulator) -> None:
    cloud = connect(load({}))
    published = simulator.simulator.endpoints
    assert simulator_folder() == simulator.folder
    assert cloud.endpoints == Endpoints(
        "sim",
        published["tpu_grpc"],
        published["storage"],
        published["tpu_rest"],
        published["hosts_file"],
        shell_setup='eval "$(tpuctl sim env)"',
        billing=published["billing_rest"],
        quotas=published["quota_rest"],
        compute=published["compute_rest"],
        iap=published["iap_relay"],
        price_source="made up by the simulator",
    )


def test_a_bucket_may_be_written_as_an_address(simulator) -> None:
    cloud = connect(load({"bucket": "gs://sim-project-tpuctl/"}))
    assert cloud.bucket.name == "sim-project-tpuctl"
    cloud.bucket.check()
    cloud.close()


class TestGoogle:
    @pytest.fixture
    def google(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
        """The real target, with nothing of Google's in reach."""
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        return connect(load({"project": "my-project", "bucket": "my-bucket"}))

    def test_addresses_are_googles_own(self, google: Cloud) -> None:
        assert google.endpoints == Endpoints("gcp")
        assert google._endpoint("10.0.0.1") == ("10.0.0.1", 22)

    @pytest.mark.parametrize("client", ["provider", "bucket"])
    def test_without_credentials_it_says_how_to_log_in(self, google: Cloud, client: str) -> None:
        with pytest.raises(ConfigError, match="no Google Cloud credentials") as refused:
            getattr(google, client)
        assert "gcloud auth application-default login" in refused.value.hint
        google.close()

    @pytest.mark.parametrize("data", [None, "", "garbage", "{}", '{"type": "service_account"}'])
    def test_credentials_that_are_none_are_refused(
        self, google: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str | None
    ) -> None:
        path = tmp_path / "credentials.json"
        if data is not None:
            path.write_text(data)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with pytest.raises(ConfigError, match="credentials"):
            _ = google.credentials

    def test_ssh_needs_no_credentials(self, google: Cloud, home: Path) -> None:
        assert google.ssh.key.is_relative_to(home.parent)


def test_a_client_needs_its_setting(home: Path) -> None:
    cloud = connect(load({"target": "gcp", "project": "my-project"}))
    with pytest.raises(ConfigError, match="No bucket is configured"):
        _ = cloud.bucket
