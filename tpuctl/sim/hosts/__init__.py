"""Simulated TPU hosts: an SSH server and a metadata server each; their programs are real processes.

`pool.py` starts and stops hosts, `host.py` is one that is up, `faults.py` breaks it.
"""
