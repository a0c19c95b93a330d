"""The commands zones, types, runtimes and price."""
