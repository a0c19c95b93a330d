# The scheduled job: off by default; with the rights that the calls of a step need.

mock_provider "google" {
  source = "./tests/mocks"
}
mock_provider "google-beta" {}

override_resource {
  target = google_service_account.watch
  values = { email = "watch@demo-project-1.iam.gserviceaccount.com", member = "serviceAccount:watch@demo-project-1.iam.gserviceaccount.com" }
}
override_resource {
  target = google_service_account.watch_trigger
  values = { email = "trigger@demo-project-1.iam.gserviceaccount.com", member = "serviceAccount:trigger@demo-project-1.iam.gserviceaccount.com" }
}

variables {
  protection = "records"
  project_id = "demo-project-1"
  region     = "europe-west4"
  zone       = "europe-west4-a"
  members    = ["user:ada@example.com"]
}

run "off" {
  assert {
    condition = length(concat(
      google_service_account.watch, google_service_account.watch_trigger, google_project_iam_member.watch, google_project_iam_custom_role.watch_overwrite,
      values(google_cloud_run_v2_job.watch), values(google_cloud_scheduler_job.watch), values(google_storage_bucket_iam_member.watch),
      values(google_storage_bucket_iam_member.watch_overwrite), google_iap_tunnel_iam_member.watch, google_service_account_iam_member.watch,
    )) == 0
    error_message = "Unless it is asked for, nobody watches, and nobody has rights for that."
  }
  assert {
    condition     = length(setintersection(keys(google_project_service.this), ["run.googleapis.com", "cloudscheduler.googleapis.com"])) == 0
    error_message = "Unless it is asked for, its APIs stay off."
  }
}

run "rights" {
  variables {
    watch = { owners = ["ada@example.com", "bob@example.com"], types = ["v3-8"], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  assert {
    condition     = [for grant in google_project_iam_member.watch : "${grant.member} ${grant.role}"] == ["serviceAccount:watch@demo-project-1.iam.gserviceaccount.com roles/tpu.admin"]
    error_message = "In the project the watcher administers TPUs, and nothing else."
  }
  assert {
    condition = (
      google_service_account_iam_member.watch[0].service_account_id == google_service_account.tpu.name &&
      google_service_account_iam_member.watch[0].role == "roles/iam.serviceAccountUser" &&
      google_service_account_iam_member.watch[0].member == google_service_account.watch[0].member
    )
    error_message = "The watcher lets VMs run as the TPU account, and as no other."
  }
  assert {
    condition = (
      google_iap_tunnel_iam_member.watch[0].role == "roles/iap.tunnelResourceAccessor" &&
      one(google_iap_tunnel_iam_member.watch[0].condition).expression == "destination.port == 22"
    )
    error_message = "The watcher may tunnel to port 22, and to no other."
  }
  assert {
    condition = toset([for grant in google_storage_bucket_iam_member.watch : "${grant.role} on ${grant.bucket}"]) == toset([
      "roles/storage.objectViewer on demo-project-1-tpuctl-runs", "roles/storage.objectCreator on demo-project-1-tpuctl-runs",
    ])
    error_message = "The watcher reads and creates objects of runs; datasets are not for it."
  }
  assert {
    condition = { for key, grant in google_storage_bucket_iam_member.watch_overwrite : key => one(grant.condition).expression } == {
      for key, expression in {
        leases   = "resource.name.extract(\"/objects/runs/{run}/attempts/\") != \"\" && resource.name.endsWith(\"/lease.json\")"
        verdicts = "resource.name.endsWith(\"/verdict.json\") && resource.name.extract(\"/objects/runs/{run}/attempts/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/checkpoints/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/outputs/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/tensorboard/\") == \"\""
        results  = "resource.name.endsWith(\"/results.json\") && resource.name.extract(\"/objects/runs/{run}/attempts/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/checkpoints/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/outputs/\") == \"\" && resource.name.extract(\"/objects/runs/{run}/tensorboard/\") == \"\""
      } : key => "resource.name.startsWith(\"projects/_/buckets/demo-project-1-tpuctl-runs/objects/runs/\") && ${expression}"
    }
    error_message = "The watcher overwrites leases, verdicts and results, and nothing else."
  }
  assert {
    condition     = google_project_iam_custom_role.watch_overwrite[0].permissions == toset(["storage.objects.delete"])
    error_message = "The role for overwriting is for overwriting alone."
  }
  assert {
    condition = alltrue([
      for grant in google_cloud_run_v2_job_iam_member.watch_trigger :
      grant.role == "roles/run.invoker" && grant.member == google_service_account.watch_trigger[0].member
    ])
    error_message = "The schedule's account may start the jobs, and nothing else."
  }
}

run "job" {
  variables {
    watch = { owners = ["ada@example.com"], types = ["v3-8"], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  assert {
    condition     = alltrue([for job in google_cloud_run_v2_job.watch : one(one(job.template).template).service_account == google_service_account.watch[0].email])
    error_message = "The job must run as its own account."
  }
  assert {
    condition = { for entry in one(one(one(google_cloud_run_v2_job.watch["ada@example.com"].template).template).containers).env : entry.name => entry.value } == {
      TPUCTL_TARGET          = "gcp"
      TPUCTL_PROJECT         = "demo-project-1"
      TPUCTL_ZONE            = "europe-west4-a"
      TPUCTL_BUCKET          = "demo-project-1-tpuctl-runs"
      TPUCTL_DATA_BUCKET     = "demo-project-1-tpuctl-data"
      TPUCTL_IAP             = "true"
      TPUCTL_SSH_USER        = "tpuctl"
      TPUCTL_OWNER           = "ada@example.com"
      TPUCTL_WATCH_TYPES     = "v3-8"
      TPUCTL_WATCH_ZONES     = "europe-west4-a"
      TPUCTL_SERVICE_ACCOUNT = "tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
      TPUCTL_NETWORK         = "tpuctl"
      TPUCTL_SUBNETWORKS     = "europe-west4=tpuctl-europe-west4"
      TPUCTL_EXTERNAL_IPS    = "false"
    }
    error_message = "The job must know project, buckets and owner, and the limits of what it makes."
  }
  assert {
    condition = (
      one(one(one(google_cloud_run_v2_job.watch["ada@example.com"].template).template).containers).command == tolist(["tpuctl"]) &&
      one(one(one(google_cloud_run_v2_job.watch["ada@example.com"].template).template).containers).args == tolist(["watch", "--all", "--once"])
    )
    error_message = "The job must take one step of all runs, and install nothing."
  }
  assert {
    condition = (
      one(google_cloud_scheduler_job.watch["ada@example.com"].http_target).uri == "https://run.googleapis.com/v2/projects/demo-project-1/locations/europe-west4/jobs/${google_cloud_run_v2_job.watch["ada@example.com"].name}:run" &&
      one(one(google_cloud_scheduler_job.watch["ada@example.com"].http_target).oauth_token).service_account_email == google_service_account.watch_trigger[0].email &&
      google_cloud_scheduler_job.watch["ada@example.com"].schedule == "*/5 * * * *"
    )
    error_message = "The schedule must start this job each five minutes, as its own account."
  }
  assert {
    condition     = alltrue([for api in ["run.googleapis.com", "cloudscheduler.googleapis.com"] : contains(keys(google_project_service.this), api)])
    error_message = "The job needs its APIs."
  }
}

run "limits" {
  variables {
    regions = { us-central1 = "10.129.0.0/20" }
    watch = {
      owners    = ["ada@example.com"]
      types     = ["v4-8", "v3-8"]
      zones     = ["us-central1-b", "europe-west4-b"]
      max_price = 12.5
      image     = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
      region    = "europe-west1"
      schedule  = "0 * * * *"
    }
  }

  assert {
    condition = { for entry in one(one(one(google_cloud_run_v2_job.watch["ada@example.com"].template).template).containers).env : entry.name => entry.value if startswith(entry.name, "TPUCTL_WATCH_") || entry.name == "TPUCTL_SUBNETWORKS" } == {
      TPUCTL_WATCH_TYPES     = "v3-8,v4-8"
      TPUCTL_WATCH_ZONES     = "europe-west4-b,us-central1-b"
      TPUCTL_WATCH_MAX_PRICE = "12.50"
      TPUCTL_SUBNETWORKS     = "europe-west4=tpuctl-europe-west4,us-central1=tpuctl-us-central1"
    }
    error_message = "The job must make what it is allowed to make, and nothing else."
  }
  assert {
    condition     = google_cloud_run_v2_job.watch["ada@example.com"].location == "europe-west1" && google_cloud_scheduler_job.watch["ada@example.com"].region == "europe-west1"
    error_message = "Job and schedule must be in the region that was asked for."
  }
}

run "no_owner" {
  command = plan
  variables {
    watch = { owners = [], types = ["v3-8"], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }
  expect_failures = [var.watch]
}

run "no_type" {
  command = plan
  variables {
    watch = { owners = ["ada@example.com"], types = [], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }
  expect_failures = [var.watch]
}

run "zone_without_subnetwork" {
  command = plan
  variables {
    watch = { owners = ["ada@example.com"], types = ["v3-8"], zones = ["us-central1-b"], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }
  expect_failures = [var.watch]
}

run "no_price" {
  command = plan
  variables {
    watch = { owners = ["ada@example.com"], types = ["v3-8"], max_price = 0, image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }
  expect_failures = [var.watch]
}

run "image_by_tag" {
  command = plan
  variables {
    watch = { owners = ["ada@example.com"], types = ["v3-8"], image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl:1" }
  }
  expect_failures = [var.watch]
}

run "no_schedule" {
  command = plan
  variables {
    watch = { owners = ["ada@example.com"], types = ["v3-8"], schedule = "each minute", image = "europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }
  expect_failures = [var.watch]
}
