# Two teams in one project: a base for each. Their jobs reach no bucket of the other team. Their members do, if they mean
# to: who may use TPUs and IAP in a project reaches every TPU of it, and acts as that TPU's account. And every job may read
# any TPU of the project that it can name, with its metadata and startup script. Where members must be kept apart,
# have a project for each team, and apply examples/minimal in each.

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
}

variable "project_id" {
  description = "Project to prepare."
  type        = string
}

variable "teams" {
  description = "Name of each team -> who is in it: { vision = [\"group:vision@MY-DOMAIN\"], speech = [\"group:speech@MY-DOMAIN\"] }."
  type        = map(set(string))
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
  source   = "../.."
  for_each = var.teams

  project_id = var.project_id
  region     = var.region
  zone       = var.zone
  name       = each.key
  members    = each.value
  protection = "records"

  # A TPU VM could delete those of the other team.
  self_delete = false
}

output "tpuctl" {
  description = "For tpuctl init --from-terraform: terraform output -json tpuctl | jq .vision | tpuctl init --from-terraform -"
  value       = { for team, base in module.base : team => base.tpuctl }
}
