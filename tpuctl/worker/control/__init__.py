"""What a supervisor is told while it runs: to stop, and whose turn it is."""
