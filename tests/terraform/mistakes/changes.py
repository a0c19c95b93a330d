"""Mistakes that drop or weaken something that no plan asserts: dependencies, lifecycles, versions, ranges, rules."""

# ruff: noqa: E501  a table

from __future__ import annotations

from tests.terraform.mistakes.mistake import Mistake

APIS = "\n  depends_on = [google_project_service.this]\n"
ACCOUNT = 'display_name = "TPU VMs of ${var.name}"\n'

ORDER = [
    Mistake("a network before its API is on", "network.tf", APIS, "", "files", "resource google_compute_network.this differs"),
    Mistake("an account before its API is on", "iam.tf", f"{ACCOUNT}{APIS}", ACCOUNT, "files", "resource google_service_account.tpu differs"),
    Mistake("a project that is read before its API is on", "budget.tf", "  depends_on = [google_project_service.this]\n}\n\nresource", "}\n\nresource", "files", "data google_project.this differs"),
    Mistake("a TPU before its rights", "tpu.tf", ", google_project_iam_member.tpu, google_storage_bucket_iam_member.tpu,", ",", "files", "resource google_tpu_v2_vm.this differs"),
    Mistake("a TPU before its way out", "tpu.tf", "google_compute_router_nat.this, ", "", "files", "resource google_tpu_v2_vm.this differs"),
    Mistake("a bucket before the key may be used", "storage.tf", ", google_kms_crypto_key_iam_member.storage]", "]", "files", "resource google_storage_bucket.this differs"),
    Mistake("an output before the rules are there", "outputs.tf", "    google_compute_firewall.ssh_through_iap,\n", "", "files", "output tpuctl differs"),
    Mistake("a schedule before it may start the job", "watch.tf", "\n  depends_on = [google_cloud_run_v2_job_iam_member.watch_trigger]\n", "", "files", "resource google_cloud_scheduler_job.watch differs"),
    Mistake("a name for a reference", "network.tf", "  router                             = google_compute_router.this.name", "  router                             = var.name",
            "files", '- after = ["google_compute_router.this", "google_compute_subnetwork.this"]'),
]  # fmt: skip

LIFECYCLES = [
    Mistake("SSH keys that terraform takes away", "tpu.tf", "    ignore_changes = [metadata]\n", "", "files", "resource google_tpu_v2_vm.this differs"),
    Mistake("changes of a TPU that nobody sees", "tpu.tf", "ignore_changes = [metadata]", "ignore_changes = all", "files", "ignore_changes"),
    Mistake("a TPU that is made before the old one is gone", "tpu.tf", "    ignore_changes = [metadata]", "    ignore_changes        = [metadata]\n    create_before_destroy = true", "files", "create_before_destroy"),
    Mistake("an old terraform", "versions.tf", 'required_version = ">= 1.9"', 'required_version = ">= 1.0"', "files", '+ required_version = ">= 1.0"'),
    Mistake("any terraform", "versions.tf", '  required_version = ">= 1.9"\n', "", "files", '- required_version = ">= 1.9"'),
    Mistake("any terraform for an example", "examples/minimal/main.tf", '  required_version = ">= 1.9"\n', "", "files", "terraform/examples/minimal is not as recorded"),
    Mistake("a provider of another source", "versions.tf", '"hashicorp/google"', '"example/google"', "files", "the provider google comes from 'example/google'"),
    Mistake("any version of a provider", "versions.tf", '      version = ">= 6.50, < 9"\n', "", "files", "terraform differs"),
    Mistake("a project that calls do not count against", "examples/complete/main.tf", "user_project_override = true", "user_project_override = false", "files", "provider google differs"),
    Mistake("a module of another place", "examples/minimal/main.tf", 'source = "../.."', 'source = "tpuctl/base/google"', "files", "comes from 'tpuctl/base/google'"),
    Mistake("a variable that may be null", "variables.tf", '  default     = "10.128.0.0/20"\n  nullable    = false\n', '  default     = "10.128.0.0/20"\n', "files", "variable subnet_cidr differs"),
    Mistake("a default that deletes", "variables.tf", 'Let terraform destroy delete buckets that still hold objects: datasets, checkpoints, logs."\n  type        = bool\n  default     = false',
            'Let terraform destroy delete buckets that still hold objects: datasets, checkpoints, logs."\n  type        = bool\n  default     = true', "files", "variable delete_buckets_with_content differs"),
]  # fmt: skip

ACCESS = [
    Mistake("an account that is disabled", "iam.tf", '  account_id   = "${var.name}-tpu"', '  account_id   = "${var.name}-tpu"\n  disabled     = true', "plan plain", "+ disabled = true"),
    Mistake("a wider range than IAP's", "network.tf", '"35.235.240.0/20"', '"35.235.0.0/16"', "plan plain", "opens port 22 to 35.235.0.0/16"),
    Mistake("a part of IAP's range", "network.tf", '"35.235.240.0/20"', '"35.235.240.0/21"', "plan plain", "google_compute_firewall.ssh_through_iap differs"),
    Mistake("one port more", "network.tf", '["22"]', '["22-23"]', "plan plain", '+ allow[0].ports = ["22-23"]'),
    Mistake("a rule that is off", "network.tf", '  description = "SSH from Google\'s', '  disabled    = true\n  description = "SSH from Google\'s', "plan plain", "+ disabled = true"),
    Mistake("a rule for what goes out", "network.tf", '  direction   = "INGRESS"', '  direction   = "EGRESS"', "plan plain", '+ direction = "EGRESS"'),
    Mistake("hosts that cannot exchange gradients", "network.tf", '  allow {\n    protocol = "udp"\n  }\n', "", "plan plain", "google_compute_firewall.between_hosts differs"),
    Mistake("a range for SSH that nobody configured", "network.tf", "source_ranges = var.ssh_ranges", 'source_ranges = concat(tolist(var.ssh_ranges), ["198.51.100.0/24"])', "plan vpn", "opens port 22 to 198.51.100.0/24"),
    Mistake("deletion under a condition that always holds", "iam.tf", "/objects/runs/\\\") && ${local", "/objects/runs/\\\") || ${local", "plan plain", "without a condition for those below runs/"),
    Mistake("deletion or anything", "iam.tf", "${local.overwrite_conditions[each.key]}\"", '${local.overwrite_conditions[each.key]} || true"', "plan plain", "without a condition for those below runs/"),
    Mistake("members without a grant", "iam.tf", "  for_each = var.members\n\n  service_account_id", "  for_each = toset([])\n\n  service_account_id", "plan plain", "google_service_account_iam_member.member[\"user:ada@example.com\"] is gone"),
    Mistake("a key that its user administers", "storage.tf", "roles/cloudkms.cryptoKeyEncrypterDecrypter", "roles/cloudkms.admin", "plan key", "grants roles/cloudkms.admin"),
    Mistake("a key for another account", "storage.tf", "data.google_storage_project_service_account.this[0].member", "google_service_account.tpu.member", "plan key", "gives TPU VMs roles/cloudkms"),
    Mistake("a label that hides whose a TPU is", "main.tf", 'merge(var.labels, { managed-by = "terraform", tpuctl-base = var.name })', 'merge({ managed-by = "terraform", tpuctl-base = var.name }, var.labels)', "plan names", "mine"),
    Mistake("an API that is forgotten", "main.tf", '      "iap.googleapis.com",\n', "", "plan plain", 'google_project_service.this["iap.googleapis.com"] is gone'),
    Mistake("a NAT for all subnetworks of the network", "network.tf", '"LIST_OF_SUBNETWORKS"', '"ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES"', "plan plain", "google_compute_router_nat.this differs"),
    Mistake("a network with subnetworks everywhere", "network.tf", "auto_create_subnetworks = false", "auto_create_subnetworks = true", "plan plain", "google_compute_network.this differs"),
    Mistake("a MTU that nobody can choose", "network.tf", "= var.mtu", "= 8896", "plan network", "- mtu = 1460"),
    Mistake("a TPU with fewer scopes", "tpu.tf", "auth/cloud-platform", "auth/devstorage.read_only", "plan complete", "service_account[0].scope"),
    Mistake("spot for reserved", "tpu.tf", "spot     = var.tpu.spot", "spot     = var.tpu.reserved", "plan tpu", "+ scheduling_config[0].spot = true"),
    Mistake("a TPU that is given up after 20 minutes", "tpu.tf", 'create = "60m"', 'create = "20m"', "plan tpu", '"20m"'),
    Mistake("a budget of all projects", "budget.tf", '    projects        = ["projects/${data.google_project.this[0].number}"]\n', "", "plan budget", "- budget_filter[0].projects"),
    Mistake("a budget that alerts nobody", "budget.tf", "for_each = var.budget.thresholds", "for_each = []", "plan budget", "- threshold_rules[0].threshold_percent"),
    Mistake("a step that is repeated", "watch.tf", "max_retries = 0", "max_retries = 3", "plan watch", "template[0].template[0].max_retries = 3"),
    Mistake("a job of any image", "watch.tf", "image   = var.watch.image", 'image   = "docker.io/library/python:latest"', "plan watch", "python:latest"),
    Mistake("storage that costs to read", "storage.tf", '"STANDARD"', '"NEARLINE"', "plan plain", '+ storage_class = "NEARLINE"'),
    Mistake("an argument whose change replaces the resource", "network.tf", "  ip_cidr_range            = var", '  purpose                  = "PRIVATE"\n  ip_cidr_range            = var', "plan plain", '+ purpose = "PRIVATE"'),
    Mistake("a base that says it has external addresses", "outputs.tf", "external_ips    = false", "external_ips    = true", "plan plain", "+ external_ips = true"),
]  # fmt: skip

RULES = [
    Mistake("any MTU", "variables.tf", "var.mtu >= 1300 && ", "", "edges", "mtu = 1299 is accepted"),
    Mistake("names of any length", "variables.tf", "[-a-z0-9]{1,19}[a-z0-9]$\", var.name", "[-a-z0-9]+[a-z0-9]$\", var.name", "edges", f'name = "{"a" * 22}" is accepted'),
    Mistake("ranges with public addresses", "variables.tf", '>= { "10" = 8, "172" = 12, "192" = 16 }[split(".", var.subnet_cidr)[0]]', ">= 8", "edges", 'subnet_cidr = "192.168.0.0/15" is accepted'),
    Mistake("SSH from a part of the internet", "variables.tf", "<= 65536", "<= 4294967296", "edges", 'ssh_ranges = ["203.0.0.0/15"] is accepted'),
    Mistake("half a day", "variables.tf", "var.bundle_days >= 0 && floor(var.bundle_days) == var.bundle_days", "var.bundle_days >= 0", "edges", "bundle_days = 0.5 is accepted"),
    Mistake("one bucket for all", "variables.tf", '-data") != coalesce(', '-data") != var.zone || "" != coalesce(', "edges", 'bucket_names = {"data": "abc", "runs": "abc"} is accepted'),
    Mistake("a refusal of what is good", "variables.tf", "var.soft_delete_days <= 90", "var.soft_delete_days < 90", "edges", "soft_delete_days = 90 is refused"),
    Mistake("a reason that says nothing", "variables.tf", '"protection is records, checkpoints or nothing."', '"No."', "edges", 'protection = "all" is refused for another reason'),
]  # fmt: skip

CHANGES = [*ORDER, *LIFECYCLES, *ACCESS, *RULES]
