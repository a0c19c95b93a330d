resource "google_artifact_registry_repository" "this" {
  count = var.artifact_registry ? 1 : 0

  project       = var.project_id
  location      = var.region
  repository_id = var.name
  format        = "DOCKER"
  description   = "Images for TPU VMs"
  labels        = local.labels

  depends_on = [google_project_service.this]
}

resource "google_artifact_registry_repository_iam_member" "this" {
  for_each = var.artifact_registry ? merge(
    { tpu = { role = "roles/artifactregistry.reader", member = google_service_account.tpu.member } },
    { for member in var.members : member => { role = "roles/artifactregistry.writer", member = member } },
  ) : {}

  project    = var.project_id
  location   = var.region
  repository = google_artifact_registry_repository.this[0].name
  role       = each.value.role
  member     = each.value.member
}
