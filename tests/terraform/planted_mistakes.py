"""Mistakes that people make, each with the check that must catch it and a part of that check's message."""

# ruff: noqa: E501  a table: the old and the new text belong on one line

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake: in `file`, `old` is replaced by `new`."""

    name: str
    file: str
    old: str
    new: str
    check: str
    """A key of checks.CHECKS."""
    message: str
    version: str = "8.7.0"
    """Version of the providers."""


LAYOUT = [
    Mistake("columns that do not line up", "network.tf", "region                   = var", "region = var", "fmt", "region"),
    Mistake("a brace that is missing", "tpu.tf", "    enable_external_ips = false\n  }", "    enable_external_ips = false",
            "validate", "Unclosed configuration block"),
    Mistake("a variable that the README does not have", "variables.tf", 'variable "zone" {',
            'variable "zones" {\n  description = "All."\n  type        = string\n}\n\nvariable "zone" {', "tables", "README"),
]  # fmt: skip

SCHEMA = [
    Mistake("a misspelled argument", "network.tf", "auto_create_subnetworks", "auto_create_subnetwork", "validate",
            'An argument named "auto_create_subnetwork" is not expected here'),
    Mistake("a misspelled argument in a block", "network.tf", "ports    =", "port     =", "validate",
            'An argument named "port" is not expected here'),
    Mistake("a misspelled block", "network.tf", "log_config {", "log_configs {", "validate", "Unsupported block type"),
    Mistake("a misspelled dynamic block", "storage.tf", 'dynamic "encryption"', 'dynamic "encrypt"', "validate",
            "Unsupported block type"),
    Mistake("a type that no provider has", "budget.tf", 'resource "google_billing_budget"', 'resource "google_budget"',
            "validate", "Invalid resource type"),
    Mistake("a data source that no provider has", "budget.tf", 'data "google_project"', 'data "google_projekt"', "validate",
            "Invalid data source"),
    Mistake("a beta resource without the beta provider", "tpu.tf", "  provider = google-beta\n", "", "validate",
            "Invalid resource type"),
    Mistake("an argument that is missing", "network.tf", "  network                  = google_compute_network.this.id\n", "",
            "validate", 'The argument "network" is required'),
    Mistake("a block that is missing", "storage.tf", '    action {\n      type = "AbortIncompleteMultipartUpload"\n    }\n', "",
            "validate", "Insufficient action blocks"),
    Mistake("a block that is written twice", "storage.tf", "  soft_delete_policy {",
            "  soft_delete_policy {\n    retention_duration_seconds = 0\n  }\n  soft_delete_policy {", "validate",
            "Too many soft_delete_policy blocks"),
    Mistake("a block written as an argument", "network.tf", "  log_config {\n    enable", "  log_config = {\n    enable",
            "validate", "Unsupported argument"),
    Mistake("an argument written as a block", "registry.tf", "  labels        = local.labels", '  labels {\n    a = "b"\n  }',
            "validate", "Unsupported block type"),
    Mistake("a computed attribute that is set", "network.tf", "  mtu                     = var.mtu",
            '  mtu                     = var.mtu\n  self_link               = "x"', "validate", "self_link"),
    Mistake("an argument that provider 7 removed", "network.tf", "  private_ip_google_access = true",
            "  private_ip_google_access = true\n  enable_flow_logs         = true", "validate",
            'An argument named "enable_flow_logs" is not expected here'),
    Mistake("an argument that provider 6 lacks", "network.tf", "  mtu                     = var.mtu",
            '  mtu                     = var.mtu\n  deletion_policy         = "PREVENT"', "validate",
            'An argument named "deletion_policy" is not expected here', "6.50.0"),
    Mistake("a misspelled argument of a provider", "examples/complete/main.tf", "user_project_override", "project_override",
            "validate complete", 'An argument named "project_override" is not expected here'),
    Mistake("a provider that is not required", "tpu.tf", "provider = google-beta", "provider = google-alpha", "validate",
            "google-alpha"),
]  # fmt: skip

TYPES = [
    Mistake("a word for a number", "storage.tf", "age = 7", 'age = "a week"', "validate", "a number is required"),
    Mistake("a word for a list", "network.tf", '["35.235.240.0/20"]', '"35.235.240.0/20"', "validate",
            "set of string required"),
    Mistake("a word for a bool", "storage.tf", "uniform_bucket_level_access = true", 'uniform_bucket_level_access = "yes"',
            "validate", "a bool is required"),
    Mistake("a resource instead of its id", "network.tf", "network = google_compute_network.this.id",
            "network = google_compute_network.this", "test defaults", "string required"),
    Mistake("a number for a map", "tpu.tf", "labels           = local.labels", "labels           = 3", "validate",
            "map of string required"),
    Mistake("a default of the wrong type", "variables.tf", "default     = 8896", 'default     = "large"', "validate",
            "Invalid default value for variable"),
    Mistake("a list for a string", "registry.tf", "location      = var.region", "location      = [var.region]", "validate",
            "string required"),
    Mistake("an input of the wrong type", "examples/complete/main.tf", "artifact_registry = true",
            'artifact_registry = "please"', "validate complete", "a bool is required"),
]  # fmt: skip

REFERENCES = [
    Mistake("a resource that does not exist", "network.tf", "router                             = google_compute_router.this",
            "router                             = google_compute_router.main", "validate", "Reference to undeclared resource"),
    Mistake("an attribute that does not exist", "tpu.tf", "google_service_account.tpu.email", "google_service_account.tpu.mail",
            "validate", 'no argument, nested block, or exported attribute named "mail"'),
    Mistake("a variable that does not exist", "storage.tf", "location      = var.region", "location      = var.location",
            "validate", "Reference to undeclared input variable"),
    Mistake("a local that does not exist", "tpu.tf", "local.labels", "local.tags", "validate", "Reference to undeclared local"),
    Mistake("an input that the module lacks", "examples/minimal/main.tf", "  members    =", "  users      =",
            "validate minimal", 'An argument named "users" is not expected here'),
    Mistake("an input that the example forgets", "examples/minimal/main.tf", '  zone       = var.zone\n', "",
            "validate minimal", 'The argument "zone" is required'),
    Mistake("an output that the module lacks", "examples/minimal/main.tf", "module.base.tpuctl", "module.base.config",
            "validate minimal", 'does not have any output values named "config"|Unsupported attribute'),
    Mistake("a cycle", "iam.tf", "  display_name = \"TPU VMs of ${var.name}\"",
            "  display_name = google_project_iam_custom_role.tpu.title\n  description  = google_project_iam_member.tpu[\"self\"].id",
            "validate", "Cycle:"),
    Mistake("a resource with count without its index", "outputs.tf", "one(google_tpu_v2_vm.this[*].name)", "google_tpu_v2_vm.this.name",
            "validate", "Missing resource instance key"),
    Mistake("each outside for_each", "registry.tf", "repository_id = var.name", "repository_id = each.key", "validate",
            'Reference to "each" in context without for_each'),
    Mistake("a key that the map lacks", "iam.tf", "bucket = google_storage_bucket.this[each.value.bucket].name",
            'bucket = google_storage_bucket.this["models"].name', "test access", "Invalid index"),
    Mistake("a function that does not exist", "storage.tf", "coalesce(var.bucket_names.data", "coalesc(var.bucket_names.data",
            "validate", "Call to unknown function"),
    Mistake("a function with too few arguments", "iam.tf", 'replace(var.name, "-", "_")', 'replace(var.name, "-")',
            "validate", "Not enough function arguments"),
    Mistake("the value of a list that is empty", "budget.tf", "count = var.budget == null ? 0 : 1\n\n  billing", "count = 1\n\n  billing",
            "test defaults", "Attempt to get attribute from null value|Invalid index"),
]  # fmt: skip

ALLOWED_VALUES = [
    Mistake("a log filter that is not one", "network.tf", '"ERRORS_ONLY"', '"ERROR_ONLY"', "validate", "log_config.filter must be one of"),
    Mistake("a misspelled public_access_prevention", "storage.tf", '"enforced"', '"enforce"', "validate",
            "public_access_prevention must be one of"),
    Mistake("a lifecycle action that is not one", "storage.tf", '"AbortIncompleteMultipartUpload"', '"AbortMultipartUpload"',
            "test defaults", "lifecycle_rule.action.type must be one of"),
    Mistake("a way to get addresses that is not one", "network.tf", '"AUTO_ONLY"', '"AUTOMATIC"', "validate",
            "nat_ip_allocate_option must be one of"),
    Mistake("a direction that is not one", "network.tf", '"INGRESS"', '"INBOUND"', "validate", "direction must be one of"),
    Mistake("a basis of spending that is not one", "budget.tf", '"CURRENT_SPEND"', '"CURRENT"', "test options",
            "threshold_rules.spend_basis must be one of"),
]  # fmt: skip

PROVIDER_RULES = [
    Mistake("a deadline without its unit", "watch.tf", 'attempt_deadline = "60s"', 'attempt_deadline = "60"', "validate", "attempt_deadline"),
    Mistake("allow and deny in one rule", "network.tf", '  allow {\n    protocol = "udp"\n  }', '  deny {\n    protocol = "udp"\n  }',
            "validate", "exactly one of allow and deny"),
    Mistake("tags beside service accounts", "network.tf", '  direction   = "INGRESS"',
            '  direction   = "INGRESS"\n  source_tags = ["a"]\n  target_service_accounts = ["b@example.com"]', "validate",
            "source_tags and target_service_accounts exclude each other"),
    Mistake("an underscore in a name", "network.tf", '"${var.name}-between-hosts"', '"${var.name}_between_hosts"', "test defaults",
            "does not match"),
    Mistake("a port by its name", "network.tf", '["22"]', '["ssh"]', "validate", "allow.ports"),
    Mistake("a member without its kind", "iam.tf", "member  = google_service_account.tpu.member",
            "member  = google_service_account.tpu.email", "test access", "does not match"),
    Mistake("an e-mail address for an account's name", "iam.tf", "service_account_id = google_service_account.tpu.name",
            "service_account_id = google_service_account.tpu.email", "test access", "service_account_id"),
    Mistake("a role without its prefix", "iam.tf", '"roles/iam.serviceAccountUser"', '"iam.serviceAccountUser"', "validate",
            "does not match"),
    Mistake("a budget by the project's id", "budget.tf", "data.google_project.this[0].number", "var.project_id", "test options",
            "budget_filter.projects"),
    Mistake("a type beside a configuration of chips", "tpu.tf", "  runtime_version  =",
            '  accelerator_config {\n    type     = "V4"\n    topology = "2x2x1"\n  }\n  runtime_version  =', "validate",
            "accelerator_type and accelerator_config exclude each other"),
    Mistake("a dash in the id of a role", "iam.tf", 'replace(var.name, "-", "_")', "var.name", "apply", "role_id"),
]  # fmt: skip

POLICY = [
    Mistake("SSH from everywhere", "network.tf", '"35.235.240.0/20"', '"0.0.0.0/0"', "test defaults", "SSH may come from IAP"),
    Mistake("all ports for IAP", "network.tf", '    ports    = ["22"]\n', "", "test defaults", "IAP may reach port 22"),
    Mistake("hosts open to all private addresses", "network.tf", "source_ranges = [var.subnet_cidr]", 'source_ranges = ["10.0.0.0/8"]',
            "test defaults", "All ports are open between the hosts"),
    Mistake("logins that are not logged", "network.tf", '\n\n  log_config {\n    metadata = "INCLUDE_ALL_METADATA"\n  }', "", "test defaults",
            "SSH connections must be logged"),
    Mistake("no way to Google's APIs", "network.tf", "private_ip_google_access = true", "private_ip_google_access = false",
            "test defaults", "Private Google Access"),
    Mistake("a bucket that may become public", "storage.tf", '"enforced"', '"inherited"', "test defaults", "be public"),
    Mistake("access lists on objects", "storage.tf", "uniform_bucket_level_access = true", "uniform_bucket_level_access = false",
            "test defaults", "access lists"),
    Mistake("buckets far from the TPUs", "storage.tf", "location      = var.region", 'location      = "EU"', "test defaults",
            "in the region of the TPUs"),
    Mistake("buckets that destroy empties", "storage.tf", "force_destroy = var.delete_buckets_with_content", "force_destroy = true",
            "test defaults", "survive terraform destroy"),
    Mistake("hours for days", "storage.tf", "* 86400", "* 3600", "test defaults", "for a week"),
    Mistake("a rule that deletes checkpoints", "storage.tf", 'suffix = ".log"', 'suffix = ""', "test defaults",
            "never records, checkpoints, outputs"),
    Mistake("a rule that deletes datasets", "storage.tf", "    data = []\n", '    data = [{ days = 30, prefix = "datasets/", suffix = "" }]\n',
            "test defaults", "No dataset may be deleted by age"),
    Mistake("APIs that destroy disables", "main.tf", "disable_on_destroy = false", "disable_on_destroy = true", "test defaults",
            "may not disable"),
    Mistake("another shape of the output", "outputs.tf", "    service_account = ", "    account         = ", "test defaults",
            "needs another schema number"),
    Mistake("more than a TPU VM needs in the project", "iam.tf", '"roles/logging.logWriter"', '"roles/editor"', "test access",
            "writes logs and metrics"),
    Mistake("TPU VMs that make TPU VMs", "iam.tf", '["tpu.nodes.get"]', '["tpu.nodes.get", "tpu.nodes.create"]', "test access",
            "nothing else of the Cloud TPU API"),
    Mistake("TPU VMs that cannot delete themselves", "iam.tf", '["tpu.nodes.delete", "tpu.operations.get"]',
            '["tpu.operations.get"]', "test access", "may look up and delete nodes"),
    Mistake("TPU VMs that write datasets", "iam.tf", 'data = ["roles/storage.objectViewer"', 'data = ["roles/storage.objectUser"',
            "test access", "reads datasets, and reads and creates"),
    Mistake("TPU VMs that overwrite records", "iam.tf", '"roles/storage.objectViewer", "roles/storage.objectCreator"]',
            '"roles/storage.objectUser"]', "test access", "reads datasets, and reads and creates"),
    Mistake("TPU VMs that overwrite what is in attempts", "iam.tf",
            '&& (resource.name.endsWith(\\"/status.json\\") || resource.name.endsWith(\\"/barrier/decision.json\\"))"', '"',
            "test access", "overwrites its status"),
    Mistake("TPU VMs that cannot end together", "iam.tf", ' || resource.name.endsWith(\\"/barrier/decision.json\\"))"', ')"',
            "test access", "overwrites its status"),
    Mistake("a role for overwriting that releases holds", "iam.tf", '["storage.objects.delete"]',
            '["storage.objects.delete", "storage.objects.update"]', "test access", "for overwriting alone"),
    Mistake("members who administer the project", "iam.tf", '"roles/tpu.admin"', '"roles/owner"', "test access", "administers TPUs"),
    Mistake("a tunnel to every port", "iam.tf", '"destination.port == 22"', '"true"', "test access", "tunnel to port 22"),
    Mistake("a self_delete that cannot be refused", "iam.tf", "var.self_delete ?", "true ?", "test access", "can delete nothing"),
    Mistake("a TPU with an external address", "tpu.tf", "enable_external_ips = false", "enable_external_ips = true", "test options",
            "without an external address"),
    Mistake("a TPU that runs as the default account", "tpu.tf", "email = google_service_account.tpu.email", "email = null",
            "test options", "not as the project's default one"),
    Mistake("an empty list of members without a word", "iam.tf", "length(var.members) > 0", "true", "test access", "members_are_named"),
    Mistake("a TPU that tpuctl down deletes", "main.tf", 'managed-by = "terraform"', 'managed-by = "tpuctl"', "test options",
            "keeps tpuctl down"),
    Mistake("a key that is set and not used", "storage.tf", "for_each = var.kms_key == null ? [] : [var.kms_key]", "for_each = []",
            "test options", "encrypted with the key|Invalid index"),
    Mistake("a key for everybody", "storage.tf", "data.google_storage_project_service_account.this[0].member", '"allAuthenticatedUsers"',
            "test options", "nobody else"),
    Mistake("members that may be everybody", "variables.tf", "(user|group|serviceAccount):[^@:\\\\s]+@[^@:\\\\s]+$", ".*", "test validations",
            "Missing expected failure"),
    Mistake("a zone of any region", "variables.tf", '"^${var.region}-[a-z]$"', '"^[a-z0-9-]+-[a-z]$"', "test validations",
            "Missing expected failure"),
    Mistake("a key of any region", "variables.tf", "locations/${var.region}/", "locations/[^/]+/", "test validations",
            "Missing expected failure"),
    Mistake("a watcher that administers the project", "watch.tf", '"roles/tpu.admin"', '"roles/editor"', "test watch",
            "administers TPUs, and nothing else"),
    Mistake("a watcher that reads datasets", "watch.tf", 'bucket = google_storage_bucket.this["runs"].name\n  role   = each.key',
            'bucket = google_storage_bucket.this["data"].name\n  role   = each.key', "test watch", "datasets are not for it"),
    Mistake("a watcher that overwrites everything of an attempt", "watch.tf", ' && resource.name.endsWith(\\"/lease.json\\")', "",
            "test watch", "overwrites leases and verdicts"),
    Mistake("a watcher with a tunnel to every port", "watch.tf", '"destination.port == 22"', '"destination.port > 0"', "test watch",
            "may tunnel to port 22"),
    Mistake("a job that runs as the default account", "watch.tf", "      service_account = google_service_account.watch[0].email\n", "",
            "test watch", "must run as its own account"),
    Mistake("a schedule with the watcher's rights", "watch.tf", "service_account_email = google_service_account.watch_trigger[0].email",
            "service_account_email = google_service_account.watch[0].email", "test watch", "as its own account"),
    Mistake("a schedule that may change the jobs", "watch.tf", '"roles/run.invoker"', '"roles/run.admin"', "test watch",
            "may start the jobs, and nothing else"),
    Mistake("a watcher that nobody asked for", "watch.tf", "toset(var.watch == null ? [] : var.watch.owners)", 'toset(["ada@example.com"])',
            "test watch", "Attempt to get attribute from null value|This value is null|Unless it is asked for"),
]  # fmt: skip

NAMES = [
    Mistake("an API of the schedule that Google lacks", "main.tf", '"cloudscheduler.googleapis.com"', '"scheduler.googleapis.com"', "names",
            "scheduler.googleapis.com"),
    Mistake("a role that Google lacks", "iam.tf", '"roles/tpu.admin"', '"roles/tpu.administrator"', "names", "roles/tpu.administrator"),
    Mistake("a composed role that Google lacks", "iam.tf", '"roles/logging.logWriter"',
            '"roles/${lower("LOGGING")}.logwriter"', "applied names", "roles/logging.logwriter"),
    Mistake("an API that Google lacks", "main.tf", '"tpu.googleapis.com"', '"cloudtpu.googleapis.com"', "names",
            "cloudtpu.googleapis.com"),
    Mistake("a permission that Google lacks", "iam.tf", '"tpu.nodes.delete"', '"tpu.nodes.destroy"', "names", "tpu.nodes.destroy"),
    Mistake("a permission for queued resources, which Google lacks", "iam.tf", '["tpu.nodes.delete",',
            '["tpu.nodes.delete", "tpu.queuedResources.delete",', "names", "tpu.queuedResources.delete"),
    Mistake("an accelerator that Google lacks", "examples/complete/main.tf", '"v4-8"', '"v4-9"', "names", "v4-9"),
    Mistake("an accelerator of another zone", "examples/complete/main.tf", '"v4-8"', '"v3-8"', "names", "not offered in us-central2-b"),
    Mistake("a runtime that Google lacks", "examples/complete/main.tf", '"tpu-ubuntu2204-base"', '"tpu-ubuntu-base"', "names",
            "tpu-ubuntu-base"),
    Mistake("a zone without TPUs", "examples/minimal/main.tf", '"europe-west4-a"', '"europe-west4-x"', "names", "europe-west4-x"),
    Mistake("an example with other versions of a provider", "examples/minimal/main.tf", '">= 6.50, < 9"', '">= 5.0"', "names", ">= 5.0"),
    Mistake("a plan that never settles", "main.tf", "tpuctl-base = var.name", 'tpuctl-base = formatdate("hhmmss", timestamp())',
            "second plan", "will be updated in-place"),
]  # fmt: skip

MISTAKES = [*LAYOUT, *SCHEMA, *TYPES, *REFERENCES, *ALLOWED_VALUES, *PROVIDER_RULES, *POLICY, *NAMES]

SAMPLE = [
    "columns that do not line up", "a variable that the README does not have", "a misspelled argument",
    "an argument that provider 7 removed", "a resource instead of its id", "an output that the module lacks",
    "a misspelled public_access_prevention", "allow and deny in one rule", "SSH from everywhere",
    "a role that Google lacks",
]  # fmt: skip
"""One mistake of each kind, for every run of the tests; the others take minutes."""

UNCAUGHT = [
    Mistake("a network before its API is on", "network.tf", "\n  depends_on = [google_project_service.this]\n", "", "", ""),
    Mistake("a slice beyond the quota", "examples/complete/main.tf", '"v4-8"', '"v4-4096"', "", ""),
    Mistake("a bucket name that somebody else owns", "examples/complete/main.tf", '"${var.project_id}-models"', '"models"', "", ""),
    Mistake("a currency that is not the account's", "examples/complete/main.tf", '"EUR"', '"XAF"', "", ""),
    Mistake("an argument whose change replaces the resource", "network.tf", "  ip_cidr_range            = var",
            '  purpose                  = "PRIVATE"\n  ip_cidr_range            = var', "", ""),
]  # fmt: skip
"""No check catches these, because only Google can see them; terraform/README.md lists them."""
