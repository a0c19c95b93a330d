# Two teams in one project whose jobs cannot reach each other's runs: a base for each.

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

module "base" {
  source   = "../.."
  for_each = { vision = ["group:vision@example.com"], speech = ["group:speech@example.com"] }

  project_id = var.project_id
  region     = "europe-west4"
  zone       = "europe-west4-a"
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
