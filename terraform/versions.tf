terraform {
  # 1.9: a validation may read other variables.
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 9"
    }
    # Only the beta provider has Cloud TPU VMs.
    google-beta = {
      source  = "hashicorp/google-beta"
      version = ">= 6.50, < 9"
    }
  }
}
