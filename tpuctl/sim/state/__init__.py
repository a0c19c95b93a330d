"""Stores the simulator's state on disk: records and counters, private files, the folder's lock."""
