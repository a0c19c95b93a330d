"""HTTP below the APIs: injected faults, request bodies in parts, base and signed URLs, internal errors."""
