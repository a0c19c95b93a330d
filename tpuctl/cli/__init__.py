"""The command line: parses options, calls one flow, prints one result. Only this package prints."""
