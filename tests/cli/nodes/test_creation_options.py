"""The options of `up` that say which TPU it creates: what they become, and what is refused unsent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.completion.interface import interface, recorded
from tests.cli.nodes.wire import printed, received
from tests.cli.pseudo_terminal import in_terminal
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import accelerators
from tpuctl.sim.hosts.metadata import server
from tpuctl.sim.world.capacity import availability, capacity

Tpuctl = Callable[..., CommandResult]
ACCOUNT = "tpu@sim-project.iam.gserviceaccount.com"
SENTENCE = "Google's default Compute Engine service account applies, an Editor of older projects."


@pytest.fixture(autouse=True)
def _simulator(simulator: RunningSimulator) -> None:
    """Every command finds the simulator."""


def test_up_and_run_take_what_is_recorded() -> None:
    assert interface("up", "run") == recorded("up", "run") != ""


def node_of(result: CommandResult) -> dict[str, object]:
    """Return the node that a dry run would create."""
    ((_, request),) = printed(result)
    return request["node"] if "node" in request else request["queuedResource"]["tpu"]["nodeSpec"][0]["node"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("v3-8 --boot-disk 200", "no size for the boot disk"),
        ("v3-8 --flex-start", "have no field for flex-start"),
        ("v3-8 --slices 2 --no-queued", "--slices exist only in the queue"),
        ("v3-8 --valid-until 6h --reservation r --no-queued", "--reservation and --valid-until exist only"),
        ("v3-8 --slices 0", "0 is not in the range"),
        ("v3-8 --spot --reserved", "not both"),
        ("v3-8 --label team", "'team' is not KEY=VALUE"),
        ("v3-8 --label =vision", "'=vision' is not KEY=VALUE"),
        ("v3-8 --label Team=vision", "'Team' cannot be the key of a label"),
        ("v3-8 --label a=1 --label a=2", "--label a has two values"),
        ("v3-8 --label managed-by=me", "'managed-by' is reserved"),
        ("v3-8 --label tpuctl-owner=me", "'tpuctl-owner' is reserved"),
        ("v3-8 --metadata tpuctl-owner=me", "'tpuctl-owner' is reserved"),
        ("v3-8 --metadata ssh-keys=x", "'ssh-keys' is reserved"),
        ("v3-8 --metadata a=@missing.txt", "cannot be read from 'missing.txt'"),
        ("v3-8 --metadata a=@binary", "no text in UTF-8"),
        ("v3-8 --startup-script .", "cannot be read from '.'"),
        ("v3-8 --startup-script large", "larger than 1 MiB"),
        ("v3-8 --valid-until 2020-01-01T00:00:00Z", "not in the future"),
        ("v3-8 --valid-until 0s", "not in the future"),
        ("v3-8 --valid-until 2199-01-01T00:00:00", "neither a duration"),
        ("v3-8 --valid-until 2199-01-01", "neither a duration"),
        ("v3-8 --valid-until 9999-12-31T23:59:59-12:00", "neither a duration"),
        ("v3-8 --valid-until 999999999d", "neither a duration"),
        ("v3-8 --valid-until soon", "neither a duration"),
        ("v3-8 --topology 4x4", "4x4 is no topology of v3-8: it has 4 chips"),
        ("v4-8 --topology 4x1", "no topology of v4-8"),
        ("v3 --topology 3x3", "No type of v3 has the topology 3x3"),
        ("v3-8 --topology 2", "'2' is no topology"),
        ("--topology 4x4", "4x4 is the topology of v2-32, v3-32"),
        ("v3", "'v3' is a TPU generation without a size"),
        ("", "There is no TPU type"),
        ("v3-8 --network My_Network", "cannot be the network"),
        ("v3-8 --service-account me", "cannot be the service account"),
        ("v3-8 --tag Tag", "cannot be a network tag"),
        ("v3-8 --scopes everything", "is no OAuth scope"),
        ("v3-32 --framework jax --data-disk d", "4 hosts can share disk 'd'"),
    ],
)
def test_it_is_refused_before_anything_is_sent(
    words: str, reason: str, tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    Path("binary").write_bytes(b"\xff\xfe")
    Path("large").write_bytes(b"x" * ((1 << 20) + 1))
    result = tpuctl("up", *words.split(), "--yes")
    assert result.code == 2, result.err
    assert reason in result.err
    assert received(simulator) == []


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("", "CreateNode"),
        ("--spot", "CreateNode"),
        ("--reserved", "CreateNode"),
        ("--queued", "CreateQueuedResource"),
        ("--slices 2", "CreateQueuedResource"),
        ("--reservation r1", "CreateQueuedResource"),
        ("--valid-until 6h", "CreateQueuedResource"),
        ("--spot --no-queued", "CreateNode"),
    ],
)
def test_the_queue_is_used_where_it_is_needed(words: str, method: str, tpuctl: Tpuctl) -> None:
    ((sent, _),) = printed(tpuctl("up", "v3-8", *words.split(), "--dry-run", "--json"))
    assert sent == method


def test_any_reservation_is_used_in_the_queue(tpuctl: Tpuctl) -> None:
    ((_, request),) = printed(tpuctl("up", "v3-8", "--reserved", "--queued", "--dry-run", "--json"))
    name = "projects/sim-project/locations/europe-west4-a/reservations/-"
    assert request["queuedResource"]["reservationName"] == name


@pytest.mark.parametrize(
    ("words", "accelerator"),
    [
        (("v4", "--topology", "2x2x4", "--zone", "us-central2-b"), {"type": "V4", "topology": "2x2x4"}),
        (("--topology", "16x32", "--zone", "europe-west4-a"), None),
        (("v5e", "--topology", "2x4", "--zone", "us-west4-a"), {"type": "V5LITE_POD", "topology": "2x4"}),
    ],
)
def test_a_topology_says_the_size(
    words: tuple[str, ...], accelerator: dict[str, str] | None, tpuctl: Tpuctl
) -> None:
    result = tpuctl("up", *words, "--framework", "jax", "--dry-run", "--json")
    if accelerator:
        assert node_of(result)["acceleratorConfig"] == accelerator
    else:
        assert result.code == 0, result.err


def test_the_configuration_says_the_type(tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tpuctl.toml").write_text('accelerator = "v3-32"\nframework = "jax"\n')
    assert node_of(tpuctl("up", "--dry-run", "--json"))["acceleratorType"] == "v3-32"
    assert (
        node_of(tpuctl("up", "v2-8", "--dry-run", "--json", "--zone", "us-central1-b"))["acceleratorType"]
        == "v2-8"
    )


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_a_slice_of_no_framework_is_refused_where_nobody_can_be_asked(
    words: tuple[str, ...], tpuctl: Tpuctl
) -> None:
    refused = tpuctl("up", "v3-32", *words)
    assert refused.code == 2
    assert "v3-32 has 4 hosts: TensorFlow needs an image there that JAX and PyTorch cannot use" in refused.err
    assert "--framework jax, pytorch or tensorflow" in refused.err
    assert not tpuctl("ls", "--json").json["nodes"]


def test_a_slice_of_no_framework_is_asked_for_on_a_terminal() -> None:
    shown = in_terminal("up", "v3-32", columns=200, typed="torch\njax\nn\n")
    assert "v3-32 has 4 hosts" in shown
    assert "'torch' is not one of" in shown
    assert "tpu-ubuntu2204-base" in shown
    assert "Declined" in shown


def test_the_plan_says_which_frameworks_the_image_serves(tpuctl: Tpuctl) -> None:
    def served(*words: str) -> str:
        return next(line for line in tpuctl("up", *words).err.splitlines() if line.startswith("serves"))

    every = "TensorFlow, JAX, PyTorch (installed by runs that require it)"
    assert served("v3-8").split(maxsplit=1)[1] == every
    assert served("v3-32", "--framework", "jax").split(maxsplit=1)[1] == every.removeprefix("TensorFlow, ")
    assert served("v3-32", "--framework", "tensorflow").split(maxsplit=1)[1] == "TensorFlow 2.19.0"
    assert served("v3-8", "--framework", "tensorflow").split(maxsplit=1)[1] == (
        "TensorFlow 2.19.0; JAX, PyTorch (installed by runs that require it)"
    )


def test_a_slice_that_exists_needs_no_framework(tpuctl: Tpuctl) -> None:
    words = ("up", "v3-32", "--name", "pod")
    assert tpuctl(*words, "--framework", "jax", "--yes").code == 0
    assert tpuctl(*words).code == 0


def test_metadata_of_values_and_files(tpuctl: Tpuctl) -> None:
    Path("key.txt").write_text("a=b\n@c\n")
    words = ("--metadata", "x=1=2", "--metadata", "file=@key.txt", "--metadata", "at=a@b", "--metadata", "e=")
    metadata = node_of(tpuctl("up", "v3-8", *words, "--dry-run", "--json"))["metadata"]
    assert isinstance(metadata, dict)
    assert {key: metadata[key] for key in ("x", "file", "at", "e")} == {
        "x": "1=2", "file": "a=b\n@c\n", "at": "a@b", "e": "",
    }  # fmt: skip


def test_scopes_without_an_account_are_those_of_the_default_one(tpuctl: Tpuctl) -> None:
    node = node_of(tpuctl("up", "v3-8", "--scopes", "pubsub", "--dry-run", "--json"))
    assert node["serviceAccount"] == {"scope": ["https://www.googleapis.com/auth/pubsub"]}


def test_a_disk_of_no_zone_is_in_that_of_the_node(tpuctl: Tpuctl) -> None:
    node = node_of(tpuctl("up", "v3-8", "--data-disk", "d", "--dry-run", "--json"))
    disk = {"sourceDisk": "projects/sim-project/zones/europe-west4-a/disks/d", "mode": "READ_WRITE"}
    assert node["dataDisks"] == [disk]


def test_the_plan_shows_slices_queue_and_reservation(tpuctl: Tpuctl) -> None:
    words = ("--slices", "2", "--reservation", "r1", "--valid-until", "2199-01-01T00:00:00Z")
    declined = tpuctl("up", "v3-32", "--framework", "jax", *words)
    assert declined.code == 10
    facts = dict(line.split(maxsplit=1) for line in declined.err.splitlines() if " " in line)
    assert facts["type"] == "2 x v3-32 (4 hosts, 16 chips)"
    assert (facts["reservation"], facts["queue"]) == ("r1", "until 2199-01-01T00:00:00Z")
    assert "reservation" not in tpuctl("up", "v3-8").err
    assert "any that fits" in tpuctl("up", "v3-8", "--reserved").err


def test_on_a_tpu_that_exists_an_option_is_said_to_change_nothing(node: str, tpuctl: Tpuctl) -> None:
    words = ("up", "v3-8", "--name", node)
    changed = tpuctl(*words, "--label", "team=vision", "--metadata", "a=b")
    assert changed.code == 0
    assert "'n1' exists: --label team, --metadata a changes nothing on it.\n" in changed.err
    assert "changes nothing" not in tpuctl(*words).err
    assert tpuctl("up", "v3-8", "--name", "n2", "--label", "team=vision", "--yes").code == 0
    assert "changes nothing" not in tpuctl("up", "v3-8", "--name", "n2", "--label", "team=vision").err


def test_an_end_that_it_does_not_have_is_refused(node: str, tpuctl: Tpuctl) -> None:
    refused = tpuctl("up", "v3-8", "--name", node, "--ttl", "8h", "--idle", "30m")
    assert refused.code == 4
    assert "Node 'n1' exists and has no --ttl and has no --idle.\n" in refused.err
    assert tpuctl("up", "v3-8", "--name", "n2", "--ttl", "8h", "--yes").code == 0
    assert tpuctl("up", "v3-8", "--name", "n2", "--ttl", "8h").code == 0
    assert tpuctl("extend", "n2", "2h").code == 0
    assert tpuctl("up", "v3-8", "--name", "n2", "--ttl", "8h").code == 0


def test_every_option_reaches_the_request(tpuctl: Tpuctl) -> None:
    Path("boot.sh").write_text("echo ready\n")
    result = tpuctl(
        "up", "v3-32", "--name", "n1", "--runtime", "tpu-ubuntu2204-base", "--topology", "4x4", "--label",
        "team=vision", "--tag", "tpu,lab", "--network", "lab", "--subnetwork", "sub", "--internal-ips",
        "--service-account", "tpu@p.iam.gserviceaccount.com", "--scopes", "storage-rw", "--data-disk", "d:ro",
        "--startup-script", "boot.sh", "--metadata", "a=b", "--secure-boot", "--slices", "2", "--reservation",
        "r1", "--valid-until", "2199-01-01T01:00:00+01:00", "--dry-run", "--json",
    )  # fmt: skip
    ((method, request),) = printed(result)
    parent = "projects/sim-project/locations/europe-west4-a"
    (spec,) = request["queuedResource"]["tpu"].pop("nodeSpec")
    node = spec.pop("node")
    assert (method, request) == (
        "CreateQueuedResource",
        {
            "parent": parent,
            "queuedResourceId": "n1",
            "queuedResource": {
                "tpu": {},
                "reservationName": f"{parent}/reservations/r1",
                "queueingPolicy": {"validUntilTime": "2199-01-01T00:00:00Z"},
            },
        },
    )
    assert spec == {"parent": parent, "multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "n1"}}
    assert node.pop("labels")["team"] == "vision"
    metadata = node.pop("metadata")
    assert (metadata["a"], metadata["startup-script"]) == ("b", "echo ready\n")
    assert node == {
        "acceleratorConfig": {"type": "V3", "topology": "4x4"},
        "runtimeVersion": "tpu-ubuntu2204-base",
        "networkConfig": {"network": "lab", "subnetwork": "sub"},
        "serviceAccount": {
            "email": "tpu@p.iam.gserviceaccount.com",
            "scope": ["https://www.googleapis.com/auth/devstorage.read_write"],
        },
        "tags": ["tpu", "lab"],
        "dataDisks": [
            {"sourceDisk": "projects/sim-project/zones/europe-west4-a/disks/d", "mode": "READ_ONLY"}
        ],
        "shieldedInstanceConfig": {"enableSecureBoot": True},
    }


def test_spot_and_reserved_reach_a_create_and_a_place_in_the_queue(tpuctl: Tpuctl) -> None:
    node = node_of(tpuctl("up", "v3-8", "--spot", "--dry-run", "--json"))
    assert node["schedulingConfig"] == {"spot": True}
    node = node_of(tpuctl("up", "v3-8", "--reserved", "--dry-run", "--json"))
    assert node["schedulingConfig"] == {"reserved": True}
    ((_, request),) = printed(tpuctl("up", "v3-8", "--spot", "--queued", "--dry-run", "--json"))
    assert request["queuedResource"]["spot"] == {}
    (spec,) = request["queuedResource"]["tpu"]["nodeSpec"]
    assert "schedulingConfig" not in spec["node"], "the queued resource says it"


def test_a_secret_in_metadata_or_script_is_warned_of(tpuctl: Tpuctl) -> None:
    token = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA2cD4fG6hJ8"
    Path("boot.sh").write_text(f"export HF_TOKEN={token}\n")
    words = ("--metadata", f"HF_TOKEN={token}", "--metadata", "mode=fast", "--startup-script", "boot.sh")
    result = tpuctl("up", "v3-8", *words, "--dry-run", "--json")
    assert result.code == 0
    assert "Warning: --metadata HF_TOKEN looks like a secret: every program" in result.err
    assert "Warning: the startup script seems to hold a secret" in result.err
    assert token not in result.err
    Path("boot.sh").write_text("apt-get install -y git && pip install tensorflow\n")
    words = ("--metadata", "mode=fast", "--metadata", "enable-oslogin=TRUE", "--startup-script", "boot.sh")
    assert "Warning" not in tpuctl("up", "v3-8", *words, "--dry-run", "--json").err


def test_without_a_service_account_up_says_which_applies(tpuctl: Tpuctl) -> None:
    created = tpuctl("up", "v3-8", "--yes")
    assert created.code == 0
    assert created.err.count(SENTENCE) == 1
    assert "tpuctl init --service-account EMAIL" in created.err
    assert SENTENCE not in tpuctl("up", "v3-8").err, "the node exists"


def test_a_configured_service_account_is_that_of_the_hosts(
    tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    created = tpuctl("up", "v3-8", "--yes")
    assert created.code == 0
    assert SENTENCE not in created.err
    body = """import os, urllib.request
path = "/computeMetadata/v1/instance/service-accounts/default/email"
address = "http://" + os.environ["GCE_METADATA_HOST"] + path
request = urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})
print(urllib.request.urlopen(request).read().decode())
"""
    Path("job.py").write_text(body)
    assert tpuctl("submit", "job.py").code == 0
    assert tpuctl("logs", "-f").out.strip() == ACCOUNT


class TestTypesOutsideTheCatalogue:
    """What the API lists goes through; the simulator here offers types that the client does not know."""

    @pytest.fixture(autouse=True)
    def _offered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real, like = availability.accelerator_types, accelerators.accelerator("v6e-8")
        more = {name: replace(like, type=name) for name in ("tpu7x-8", "v9-8", "v6e-12")}
        monkeypatch.setattr(availability, "accelerator_types", lambda zone: {**real(zone), **more})
        monkeypatch.setattr(capacity.Demand, "accelerator", property(lambda _: like))
        monkeypatch.setattr(server, "accelerator", lambda _: like)

    def test_one_is_created_with_a_warning_and_used(self, tpuctl: Tpuctl) -> None:
        created = tpuctl("up", "tpu7x-8", "--name", "u7", "--runtime", "v2-alpha-tpuv6e", "--yes")
        assert created.code == 0, created.err
        assert "tpu7x-8 (hosts and chips unknown)" in created.err
        assert "Warning: this version of tpuctl does not know tpu7x-8, which the API lists" in created.err
        assert "price per hour  unknown: this version of tpuctl does not know tpu7x-8" in created.err
        assert tpuctl("exec", "u7", "--", "true").code == 0
        (node,) = tpuctl("ls", "--json").json["nodes"]
        assert (node["accelerator"], node["state"]) == ("tpu7x-8", "READY")
        assert tpuctl("up", "ironwood-8", "--name", "u7", "--yes").code == 0, "the same"
        assert tpuctl("down", "u7", "--yes").code == 0

    def test_the_runtime_is_the_one_of_the_generation_else_it_has_to_be_named(self, tpuctl: Tpuctl) -> None:
        assert node_of(tpuctl("up", "v6e-12", "--dry-run", "--json"))["runtimeVersion"] == "v2-alpha-tpuv6e"
        refused = tpuctl("up", "v9-8", "--dry-run")
        assert refused.code == 2
        assert "Which runtime version v9-8 needs is not known." in refused.err
        assert "tpuctl runtimes --zone europe-west4-a" in refused.err

    def test_a_type_that_the_api_does_not_list_either_names_the_nearest(self, tpuctl: Tpuctl) -> None:
        refused = tpuctl("up", "v3-9", "--dry-run")
        assert refused.code == 2
        assert "There is no accelerator type 'v3-9'." in refused.err
        assert "The nearest are v3-8" in refused.err

    def test_zones_lists_where_it_is(self, tpuctl: Tpuctl) -> None:
        listed = tpuctl("zones", "v9-8", "--zone", "europe-west4-a", "--json").json["zones"]
        assert [(row["zone"], row["offered"], row["price_per_hour"]["amount"]) for row in listed] == [
            ("europe-west4-a", True, None)
        ]
