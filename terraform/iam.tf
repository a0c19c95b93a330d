# Every grant is additive (..._iam_member): other grants in the project stay.

# --- rights of TPU VMs

resource "google_service_account" "tpu" {
  project      = var.project_id
  account_id   = "${var.name}-tpu"
  display_name = "TPU VMs of ${var.name}"

  depends_on = [google_project_service.this]
}

locals {
  tpu_permissions = concat(
    # TensorFlow on a slice looks up its hosts in the API.
    ["tpu.nodes.get"],
    # tpuctl's keeper deletes its node. Google publishes no permission for queued resources to list here.
    var.self_delete ? ["tpu.nodes.delete", "tpu.operations.get"] : [],
  )

  protection = coalesce(var.protection, "records")

  tpu_bucket_roles = {
    data = ["roles/storage.objectViewer", "roles/storage.legacyBucketReader"]
    runs = concat(
      local.protection == "nothing" ? ["roles/storage.objectUser"] : ["roles/storage.objectViewer", "roles/storage.objectCreator"],
      ["roles/storage.legacyBucketReader"],
    )
  }

  # A watcher carries out what runs/RUN/run.json and runs/RUN/verdict.json say, so that no job may create them. Files
  # of these names remain possible in the folders that tpuctl gives to a run's hosts and its program.
  # extract is empty where its template does not occur: cloud.google.com/iam/docs/conditions-attribute-reference#extract.
  # A condition has 12 logical operators at most (cloud.google.com/iam/quotas); this one has 8.
  run_folders = ["attempts", "checkpoints", "outputs", "tensorboard"]
  no_records = join(" || ", concat(
    [
      "!resource.name.startsWith(\"projects/_/buckets/${local.buckets.runs}/objects/runs/\")",
      "!(resource.name.endsWith(\"/run.json\") || resource.name.endsWith(\"/verdict.json\"))",
    ],
    [for folder in local.run_folders : "resource.name.extract(\"/objects/runs/{run}/${folder}/\") != \"\""],
  ))

  # Names of tpuctl's objects: runs/RUN/checkpoints/ and so on; the status is a worker's heartbeat, the decision
  # that by which hosts start and end together. TensorFlow writes a checkpoint and its list of checkpoints
  # ("checkpoint") by way of temporary files that it deletes.
  tpu_overwrites = {
    nothing     = []
    records     = ["status", "tensorboard", "outputs", "checkpoints"]
    checkpoints = ["status", "tensorboard", "outputs", "checkpoint_list", "checkpoint_list_drafts", "checkpoint_drafts"]
  }

  in_checkpoints = "resource.name.extract(\"/objects/runs/{run}/checkpoints/\") != \"\""
  overwrite_conditions = {
    status                 = "resource.name.extract(\"/objects/runs/{run}/attempts/\") != \"\" && (resource.name.endsWith(\"/status.json\") || resource.name.endsWith(\"/barrier/decision.json\"))"
    tensorboard            = "resource.name.extract(\"/objects/runs/{run}/tensorboard/\") != \"\""
    outputs                = "resource.name.extract(\"/objects/runs/{run}/outputs/\") != \"\""
    checkpoints            = local.in_checkpoints
    checkpoint_list        = "${local.in_checkpoints} && resource.name.endsWith(\"/checkpoint\")"
    checkpoint_list_drafts = "${local.in_checkpoints} && resource.name.extract(\"/checkpoint.tmp{draft}\") != \"\""
    checkpoint_drafts      = "${local.in_checkpoints} && resource.name.extract(\"/checkpoints/{checkpoint}_temp/\") != \"\""
  }

  member_bucket_roles = {
    data = ["roles/storage.objectUser", "roles/storage.legacyBucketReader"]
    runs = ["roles/storage.objectUser", "roles/storage.legacyBucketReader"]
  }

  member_project_roles = ["roles/tpu.admin", "roles/serviceusage.serviceUsageConsumer", "roles/cloudquotas.viewer"]
}

resource "google_project_iam_custom_role" "tpu" {
  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_tpu"
  title       = "TPU VM of ${var.name}"
  description = "Lets a TPU VM look itself up and, if abandoned, delete itself"
  permissions = local.tpu_permissions

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "tpu" {
  for_each = {
    self    = google_project_iam_custom_role.tpu.id
    logs    = "roles/logging.logWriter"
    metrics = "roles/monitoring.metricWriter"
  }

  project = var.project_id
  role    = each.value
  member  = google_service_account.tpu.member
}

resource "google_storage_bucket_iam_member" "tpu" {
  for_each = {
    for grant in flatten([
      for bucket, roles in local.tpu_bucket_roles : [for role in roles : { bucket = bucket, role = role }]
    ]) : "${grant.bucket} ${grant.role}" => grant
  }

  bucket = google_storage_bucket.this[each.value.bucket].name
  role   = each.value.role
  member = google_service_account.tpu.member

  dynamic "condition" {
    for_each = each.value.role == "roles/storage.objectCreator" ? [local.no_records] : []

    content {
      title      = "runs: no run records"
      expression = condition.value
    }
  }
}

# Overwriting an object needs the right to delete it.
resource "google_project_iam_custom_role" "tpu_overwrite" {
  count = local.protection == "nothing" ? 0 : 1

  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_tpu_overwrite"
  title       = "TPU VM of ${var.name}: overwrite"
  description = "Lets a TPU VM overwrite and delete the objects that a condition names"
  permissions = ["storage.objects.delete"]

  depends_on = [google_project_service.this]
}

resource "google_storage_bucket_iam_member" "tpu_overwrite" {
  for_each = toset(local.tpu_overwrites[local.protection])

  bucket = google_storage_bucket.this["runs"].name
  role   = google_project_iam_custom_role.tpu_overwrite[0].id
  member = google_service_account.tpu.member

  condition {
    title      = "runs: ${replace(each.key, "_", " ")}"
    expression = "resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.this["runs"].name}/objects/runs/\") && ${local.overwrite_conditions[each.key]}"
  }
}

check "protection_is_chosen" {
  assert {
    condition     = var.protection != null
    error_message = "protection is not set: TPU VMs may overwrite and delete checkpoints, TensorBoard events and outputs of runs, and no longer run records, logs, bundles or objects outside of runs/. Set protection to \"records\" to accept this, to \"checkpoints\" to protect complete checkpoints too, or to \"nothing\" for the rights of earlier versions of this module."
  }
}

# --- rights of members

check "members_are_named" {
  assert {
    condition     = length(var.members) > 0
    error_message = "members is empty: nobody is granted the use of TPUs, buckets and SSH, not even you who apply this. Name yourself: members = [\"user:ME@MY-DOMAIN\"]."
  }
}

resource "google_project_iam_member" "member" {
  for_each = {
    for grant in setproduct(var.members, local.member_project_roles) :
    "${grant[0]} ${grant[1]}" => { member = grant[0], role = grant[1] }
  }

  project = var.project_id
  role    = each.value.role
  member  = each.value.member

  depends_on = [google_project_service.this]
}

# Stock gcloud's ssh and tpuctl read the project's metadata (OS Login), tpuctl doctor the firewall rules.
resource "google_project_iam_custom_role" "member" {
  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_member"
  title       = "Member of ${var.name}"
  description = "Lets a member read what SSH to TPU VMs depends on"
  permissions = ["compute.firewalls.list", "compute.networks.get", "compute.projects.get"]

  depends_on = [google_project_service.this]
}

resource "google_project_iam_member" "member_reads" {
  for_each = var.members

  project = var.project_id
  role    = google_project_iam_custom_role.member.id
  member  = each.key
}

# Without this grant nobody can create a VM that runs as the account.
resource "google_service_account_iam_member" "member" {
  for_each = var.members

  service_account_id = google_service_account.tpu.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.key
}

resource "google_storage_bucket_iam_member" "member" {
  for_each = {
    for grant in setproduct(var.members, flatten([
      for bucket, roles in local.member_bucket_roles : [for role in roles : { bucket = bucket, role = role }]
    ])) : "${grant[0]} ${grant[1].bucket} ${grant[1].role}" => merge(grant[1], { member = grant[0] })
  }

  bucket = google_storage_bucket.this[each.value.bucket].name
  role   = each.value.role
  member = each.value.member
}

resource "google_iap_tunnel_iam_member" "member" {
  for_each = var.members

  project = var.project_id
  role    = "roles/iap.tunnelResourceAccessor"
  member  = each.key

  condition {
    title      = "SSH only"
    expression = "destination.port == 22"
  }

  depends_on = [google_project_service.this]
}
