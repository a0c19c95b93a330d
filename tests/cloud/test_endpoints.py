"""Tests where commands connect, what they import for it, and the error without credentials.

Google's clients, as this program builds them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import Cloud, Endpoints, connect, simulator_folder
from tpuctl.cloud.google_clients import blocked
from tpuctl.config import load
from tpuctl.errors import ConfigError, HostError, UsageError
from tpuctl.nodes import Node, NodeId, NodeState

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
        is_default_account_editor=True,
        python=platform.python_version(),
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
        assert google.ssh_address(node_at((True,)), 0) == ("10.0.0.0", 22)

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

    @pytest.mark.parametrize("named", [None, "another-project"])
    def test_requests_of_a_user_count_against_one_project(
        self, google: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
    ) -> None:
        """All clients take these credentials; Google refuses some users without a quota project."""
        user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
        quota = {"quota_project_id": named} if named else {}
        (tmp_path / "adc.json").write_text(json.dumps(user | quota))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
        headers: dict[str, str] = {}
        google.credentials.apply(headers, token="t")  # type: ignore[no-untyped-call]
        assert headers["x-goog-user-project"] == (named or "my-project")

    def test_ssh_needs_no_credentials(self, google: Cloud, home: Path) -> None:
        assert google.ssh.key.is_relative_to(home.parent)


def test_a_client_needs_its_setting(home: Path) -> None:
    cloud = connect(load({"target": "gcp", "project": "my-project"}))
    with pytest.raises(ConfigError, match="No bucket is configured"):
        _ = cloud.bucket


def node_at(external: tuple[bool, ...]) -> Node:
    identity = NodeId("cloud-tpu", "p", "europe-west4-a", "n1", "7")
    addresses = tuple(f"10.0.0.{number}" for number, _ in enumerate(external)) or ("10.0.0.0",)
    return Node(
        identity, NodeState.READY, "READY", "v3-8", "base", "2026-01-01T00:00:00Z", addresses=addresses,
        external=external,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "external", "worker", "expected"),
    [
        (None, (True, False), 0, False),
        (None, (True, False), 1, True),
        (None, (), 0, False),
        ("yes", (True,), 0, True),
        ("no", (False,), 0, False),
    ],
)
def test_a_worker_without_an_external_address_is_reached_through_iap(
    home: Path, setting: str | None, external: tuple[bool, ...], worker: int, expected: bool
) -> None:
    flags = {"iap": setting} if setting else {}
    cloud = Cloud(load({"target": "gcp", "project": "p", **flags}), Endpoints("gcp"))
    node = node_at(external)
    assert cloud.uses_iap(node, worker) is expected
    address = None if expected else (node.addresses[worker], 22)
    assert cloud.ssh_address(node, worker) == address


def test_no_worker_is_reached_by_an_address_that_may_be_another_ones(home: Path) -> None:
    """An empty address is this machine; where one is missing in the list, the others are of other workers."""
    cloud = Cloud(load({"target": "gcp", "project": "p", "iap": "no"}), Endpoints("gcp"))
    for addresses in ((), ("",), ("10.0.0.1", "")):
        with pytest.raises(
            HostError, match=r"^Worker 0 of 'n1' cannot be reached: the provider lists "
        ) as refused:
            cloud.ssh_address(replace(node_at(()), addresses=addresses), 0)
        assert refused.value.hint == "Wait for all: tpuctl wait n1"


def test_on_the_simulator_an_address_is_a_port_of_this_machine(home: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text('{"10.0.0.0": ["127.0.0.1", 2222]}')
    endpoints = Endpoints("sim", hosts_file=str(tmp_path / "hosts.json"))
    cloud = Cloud(load({"iap": "no"}), endpoints)
    assert cloud.ssh_address(node_at((True, True)), 0) == ("127.0.0.1", 2222)
    with pytest.raises(HostError, match=r"^No host answers at 10\.0\.0\.1\.$"):
        cloud.ssh_address(node_at((True, True)), 1)


def test_nothing_is_preempted_but_on_the_simulator(home: Path) -> None:
    cloud = Cloud(load({"target": "gcp", "project": "p"}), Endpoints("gcp"))
    identity = node_at((True,)).id
    for strike in (cloud.preempt, cloud.reboot):
        with pytest.raises(UsageError, match=r"^Google has no request that preempts a TPU\.$"):
            strike(identity, 0)
    Cloud(load({}), Endpoints("sim")).require_simulator()


def test_datasets_are_in_the_bucket_of_runs_unless_another_is_named(cloud: Cloud, home: Path) -> None:
    assert cloud.data_bucket is cloud.bucket
    other = Cloud(load({"data_bucket": "other-bucket"}), cloud.endpoints)
    assert (other.data_bucket.name, other.bucket.name) == ("other-bucket", "sim-project-tpuctl")
    same = Cloud(load({"data_bucket": "sim-project-tpuctl"}), cloud.endpoints)
    assert same.data_bucket is same.bucket
    assert cloud.source_objects("b") is cloud.source_objects("b")
    for made in (other, same):
        made.close()


@pytest.mark.parametrize("missing", ["billing", "quotas", "compute"])
def test_a_simulator_of_another_version_is_named(home: Path, missing: str) -> None:
    cloud = Cloud(load({}), Endpoints("sim", storage="http://127.0.0.1:9"))
    reads = {
        "billing": lambda: cloud.read_rates("v3"),
        "quotas": cloud.read_quotas,
        "compute": cloud.iap_firewall_rule,
    }
    with pytest.raises(ConfigError, match=r"another version of tpuctl started it\.$") as refused:
        reads[missing]()
    assert refused.value.hint == "Stop it, and the next command starts its own: tpuctl sim stop"


HANDSHAKE = """
import sys
from tpuctl.cloud.google_clients import local_tpu_client
client = local_tpu_client(sys.argv[1])
import grpc
with grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()) as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=60)
    except grpc.RpcError as error:
        print(error.code().name)
client.transport.close()
"""
"""TLS to a server that speaks none: gRPC logs an error of its own."""
CLIENTS = """
import sys
from tpuctl.cloud import google_clients
google_clients.local_tpu_client("127.0.0.1:1").transport.close()
google_clients.storage_client("p", google_clients.anonymous_credentials(), "http://127.0.0.1:1")
import tpuctl.cloud.ssh, tpuctl.cloud.storage
unused = {"fabric", "invoke", "aiohttp", "opentelemetry", "chardet", "charset_normalizer"}
print(sorted(unused & set(sys.modules)), file=sys.stdout)
"""


@pytest.mark.parametrize(("verbosity", "is_silent"), [(None, True), ("INFO", False)])
def test_grpc_logs_only_for_users_who_ask_for_it(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch, verbosity: str | None, is_silent: bool
) -> None:
    if verbosity:
        monkeypatch.setenv("GRPC_VERBOSITY", verbosity)
    else:
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    command = [sys.executable, "-c", HANDSHAKE, simulator.simulator.endpoints["tpu_grpc"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "UNAVAILABLE\n"
    assert (done.stderr == "") is is_silent, done.stderr


def test_an_import_inside_the_block_fails_and_later_ones_do_not() -> None:
    sys.modules.pop("this_is_no_module", None)
    with blocked("this_is_no_module", "json"):
        assert sys.modules["this_is_no_module"] is None
        assert sys.modules["json"] is not None, "it was imported before"
    assert "this_is_no_module" not in sys.modules


def test_it_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(ImportError), blocked("colorsys"):
        import colorsys
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)


def test_the_clients_of_submit_import_no_half_that_they_never_use() -> None:
    """In a process of its own: other tests import these."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENTS], capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")
