"""Files on this machine whose names or links come from elsewhere."""
