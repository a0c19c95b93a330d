"""Each law broken in several ways: stanzas that a plan gets, over those that it has."""

# ruff: noqa: E501  a table

from __future__ import annotations

from tests.terraform.plans.plan import LATER
from tests.terraform.plans.stanzas import Lines

TPU = "serviceAccount:tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
ADA = "user:ada@example.com"
RUNS, DATA = "demo-project-1-tpuctl-runs", "demo-project-1-tpuctl-data"
OVERWRITE = "projects/demo-project-1/roles/tpuctl_tpu_overwrite"
SSH, HOSTS = "google_compute_firewall.ssh_through_iap", "google_compute_firewall.between_hosts"
BUCKET = 'google_storage_bucket.this["runs"]'


def rule(**lines: object) -> dict[str, Lines]:
    """Return a rule that lets TCP in at port 443, with some lines changed."""
    usual = {
        "allow[0].protocol": "tcp",
        "allow[0].ports": ["443"],
        "direction": "INGRESS",
        "source_ranges": ["10.128.0.0/20"],
    }
    changed = usual | {name.replace("__", "[0]."): value for name, value in lines.items()}
    return {
        "google_compute_firewall.more": {name: value for name, value in changed.items() if value is not None}
    }


def ssh(*ranges: str, **lines: object) -> dict[str, Lines]:
    """Return a rule that lets SSH in from some ranges."""
    return rule(**{"source_ranges": list(ranges), "allow__ports": ["22"], **lines})


def grant(kind: str, member: object, role: object, **lines: object) -> dict[str, Lines]:
    """Return a grant."""
    return {f"google_{kind}_iam_member.more": {"member": member, "role": role, **lines}}


def permission(*names: str) -> dict[str, Lines]:
    """Return other permissions of the TPU account's own role."""
    return {
        "google_project_iam_custom_role.tpu": {
            "permissions": list(names),
            "project": "demo-project-1",
            "role_id": "tpuctl_tpu",
        }
    }


BREACHES: dict[str, dict[str, dict[str, Lines]]] = {
    "no open ingress": {
        "every IPv4 address": rule(source_ranges=["0.0.0.0/0"]),
        "every IPv6 address": rule(source_ranges=["::/0"]),
        "both halves of IPv4": rule(source_ranges=["0.0.0.0/1", "128.0.0.0/1"]),
        "one half": rule(source_ranges=["128.0.0.0/1"]),
        "a range in another spelling": rule(source_ranges=["1.2.3.4/0"]),
        "both halves of IPv6": rule(source_ranges=["::/1", "8000::/1"]),
        "every IPv6 address in use": rule(source_ranges=["2000::/3"]),
        "quarters in two rules": rule(source_ranges=["0.0.0.0/2", "64.0.0.0/2"]) | {HOSTS: {"allow[0].protocol": "tcp", "source_ranges": ["128.0.0.0/2", "192.0.0.0/2"]}},
        "a wide range with private ones in it": rule(source_ranges=["172.0.0.0/8"]),
        "a hundred small ranges": rule(source_ranges=[f"8.{part}.0.0/17" for part in range(100)]),
        "no source": rule(source_ranges=[]),
        "no direction and no source": rule(source_ranges=[], direction=None),
        "a range beside a good one": rule(source_ranges=["10.128.0.0/20", "0.0.0.0/0"]),
        "no range at all": rule(source_ranges=["172.*"]),
        "any": rule(source_ranges=["any"]),
        "a source known after apply": rule(source_ranges={LATER: ["data.google_x.y.ranges"]}),
        "all protocols": rule(source_ranges=["0.0.0.0/0"], allow__protocol="all", allow__ports=None),
        "pings": rule(source_ranges=["0.0.0.0/0"], allow__protocol="icmp", allow__ports=None),
    },
    "SSH only from known ranges": {
        "another range": ssh("34.1.2.0/24"),
        "a wider range around IAP's": ssh("35.235.0.0/16"),
        "IAP's range and another": ssh("35.235.240.0/20", "34.1.2.3/32"),
        "a private range that is no subnetwork": ssh("10.0.0.0/8"),
        "one address": ssh("8.8.8.8"),
        "a range of ports": ssh("34.1.2.0/24", allow__ports=["20-25"]),
        "port 22 among others": ssh("34.1.2.0/24", allow__ports=["80", "22"]),
        "all ports": ssh("34.1.2.0/24", allow__ports=None),
        "an empty list of ports": ssh("34.1.2.0/24", allow__ports=[]),
        "every protocol": ssh("34.1.2.0/24", allow__protocol="all", allow__ports=None),
        "TCP by its number": ssh("34.1.2.0/24", allow__protocol="6"),
        "TCP in capitals": ssh("34.1.2.0/24", allow__protocol="TCP"),
        "a second block": rule(**{"source_ranges": ["34.1.2.0/24"], "allow[1].protocol": "tcp", "allow[1].ports": ["22"]}),
        "a tag": ssh(source_tags=["bastion"]),
        "a service account": ssh(source_service_accounts=["a@b"]),
        "IPv6": ssh("2001:db8::/64"),
        "ports known after apply": ssh("34.1.2.0/24", allow__ports={LATER: ["x.y.z"]}),
        "the rule itself": {SSH: {"allow[0].protocol": "tcp", "allow[0].ports": ["22"], "source_ranges": ["35.235.240.0/19"]}},
        "a rule without a direction": ssh("34.1.2.0/24", direction=None),
    },
    "nothing is public": {
        "a bucket for everybody": grant("storage_bucket", "allUsers", "roles/storage.objectViewer", bucket=DATA),
        "a bucket for every account": grant("storage_bucket", "allAuthenticatedUsers", "roles/storage.objectViewer", bucket=DATA),
        "everybody as a principal": grant("storage_bucket", "principalSet://goog/public:all", "roles/storage.objectViewer", bucket=DATA),
        "in other letters": grant("storage_bucket", "ALLUSERS", "roles/storage.objectViewer", bucket=DATA),
        "in a list of members": {"google_storage_bucket_iam_binding.more": {"members": [ADA, "allUsers"], "role": "roles/storage.objectViewer"}},
        "in a policy": {"google_storage_bucket_iam_policy.more": {"policy_data": '{"bindings": [{"members": ["allUsers"]}]}'}},
        "in an access list": {"google_storage_bucket_access_control.more": {"entity": "allUsers", "role": "READER"}},
        "as the API writes it": {"google_storage_default_object_acl.more": {"role_entity": ["READER:allUsers"], "bucket": DATA}},
        "images for everybody": grant("artifact_registry_repository", "allUsers", "roles/artifactregistry.reader"),
        "jobs for everybody": grant("cloud_run_v2_job", "allUsers", "roles/run.invoker"),
        "a tunnel for everybody": grant("iap_tunnel", "allAuthenticatedUsers", "roles/iap.tunnelResourceAccessor"),
        "the account for everybody": grant("service_account", "allAuthenticatedUsers", "roles/iam.serviceAccountUser"),
    },
    "TPU VMs have their own roles only": {
        "an editor": grant("project", TPU, "roles/editor"),
        "the project's storage": grant("project", TPU, "roles/storage.objectViewer"),
        "an administrator of TPUs": grant("project", TPU, "roles/tpu.admin"),
        "a reader of logs": grant("project", TPU, "roles/logging.viewer"),
        "an administrator of a bucket": grant("storage_bucket", TPU, "roles/storage.admin", bucket=RUNS),
        "a writer of datasets": grant("storage_bucket", TPU, "roles/storage.objectUser", bucket=DATA),
        "a creator of datasets": grant("storage_bucket", TPU, "roles/storage.objectCreator", bucket=DATA),
        "a creator of run records": grant("storage_bucket", TPU, "roles/storage.objectCreator", bucket=RUNS),
        "a creator of verdicts": grant("storage_bucket", TPU, "roles/storage.objectCreator", bucket=RUNS, **{
            "condition[0].expression": '!resource.name.endsWith("/run.json")'}),
        "a creator of another bucket's records": grant("storage_bucket", TPU, "roles/storage.objectCreator", bucket="more", **{
            "condition[0].expression": f'!resource.name.startsWith("projects/_/buckets/{RUNS}/")'}),
        "a writer of images": grant("artifact_registry_repository", TPU, "roles/artifactregistry.writer"),
        "one that acts as itself": grant("service_account", TPU, "roles/iam.serviceAccountUser"),
        "one that starts jobs": grant("cloud_run_v2_job", TPU, "roles/run.invoker"),
        "one that tunnels": grant("iap_tunnel", TPU, "roles/iap.tunnelResourceAccessor"),
        "one that decrypts": grant("kms_crypto_key", TPU, "roles/cloudkms.cryptoKeyDecrypter"),
        "a member of a binding": {"google_project_iam_binding.more": {"members": [ADA, TPU], "role": "roles/viewer"}},
        "a role of another project": grant("project", TPU, "projects/other/roles/tpuctl_tpu"),
        "a role of the organization": grant("project", TPU, "organizations/1/roles/all"),
        "deletion everywhere": grant("storage_bucket", TPU, OVERWRITE, bucket=RUNS),
        "deletion under a condition that always holds": grant("storage_bucket", TPU, OVERWRITE, bucket=RUNS, **{"condition[0].expression": "true"}),
        "deletion in another bucket": grant("storage_bucket", TPU, OVERWRITE, bucket=DATA, **{
            "condition[0].expression": f'resource.name.startsWith("projects/_/buckets/{RUNS}/objects/runs/") && true'}),
        "deletion below runs/ or anywhere": grant("storage_bucket", TPU, OVERWRITE, bucket=RUNS, **{
            "condition[0].expression": f'resource.name.startsWith("projects/_/buckets/{RUNS}/objects/runs/") || true'}),
        "deletion below runs/ or of anything": grant("storage_bucket", TPU, OVERWRITE, bucket=RUNS, **{
            "condition[0].expression": f'resource.name.startsWith("projects/_/buckets/{RUNS}/objects/runs/") && a == "(" || true'}),
        "deletion in the project": grant("project", TPU, OVERWRITE),
        "creation of nodes": permission("tpu.nodes.get", "tpu.nodes.create"),
        "actAs": permission("iam.serviceAccounts.actAs"),
        "the account by its output": {"output tpuctl": {"service_account": "other@example.com"}} | grant("project", "serviceAccount:other@example.com", "roles/storage.objectViewer"),
        "the account of a kept TPU": {"google_tpu_v2_vm.this[0]": {"service_account[0].email": "kept@example.com", "network_config[0].enable_external_ips": False}}
        | grant("project", "serviceAccount:kept@example.com", "roles/tpu.viewer"),
    },
    "nobody rules the project": {
        "an owner": grant("project", ADA, "roles/owner"),
        "an editor": grant("project", "group:lab@example.com", "roles/editor"),
        "a viewer": grant("project", ADA, "roles/viewer"),
        "an administrator": grant("project", ADA, "roles/resourcemanager.projectIamAdmin"),
        "a basic role of the new kind": grant("project", ADA, "roles/writer"),
        "an administrator of storage": grant("storage_bucket", ADA, "roles/storage.admin", bucket=DATA),
        "an owner of a bucket": grant("storage_bucket", ADA, "roles/storage.legacyBucketOwner", bucket=DATA),
        "the project's storage": grant("project", ADA, "roles/storage.objectUser"),
        "every account": grant("project", ADA, "roles/iam.serviceAccountUser"),
        "tokens of the account": grant("service_account", ADA, "roles/iam.serviceAccountTokenCreator"),
        "every machine": grant("project", ADA, "roles/compute.instanceAdmin.v1"),
        "a role known after apply": grant("project", ADA, {LATER: ["google_project_iam_custom_role.other.id"]}),
        "a member known after apply": grant("project", {LATER: ["google_service_account.other.member"]}, "roles/tpu.viewer"),
        "a custom role that grants": {"google_project_iam_custom_role.more": {"permissions": ["storage.buckets.setIamPolicy"]}},
        "a custom role that makes keys": {"google_project_iam_custom_role.more": {"permissions": ["iam.serviceAccountKeys.create"]}},
        "a custom role that acts": {"google_project_iam_custom_role.more": {"permissions": ["iam.serviceAccounts.actAs"]}},
        "a custom role that grants in the project": {"google_project_iam_custom_role.more": {"permissions": ["resourcemanager.projects.update"]}},
    },
    "buckets are closed": {
        "access lists": {BUCKET: {"uniform_bucket_level_access": False, "public_access_prevention": "enforced"}},
        "access lists by default": {BUCKET: {"public_access_prevention": "enforced"}},
        "no prevention": {BUCKET: {"uniform_bucket_level_access": True}},
        "inherited prevention": {BUCKET: {"uniform_bucket_level_access": True, "public_access_prevention": "inherited"}},
        "prevention known after apply": {BUCKET: {"uniform_bucket_level_access": True, "public_access_prevention": {LATER: ["a.b.c"]}}},
        "one more bucket": {"google_storage_bucket.logs": {"name": "logs"}},
    },
    "no TPU has a public address": {
        "an address": {"google_tpu_v2_vm.more": {"network_config[0].enable_external_ips": True}},
        "an address of a second interface": {"google_tpu_v2_vm.more": {"network_configs[0].enable_external_ips": False, "network_configs[1].enable_external_ips": True}},
        "no word about it": {"google_tpu_v2_vm.more": {"network_config[0].network": "n"}},
        "no network": {"google_tpu_v2_vm.more": {"name": "n"}},
    },
    "the laws know every type": {
        "a key of an account": {"google_service_account_key.more": {"service_account_id": "tpuctl-tpu"}},
        "a peering": {"google_compute_network_peering.more": {"name": "n"}},
        "a rule of a policy": {"google_compute_network_firewall_policy_rule.more": {"action": "allow"}},
        "a policy of the project": {"google_project_iam_policy.more": {"policy_data": "{}"}},
        "a machine": {"google_compute_instance.more": {"name": "n"}},
        "a secret that is read": {"data.google_secret_manager_secret_version.more": {"secret": "s"}},
        "a program": {"null_resource.more": {"triggers": {}}},
        "in a module of a module": {'module.base["a.b"].module.inner.random_id.more[0]': {"byte_length": 4}},
    },
}  # fmt: skip
"""Law -> what is wrong -> the stanzas."""

OF_FILES: dict[str, dict[str, Lines]] = {
    "a program after creation": {"resource google_tpu_v2_vm.this": {"provisioner": {"local-exec": {"command": "id"}}}},
    "a connection": {"resource google_tpu_v2_vm.this": {"connection": {"host": "h"}}},
    "a foreign provider": {"terraform": {"required_providers": {"null": {"source": "hashicorp/null"}}}},
    "a provider of a foreign source": {"terraform": {"required_providers": {"google": {"source": "evil/google"}}}},
    "a foreign provider's settings": {"provider external": {}},
    "a module of a registry": {"module net": {"source": "terraform-google-modules/network/google", "version": "9.0.0"}},
    "a module of a repository": {"module net": {"source": "git::https://example.com/net.git"}},
    "a file that is not read": {"file more.tf.json": {}},
}  # fmt: skip
