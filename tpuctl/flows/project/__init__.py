"""Checks a project for `tpuctl doctor`, and reads Terraform's outputs."""
