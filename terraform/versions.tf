terraform {
  # 1.9: a validation may read other variables.
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 9"
    }
    # Cloud TPU VMs are resources of the beta provider alone.
    google-beta = {
      source  = "hashicorp/google-beta"
      version = ">= 6.50, < 9"
    }
  }
}
