"""The checks of doctor, and the outputs of Terraform."""
