"""TPUs from Python: the handle of a node, its records, and how one is created."""
