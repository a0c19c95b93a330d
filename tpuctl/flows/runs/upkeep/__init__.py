"""What people do with runs that have ended: tag, note, remove."""
