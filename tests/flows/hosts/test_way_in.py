"""`up` on the network of terraform/: it stops where nobody could log in; each region has a subnetwork.

What `up` says before it asks about a service account that may not use the bucket.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.iam.rehearsal import COMPLETE, MINIMAL, RECORDED, Example, grant, start
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket, Grant
from tpuctl.errors import ConfigError
from tpuctl.flows.hosts.bucket_access import grant_command, warning

Tpuctl = Callable[..., CommandResult]
Rehearse = Callable[..., RunningSimulator]
NETWORKS = {MINIMAL: "tpuctl", COMPLETE: "vision-team"}


def is_iap_rule(resource: dict[str, Any]) -> bool:
    return bool(resource["address"].endswith("google_compute_firewall.ssh_through_iap"))


def is_vpn_rule(resource: dict[str, Any]) -> bool:
    return "ssh_from_ranges" in resource["address"]


@pytest.fixture
def rehearse(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearse]:
    """A function that starts a simulator with an applied example, whose TPUs get no external addresses."""
    running: list[RunningSimulator] = []

    def call(example: Example = MINIMAL, **options: Any) -> RunningSimulator:
        monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
        monkeypatch.setenv("TPUCTL_NETWORK", NETWORKS[example])
        running.append(start(monkeypatch, tmp_path, example, **options))
        return running[0]

    yield call
    for simulator in running:
        simulator.close()


def created(simulator: RunningSimulator) -> list[str]:
    events = simulator.events.find(service="tpu")
    return [event.what for event in events if event.what.startswith("Create")]


@pytest.mark.parametrize(
    ("missing", "message", "hint"),
    [
        (
            is_iap_rule,
            "no firewall rule of tpuctl lets IAP (35.235.240.0/20) reach port 22",
            "gcloud compute",
        ),
        (grant("google_iap_tunnel_iam_member", "tunnelResourceAccessor"), "you may not use IAP", "roles/iap"),
    ],
    ids=["firewall", "role"],
)
@pytest.mark.parametrize("words", [("up", "v3-8"), ("run", "job.py", "--up", "v3-8")])
def test_without_a_way_in_nothing_is_created(
    rehearse: Rehearse, tpuctl: Tpuctl, missing: object, message: str, hint: str, words: tuple[str, ...]
) -> None:
    simulator = rehearse(dropped=missing)
    Path("job.py").write_text("print(1)\n")
    refused = tpuctl(*words, "--yes")
    assert refused.code == 3, refused.err
    assert message in refused.err
    assert "Nothing was created." in refused.err
    assert hint in refused.err
    assert created(simulator) == []


def test_with_the_rule_and_the_role_it_is_created_and_reached_through_iap(
    rehearse: Rehearse, tpuctl: Tpuctl
) -> None:
    simulator = rehearse()
    up = tpuctl("up", "v3-8", "--yes")
    assert up.code == 0, up.err
    assert "was not checked" not in up.err
    assert list(simulator.events.find(service="iap", what="connect"))


def test_who_may_not_read_the_firewall_is_told_what_was_not_checked(
    rehearse: Rehearse, tpuctl: Tpuctl
) -> None:
    rehearse(dropped=grant("google_project_iam_member", "tpuctl_member"))
    up = tpuctl("up", "v3-8", "--yes")
    assert up.code == 0, up.err
    assert "Whether the firewall of tpuctl lets IAP in was not checked: No permission for" in up.err
    assert "compute.firewalls.list" in up.err


def test_inside_of_the_network_nothing_is_checked(rehearse: Rehearse, tpuctl: Tpuctl) -> None:
    simulator = rehearse(dropped=is_iap_rule)
    tpuctl("up", "v3-8", "--no-iap", "--yes", "--detach")
    assert created(simulator) == ["CreateNode"]


def settings_of(example: Example, tpuctl: Tpuctl) -> None:
    """Take the example's outputs, and use them on the simulator."""
    shutil.copy(RECORDED / f"{example.name}.json", "outputs.json")
    assert tpuctl("init", "--from-terraform", "outputs.json").code == 0
    with Path("tpuctl.toml").open("a") as file:
        file.write('target = "sim"\n')


def subnetworks(result: CommandResult) -> list[tuple[str, str]]:
    """Return zone and subnetwork of each create that a dry run shows."""
    return [
        (
            request["url"].partition("/locations/")[2].split("/")[0],
            request["body"]["networkConfig"]["subnetwork"],
        )
        for request in result.json["requests"]
    ]


def test_each_region_has_its_subnetwork_and_a_zone_without_one_is_not_offered(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    settings_of(COMPLETE, tpuctl)
    everywhere = tpuctl("up", "v3-8", "--zone", "any", "--dry-run", "--json")
    zones = dict(subnetworks(everywhere))
    assert zones
    assert {zone.rpartition("-")[0] for zone in zones} == {"us-central1"}
    assert set(zones.values()) == {"vision-team-us-central1"}
    (here,) = subnetworks(tpuctl("up", "v4-8", "--dry-run", "--json"))
    assert here == ("us-central2-b", "vision-team-us-central2")


def test_a_region_without_a_subnetwork_is_refused_before_anything_is_sent(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    settings_of(COMPLETE, tpuctl)
    for zone in ("europe-west4-a", "europe-west4"):
        refused = tpuctl("up", "v3-8", "--zone", zone, "--yes")
        assert refused.code == 3
        assert "The network has no subnetwork in europe-west4, the region of europe-west4-a." in refused.err
        assert "us-central1 or us-central2" in refused.err
    assert created(simulator) == []


def test_after_a_stockout_only_zones_with_a_subnetwork_are_named(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    settings_of(COMPLETE, tpuctl)
    simulator.faults.add("stockout", zone="us-central1-a")
    result = tpuctl("up", "v3-8", "--zone", "us-central1-a", "--yes", "--no-iap")
    assert result.code == 5, result.err
    assert "europe-west4" not in result.err


def test_a_subnetwork_that_is_named_counts_alone(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_of(COMPLETE, tpuctl)
    planned = tpuctl("up", "v3-8", "--zone", "europe-west4-a", "--subnetwork", "lab", "--dry-run", "--json")
    assert subnetworks(planned) == [("europe-west4-a", "lab")]
    monkeypatch.setenv("TPUCTL_SUBNETWORK", "lab")
    planned = tpuctl("up", "v3-8", "--zone", "europe-west4-a", "--dry-run", "--json")
    assert subnetworks(planned) == [("europe-west4-a", "lab")]
    full = "projects/demo-project-1/regions/us-central1/subnetworks/lab"
    refused = tpuctl("up", "v3-8", "--zone", "europe-west4-a", "--subnetwork", full, "--dry-run")
    assert refused.code == 3
    assert "Subnetwork 'lab' is in us-central1, and europe-west4-a is not." in refused.err


def test_the_table_can_be_written_in_three_ways(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "us-central1=a,europe-west4=b"
    for text in (
        f'target = "sim"\nsubnetworks = "{value}"\n',
        'target = "sim"\nsubnetworks = { us-central1 = "a", europe-west4 = "b" }\n',
        'target = "sim"\n[subnetworks]\nus-central1 = "a"\neurope-west4 = "b"\n',
    ):
        Path("tpuctl.toml").write_text(text)
        assert tpuctl("config", "show", "--json").json["settings"]["subnetworks"]["value"] == value
    monkeypatch.setenv("TPUCTL_SUBNETWORKS", "us-central1")
    refused = tpuctl("up", "v3-8", "--dry-run")
    assert refused.code == 3
    assert "'us-central1' (TPUCTL_SUBNETWORKS) cannot be the subnetworks" in refused.err


def test_the_example_has_a_rule_for_its_vpn() -> None:
    state = json.loads((RECORDED / "complete-rights.json").read_text())
    rules = [
        item for item in state["values"]["root_module"]["child_modules"][0]["resources"] if is_vpn_rule(item)
    ]
    assert [rule["values"]["source_ranges"] for rule in rules] == [["10.8.0.0/16"]]


def change_rule(simulator: RunningSimulator, method: str, name: str = "", /, **fields: object) -> None:
    rules = "compute/v1/projects/sim-project/global/firewalls"
    url = f"{simulator.simulator.endpoints['compute_rest']}/{rules}/{name}"
    with requests.Session() as session:
        session.trust_env = False
        session.request(method, url.rstrip("/"), json=fields or None, timeout=60).raise_for_status()


def test_a_firewall_that_lets_nobody_in_is_said_before_the_question(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    told = "No firewall rule of default lets machines outside of it reach port 22"
    assert told not in tpuctl("up", "v3-8").err
    change_rule(simulator, "DELETE", "default-allow-ssh")
    asked = tpuctl("up", "v3-8")
    assert (asked.code, told in asked.err) == (10, True), asked.err
    command = (
        "gcloud compute firewall-rules create ssh --project sim-project --network default --allow tcp:22"
    )
    assert command in asked.err
    rule = {"name": "office", "network": "global/networks/default", "sourceRanges": ["8.8.8.0/24"]}
    change_rule(
        simulator, "POST", **rule, targetTags=["tpu"], allowed=[{"IPProtocol": "tcp", "ports": ["22"]}]
    )
    assert told in tpuctl("up", "v3-8").err, "its hosts have no such tag"
    assert told not in tpuctl("up", "v3-8", "--tag", "tpu").err
    assert created(simulator) == []


def test_a_network_that_does_not_exist_is_said_before_the_question(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    asked = tpuctl("up", "v3-8", "--network", "lab")
    assert (asked.code, "Network 'lab' of sim-project does not exist." in asked.err) == (10, True), asked.err


ACCOUNT = "tpu@sim-project.iam.gserviceaccount.com"
COMMAND = (
    "gcloud storage buckets add-iam-policy-binding gs://sim-project-tpuctl/ "
    f"--member serviceAccount:{ACCOUNT} --role roles/storage.objectUser"
)


def grant_access(cloud: Cloud, account: str) -> None:
    """Give an account a role on the bucket of runs, as the command does."""
    bucket = cloud.bucket._bucket
    policy = bucket.get_iam_policy(requested_policy_version=3)
    member = f"serviceAccount:{account}"
    policy.bindings.append({"role": "roles/storage.objectUser", "members": {member}})
    bucket.set_iam_policy(policy)


def test_an_account_without_a_role_on_the_bucket_is_named_with_the_command(
    simulator: RunningSimulator, tpuctl: Tpuctl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    asked = tpuctl("up", "v3-8")
    assert asked.code == 10, asked.err
    assert "gs://sim-project-tpuctl/ gives the service account of the TPU no role" in asked.err
    assert COMMAND in asked.err
    grant_access(cloud, ACCOUNT)
    asked = tpuctl("up", "v3-8")
    assert (asked.code, "add-iam-policy-binding" in asked.err) == (10, False)


def test_googles_default_account_is_known_to_be_an_editor_on_the_simulator_alone(
    cloud: Cloud, tpuctl: Tpuctl
) -> None:
    assert "add-iam-policy-binding" not in tpuctl("up", "v3-8", "--ttl", "1h").err
    assert warning(cloud, "", deletes=True) == ""
    cloud.endpoints = replace(cloud.endpoints, is_default_account_editor=False)
    default = cloud.default_account()
    told = warning(cloud, "")
    assert told.startswith("If it has no role in the project, as in new organizations, ")
    assert told.endswith(grant_command(cloud.bucket.name, default))
    grant_access(cloud, default)
    assert warning(cloud, "") == ""
    assert warning(cloud, "", deletes=True).endswith(
        f"add-iam-policy-binding sim-project --member serviceAccount:{default} --role roles/tpu.admin"
    )


def test_who_may_not_read_the_policy_is_told_nothing(
    simulator: RunningSimulator, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Bucket) -> list[Grant]:
        raise ConfigError("No permission.")  # no fault has this method

    monkeypatch.setattr(Bucket, "grants", refuse)
    assert warning(cloud, ACCOUNT) == ""
