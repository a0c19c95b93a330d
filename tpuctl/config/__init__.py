"""Configuration: layers of settings, the forms of their values, and where else values come from."""
