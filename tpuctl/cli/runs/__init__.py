"""The commands submit, logs, runs and pull."""
