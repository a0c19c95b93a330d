"""Programs on a simulated host: how they start, what they inherit, how they end."""
