"""What the workers of one attempt tell each other: that all are ready, and that one has ended."""
