"""HTTP around the APIs: requests through faults, bodies in parts, URLs, what goes wrong."""
