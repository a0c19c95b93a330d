"""The simulated Cloud Storage and a peer."""
