"""Reads which checkpoints of a run are complete, each format by the rule of the library that writes it."""
