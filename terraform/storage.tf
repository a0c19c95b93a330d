locals {
  prefix = "${replace(var.project_id, "/[.:]/", "-")}-${var.name}"

  buckets = {
    data = coalesce(var.bucket_names.data, "${local.prefix}-data")
    runs = coalesce(var.bucket_names.runs, "${local.prefix}-runs")
  }

  # Names of tpuctl's objects: bundles/SHA256.tar.gz and runs/RUN/attempts/K/log/TIME-WORKER-000001.log. A rule
  # knows how a name begins and ends, not what is between: it takes runs/RUN/outputs/mine.log as well.
  expiring = {
    data = []
    runs = [
      for rule in [
        { days = var.bundle_days, prefix = "bundles/", suffix = ".tar.gz" },
        { days = var.log_days, prefix = "runs/", suffix = ".log" },
      ] : rule if rule.days > 0
    ]
  }
}

resource "google_storage_bucket" "this" {
  for_each = local.buckets

  project       = var.project_id
  name          = each.value
  location      = var.region
  storage_class = "STANDARD"
  labels        = local.labels
  force_destroy = var.delete_buckets_with_content

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }

  dynamic "lifecycle_rule" {
    for_each = local.expiring[each.key]

    content {
      action {
        type = "Delete"
      }
      condition {
        age            = lifecycle_rule.value.days
        matches_prefix = [lifecycle_rule.value.prefix]
        matches_suffix = [lifecycle_rule.value.suffix]
      }
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]

    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.this, google_kms_crypto_key_iam_member.storage]
}

data "google_storage_project_service_account" "this" {
  count = var.kms_key == null ? 0 : 1

  project    = var.project_id
  depends_on = [google_project_service.this]
}

resource "google_kms_crypto_key_iam_member" "storage" {
  count = var.kms_key == null ? 0 : 1

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = data.google_storage_project_service_account.this[0].member
}
