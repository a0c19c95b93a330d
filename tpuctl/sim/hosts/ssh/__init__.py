"""The SSH server of a simulated host."""
