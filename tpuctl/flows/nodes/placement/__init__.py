"""Finds capacity for a TPU: in which zones to look, how long, and which of several candidates stays."""
