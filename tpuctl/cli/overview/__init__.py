"""The commands ls, describe and why."""
