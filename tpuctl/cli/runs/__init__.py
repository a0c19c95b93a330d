"""submit, logs, runs, pull."""
