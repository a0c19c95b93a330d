"""The simulator as its clients see it: its process, control port, events and log."""
