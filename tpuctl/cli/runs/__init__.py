"""submit, logs, runs, pull: a command a file."""
