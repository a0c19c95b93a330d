"""TPU nodes: find, create, delete."""
