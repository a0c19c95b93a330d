"""Runs from Python: the handle of a run, its records, and how one is submitted."""
