"""TPUs: found, created, deleted."""
