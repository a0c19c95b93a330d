"""The commands init, config and doctor."""
