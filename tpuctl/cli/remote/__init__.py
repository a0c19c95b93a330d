"""Commands that reach into the hosts of a node: shells, commands, files and ports."""
