# The options.

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

run "own_key" {
  variables {
    kms_key = "projects/keys/locations/europe-west4/keyRings/r/cryptoKeys/k"
  }

  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : bucket.encryption[0].default_kms_key_name == var.kms_key])
    error_message = "Both buckets must be encrypted with the key."
  }
  assert {
    condition = (
      google_kms_crypto_key_iam_member.storage[0].member == "serviceAccount:service-123456789012@gs-project-accounts.iam.gserviceaccount.com" &&
      google_kms_crypto_key_iam_member.storage[0].role == "roles/cloudkms.cryptoKeyEncrypterDecrypter" &&
      google_kms_crypto_key_iam_member.storage[0].crypto_key_id == var.kms_key
    )
    error_message = "Cloud Storage's service account must have the key, and nobody else."
  }
  assert {
    condition     = contains(keys(google_project_service.this), "cloudkms.googleapis.com")
    error_message = "A key needs its API."
  }
}

run "long_lived_tpu" {
  variables {
    tpu    = { accelerator_type = "v3-8", runtime_version = "tpu-ubuntu2204-base", spot = true }
    labels = { team = "vision" }
  }

  assert {
    condition = (
      google_tpu_v2_vm.this[0].name == "tpuctl" && google_tpu_v2_vm.this[0].zone == var.zone &&
      google_tpu_v2_vm.this[0].accelerator_type == "v3-8" && google_tpu_v2_vm.this[0].scheduling_config[0].spot
    )
    error_message = "The TPU must be as requested."
  }
  assert {
    condition = (
      !google_tpu_v2_vm.this[0].network_config[0].enable_external_ips &&
      google_tpu_v2_vm.this[0].network_config[0].subnetwork == google_compute_subnetwork.this.id
    )
    error_message = "The TPU must be in the subnetwork, without an external address."
  }
  assert {
    condition     = google_tpu_v2_vm.this[0].service_account[0].email == google_service_account.tpu.email
    error_message = "The TPU must run as the account with the least rights, not as the project's default one."
  }
  assert {
    condition     = google_tpu_v2_vm.this[0].labels == tomap({ team = "vision", managed-by = "terraform", tpuctl-base = "tpuctl" })
    error_message = "The label managed-by keeps tpuctl down from deleting what Terraform manages."
  }
  assert {
    condition     = output.tpuctl.tpu == "tpuctl"
    error_message = "The output must name the TPU."
  }
}

run "budget" {
  variables {
    budget = { billing_account = "012345-6789AB-CDEF01", amount = 100, currency = "EUR", thresholds = [0.5, 1] }
  }

  assert {
    condition     = google_billing_budget.this[0].budget_filter[0].projects == toset(["projects/123456789012"])
    error_message = "The budget must be for this project only, by its number."
  }
  assert {
    condition = (
      google_billing_budget.this[0].amount[0].specified_amount[0].units == "100" &&
      google_billing_budget.this[0].amount[0].specified_amount[0].currency_code == "EUR" &&
      google_billing_budget.this[0].threshold_rules[*].threshold_percent == tolist([0.5, 1])
    )
    error_message = "The budget must be as requested."
  }
  assert {
    condition     = contains(keys(google_project_service.this), "billingbudgets.googleapis.com")
    error_message = "A budget needs its API."
  }
}

run "registry" {
  variables {
    artifact_registry = true
  }

  assert {
    condition     = google_artifact_registry_repository.this[0].format == "DOCKER" && google_artifact_registry_repository.this[0].location == var.region
    error_message = "Images must be in the region of the TPUs."
  }
  assert {
    condition     = contains(keys(google_project_service.this), "artifactregistry.googleapis.com")
    error_message = "A repository needs its API."
  }
}

run "names_and_days" {
  variables {
    name             = "vision"
    bucket_names     = { runs = "my-runs" }
    bundle_days      = 0
    log_days         = 30
    soft_delete_days = 0
  }

  assert {
    condition     = { for key, bucket in google_storage_bucket.this : key => bucket.name } == { data = "demo-project-1-vision-data", runs = "my-runs" }
    error_message = "Each bucket name can be set or left to the default."
  }
  assert {
    condition     = [for rule in google_storage_bucket.this["runs"].lifecycle_rule : one(rule.condition).matches_prefix[0] if one(rule.action).type == "Delete"] == ["runs/"]
    error_message = "0 days must mean never."
  }
  assert {
    condition     = alltrue([for bucket in google_storage_bucket.this : bucket.soft_delete_policy[0].retention_duration_seconds == 0])
    error_message = "0 days of soft delete must turn it off."
  }
  assert {
    condition     = google_compute_network.this.name == "vision" && google_service_account.tpu.account_id == "vision-tpu" && google_project_iam_custom_role.tpu.role_id == "vision_tpu"
    error_message = "The name must begin the names of all resources."
  }
}
