"""The metadata server of a simulated host: its tree, its formats, tokens and guest attributes."""
