"""The rules for requests: names, fields, patterns and preconditions. No state, no HTTP."""
