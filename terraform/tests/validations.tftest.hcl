# Values that are refused before the plan, by variable.

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

run "zone_of_another_region" {
  command = plan

  variables {
    zone = "us-central1-a"
  }

  expect_failures = [var.zone]
}

run "zone_that_is_a_region" {
  command = plan

  variables {
    zone = "europe-west4"
  }

  expect_failures = [var.zone]
}

run "region_that_is_a_multi_region" {
  command = plan

  variables {
    region = "EU"
  }

  expect_failures = [var.region]
}

run "region_that_is_a_zone" {
  command = plan

  variables {
    region = "europe-west4-a"
  }

  expect_failures = [var.region]
}

run "project_number" {
  command = plan

  variables {
    project_id = "123456789012"
  }

  expect_failures = [var.project_id]
}

run "project_name" {
  command = plan

  variables {
    project_id = "My project"
  }

  expect_failures = [var.project_id]
}

run "name_with_capitals" {
  command = plan

  variables {
    name = "Vision"
  }

  expect_failures = [var.name]
}

run "name_too_long_for_an_account" {
  command = plan

  variables {
    name = "a-name-of-22-characters"
  }

  expect_failures = [var.name]
}

run "name_that_ends_in_a_dash" {
  command = plan

  variables {
    name = "vision-"
  }

  expect_failures = [var.name]
}

run "everybody" {
  command = plan

  variables {
    members = ["allUsers"]
  }

  expect_failures = [var.members]
}

run "everybody_with_an_account" {
  command = plan

  variables {
    members = ["allAuthenticatedUsers"]
  }

  expect_failures = [var.members]
}

run "an_entire_domain" {
  command = plan

  variables {
    members = ["domain:example.com"]
  }

  expect_failures = [var.members]
}

run "member_without_kind" {
  command = plan

  variables {
    members = ["ada@example.com"]
  }

  expect_failures = [var.members]
}

run "one_bad_member_of_two" {
  command = plan

  variables {
    members = ["user:ada@example.com", "user:bob"]
  }

  expect_failures = [var.members]
}

run "bucket_with_capitals" {
  command = plan

  variables {
    bucket_names = { data = "My-Data" }
  }

  expect_failures = [var.bucket_names]
}

run "bucket_as_uri" {
  command = plan

  variables {
    bucket_names = { runs = "gs://my-runs" }
  }

  expect_failures = [var.bucket_names]
}

run "bucket_of_google" {
  command = plan

  variables {
    bucket_names = { runs = "my-google-runs" }
  }

  expect_failures = [var.bucket_names]
}

run "one_bucket_for_both" {
  command = plan

  variables {
    bucket_names = { data = "mine", runs = "mine" }
  }

  expect_failures = [var.bucket_names]
}

run "one_bucket_by_the_name_of_the_other" {
  command = plan

  variables {
    bucket_names = { data = "demo-project-1-tpuctl-runs" }
  }

  expect_failures = [var.bucket_names]
}

run "bucket_name_too_long_by_rule" {
  command = plan

  variables {
    project_id = "example.com:a-project-with-30-characters-x"
    name       = "name-of-21-characters"
  }

  expect_failures = [var.bucket_names]
}

run "key_of_another_region" {
  command = plan

  variables {
    kms_key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
  }

  expect_failures = [var.kms_key]
}

run "key_version_for_key" {
  command = plan

  variables {
    kms_key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
  }

  expect_failures = [var.kms_key]
}

run "soft_delete_of_a_day" {
  command = plan

  variables {
    soft_delete_days = 1
  }

  expect_failures = [var.soft_delete_days]
}

run "soft_delete_of_a_year" {
  command = plan

  variables {
    soft_delete_days = 365
  }

  expect_failures = [var.soft_delete_days]
}

run "negative_log_days" {
  command = plan

  variables {
    log_days = -1
  }

  expect_failures = [var.log_days]
}

run "half_a_day_of_bundles" {
  command = plan

  variables {
    bundle_days = 0.5
  }

  expect_failures = [var.bundle_days]
}

run "mtu_too_large" {
  command = plan

  variables {
    mtu = 9000
  }

  expect_failures = [var.mtu]
}

run "public_range" {
  command = plan

  variables {
    subnet_cidr = "8.8.0.0/20"
  }

  expect_failures = [var.subnet_cidr]
}

run "range_that_is_an_address" {
  command = plan

  variables {
    subnet_cidr = "10.0.0.0"
  }

  expect_failures = [var.subnet_cidr]
}

run "range_with_host_bits" {
  command = plan

  variables {
    subnet_cidr = "10.0.0.1/20"
  }

  expect_failures = [var.subnet_cidr]
}

run "range_too_small" {
  command = plan

  variables {
    subnet_cidr = "10.0.0.0/30"
  }

  expect_failures = [var.subnet_cidr]
}

run "label_with_capitals" {
  command = plan

  variables {
    labels = { Team = "vision" }
  }

  expect_failures = [var.labels]
}

run "label_value_with_blank" {
  command = plan

  variables {
    labels = { team = "our team" }
  }

  expect_failures = [var.labels]
}

run "accelerator_of_nvidia" {
  command = plan

  variables {
    tpu = { accelerator_type = "a100", runtime_version = "r" }
  }

  expect_failures = [var.tpu]
}

run "tpu_both_spot_and_reserved" {
  command = plan

  variables {
    tpu = { accelerator_type = "v3-8", runtime_version = "r", spot = true, reserved = true }
  }

  expect_failures = [var.tpu]
}

run "tpu_name_with_underscore" {
  command = plan

  variables {
    tpu = { accelerator_type = "v3-8", runtime_version = "r", name = "my_tpu" }
  }

  expect_failures = [var.tpu]
}

run "billing_account_by_name" {
  command = plan

  variables {
    budget = { billing_account = "billing", amount = 1 }
  }

  expect_failures = [var.budget]
}

run "budget_of_nothing" {
  command = plan

  variables {
    budget = { billing_account = "012345-6789AB-CDEF01", amount = 0 }
  }

  expect_failures = [var.budget]
}

run "threshold_in_percent" {
  command = plan

  variables {
    budget = { billing_account = "012345-6789AB-CDEF01", amount = 1, thresholds = [50] }
  }

  expect_failures = [var.budget]
}

run "what_is_just_right" {
  command = plan

  variables {
    project_id       = "example.com:demo-project-1"
    name             = "name-of-21-characters"
    members          = ["principalSet://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/group/g"]
    soft_delete_days = 90
    mtu              = 1300
    subnet_cidr      = "172.31.255.248/29"
    tpu              = { accelerator_type = "v5litepod-16", runtime_version = "r", reserved = true }
  }

  assert {
    condition     = google_storage_bucket.this["data"].name == "example-com-demo-project-1-name-of-21-characters-data"
    error_message = "A project of a domain has a colon and a dot in its id; a bucket's name may have neither."
  }
}
