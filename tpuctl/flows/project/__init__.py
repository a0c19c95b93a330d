"""The project around it: what doctor checks, and what Terraform made."""
