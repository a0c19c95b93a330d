"""Copies what one listing has of a run to a folder: which objects, to which paths, whole or not at all."""
