"""Commands for runs that have ended: tag, note, rm, runs gc."""
