"""The hosts of a node: reached over SSH."""
