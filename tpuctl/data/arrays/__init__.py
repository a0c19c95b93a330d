"""Arrays: their fields and names, and arrays as a source."""
