"""Reaches the hosts of a node over SSH."""
