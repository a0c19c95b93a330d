# Least privilege: every grant by name. Add each new grant here too.

mock_provider "google" {
  source = "./tests/mocks"
}
mock_provider "google-beta" {}

variables {
  protection = "records"
  project_id = "demo-project-1"
  region     = "europe-west4"
  zone       = "europe-west4-a"
  members    = ["user:ada@example.com", "group:lab@example.com"]
}

run "tpu_vms" {
  assert {
    condition     = google_project_iam_custom_role.tpu.permissions == toset(["tpu.nodes.get", "tpu.nodes.delete", "tpu.operations.get"])
    error_message = "A TPU VM may look up and delete nodes, and nothing else of the Cloud TPU API."
  }
  assert {
    condition = toset([for grant in google_project_iam_member.tpu : grant.role]) == toset([
      google_project_iam_custom_role.tpu.id, "roles/logging.logWriter", "roles/monitoring.metricWriter",
    ])
    error_message = "In the project a TPU VM has its custom role, and writes logs and metrics."
  }
  assert {
    condition = toset([for grant in google_storage_bucket_iam_member.tpu : "${grant.role} on ${grant.bucket}"]) == toset([
      "roles/storage.objectViewer on demo-project-1-tpuctl-data", "roles/storage.legacyBucketReader on demo-project-1-tpuctl-data",
      "roles/storage.objectViewer on demo-project-1-tpuctl-runs", "roles/storage.objectCreator on demo-project-1-tpuctl-runs",
      "roles/storage.legacyBucketReader on demo-project-1-tpuctl-runs",
    ])
    error_message = "A TPU VM reads datasets, and reads and creates objects of runs."
  }
  assert {
    condition = { for key, grant in google_storage_bucket_iam_member.tpu : key => one(grant.condition).expression if length(grant.condition) > 0 } == {
      "runs roles/storage.objectCreator" = join(" || ", [
        "!resource.name.startsWith(\"projects/_/buckets/demo-project-1-tpuctl-runs/objects/runs/\")",
        "!(resource.name.endsWith(\"/run.json\") || resource.name.endsWith(\"/verdict.json\"))",
        "resource.name.extract(\"/objects/runs/{run}/attempts/\") != \"\"",
        "resource.name.extract(\"/objects/runs/{run}/checkpoints/\") != \"\"",
        "resource.name.extract(\"/objects/runs/{run}/outputs/\") != \"\"",
        "resource.name.extract(\"/objects/runs/{run}/tensorboard/\") != \"\"",
      ])
    }
    error_message = "A TPU VM creates no run record and no verdict of a run."
  }
  assert {
    condition     = google_project_iam_custom_role.tpu_overwrite[0].permissions == toset(["storage.objects.delete"])
    error_message = "The role for overwriting is for overwriting alone."
  }
  assert {
    condition = { for key, grant in google_storage_bucket_iam_member.tpu_overwrite : key => one(grant.condition).expression } == {
      for key, expression in {
        checkpoints = "resource.name.extract(\"/objects/runs/{run}/checkpoints/\") != \"\""
        outputs     = "resource.name.extract(\"/objects/runs/{run}/outputs/\") != \"\""
        status      = "resource.name.extract(\"/objects/runs/{run}/attempts/\") != \"\" && (resource.name.endsWith(\"/status.json\") || resource.name.endsWith(\"/barrier/decision.json\"))"
        tensorboard = "resource.name.extract(\"/objects/runs/{run}/tensorboard/\") != \"\""
      } : key => "resource.name.startsWith(\"projects/_/buckets/demo-project-1-tpuctl-runs/objects/runs/\") && ${expression}"
    }
    error_message = "A TPU VM overwrites its status, the decision of a run's hosts, and what jobs write: checkpoints, TensorBoard events, outputs."
  }
  assert {
    condition = alltrue([
      for grant in google_storage_bucket_iam_member.tpu_overwrite : grant.bucket == google_storage_bucket.this["runs"].name &&
      grant.role == google_project_iam_custom_role.tpu_overwrite[0].id && grant.member == google_service_account.tpu.member
    ])
    error_message = "Overwriting is for the TPU account, in the bucket of runs."
  }
  assert {
    condition     = alltrue([for grant in concat(values(google_project_iam_member.tpu), values(google_storage_bucket_iam_member.tpu)) : grant.member == google_service_account.tpu.member])
    error_message = "The grants of TPU VMs are for their own account."
  }
}

run "members" {
  assert {
    condition = toset([for grant in google_project_iam_member.member : "${grant.member} ${grant.role}"]) == toset([
      for pair in setproduct(var.members, ["roles/tpu.admin", "roles/serviceusage.serviceUsageConsumer", "roles/cloudquotas.viewer"]) : join(" ", pair)
    ])
    error_message = "In the project a member administers TPUs, calls APIs on its quota, and reads the quotas."
  }
  assert {
    condition = toset([for grant in google_storage_bucket_iam_member.member : "${grant.member} ${grant.role} ${grant.bucket}"]) == toset([
      for pair in setproduct(var.members, ["roles/storage.objectUser", "roles/storage.legacyBucketReader"], ["demo-project-1-tpuctl-data", "demo-project-1-tpuctl-runs"]) : join(" ", pair)
    ])
    error_message = "A member reads and writes objects of both buckets, and administers neither."
  }
  assert {
    condition = alltrue([
      for member in var.members : google_service_account_iam_member.member[member].role == "roles/iam.serviceAccountUser" &&
      google_service_account_iam_member.member[member].service_account_id == google_service_account.tpu.name
    ])
    error_message = "A member may let VMs run as the TPU account, and as no other."
  }
  assert {
    condition = alltrue([
      for member in var.members : google_iap_tunnel_iam_member.member[member].role == "roles/iap.tunnelResourceAccessor" &&
      one(google_iap_tunnel_iam_member.member[member].condition).expression == "destination.port == 22"
    ])
    error_message = "A member may tunnel to port 22, and to no other."
  }
}

run "members_read_what_ssh_depends_on" {
  assert {
    condition = (
      google_project_iam_custom_role.member.permissions == toset(["compute.firewalls.list", "compute.networks.get", "compute.projects.get"]) &&
      toset(keys(google_project_iam_member.member_reads)) == var.members &&
      alltrue([for member, grant in google_project_iam_member.member_reads : grant.role == google_project_iam_custom_role.member.id && grant.member == member])
    )
    error_message = "Members read the project's metadata and the firewall rules, and nothing else of Compute Engine."
  }
}

run "nobody" {
  variables {
    members = []
  }

  expect_failures = [check.members_are_named]

  assert {
    condition     = length(google_project_iam_member.member) + length(google_project_iam_member.member_reads) + length(google_storage_bucket_iam_member.member) + length(google_service_account_iam_member.member) + length(google_iap_tunnel_iam_member.member) == 0
    error_message = "Without members only the TPU account has grants."
  }
}

run "no_self_delete" {
  variables {
    self_delete = false
  }

  assert {
    condition     = google_project_iam_custom_role.tpu.permissions == toset(["tpu.nodes.get"])
    error_message = "Without self_delete a TPU VM can delete nothing."
  }
}

run "registry" {
  variables {
    artifact_registry = true
  }

  assert {
    condition = { for grant in google_artifact_registry_repository_iam_member.this : grant.member => grant.role } == {
      "serviceAccount:tpuctl-tpu@demo-project-1.iam.gserviceaccount.com" = "roles/artifactregistry.reader"
      "user:ada@example.com"                                             = "roles/artifactregistry.writer"
      "group:lab@example.com"                                            = "roles/artifactregistry.writer"
    }
    error_message = "TPU VMs pull images, members push them."
  }
}

run "protected_checkpoints" {
  variables {
    protection = "checkpoints"
  }

  assert {
    condition     = toset(keys(google_storage_bucket_iam_member.tpu_overwrite)) == toset(["status", "tensorboard", "outputs", "checkpoint_list", "checkpoint_list_drafts", "checkpoint_drafts"])
    error_message = "With protected checkpoints a TPU VM overwrites lists of checkpoints and drafts, and no checkpoint."
  }
}

run "no_protection" {
  variables {
    protection = "nothing"
  }

  assert {
    condition = toset([for grant in google_storage_bucket_iam_member.tpu : grant.role if grant.bucket == "demo-project-1-tpuctl-runs"]) == toset([
      "roles/storage.objectUser", "roles/storage.legacyBucketReader",
    ])
    error_message = "Without protection a TPU VM has the rights of earlier versions."
  }
  assert {
    condition     = length(google_storage_bucket_iam_member.tpu_overwrite) + length(google_project_iam_custom_role.tpu_overwrite) == 0
    error_message = "Without protection there is no role for overwriting."
  }
}

run "unset_protection" {
  variables {
    protection = null
  }

  expect_failures = [check.protection_is_chosen]

  assert {
    condition     = length(google_storage_bucket_iam_member.tpu_overwrite) == 4
    error_message = "Unset, records are protected."
  }
}
