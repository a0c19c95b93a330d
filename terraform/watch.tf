# One Cloud Run job for each owner of runs: a step of `tpuctl watch`, started by a schedule.

locals {
  watch_owners = toset(var.watch == null ? [] : var.watch.owners)
  watch_region = try(coalesce(var.watch.region), var.region)
  watch_names  = { for owner in local.watch_owners : owner => "${var.name}-watch-${substr(sha256(owner), 0, 8)}" }

  watch_environment = var.watch == null ? {} : merge(
    {
      TPUCTL_TARGET      = "gcp"
      TPUCTL_PROJECT     = var.project_id
      TPUCTL_ZONE        = var.zone
      TPUCTL_BUCKET      = google_storage_bucket.this["runs"].name
      TPUCTL_DATA_BUCKET = google_storage_bucket.this["data"].name
      TPUCTL_IAP         = "true"
      TPUCTL_SSH_USER    = "tpuctl"

      # Whoever writes to the bucket asks for machines; what they are, and may cost, is said here.
      TPUCTL_WATCH_TYPES     = join(",", var.watch.types)
      TPUCTL_WATCH_ZONES     = join(",", var.watch.zones == null ? [var.zone] : var.watch.zones)
      TPUCTL_SERVICE_ACCOUNT = google_service_account.tpu.email
      TPUCTL_NETWORK         = google_compute_network.this.name
      TPUCTL_SUBNETWORKS     = join(",", [for region, name in local.subnetworks : "${region}=${name}"])
      TPUCTL_EXTERNAL_IPS    = "false"
    },
    var.watch.max_price == null ? {} : { TPUCTL_WATCH_MAX_PRICE = format("%.2f", var.watch.max_price) },
  )

  # What a step overwrites: who starts an attempt now, how a run ended, and what it has left. Files of a program below
  # outputs/ may have these names, too.
  not_in_folders = join(" && ", [for folder in local.run_folders : "resource.name.extract(\"/objects/runs/{run}/${folder}/\") == \"\""])
  watch_overwrites = {
    leases   = "resource.name.extract(\"/objects/runs/{run}/attempts/\") != \"\" && resource.name.endsWith(\"/lease.json\")"
    verdicts = "resource.name.endsWith(\"/verdict.json\") && ${local.not_in_folders}"
    results  = "resource.name.endsWith(\"/results.json\") && ${local.not_in_folders}"
  }
}

resource "google_service_account" "watch" {
  count = var.watch == null ? 0 : 1

  project      = var.project_id
  account_id   = "${var.name}-watch"
  display_name = "tpuctl watch of ${var.name}"

  depends_on = [google_project_service.this]
}

# It makes, finds and deletes TPUs, queued resources included, for which Google publishes no single permissions.
resource "google_project_iam_member" "watch" {
  count = var.watch == null ? 0 : 1

  project = var.project_id
  role    = "roles/tpu.admin"
  member  = google_service_account.watch[0].member
}

# The TPU runs as the TPU account.
resource "google_service_account_iam_member" "watch" {
  count = var.watch == null ? 0 : 1

  service_account_id = google_service_account.tpu.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.watch[0].member
}

# The script is started over SSH.
resource "google_iap_tunnel_iam_member" "watch" {
  count = var.watch == null ? 0 : 1

  project = var.project_id
  role    = "roles/iap.tunnelResourceAccessor"
  member  = google_service_account.watch[0].member

  condition {
    title      = "SSH only"
    expression = "destination.port == 22"
  }

  depends_on = [google_project_service.this]
}

# Runs are read; attempts, leases, verdicts and results are created once. Datasets are not for it.
resource "google_storage_bucket_iam_member" "watch" {
  for_each = toset(var.watch == null ? [] : ["roles/storage.objectViewer", "roles/storage.objectCreator"])

  bucket = google_storage_bucket.this["runs"].name
  role   = each.key
  member = google_service_account.watch[0].member
}

resource "google_project_iam_custom_role" "watch_overwrite" {
  count = var.watch == null ? 0 : 1

  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_watch_overwrite"
  title       = "tpuctl watch of ${var.name}: overwrite"
  description = "Lets tpuctl watch overwrite the objects that a condition names"
  permissions = ["storage.objects.delete"]

  depends_on = [google_project_service.this]
}

resource "google_storage_bucket_iam_member" "watch_overwrite" {
  for_each = var.watch == null ? {} : local.watch_overwrites

  bucket = google_storage_bucket.this["runs"].name
  role   = google_project_iam_custom_role.watch_overwrite[0].id
  member = google_service_account.watch[0].member

  condition {
    title      = "watch: ${each.key}"
    expression = "resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.this["runs"].name}/objects/runs/\") && ${each.value}"
  }
}

resource "google_cloud_run_v2_job" "watch" {
  for_each = local.watch_owners

  project             = var.project_id
  location            = local.watch_region
  name                = local.watch_names[each.key]
  labels              = local.labels
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.watch[0].email
      # A step may wait for a queue and for hosts that boot. The next one goes on where it was ended.
      timeout     = "3600s"
      max_retries = 0

      containers {
        image   = var.watch.image
        command = ["tpuctl"]
        args    = ["watch", "--all", "--once"]

        dynamic "env" {
          for_each = merge(local.watch_environment, { TPUCTL_OWNER = each.key })

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = { cpu = "1", memory = "1Gi" }
        }
      }
    }
  }

  depends_on = [
    google_iap_tunnel_iam_member.watch,
    google_project_iam_member.watch,
    google_service_account_iam_member.watch,
    google_storage_bucket_iam_member.watch,
    google_storage_bucket_iam_member.watch_overwrite,
  ]
}

# What starts the job may start it, and nothing else.
resource "google_service_account" "watch_trigger" {
  count = var.watch == null ? 0 : 1

  project      = var.project_id
  account_id   = "${var.name}-trigger"
  display_name = "Starts tpuctl watch of ${var.name}"

  depends_on = [google_project_service.this]
}

resource "google_cloud_run_v2_job_iam_member" "watch_trigger" {
  for_each = local.watch_owners

  project  = var.project_id
  location = google_cloud_run_v2_job.watch[each.key].location
  name     = google_cloud_run_v2_job.watch[each.key].name
  role     = "roles/run.invoker"
  member   = google_service_account.watch_trigger[0].member
}

resource "google_cloud_scheduler_job" "watch" {
  for_each = local.watch_owners

  project          = var.project_id
  region           = local.watch_region
  name             = local.watch_names[each.key]
  description      = "Starts a step of tpuctl watch"
  schedule         = var.watch.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "60s"

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/projects/${var.project_id}/locations/${local.watch_region}/jobs/${local.watch_names[each.key]}:run"

    oauth_token {
      service_account_email = google_service_account.watch_trigger[0].email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }

  depends_on = [google_cloud_run_v2_job_iam_member.watch_trigger]
}
