"""Uploads, lists, checks and removes datasets; fetches public ones."""
