"""Reads sounds: WAV by its own header, FLAC by libsndfile."""
