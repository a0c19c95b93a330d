"""Reads the code of a run on this machine: files, modules, syntax, git state."""
