"""Resumes a run after a reboot of its hosts, with nobody watching: docs/runs.md."""
