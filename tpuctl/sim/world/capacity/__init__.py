"""What the zones of the simulated Cloud TPU offer, and how much of it is left."""
