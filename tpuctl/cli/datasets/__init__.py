"""The data commands."""
