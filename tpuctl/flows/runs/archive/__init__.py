"""Packs a run into one archive that somebody without the bucket can run."""
