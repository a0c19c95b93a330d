"""The merged logs of a run: reading, selecting, following."""
