# The defaults: only project, region, zone and members are set.

mock_provider "google" {
  source = "./tests/mocks"
}
mock_provider "google-beta" {}

variables {
  protection = "records"
  project_id = "demo-project-1"
  region     = "europe-west4"
  zone       = "europe-west4-a"
  members    = ["user:ada@example.com"]
}

run "network" {
  assert {
    condition     = !google_compute_network.this.auto_create_subnetworks && google_compute_network.this.mtu == 8896
    error_message = "The network must have no subnetworks in other regions, and a large MTU."
  }
  assert {
    condition     = google_compute_subnetwork.this.private_ip_google_access && google_compute_subnetwork.this.region == var.region
    error_message = "VMs without external addresses reach Google's APIs only through Private Google Access."
  }
  assert {
    condition = (
      google_compute_router_nat.this.nat_ip_allocate_option == "AUTO_ONLY" &&
      google_compute_router_nat.this.source_subnetwork_ip_ranges_to_nat == "LIST_OF_SUBNETWORKS" &&
      one(google_compute_router_nat.this.subnetwork).name == google_compute_subnetwork.this.id &&
      google_compute_router_nat.this.router == google_compute_router.this.name
    )
    error_message = "Cloud NAT must serve only the subnetwork of the TPU VMs."
  }
}

run "ssh_only_through_iap" {
  assert {
    condition     = google_compute_firewall.ssh_through_iap.source_ranges == toset(["35.235.240.0/20"])
    error_message = "SSH may come from IAP's range only."
  }
  assert {
    condition = (
      one(google_compute_firewall.ssh_through_iap.allow).protocol == "tcp" &&
      one(google_compute_firewall.ssh_through_iap.allow).ports == tolist(["22"])
    )
    error_message = "IAP may reach port 22 only."
  }
  assert {
    condition     = length(google_compute_firewall.ssh_through_iap.log_config) == 1
    error_message = "SSH connections must be logged."
  }
  assert {
    condition     = google_compute_firewall.between_hosts.source_ranges == toset([var.subnet_cidr])
    error_message = "All ports are open between the hosts of the subnetwork only."
  }
  assert {
    condition     = alltrue([for rule in [google_compute_firewall.ssh_through_iap, google_compute_firewall.between_hosts] : rule.direction == "INGRESS" && rule.network == google_compute_network.this.id])
    error_message = "The rules are for incoming traffic of this network."
  }
}

run "buckets" {
  assert {
    condition     = { for key, bucket in google_storage_bucket.this : key => bucket.name } == { data = "demo-project-1-tpuctl-data", runs = "demo-project-1-tpuctl-runs" }
    error_message = "The buckets' names must follow from project and name."
  }
  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : bucket.uniform_bucket_level_access && bucket.public_access_prevention == "enforced"])
    error_message = "No bucket may have access lists or be public."
  }
  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : lower(bucket.location) == var.region])
    error_message = "The buckets must be in the region of the TPUs."
  }
  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : !bucket.force_destroy && bucket.soft_delete_policy[0].retention_duration_seconds == 604800])
    error_message = "Data must survive terraform destroy, and a deletion for a week."
  }
  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : length(bucket.encryption) == 0])
    error_message = "Without kms_key the keys are Google-managed."
  }
}

run "lifecycle" {
  assert {
    condition = alltrue([
      for bucket in google_storage_bucket.this :
      length([for rule in bucket.lifecycle_rule : rule if one(rule.action).type == "AbortIncompleteMultipartUpload" && one(rule.condition).age == 7]) == 1
    ])
    error_message = "Unfinished uploads must be deleted after a week, in both buckets."
  }
  assert {
    condition     = length([for rule in google_storage_bucket.this["data"].lifecycle_rule : rule if one(rule.action).type == "Delete"]) == 0
    error_message = "No dataset may be deleted by age."
  }
  assert {
    condition = {
      for rule in google_storage_bucket.this["runs"].lifecycle_rule :
      one(rule.condition).matches_prefix[0] => [one(rule.condition).age, one(rule.condition).matches_suffix[0]] if one(rule.action).type == "Delete"
    } == { "bundles/" = [180, ".tar.gz"], "runs/" = [365, ".log"] }
    error_message = "In the bucket of runs, only bundles and logs may be deleted by age: never records and checkpoints, nor outputs but those called .log."
  }
}

run "apis" {
  assert {
    condition = toset(keys(google_project_service.this)) == toset([
      "cloudbilling.googleapis.com", "cloudquotas.googleapis.com",
      "cloudresourcemanager.googleapis.com", "compute.googleapis.com", "iam.googleapis.com", "iap.googleapis.com", "logging.googleapis.com",
      "monitoring.googleapis.com", "storage.googleapis.com", "tpu.googleapis.com",
    ])
    error_message = "The required APIs must be enabled, and none of an option that is off."
  }
  assert {
    condition     = alltrue([for api in google_project_service.this : !api.disable_on_destroy])
    error_message = "terraform destroy may not disable APIs that others in the project use."
  }
}

run "nothing_that_bills_by_the_hour" {
  assert {
    condition     = length(google_tpu_v2_vm.this) + length(google_billing_budget.this) + length(google_artifact_registry_repository.this) + length(google_kms_crypto_key_iam_member.storage) == 0
    error_message = "All optional resources must be off."
  }
}

run "output" {
  assert {
    condition = jsonencode(output.tpuctl) == jsonencode({
      buckets         = { data = "gs://demo-project-1-tpuctl-data", runs = "gs://demo-project-1-tpuctl-runs" }
      external_ips    = false
      network         = "tpuctl"
      project         = "demo-project-1"
      region          = "europe-west4"
      registry        = null
      schema          = 1
      service_account = "tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
      subnetwork      = "tpuctl-europe-west4"
      subnetworks     = { europe-west4 = "tpuctl-europe-west4" }
      tpu             = null
      zone            = "europe-west4-a"
    })
    error_message = "tpuctl init --from-terraform reads this; a change of a field needs another schema number, a new field does not."
  }
}
