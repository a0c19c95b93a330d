# Values that Google would choose and whose form the provider checks: without these the mocks are random words.

mock_data "google_project" {
  defaults = { number = "123456789012" }
}

mock_data "google_storage_project_service_account" {
  defaults = { member = "serviceAccount:service-123456789012@gs-project-accounts.iam.gserviceaccount.com" }
}

mock_resource "google_service_account" {
  defaults = {
    name   = "projects/demo-project-1/serviceAccounts/tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
    email  = "tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
    member = "serviceAccount:tpuctl-tpu@demo-project-1.iam.gserviceaccount.com"
  }
}

mock_resource "google_project_iam_custom_role" {
  defaults = { id = "projects/demo-project-1/roles/tpuctl_tpu" }
}
