"""What a script needs before it starts: code, packages, variables, a Python of the right version."""
