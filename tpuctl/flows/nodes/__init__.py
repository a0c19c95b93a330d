"""Finds, creates and deletes TPU nodes."""
