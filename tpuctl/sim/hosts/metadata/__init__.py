"""The metadata server of a simulated host."""
