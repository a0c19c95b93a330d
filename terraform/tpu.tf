resource "google_tpu_v2_vm" "this" {
  count    = var.tpu == null ? 0 : 1
  provider = google-beta

  project          = var.project_id
  zone             = var.zone
  name             = coalesce(var.tpu.name, var.name)
  description      = "Managed by Terraform for tpuctl"
  accelerator_type = var.tpu.accelerator_type
  runtime_version  = var.tpu.runtime_version
  labels           = local.labels

  network_config {
    network             = google_compute_network.this.id
    subnetwork          = google_compute_subnetwork.this.id
    enable_external_ips = false
  }

  scheduling_config {
    spot     = var.tpu.spot
    reserved = var.tpu.reserved
  }

  service_account {
    email = google_service_account.tpu.email
    scope = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  timeouts {
    # A slice of hundreds of hosts takes longer than the provider's default of 20 minutes.
    create = "60m"
  }

  lifecycle {
    # tpuctl writes its users' SSH keys to the metadata.
    ignore_changes = [metadata]
  }

  depends_on = [google_compute_router_nat.this, google_project_iam_member.tpu, google_storage_bucket_iam_member.tpu, google_storage_bucket_iam_member.tpu_overwrite]
}
