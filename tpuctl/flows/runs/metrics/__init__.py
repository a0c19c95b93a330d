"""The last values of what a run reports while it trains."""
