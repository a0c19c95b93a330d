"""The sim commands."""
