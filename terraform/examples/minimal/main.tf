# The required settings: a project, a region, a zone; and its members, who are granted nothing unless they are named.

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

variable "members" {
  description = "Who uses tpuctl in this project: [\"user:ME@MY-DOMAIN\", \"group:TEAM@MY-DOMAIN\"]. Empty: nobody is granted anything."
  type        = set(string)
  default     = []
}

variable "region" {
  description = "Region of the network, the buckets and the TPUs."
  type        = string
  default     = "europe-west4"
}

variable "zone" {
  description = "Zone of the TPUs, in the region."
  type        = string
  default     = "europe-west4-a"
}

module "base" {
  source = "../.."

  project_id = var.project_id
  region     = var.region
  zone       = var.zone
  members    = var.members
  protection = "records"
}

output "tpuctl" {
  description = "For tpuctl init --from-terraform."
  value       = module.base.tpuctl
}
