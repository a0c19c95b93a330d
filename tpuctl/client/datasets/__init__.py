"""Datasets from Python: the handle of a dataset, its records, and how one is uploaded."""
