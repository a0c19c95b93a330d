"""Simulated TPU hosts: an SSH server and a metadata server each; their programs are real processes."""
