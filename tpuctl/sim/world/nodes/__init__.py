"""Nodes of the simulated Cloud TPU."""
