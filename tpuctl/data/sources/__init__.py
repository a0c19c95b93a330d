"""Sources, one file a format: what a user has on disk, read as records by index."""
