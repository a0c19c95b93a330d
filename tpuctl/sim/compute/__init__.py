"""The part of the Compute Engine API that TPU slices use: the metadata that a project's hosts share."""
