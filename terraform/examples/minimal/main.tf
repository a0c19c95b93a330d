# The required settings: a project, a region, a zone; and its members.

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

module "base" {
  source = "../.."

  project_id = var.project_id
  region     = "europe-west4"
  zone       = "europe-west4-a"
  members    = ["user:ada@example.com"]
  protection = "records"
}

output "tpuctl" {
  description = "For tpuctl init --from-terraform."
  value       = module.base.tpuctl
}
