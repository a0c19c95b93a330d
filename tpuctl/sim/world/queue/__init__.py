"""Queued resources of the simulated Cloud TPU."""
