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

variable "members" {
  description = "Who uses tpuctl in this project: [\"user:ME@MY-DOMAIN\", \"group:TEAM@MY-DOMAIN\"]. Empty: nobody is granted anything."
  type        = set(string)
  default     = []
}

variable "region" {
  description = "Region of the network, the buckets and the TPUs."
  type        = string
  default     = "us-central2"
}

variable "zone" {
  description = "Zone of the TPUs, in the region."
  type        = string
  default     = "us-central2-b"
}

variable "regions" {
  description = "Other regions where TPUs may be made, each with the range of its subnetwork."
  type        = map(string)
  default     = { us-central1 = "10.20.4.0/22" }
}

variable "ssh_ranges" {
  description = "Ranges besides IAP's that reach port 22, such as a VPN's."
  type        = set(string)
  default     = []
}

variable "accelerator_type" {
  description = "Type of the TPU VM that Terraform keeps, which the zone offers."
  type        = string
  default     = "v4-8"
}

variable "watch" {
  description = "Whose preempted runs are started again, as which types of TPU, for how many US dollars an hour together, and the image with tpuctl that does it, by its digest. Unset: nobody's."
  type = object({
    owners    = set(string)
    types     = set(string)
    max_price = number
    image     = string
  })
  default = null
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
  region      = var.region
  zone        = var.zone
  name        = "vision-team"
  members     = var.members
  subnet_cidr = "10.20.0.0/22"
  regions     = var.regions
  ssh_ranges  = var.ssh_ranges
  labels      = { team = "vision" }

  bucket_names = {
    data = "${var.project_id}-pictures"
    runs = "${var.project_id}-models"
  }
  bundle_days      = 90
  log_days         = 30
  soft_delete_days = 30
  protection       = "checkpoints"
  kms_key          = "projects/${var.project_id}/locations/${var.region}/keyRings/training/cryptoKeys/buckets"

  artifact_registry = true

  budget = {
    billing_account = var.billing_account
    amount          = 2000
    currency        = "EUR"
  }

  # Cloud Run does not exist in us-central2.
  watch = var.watch == null ? null : merge(var.watch, { region = "us-central1" })

  tpu = {
    accelerator_type = var.accelerator_type
    runtime_version  = "tpu-ubuntu2204-base"
  }
}

output "tpuctl" {
  description = "For tpuctl init --from-terraform."
  value       = module.base.tpuctl
}
