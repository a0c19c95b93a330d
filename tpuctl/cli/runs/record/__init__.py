"""Commands about the record of a run: what made its result."""
