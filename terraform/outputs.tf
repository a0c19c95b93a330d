output "tpuctl" {
  description = "All settings that tpuctl needs, as one object with a schema number, for tpuctl init --from-terraform."
  value = {
    schema          = 1
    project         = var.project_id
    region          = var.region
    zone            = var.zone
    network         = google_compute_network.this.name
    subnetwork      = google_compute_subnetwork.this.name
    subnetworks     = local.subnetworks
    external_ips    = false
    service_account = google_service_account.tpu.email
    buckets         = { for key, bucket in google_storage_bucket.this : key => "gs://${bucket.name}" }
    registry        = one([for repository in google_artifact_registry_repository.this : "${repository.location}-docker.pkg.dev/${repository.project}/${repository.repository_id}"])
    tpu             = one(google_tpu_v2_vm.this[*].name)
  }

  # Whoever reads the output can use all resources at once.
  depends_on = [
    google_compute_firewall.between_hosts,
    google_compute_firewall.ssh_from_ranges,
    google_compute_firewall.ssh_through_iap,
    google_compute_router_nat.other,
    google_compute_router_nat.this,
    google_iap_tunnel_iam_member.member,
    google_project_iam_member.member,
    google_project_iam_member.member_reads,
    google_project_iam_member.tpu,
    google_service_account_iam_member.member,
    google_storage_bucket_iam_member.member,
    google_storage_bucket_iam_member.tpu,
    google_storage_bucket_iam_member.tpu_overwrite,
  ]
}
