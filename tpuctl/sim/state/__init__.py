"""The simulator's state on disk."""
