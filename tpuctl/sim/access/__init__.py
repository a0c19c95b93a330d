"""Who may talk to the simulator: its own user, and nobody's web page."""
