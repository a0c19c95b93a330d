"""The command line: options in, one flow called, one result shown; the only prints of the package."""
