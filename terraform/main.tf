locals {
  labels = merge(var.labels, { managed-by = "terraform", tpuctl-base = var.name })

  apis = toset(concat(
    [
      "cloudbilling.googleapis.com", # prices
      "cloudquotas.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "compute.googleapis.com",
      "iam.googleapis.com",
      "iap.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
      "storage.googleapis.com",
      "tpu.googleapis.com",
    ],
    var.artifact_registry ? ["artifactregistry.googleapis.com"] : [],
    var.budget == null ? [] : ["billingbudgets.googleapis.com"],
    var.kms_key == null ? [] : ["cloudkms.googleapis.com"],
    var.watch == null ? [] : ["cloudscheduler.googleapis.com", "run.googleapis.com"],
  ))
}

resource "google_project_service" "this" {
  for_each = local.apis

  project = var.project_id
  service = each.key

  # Others in the project may use the API too.
  disable_on_destroy = false
}
