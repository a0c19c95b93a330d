"""Records of how a run is restarted: the machine to make, how often, and who is at work on it."""
