"""Reaches into the hosts of a node for the user: shells, commands, files and ports."""
