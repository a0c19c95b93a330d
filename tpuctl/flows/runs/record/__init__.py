"""Runs by their records: repeats one, and compares two."""
