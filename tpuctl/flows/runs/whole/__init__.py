"""From nothing to results by one command: which step of it is next, which node is its own, what is left."""
