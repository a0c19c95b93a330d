"""Simulates the part of the Compute Engine API that TPU slices use: metadata of a project."""
