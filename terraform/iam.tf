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
    # The dead-man switch: an abandoned VM deletes its node.
    var.self_delete ? ["tpu.nodes.delete", "tpu.operations.get"] : [],
  )

  tpu_bucket_roles = {
    data = ["roles/storage.objectViewer", "roles/storage.legacyBucketReader"]
    runs = ["roles/storage.objectUser", "roles/storage.legacyBucketReader"]
  }

  member_bucket_roles = {
    data = ["roles/storage.objectUser", "roles/storage.legacyBucketReader"]
    runs = ["roles/storage.objectUser", "roles/storage.legacyBucketReader"]
  }

  member_project_roles = ["roles/tpu.admin", "roles/serviceusage.serviceUsageConsumer"]
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
}

# --- rights of members

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
