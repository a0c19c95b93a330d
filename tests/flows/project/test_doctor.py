"""The checks of doctor, one by one: what each needs, what it says, and its fix.

Grants of a bucket that give more than tpuctl needs.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.storage import Grant
from tpuctl.config import load
from tpuctl.errors import ConfigError
from tpuctl.flows.hosts.bucket_access import ROLE, grant_command
from tpuctl.flows.project import doctor, rights
from tpuctl.flows.project.doctor import CHECKS, FAILED, OK, SKIPPED, WARNING, Finding, examine
from tpuctl.flows.project.rights import Concern, concerns

ORDER = [
    "python", "credentials", "project", "api", "zone", "bucket", "region", "rules", "rights", "network",
    "iap", "terraform", "ssh key",
]  # fmt: skip


def findings(connect: Callable[[], Cloud], **settings: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(load(settings), connect)}


def states(results: dict[str, Finding]) -> dict[str, str]:
    """Return the state of each check that is not ok."""
    return {name: finding.state for name, finding in results.items() if finding.state != OK}


def test_every_check_is_run_in_its_order_and_says_what_it_saw(cloud: Cloud) -> None:
    results = findings(lambda: cloud)
    assert list(results) == [check.name for check in CHECKS] == ORDER
    assert states(results) == {}
    assert results["credentials"].text == "none needed"
    assert results["api"].text == "the Cloud TPU API answers: 0 nodes"
    assert results["zone"].text.startswith("europe-west4-a offers ")
    assert results["bucket"].text == "gs://sim-project-tpuctl/ can be listed"
    assert results["region"].text == "europe-west4, that of the TPUs"
    assert results["iap"].text == "not used: hosts have external addresses"
    assert results["terraform"].text == "not used: nothing to compare with"
    assert results["ssh key"].text.endswith("will be made by the first 'tpuctl up'")
    assert all(finding.fix == "" for finding in results.values())


def test_one_node_is_one_node(cloud: Cloud, node: str) -> None:
    assert findings(lambda: cloud)["api"].text == "the Cloud TPU API answers: 1 node"


def test_clients_are_built_once_and_what_needs_them_is_skipped_if_they_cannot_be(home: Path) -> None:
    calls = list[str]()

    def connect() -> Cloud:
        calls.append("connect")
        raise ConfigError("There are no credentials.", hint="Log in.")

    results = findings(connect)
    assert results["credentials"] == Finding("credentials", FAILED, "There are no credentials.", "Log in.")
    assert {name for name, state in states(results).items() if state == SKIPPED} == {
        "api", "zone", "bucket", "region", "rules", "rights", "iap",
    }  # fmt: skip
    assert results["api"].text == "needs credentials"
    assert results["zone"].text == "needs api", "which was skipped itself"
    assert results["network"].state == OK, "it needs no clients"
    assert calls == ["connect"]


def test_without_a_project_what_needs_one_is_skipped(cloud: Cloud) -> None:
    results = findings(lambda: cloud, target="gcp", zone="europe-west4-a", bucket="my-bucket")
    assert results["project"].state == FAILED
    skipped = {name: finding.text for name, finding in results.items() if finding.state == SKIPPED}
    assert skipped == {
        "api": "needs project", "bucket": "needs project", "zone": "needs api", "region": "needs bucket",
        "rules": "needs bucket", "rights": "needs bucket", "iap": "needs zone",
    }  # fmt: skip


def test_a_check_needs_only_checks_before_it() -> None:
    for number, check in enumerate(CHECKS):
        assert set(check.needs) <= set(ORDER[:number]), check.name


@pytest.mark.parametrize(
    ("setting", "value", "check", "skipped"),
    [
        ("zone", "us-central1", "zone", {"region", "iap"}),
        ("bucket", "b!", "bucket", {"region", "rules", "rights"}),
    ],
)
def test_a_malformed_setting_fails_its_check_before_anything_is_requested(
    cloud: Cloud, simulator: RunningSimulator, setting: str, value: str, check: str, skipped: set[str]
) -> None:
    results = findings(lambda: cloud, **{setting: value})
    assert results[check].state == FAILED
    assert f"'{value}' (--{setting})" in results[check].text
    assert {name for name, state in states(results).items() if state == SKIPPED} == skipped


def test_a_zone_without_tpus_names_those_with_some(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such zone is in the simulator: it answers as for a zone without permission."""
    monkeypatch.setattr(type(cloud.provider), "list_accelerator_types", lambda provider, zone: [])
    results = findings(lambda: cloud)
    assert (results["zone"].state, results["zone"].text) == (FAILED, "europe-west4-a offers no TPUs.")
    assert "us-central1-a" in results["zone"].fix


def test_a_bucket_in_another_region_is_a_warning(cloud: Cloud) -> None:
    results = findings(lambda: cloud, zone="us-central1-a")
    assert states(results) == {"region": WARNING}
    assert results["region"].text.startswith(
        "gs://sim-project-tpuctl is in europe-west4, the TPUs are in us-central1"
    )
    assert results["region"].fix == "Use a bucket in us-central1, or a zone of europe-west4."


def test_hosts_without_external_addresses_and_without_iap_are_a_warning(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
    monkeypatch.setenv("TPUCTL_IAP", "no")
    monkeypatch.setenv("TPUCTL_SUBNETWORK", "s1")
    results = findings(lambda: cloud)
    assert states(results) == {"network": WARNING}
    assert results["network"].text.startswith("default, subnetwork s1; hosts without external addresses")
    assert "over a VPN" in results["network"].fix
    assert results["iap"].text == "not used: iap is no"


def iap(**settings: str) -> Finding:
    clients = connect(load(settings))
    result = findings(lambda: clients, **settings)["iap"]
    clients.close()
    return result


def test_without_a_host_the_relay_is_asked_and_the_firewall_read(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
    assert iap() == Finding(
        "iap", OK, "the relay admits you; the firewall rule default-allow-ssh lets it reach port 22"
    )
    monkeypatch.setenv("TPUCTL_NETWORK", "lab")
    result = iap()
    assert result.state == WARNING
    assert "Network 'lab' of sim-project does not exist" in result.text
    simulator.faults.add("iap-refused", code=4033)
    result = iap()
    assert result.state == FAILED
    assert "you may not use IAP's tunnels" in result.text
    assert "roles/iap.tunnelResourceAccessor" in result.fix


def test_a_tunnel_to_a_host_says_more_than_any_rule(
    simulator: RunningSimulator, tpuctl: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
    tpuctl("up", "v3-8", "--name", "n1", "--yes")
    assert iap() == Finding("iap", OK, "worker 0 of 'n1' is reached through IAP")
    simulator.faults.add("iap-refused", code=4003)
    result = iap()
    assert (result.state, "cannot reach its port 22" in result.text) == (FAILED, True)
    assert "35.235.240.0/20" in result.fix


def test_a_key_that_exists_is_named(cloud: Cloud) -> None:
    key = cloud.ssh.key
    cloud.ssh.login_key()
    assert findings(lambda: cloud)["ssh key"].text == str(key)


ACCOUNT = "tpu@sim-project.iam.gserviceaccount.com"


def grant(cloud: Cloud, role: str, member: str, name: str = "sim-project-tpuctl") -> None:
    """Add a role on a bucket."""
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
    bucket = client.bucket(name)
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": role, "members": {member}})
    bucket.set_iam_policy(policy)
    client.close()


def test_a_bucket_in_which_no_run_can_work_fails_and_one_that_deletes_records_is_a_warning(
    cloud: Cloud, simulator: RunningSimulator
) -> None:
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
    bucket = client.bucket("sim-project-tpuctl")
    bucket.add_lifecycle_delete_rule(age=7)
    bucket.versioning_enabled = True
    bucket.patch()
    results = findings(lambda: connect(load({})))
    assert states(results) == {"rules": WARNING}
    assert "deletes runs/" in results["rules"].text
    assert "keeps every former version" in results["rules"].text
    bucket.requester_pays = True
    bucket.patch()
    results = findings(lambda: connect(load({})))
    assert states(results) == {"rules": FAILED}
    assert results["rules"].fix.startswith("Use another bucket, or: gcloud storage buckets update")
    client.close()
    simulator.faults.add("permission", method="storage.buckets.get")
    unread = findings(lambda: connect(load({})))["rules"]
    assert unread == Finding(
        "rules", OK, "not checked: reading the settings of gs://sim-project-tpuctl needs storage.buckets.get"
    )


@pytest.mark.parametrize("member", ["allUsers", "allAuthenticatedUsers"])
@pytest.mark.parametrize(
    ("role", "verb"), [("roles/storage.objectViewer", "read"), ("roles/storage.objectUser", "use")]
)
def test_a_public_bucket_fails(cloud: Cloud, member: str, role: str, verb: str) -> None:
    grant(cloud, role, member)
    results = findings(lambda: cloud)
    assert states(results) == {"rights": FAILED}
    assert "gs://sim-project-tpuctl/ IS PUBLIC: everyone " in results["rights"].text
    assert f" may {verb} it ({role})" in results["rights"].text
    assert "--public-access-prevention" in results["rights"].fix


def test_the_role_that_up_and_submit_name_is_no_concern_and_a_wider_one_is_a_warning(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    named = grant_command(cloud.bucket.name, ACCOUNT).rpartition("--role ")[2]
    grant(cloud, named, f"serviceAccount:{ACCOUNT}")
    text = f"no bucket is public, no role of the TPU account is wider than {named} (terraform/ gives less)"
    assert findings(lambda: cloud)["rights"] == Finding("rights", OK, text)
    grant(cloud, "roles/storage.objectAdmin", f"serviceAccount:{ACCOUNT}")
    broad = findings(lambda: cloud)["rights"]
    assert broad.state == WARNING
    assert broad.text == (
        "a job may delete the records and checkpoints of all runs in gs://sim-project-tpuctl/ "
        "(roles/storage.objectAdmin of the TPU account)"
    )
    assert "protection" in broad.fix


def test_who_may_not_read_the_policy_is_told_so(cloud: Cloud, simulator: RunningSimulator) -> None:
    simulator.faults.add("permission", method="storage.getIamPermissions")
    assert findings(lambda: cloud)["rights"] == Finding(
        "rights",
        OK,
        "not checked: reading who may use gs://sim-project-tpuctl needs storage.buckets.getIamPolicy",
    )


def test_the_version_of_python_and_missing_packages_are_said(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = platform.python_version()
    assert findings(lambda: cloud)["python"].text == f"Python {version}, all packages"
    monkeypatch.setattr(doctor, "PACKAGES", ("click", "no_such_package", "no_such_parent.package"))
    results = findings(lambda: cloud)
    assert results["python"] == Finding(
        "python", FAILED, "Packages are missing: no_such_package, no_such_parent.package.",
        "Run 'pip install .' in the clone of tpuctl.",
    )  # fmt: skip
    skipped = {name: finding.text for name, finding in results.items() if finding.state == SKIPPED}
    assert (skipped["credentials"], skipped["ssh key"]) == ("needs python", "needs python")


def test_the_project_is_named_with_its_origin_and_credentials_with_their_kind(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_PROJECT", "sim-project")
    assert findings(lambda: cloud)["project"].text == "sim-project (TPUCTL_PROJECT)"
    for fields, quota in (({}, "no quota project"), ({"quota_project_id": "lab"}, "quota project lab")):
        monkeypatch.setattr(cloud, "credentials", SimpleNamespace(**fields))  # the clients have the former
        finding = findings(lambda: cloud)["credentials"]
        assert (finding.state, finding.text) == (OK, f"found (SimpleNamespace), {quota}")


@pytest.fixture
def both_buckets(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Clients of a project whose datasets are in a bucket of their own, in America."""
    client = google_clients.storage_client("sim-project", cloud.credentials, cloud.endpoints.storage)
    client.create_bucket("photos", location="us-east1")
    client.close()
    monkeypatch.setenv("TPUCTL_DATA_BUCKET", "photos")
    clients = connect(load({}))
    yield clients
    clients.close()


def test_a_bucket_of_datasets_is_checked_beside_that_of_runs(both_buckets: Cloud) -> None:
    results = findings(lambda: both_buckets)
    assert results["bucket"].text == "gs://sim-project-tpuctl/ and gs://photos/ can be listed"
    assert states(results) == {"region": WARNING}
    assert results["region"].text == (
        "gs://photos is in us-east1, the TPUs are in europe-west4: slow, billed by the byte"
    )
    assert results["region"].fix == "Use a bucket in europe-west4, or a zone of us-east1."


def test_a_grant_on_the_bucket_of_datasets_is_judged_as_one_of_datasets(
    both_buckets: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    assert findings(lambda: both_buckets)["rights"].state == OK
    grant(both_buckets, "roles/storage.objectUser", f"serviceAccount:{ACCOUNT}", "photos")
    finding = findings(lambda: both_buckets)["rights"]
    assert finding.text == (
        "a job may delete all datasets in gs://photos/ (roles/storage.objectUser of the TPU account)"
    )
    assert finding.fix == 'Give the account less: terraform/ does, with protection = "records".'


def test_without_an_account_the_simulator_is_no_concern_and_googles_default_is(cloud: Cloud) -> None:
    assert findings(lambda: cloud)["rights"].text == "no bucket is public"
    settings = {"project": "sim-project", "bucket": cloud.bucket.name, "zone": "europe-west4-a"}
    finding = findings(lambda: cloud, target="gcp", **settings)["rights"]
    assert (finding.state, finding.text) == (WARNING, rights.DEFAULT_ACCOUNT)


@pytest.mark.parametrize(
    ("external", "iap", "state"),
    [("yes", "no", OK), ("yes", "yes", OK), ("no", "yes", OK), ("no", "", OK), ("no", "no", WARNING)],
)
def test_hosts_need_an_address_or_iap(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, external: str, iap: str, state: str
) -> None:
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", external)
    if iap:
        monkeypatch.setenv("TPUCTL_IAP", iap)
    finding = findings(lambda: cloud)["network"]
    assert finding.state == state
    assert finding.text.partition(";")[0] == "default"
    assert bool(finding.fix) == (state == WARNING)


def test_a_firewall_without_a_rule_is_a_warning_and_one_that_cannot_be_read_is_said(
    simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_EXTERNAL_IPS", "no")
    monkeypatch.setattr(Cloud, "iap_firewall_rule", lambda cloud: None)
    finding = iap()
    assert (finding.state, finding.text) == (
        WARNING,
        "the relay admits you, but no firewall rule of default lets it (35.235.240.0/20) reach port 22",
    )
    assert finding.fix.startswith("gcloud compute firewall-rules create ")
    assert "--project sim-project --network default " in finding.fix

    def refuse(cloud: Cloud) -> None:
        raise ConfigError("You may not list firewall rules.", hint="Ask for it.")

    monkeypatch.setattr(Cloud, "iap_firewall_rule", refuse)
    assert iap() == Finding(
        "iap", OK, "the relay admits you; the firewall was not checked: You may not list firewall rules."
    )


GRANTED_ACCOUNT = "tpu@p.iam.gserviceaccount.com"


def said(
    *grants: tuple[str, str], account: str | None = GRANTED_ACCOUNT, holds_runs: bool = True
) -> list[Concern]:
    listed = [Grant(role, member, False) for role, member in grants]
    return list(concerns("b", listed, account, holds_runs=holds_runs))


@pytest.mark.parametrize(
    ("role", "verb"),
    [
        ("roles/storage.objectViewer", "read"), ("roles/storage.legacyObjectReader", "read"),
        ("roles/storage.legacyBucketReader", "read"), ("roles/storage.objectAdmin", "use"),
        ("roles/storage.objectCreator", "use"),
    ],
)  # fmt: skip
def test_a_public_bucket_is_said_loudly(role: str, verb: str) -> None:
    assert said((role, "allUsers")) == [
        Concern(f"gs://b/ IS PUBLIC: everyone on the internet may {verb} it ({role})", is_public=True)
    ]
    assert said((role, "allAuthenticatedUsers")) == [
        Concern(f"gs://b/ IS PUBLIC: everyone with a Google account may {verb} it ({role})", is_public=True)
    ]


@pytest.mark.parametrize(
    "role",
    [
        "roles/editor", "roles/owner", "roles/storage.admin", "roles/storage.legacyBucketOwner",
        "roles/storage.legacyBucketWriter", "roles/storage.objectAdmin",
    ],
)  # fmt: skip
def test_a_job_that_may_delete_everything_is_said(role: str) -> None:
    """Roles with storage.objects.delete: https://cloud.google.com/storage/docs/access-control/iam-roles"""
    member = f"serviceAccount:{GRANTED_ACCOUNT}"
    text = f"in gs://b/ ({role} of the TPU account)"
    assert said((role, member)) == [
        Concern(f"a job may delete the records and checkpoints of all runs {text}")
    ]
    assert said((role, member), holds_runs=False) == [Concern(f"a job may delete all datasets {text}")]
    assert said((role, member), account=None) == said((role, "user:ada@p")) == []
    assert list(concerns("b", [Grant(role, member, True)], GRANTED_ACCOUNT, holds_runs=True)) == []


def test_the_role_that_overwrites_statuses_is_too_wide_for_datasets_alone() -> None:
    granted = (ROLE, f"serviceAccount:{GRANTED_ACCOUNT}")
    assert said(granted) == []
    text = f"a job may delete all datasets in gs://b/ ({ROLE} of the TPU account)"
    assert said(granted, holds_runs=False) == [Concern(text)]


def test_a_role_that_deletes_nothing_is_no_concern_and_the_public_comes_first() -> None:
    member = f"serviceAccount:{GRANTED_ACCOUNT}"
    assert said(("roles/storage.objectCreator", member), ("roles/storage.objectViewer", member)) == []
    both = said(("roles/owner", member), ("roles/storage.objectViewer", "allUsers"))
    assert [concern.is_public for concern in both] == [True, False]
