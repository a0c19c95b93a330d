# All options: names, a key, a budget, a registry, a long-lived TPU VM.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 9"
    }
    google-beta = {
      source  = "hashicorp/google-beta"
      version = ">= 6.50, < 9"
    }
  }

  # A team keeps its state where everybody can reach it:
  # backend "gcs" {
  #   bucket = "my-project-terraform"
  #   prefix = "tpuctl"
  # }
}

variable "project_id" {
  description = "Project to prepare."
  type        = string
}

variable "billing_account" {
  description = "Billing account of the project, for the budget."
  type        = string
}

# The budget API needs the project whose quota a user's call counts against.
provider "google" {
  billing_project       = var.project_id
  user_project_override = true
}

provider "google-beta" {
  billing_project       = var.project_id
  user_project_override = true
}

module "base" {
  source = "../.."

  project_id  = var.project_id
  region      = "us-central2"
  zone        = "us-central2-b"
  name        = "vision-team"
  subnet_cidr = "10.20.0.0/22"
  labels      = { team = "vision" }

  members = [
    "group:vision@example.com",
    "serviceAccount:trainer@${var.project_id}.iam.gserviceaccount.com",
  ]

  bucket_names = {
    data = "${var.project_id}-pictures"
    runs = "${var.project_id}-models"
  }
  bundle_days      = 90
  log_days         = 30
  soft_delete_days = 30
  protection       = "checkpoints"
  kms_key          = "projects/${var.project_id}/locations/us-central2/keyRings/training/cryptoKeys/buckets"

  artifact_registry = true

  budget = {
    billing_account = var.billing_account
    amount          = 2000
    currency        = "EUR"
  }

  # Cloud Run does not exist in us-central2.
  watch = {
    owners  = ["ada@example.com"]
    package = "https://example.com/tpuctl-1.0.0.tar.gz"
    region  = "us-central1"
  }

  tpu = {
    accelerator_type = "v4-8"
    runtime_version  = "tpu-ubuntu2204-base"
  }
}

output "tpuctl" {
  description = "For tpuctl init --from-terraform."
  value       = module.base.tpuctl
}
