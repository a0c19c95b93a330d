"""As much of the Compute Engine API as a TPU slice touches: the metadata that a project's hosts share."""
