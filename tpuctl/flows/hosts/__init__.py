"""The hosts of a node: reach them over SSH."""
